"""`promote --all`: hand the replicas of all jobs over, on the day their data centre is lost."""

from __future__ import annotations

import fnmatch
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, cast

from cpreplicate.core.log_context import begin_job
from cpreplicate.core.notify import Notify, named
from cpreplicate.core.sizes import counted
from cpreplicate.errors import CpreplicateError, Lagging, LeaseHeld, NotAtKafka, NotThere
from cpreplicate.operations.change.job_result import JobResult, JobResults, failed
from cpreplicate.operations.handover.promote import PromoteRequest, Promotion, promote
from cpreplicate.operations.kafka.check import KafkaAsked, KafkaCheck, ListedOnce
from cpreplicate.operations.replicas.lives import Named
from cpreplicate.operations.replicas.replica_status import FleetStatus, ReplicaStatus
from cpreplicate.operations.replicas.replicas import ReplicaRef
from cpreplicate.operations.replicas.selection import newest_of_name
from cpreplicate.operations.replicas.source_look import SourceLook, SourceSeen, checkpoints_of
from cpreplicate.operations.replicas.status import status
from cpreplicate.storage import Sides
from cpreplicate.storage.waiting.admission import admitted

if TYPE_CHECKING:
    from cpreplicate.flink import FlinkRest

PromotionOutcome = Literal[
    "promoted", "sealed before", "can be promoted", "not taken", "lagging", "failed"
]

AT_ONCE = 16  # replicas: most of the time each waits for a storage
_SHOWN = 10  # names of jobs in a message
_WAITING_AT_ONCE = 200  # for leases of other runs
_NOT_RESTORABLE = 4


@dataclass(frozen=True)
class PromoteAllRequest:
    """Which replicas are promoted: those whose jobs have a name that matches `include`, if any.

    A job without a name has its id, which also chooses one of several of a name. A replica whose
    source is seen to be ahead by more than `max_lag` seconds is left as it is, unless it was
    promoted before. If the source does not answer, one that is that much older than the newest of
    all is listed first, or with `skip_lagging` left as it is, too. With `kafka`, of each replica
    the newest checkpoint is promoted that its job can go on from there, and `with_files`, part
    files are looked for, as of `PromoteRequest`. A replica whose source
    holds no checkpoint any more fails without `allow_older`: then `clusters` are asked, as of
    `PromoteRequest`. With `dry_run` nothing is changed.
    """

    replicas: tuple[ReplicaRef, ...]
    include: tuple[str, ...] = ()
    max_lag: float | None = None
    skip_lagging: bool = False
    dry_run: bool = False
    lock_wait: float = 0.0
    sides: Sides = field(default=Sides())
    kafka: KafkaAsked | None = None
    with_files: bool = False
    not_read: tuple[str, ...] = ()
    allow_older: bool = False
    clusters: tuple[FlinkRest, ...] = ()


@dataclass(frozen=True)
class JobPromotion(JobResult[PromotionOutcome]):
    """What became of the replica of one job.

    `lag` is in seconds behind the source, as of `status`; None if that is not known, and then
    `behind_newest` counts, by how many seconds its newest checkpoint is older than the newest one
    of all replicas; None if it has no checkpoint. `seen` is what was asked of the source. `why` is
    why this replica was taken, or not, if the job has several. `not_at_kafka` has what is in the
    way at a Kafka, if that made it fail.
    """

    replica: str
    lag: float | None = None
    behind_newest: float | None = None
    seen: SourceSeen | None = None
    is_lagging: bool = False
    why: str | None = None
    promotion: Promotion | None = None
    not_at_kafka: KafkaCheck | None = None

    @property
    def own(self) -> tuple[str, ...]:
        source = None if self.seen is None else self.seen.source
        return self.name, self.replica, source or ""

    @property
    def is_taken(self) -> bool:
        """Whether this replica is, or would be, promoted for its job, unless it fails."""
        return self.outcome not in ("not taken", "lagging", "failed")


@dataclass(frozen=True)
class PromotionOfAll(JobResults[JobPromotion]):
    """What became of each replica: those that failed first, then those that lag."""

    seconds: float


