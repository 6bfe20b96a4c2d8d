"""`forget`: remove replicas whole, of jobs that have a later life, or that are named.

A job that starts under a new id has a new replica; the one of its earlier life stays. It is the
newest point of its job to go back to until the later life has one: until then it is not removed,
unless the operator states that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from cpreplicate.core import uri
from cpreplicate.core.log_context import begin_job
from cpreplicate.core.notify import Notify, named, silent
from cpreplicate.core.placement import OWN
from cpreplicate.core.plan import Cap
from cpreplicate.core.retention import Retention
from cpreplicate.core.sizes import plural
from cpreplicate.errors import (
    CpreplicateError,
    MetadataError,
    NotThere,
    Refused,
    TooManyDeletes,
    UsageError,
)
from cpreplicate.flink.control import FlinkControl
from cpreplicate.operations.change.job_result import JobResult, JobResults, failed
from cpreplicate.operations.change.target_root import refuse_no_replica
from cpreplicate.operations.replicas.lives import read_names
from cpreplicate.operations.replicas.replica_status import ReplicaStatus
from cpreplicate.operations.replicas.replicas import ReplicaRef
from cpreplicate.operations.replicas.status import status
from cpreplicate.operations.upkeep import removal
from cpreplicate.operations.upkeep.removal import Removal, RemovalRequest
from cpreplicate.protocol import census, lease
from cpreplicate.protocol.replica import Replica
from cpreplicate.protocol.replica_state import State
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import Side, Sides

_DAY = 24 * 3600
RemovalOutcome = Literal["removed", "can be removed", "stays", "failed"]
Refuse = Callable[[str], object]


@dataclass(frozen=True)
class ForgetRequest:
    """Which replicas are removed.

    `ended`: only those whose job has ended, as a later life of it and its source show. `older_than`
    is in seconds: only those whose newest checkpoint was completed before that. With `last_point`
    also the newest point of a job, for one replica only. `leaves_others`: what is not
    cpreplicate's stays, else nothing of such a replica is removed. `max_delete` is how many files
    may be removed at most, of all replicas together. `refuse` raises for a replica
    from which a job runs.
    """

    ended: bool = False
    older_than: float | None = None
    last_point: bool = False
    leaves_others: bool = False
    max_delete: Cap | None = None
    dry_run: bool = False
    lock_wait: float = 0.0
    sides: Sides = field(default=Sides())
    execution: ExecutionOptions = field(default=ExecutionOptions())
    refuse: Refuse = lambda _replica: None


@dataclass(frozen=True)
class JobRemoval(JobResult[RemovalOutcome]):
    """What became of a replica; `why` is why it may be removed, or why it stays.

    `held` is how many files its newest checkpoint has, if it stays.
    """

    replica: str
    why: str
    removal: Removal | None = None
    held: int = 0

    @property
    def own(self) -> tuple[str, ...]:
        return self.name, self.replica


@dataclass(frozen=True)
class RemovalOfAll(JobResults[JobRemoval]):
    """What became of each replica: those that failed first, then those that were removed.

    `refused` is why none is removed, None if that is not refused.
    """

    is_dry_run: bool
    refused: str | None = None


def of_one(removal: Removal) -> RemovalOfAll:
    """Return what became of a single replica as the result of many."""
    outcome: RemovalOutcome = "removed" if removal.done else "can be removed"
    job = JobRemoval(uri.name(removal.replica), outcome, removal.replica, removal.why, removal)
    return RemovalOfAll((job,), not removal.done)


_REMNANT = "nothing but its directory is left"


class Candidate(NamedTuple):
    """A replica that may be removed, and why: `later` is a later life that has a point.

    `checkpoint` is its newest one, None without any.
    """

    replica: str
    checkpoint: str | None
    why: str
    later: str | None = None


def refuse_no_whole_replica(root: str, side: Side) -> None:
    """Raise `UsageError` if REPLICA names a root, a TARGET_ROOT, a link, or a part of a replica.

    What is not there passes.
    """
    if not uri.local_path(root).strip("/"):
        raise UsageError(f"{root} is no replica: it is all of a filesystem. Nothing was removed")
    status = side.storage(root).stat(root)
    if status is not None and status.is_link:
        raise UsageError(
            f"{root} is a symbolic link. Nothing was removed. Give the directory that it leads to"
        )
    try:
        refuse_no_replica(root, side)
    except NotThere as error:
        raise UsageError(f"{error}. `forget` removes a whole replica, and nothing else") from error


def refuse_running(replica: str, clusters: Sequence[FlinkControl], option: str = "--flink") -> None:
    """Raise `Refused` if a job that runs was restored from a replica, or writes there.

    `option` is the one that named the clusters.
    Raises as `FlinkRest.jobs` if a JobManager does not answer, and `MetadataError` if one reports a
    job that is not understood: it may be such a job.
    """
    for cluster in clusters:
        overview = cluster.jobs()
        if problems := [*overview.unclear.values(), *overview.problems]:
            raise MetadataError(f"a job may need {replica}, which was not removed: {problems[0]}")
        for job in overview.jobs:
            used = None if job.has_ended else _used(cluster, job.job_id, replica)
            if used is not None:
                raise Refused(
                    f"the job {job.name} ({job.job_id}) at {cluster.url} was restored from, or"
                    f" writes, {used}: it may need {replica}. Nothing was removed. If its own"
                    f" checkpoints reference nothing there, run without {option}"
                )


def _used(cluster: FlinkControl, job_id: str, replica: str) -> str | None:
    """Return the checkpoint in a replica that a job was restored from or completed last.

    One cluster may have many names. So only the end of the path is compared, from the name of the
    replica on.
    """
    restored, newest = cluster.restored(job_id), cluster.newest_checkpoint(job_id)
    paths = [restored.path if restored else None, newest.path if newest else None]
    step = f"/{uri.name(replica)}/"
    return next((path for path in paths if path is not None and step in f"{path}/"), None)


def candidate(replica: str, request: ForgetRequest) -> Candidate:
    """Return why a replica may be removed. Raise `Refused` if it must stay. Nothing is changed.

    Costs a small read for each replica in its TARGET_ROOT, and some for those of its job's name.
    """
    sides = request.sides
    refuse_no_whole_replica(replica, sides.target)
    seen = _seen([replica, *_namesakes(replica, sides.target)], sides)
    if not seen or seen[0].observed.replica != replica:
        return Candidate(replica, None, _REMNANT)
    chosen = _decided(seen[0], _copies(seen), request)
    if isinstance(chosen, str):
        raise Refused(f"{replica} stays as it is: {chosen}. Nothing was removed")
    return chosen


def forget(chosen: Candidate, request: ForgetRequest, notify: Notify) -> Removal:
    """Remove a replica, or with `dry_run` return what would be removed. Raises as `remove`."""
    asked = RemovalRequest(
        chosen.replica,
        request.leaves_others,
        request.max_delete,
        request.lock_wait,
        request.sides,
        request.execution,
    )

    def allow(replica: Replica, state: State) -> None:
        _refuse_changed(chosen, replica, state)
        request.refuse(replica.root)

    if request.dry_run:
        return replace(removal.check(asked, allow), why=chosen.why)
    return replace(removal.remove(asked, allow, notify), why=chosen.why)


def candidates(replicas: Sequence[str], request: ForgetRequest) -> list[JobRemoval | Candidate]:
    """Return which of these replicas may be removed, and of the others why they stay."""
    if request.last_point:
        raise UsageError("--last-point is for one replica, which is given by its path or id")
    seen = _seen(replicas, request.sides)
    copies, remnants = _copies(seen), _remnants(replicas, seen, request.sides.target)
    rest = [row for row in seen if row.observed.replica not in remnants]
    return [*remnants.values(), *(_one_of_many(each, copies, request) for each in rest)]


def overdue(
    replicas: Sequence[str], request: ForgetRequest, is_left: Callable[[ReplicaStatus], bool]
) -> list[JobRemoval | Candidate]:
    """Return as `candidates` those that are older than `older_than`, and are not left out."""
    seen = _seen(replicas, request.sides)
    copies, remnants = _copies(seen), _remnants(replicas, seen, request.sides.target)
    rest = [row for row in seen if row.observed.replica not in remnants]
    old = [row for row in rest if _is_older(row, request) and not is_left(row)]
    return [*remnants.values(), *(_one_of_many(row, copies, request) for row in old)]


def _remnants(
    replicas: Sequence[str], seen: Iterable[ReplicaStatus], side: Side
) -> dict[str, Candidate]:
    """Return what removals that died have left after the marker, by its place."""
    whole = {row.observed.replica for row in seen if not _is_bare(row)}
    bare = [place for place in replicas if place not in whole]
    found = [place for place in bare if _is_remnant(Replica(place, side))]
    return {place: Candidate(place, None, _REMNANT) for place in found}


def _is_bare(row: ReplicaStatus) -> bool:
    return row.life is not None and row.life.replica_id is None and row.checkpoint is None


def _is_remnant(replica: Replica) -> bool:
    """Return whether nothing is left but a lease that nobody holds, or less."""
    with suppress(CpreplicateError, OSError):
        is_alone = [child.name for child in replica.children()] == [OWN]
        if is_alone and all(name.startswith(lease.NAME) for name in replica.own_files()):
            return lease.Lease(replica.root, replica.side).refusal() is None
    return False


def forget_all(
    chosen: Sequence[JobRemoval | Candidate], request: ForgetRequest, notify: Notify
) -> RemovalOfAll:
    """Remove replicas, one after the other. What fails is in its result.

    With `max_delete`, all are listed before. Raises `TooManyDeletes` beyond it.
    """
    cap, uncapped = request.max_delete, replace(request, max_delete=None)
    if cap is not None:
        found = _all_forgotten(chosen, replace(uncapped, dry_run=True), silent)
        _refuse_too_many(found, cap)
        if request.dry_run:
            return found
    return _all_forgotten(chosen, uncapped, notify)


def _refuse_too_many(found: RemovalOfAll, cap: Cap) -> None:
    files = sum(each.removal.files for each in found.jobs if each.removal is not None)
    held = files + sum(each.held for each in found.jobs)
    if not cap.allows(files, held):
        refused = removal.too_many(files, held, cap)
        raise TooManyDeletes(refused, replace(found, refused=refused))


def _all_forgotten(
    chosen: Sequence[JobRemoval | Candidate], request: ForgetRequest, notify: Notify
) -> RemovalOfAll:
    stay = [each for each in chosen if isinstance(each, JobRemoval)]
    going = [each for each in chosen if isinstance(each, Candidate)]
    done = [_forgotten(each, request, notify) for each in going]
    done.sort(key=lambda each: not each.exit_code)
    return RemovalOfAll((*done, *stay), request.dry_run)


def _forgotten(chosen: Candidate, request: ForgetRequest, notify: Notify) -> JobRemoval:
    name = uri.name(chosen.replica)
    begin_job(name)
    job = JobRemoval(name, "removed", chosen.replica, chosen.why)
    try:
        removed = forget(chosen, request, named(name, notify))
    except Exception as error:  # noqa: BLE001  # it concerns this replica only
        return failed(job, "failed", error)
    return replace(job, outcome="can be removed" if request.dry_run else "removed", removal=removed)


def _refuse_changed(chosen: Candidate, replica: Replica, state: State) -> None:
    """Raise `Refused` if a replica was changed since it was chosen, or what it was chosen for."""
    if state.census.newest not in (None, chosen.checkpoint):
        raise Refused(
            f"{replica.root} was replicated into meanwhile: its newest checkpoint is"
            f" {state.census.newest}. Nothing was removed. Its job runs"
        )
    later = chosen.later
    if later is not None and census.take(Replica(later, replica.side)).newest is None:
        raise Refused(
            f"{later} holds no checkpoint any more, so {replica.root} has the newest point of its"
            " job. Nothing was removed. Run again"
        )


def _namesakes(replica: str, side: Side) -> list[str]:
    """Return the other replicas in the same TARGET_ROOT whose jobs have the same name."""
    own, *_ = read_names([replica], side)
    if own.record is None:
        return []
    above = uri.parent(replica)
    children = side.storage(above).list(above)
    places = [uri.join(above, each.name) for each in children if each.is_directory]
    known = read_names([place for place in places if place != replica], side)
    name = own.record.name
    return [each.replica for each in known if each.record is not None and each.record.name == name]


def _seen(replicas: Sequence[str], sides: Sides) -> tuple[ReplicaStatus, ...]:
    """Return what is there of these replicas, in this order. Sources are asked for seconds only."""
    refs = [ReplicaRef(replica, is_found=True) for replica in replicas]
    return status(refs, sides, is_urgent=True).replicas


def _copies(seen: Iterable[ReplicaStatus]) -> Mapping[str, list[str]]:
    """Return the replicas by their replica ids: of several with one, some are copies."""
    found: dict[str, list[str]] = {}
    for row in seen:
        if row.life is not None and row.life.replica_id is not None:
            found.setdefault(row.life.replica_id, []).append(row.observed.replica)
    return found


def _one_of_many(
    row: ReplicaStatus, copies: Mapping[str, list[str]], request: ForgetRequest
) -> JobRemoval | Candidate:
    replica = row.observed.replica
    reason = _keeps_points(row, request)
    chosen = reason or _decided(row, copies, request)
    if isinstance(chosen, Candidate):
        return chosen
    held = row.totals.files if row.totals is not None else 0
    return JobRemoval(uri.name(replica), "stays", replica, chosen, held=held)


def _keeps_points(row: ReplicaStatus, request: ForgetRequest) -> str | None:
    """Return that a replica keeps points by policy: who removes many states an age, too."""
    kept = row.retention.retention if row.retention is not None else Retention()
    if request.older_than is not None or kept.is_as_much_as(Retention()):
        return row.retention_error
    return f"it keeps points ({kept.short}), and no --older-than was given"


def _decided(
    row: ReplicaStatus, copies: Mapping[str, list[str]], request: ForgetRequest
) -> Candidate | str:
    """Return a replica that may be removed, or why it stays."""
    reason = next(_reasons(row, copies, request), None)
    if reason is not None:
        return reason
    later, replica = row.later_life, row.observed.replica
    if later is not None:
        why = f"{later.named.job} is a later life of its job, and holds {later.checkpoint}"
        return Candidate(replica, row.checkpoint, why, later.named.replica)
    if row.checkpoint is None:
        return Candidate(replica, None, "it holds no checkpoint")
    return Candidate(replica, row.checkpoint, "--last-point was given")


def _reasons(
    row: ReplicaStatus, copies: Mapping[str, list[str]], request: ForgetRequest
) -> Iterator[str]:
    """Yield why a replica stays."""
    later = row.later_life
    if row.sealed is not None:
        yield f"it is sealed {row.sealed}, so a job may use its files"
    if row.observed.last_error is not None or row.life is None:
        yield row.observed.last_error or "when its job completed checkpoints cannot be read"
    if request.ended and (reason := _runs(row)) is not None:
        yield f"whether its job has ended is not known: {reason}"
    if request.older_than is not None and not _is_older(row, request):
        days = request.older_than / _DAY
        yield (
            f"nothing shows that its newest checkpoint is older than {days:g} {plural(days, 'day')}"
        )
    if row.checkpoint is not None and later is None and not request.last_point:
        yield (
            f"{row.checkpoint} is the newest point of its job"
            f"{_named(row)}, and no replica in the same TARGET_ROOT is known to be of a later life"
            " of that job and to hold one"
        )
    of_id = copies.get(row.life.replica_id or "", []) if row.life is not None else []
    for other in of_id:
        if other != row.observed.replica:
            yield (
                f"{other} has the same replica id, so one is a copy of the other, and may reference"
                " its files"
            )


def _named(row: ReplicaStatus) -> str:
    return f" {row.recorded.name}" if row.recorded is not None else ", of which no name is recorded"


def _runs(row: ReplicaStatus) -> str | None:
    """Return why it is not known that the job of a replica has ended, None if it has.

    It has if its source answers, and has no checkpoint, or none since a later life began.
    """
    if not row.is_source_known:
        return f"its source does not answer: {row.source_error}"
    newest = row.observed.source_newest
    if newest is None or (row.later_life is not None and newest.is_dated):
        return None
    return "its source holds a checkpoint, and no later life is known to have begun since"


def _is_older(row: ReplicaStatus, request: ForgetRequest) -> bool:
    """Return whether the newest checkpoint is old, or without one everything that is recorded."""
    assert request.older_than is not None
    now = time.time()
    if row.checkpoint is not None:
        age = row.age(now)
        return age is not None and age > request.older_than
    replica = Replica(row.observed.replica, request.sides.target)
    try:
        own = replica.own_files()
    except (CpreplicateError, OSError):
        return False
    files = {name: file for name, file in own.items() if name[:5] != lease.NAME}
    times = [file.dated for file in files.values()]
    is_old = (time_ is not None and now - time_ > (request.older_than or 0) for time_ in times)
    return bool(times) and all(is_old)
