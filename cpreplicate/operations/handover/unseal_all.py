"""`unseal --all`: take back what `promote --all` sealed, where no job has started."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Literal

from cpreplicate.core.log_context import begin_job
from cpreplicate.errors import NotThere
from cpreplicate.operations.change.job_result import JobResult, JobResults, failed
from cpreplicate.operations.handover.promote_all import AT_ONCE, is_included, name_of
from cpreplicate.operations.handover.unseal import UnsealRequest, unseal
from cpreplicate.operations.replicas.replicas import ReplicaRef
from cpreplicate.operations.replicas.status import status
from cpreplicate.protocol import seal
from cpreplicate.protocol.replica import Replica
from cpreplicate.storage import Side, Sides
from cpreplicate.storage.waiting.admission import admitted

UnsealingOutcome = Literal["unsealed", "can be unsealed", "stays sealed"]


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
class JobUnsealing(JobResult[UnsealingOutcome]):
    """What became of a sealed replica; `sealed` is by whom it was sealed, and when."""

    replica: str
    sealed: str

    @property
    def own(self) -> tuple[str, ...]:
        return self.name, self.replica


@dataclass(frozen=True)
class UnsealingOfAll(JobResults[JobUnsealing]):
    """What became of each sealed replica, those that stay sealed first.

    `earlier` are those that were sealed before the time that was given, and were left.
    """

    earlier: tuple[JobUnsealing, ...] = ()
    is_dry_run: bool = False


def unseal_all(request: UnsealAllRequest) -> UnsealingOfAll:
    """Remove the seals of replicas into which no job writes. What fails is in its result.

    Raises `NotThere` if no replica of such a name is sealed.
    """
    rows = status(request.replicas, Sides(target=request.side), with_source=False).replicas
    sealed = [
        JobUnsealing(name_of(row), "stays sealed", row.observed.replica, row.sealed)
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
        with admitted():
            unseal(UnsealRequest(job.replica, None, request.side, request.dry_run))
    except Exception as error:  # noqa: BLE001  # it concerns this job only
        return failed(job, "stays sealed", error)
    return replace(job, outcome="can be unsealed" if request.dry_run else "unsealed")
