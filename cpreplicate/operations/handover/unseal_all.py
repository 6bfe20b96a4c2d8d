"""`unseal --all`: take back what `promote --all` sealed, where no job has started."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from cpreplicate.errors import NotThere, described, exit_code_of
from cpreplicate.operations.change.log_context import begin_job
from cpreplicate.operations.handover.promote_all import AT_ONCE, SOME_FAILED, is_included, name_of
from cpreplicate.operations.handover.unseal import UnsealRequest, unseal
from cpreplicate.operations.replicas.replicas import ReplicaRef
from cpreplicate.operations.replicas.status import status
from cpreplicate.protocol import seal
from cpreplicate.protocol.replica import Replica
from cpreplicate.storage import Side, Sides


@dataclass(frozen=True)
class UnsealAllRequest:
    """Which replicas are unsealed: those whose jobs have a name that matches `include`, if any.

    Those that were sealed before `sealed_after`, in seconds since the epoch by the storage's clock,
    are left: jobs may run from them since an earlier switch. With `dry_run` nothing is changed.
    """

    replicas: tuple[ReplicaRef, ...]
    sealed_after: float
    include: tuple[str, ...] = ()
    dry_run: bool = False
    side: Side = field(default=Side())


@dataclass(frozen=True)
class JobUnsealing:
    """A sealed replica, by whom it was sealed, and why that could not be taken back, if so."""

    name: str
    replica: str
    sealed: str
    exit_code: int = 0
    error: str | None = None


@dataclass(frozen=True)
class UnsealingOfAll:
    """What became of each sealed replica, those that stay sealed first.

    `earlier` are those that were sealed before the time that was given, and were left.
    """

    jobs: tuple[JobUnsealing, ...]
    earlier: tuple[JobUnsealing, ...] = ()
    is_dry_run: bool = False

    @property
    def exit_code(self) -> int:
        """0 if every one was unsealed, else 3."""
        return SOME_FAILED if any(job.exit_code for job in self.jobs) else 0


def unseal_all(request: UnsealAllRequest) -> UnsealingOfAll:
    """Remove the seals of replicas into which no job writes. What fails is in its result.

    Raises `NotThere` if no replica of such a name is sealed.
    """
    rows = status(request.replicas, Sides(target=request.side), with_source=False).replicas
    sealed = [
        JobUnsealing(name_of(row), row.observed.replica, row.sealed)
        for row in rows
        if row.sealed is not None and is_included(row, request.include)
    ]
    if not sealed:
        raise NotThere("no replica of such a job is sealed. Nothing was done")
    with ThreadPoolExecutor(AT_ONCE, "unseal") as pool:
        times = list(pool.map(lambda job: _sealed_at(job, request.side), sealed))
        late = _since(sealed, times, request.sealed_after)
        done = list(pool.map(lambda job: _unsealed(job, request), late))
    done.sort(key=lambda job: (not job.exit_code, job.name))
    earlier = tuple(job for job in sealed if job not in late)
    return UnsealingOfAll(tuple(done), earlier, request.dry_run)


def _since(
    jobs: Sequence[JobUnsealing], times: Sequence[float], since: float
) -> list[JobUnsealing]:
    return [job for job, time in zip(jobs, times, strict=True) if time >= since]


def _sealed_at(job: JobUnsealing, side: Side) -> float:
    made = seal.read(Replica(job.replica, side))
    return 0.0 if made is None else made.modified


def _unsealed(job: JobUnsealing, request: UnsealAllRequest) -> JobUnsealing:
    begin_job(job.name)
    try:
        unseal(UnsealRequest(job.replica, None, request.side, request.dry_run))
    except Exception as error:  # noqa: BLE001  # it concerns this job only
        text = " ".join(described(error).split())
        return replace(job, exit_code=exit_code_of(error), error=text)
    return job