def candidates(request: PromoteAllRequest) -> list[JobPromotion]:
    """Return the replica of each job as it would be promoted, and those that cannot be.

    Of a name, whose job restarted, it is the one with the newest checkpoint; the others are among
    them as not taken. Sources are asked for seconds only: they may be lost. Nothing is changed.
    Raises `NotThere` if there is no replica of such a name.
    """
    found = status(request.replicas, request.sides, is_urgent=True)
    chosen = [
        candidate
        for name, group in _by_name(
            row for row in found.replicas if is_included(row, request.include)
        ).items()
        for candidate in _of_name(name, group, request)
    ]
    if not chosen:
        raise _no_replica(request.include, found)
    return _with_lags(chosen, found, request)


def promote_all(
    jobs: Sequence[JobPromotion], request: PromoteAllRequest, notify: Notify
) -> PromotionOfAll:
    """Promote the replicas that `candidates` returned, many at the same time.

    What fails for one of them is in its result. Those whose lease is held are waited for when all
    others are done. Raises `Transient` and `Refused` before anything is changed if a Kafka is to be
    asked and does not answer.
    """
    started = time.monotonic()
    if request.kafka is not None:
        kafka = replace(request.kafka, cluster=ListedOnce(request.kafka.cluster))
        request = replace(request, kafka=kafka)
    at_once = request if request.dry_run else replace(request, lock_wait=0.0)
    done = _each(jobs, at_once, notify, AT_ONCE)
    held = [job for job in done if job.exit_code == LeaseHeld.exit_code]
    if held and request.lock_wait:
        in_use = counted(len(held), "replica is", "replicas are")
        notify(f"{in_use} in use: waiting {request.lock_wait:g} s at most")
        again = {job.replica: job for job in jobs}
        waited = [again[job.replica] for job in held]
        late = {job.replica: job for job in _each(waited, request, notify, _WAITING_AT_ONCE)}
        done = [late.get(job.replica, job) for job in done]
    return PromotionOfAll(tuple(sorted(done, key=_worst_first)), time.monotonic() - started)


def _each(
    jobs: Sequence[JobPromotion], request: PromoteAllRequest, notify: Notify, at_once: int
) -> list[JobPromotion]:
    with ThreadPoolExecutor(min(at_once, max(1, len(jobs))), "promote") as pool:
        return list(pool.map(lambda job: _admitted(job, request, notify), jobs))


def _admitted(job: JobPromotion, request: PromoteAllRequest, notify: Notify) -> JobPromotion:
    with admitted():
        return _promoted(job, request, notify)


def _promoted(job: JobPromotion, request: PromoteAllRequest, notify: Notify) -> JobPromotion:
    """Promote a replica, if it is to be, and return what came of it."""
    if job.exit_code or not job.is_taken:
        return job
    begin_job(job.name)
    asked = PromoteRequest(
        job.replica,
        lock_wait=request.lock_wait,
        side=request.sides.target,
        dry_run=request.dry_run,
        kafka=request.kafka,
        with_files=request.with_files,
        not_read=request.not_read,
        source=request.sides.source,
        seen=job.seen,
        allow_older=request.allow_older,
        clusters=request.clusters,
    )
    try:
        promotion = promote(asked, named(job.name, notify))
    except NotAtKafka as error:
        refused = cast(KafkaCheck, error.report)  # which is what raises it
        return replace(failed(job, "failed", error), not_at_kafka=refused)
    except Exception as error:  # noqa: BLE001  # it concerns this job only
        return failed(job, "failed", error)
    if promotion.verification.restorable:
        is_new = request.dry_run and job.outcome == "promoted"
        outcome: PromotionOutcome = "can be promoted" if is_new else job.outcome
        return replace(job, outcome=outcome, promotion=promotion)
    problem = f"{promotion.checkpoint} cannot be restored: `cpreplicate verify {job.replica}`"
    return replace(
        job, outcome="failed", promotion=promotion, exit_code=_NOT_RESTORABLE, error=problem
    )


def _by_name(rows: Iterable[ReplicaStatus]) -> dict[str, list[ReplicaStatus]]:
    groups: dict[str, list[ReplicaStatus]] = {}
    for row in rows:
        groups.setdefault(name_of(row), []).append(row)
    return groups


def name_of(row: ReplicaStatus) -> str:
    """Return the name of the job of a replica: as configured, as recorded, or its id."""
    recorded = row.recorded.name if row.recorded is not None else row.job
    return row.name or recorded


def _of_name(
    name: str, rows: Sequence[ReplicaStatus], request: PromoteAllRequest
) -> Iterator[JobPromotion]:
    """Yield the replicas of a name: the one that is promoted, or none if it cannot be chosen."""
    why, chosen = None, rows[0].observed.replica
    if len(rows) > 1:
        known = [Named(row.observed.replica, row.recorded) for row in rows]
        seen = {
            row.observed.replica: row.observed.source_newest
            for row in rows
            if row.observed.source_newest is not None
        }
        try:
            selected = newest_of_name(known, request.sides.target, seen)
        except (CpreplicateError, OSError) as error:
            for row in rows:
                result = JobPromotion(name, "failed", row.observed.replica)
                yield failed(result, "failed", error)
            return
        why, chosen = selected.why, selected.replica
    for row in rows:
        outcome: PromotionOutcome = "promoted" if row.sealed is None else "sealed before"
        if row.observed.replica != chosen:
            outcome = "not taken"
        yield JobPromotion(name, outcome, row.observed.replica, why=why)


def _with_lags(
    jobs: Sequence[JobPromotion], found: FleetStatus, request: PromoteAllRequest
) -> list[JobPromotion]:
    """Return the candidates with their lags."""
    by_replica = {row.observed.replica: row for row in found.replicas}
    completed = [
        row.observed.replica_newest.completed
        for row in found.replicas
        if row.observed.replica_newest is not None
    ]
    newest = max(completed, default=0.0)
    return [_with_lag(job, by_replica[job.replica], found.now, newest, request) for job in jobs]


def _with_lag(
    job: JobPromotion, row: ReplicaStatus, now: float, newest: float, request: PromoteAllRequest
) -> JobPromotion:
    """Return a candidate with its lag, as failed if that is more than is allowed."""
    own, lag = row.observed.replica_newest, row.lag(now)
    look = SourceLook(row.observed.source_newest, row.source_error, row.is_source_known)
    job = replace(
        job,
        lag=None if lag is None or math.isinf(lag) else lag,
        behind_newest=None if own is None else newest - own.completed,
        seen=SourceSeen(row.observed.source or None, look, now),
    )
    limit = request.max_lag
    if limit is None or job.exit_code or not job.is_taken or job.outcome == "sealed before":
        return job
    if row.ended is not None and not request.allow_older:  # it fails, with the savepoint
        return job
    at_most = row.age(now) if row.ended is not None else job.behind_newest
    known = at_most if job.lag is None else job.lag
    if known is not None and known <= limit:
        return job
    job = replace(job, is_lagging=True)
    if row.ended is not None:
        age = "" if known is None else f", and its newest is {known:.0f} s old"
        return _left(job, f"its source holds no checkpoint any more{age}")
    if job.lag is not None:
        return _left(job, f"its source is ahead by {checkpoints_of(row.observed.behind() or 0)}")
    return _left(job, "it lags") if request.skip_lagging else job


def _left(job: JobPromotion, reason: str) -> JobPromotion:
    error = f"{reason}, more than --max-lag allows, and it was left as it is"
    return replace(job, outcome="lagging", exit_code=Lagging.exit_code, error=error)


def _worst_first(job: JobPromotion) -> tuple[bool, bool, bool, float, str]:
    lag = job.lag if job.lag is not None else job.behind_newest or 0.0
    is_left = job.outcome == "not taken"
    failed = job.outcome == "failed"
    return (not failed, not job.is_lagging, is_left, -lag if job.is_lagging else 0.0, job.name)


def is_included(row: ReplicaStatus, include: Sequence[str]) -> bool:
    """Return whether a job's name matches one of some patterns, or one is its whole id.

    Without patterns, each does. An id chooses one of several jobs of a name.
    """
    name = name_of(row)
    return (
        not include
        or row.job in include
        or any(fnmatch.fnmatchcase(name, pattern) for pattern in include)
    )


def _no_replica(include: Sequence[str], found: FleetStatus) -> NotThere:
    """Return the error of a command for all replicas that found none."""
    if not include or not found.replicas:
        return NotThere(
            "there is no replica. Nothing was done. With --all, REPLICA is the TARGET_ROOT that"
            " `sync` was given, or the file of `fleet`"
        )
    names = ", ".join(sorted({repr(name_of(row)) for row in found.replicas})[:_SHOWN])
    return NotThere(
        f"no replica is of a job {' or '.join(map(repr, include))}. Nothing was done. There are"
        f" {names}"
    )
