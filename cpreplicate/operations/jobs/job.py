"""The jobs that are replicated, as a configuration or discovery names them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import NamedTuple, Protocol

from cpreplicate.core import uri
from cpreplicate.core.lag import UNNUMBERED, Newest
from cpreplicate.core.placement import CHECKPOINT_NAME, JOB_ID, job_root
from cpreplicate.core.shard import Shard
from cpreplicate.errors import NoJob, NotThere
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.protocol import replica_state, seal
from cpreplicate.protocol.marker import is_replica
from cpreplicate.protocol.replica import Replica
from cpreplicate.protocol.replica_name import is_distinctive, is_savepoint_name
from cpreplicate.protocol.savepoints import LastSavepoint
from cpreplicate.protocol.source import find
from cpreplicate.storage import FileStatus, Side, Transient


class Checkpoint(NamedTuple):
    """A completed checkpoint of a source: its directory, its number and its time."""

    path: str
    newest: Newest


class JobKey(NamedTuple):
    """What is replicated where: the directory that a job writes, or a savepoint, and TARGET_ROOT.

    The same id may be that of several jobs.
    """

    target_root: str
    source: str

    @property
    def name(self) -> str:
        """The name of the directory, most often the id of the job."""
        return uri.name(self.source)


@dataclass(frozen=True)
class Job:
    """A job that is replicated. Of two, the one with the higher `priority` gets executors first.

    `is_discovered`: it was found below a root, or a JobManager reported it. So it may have no
    completed checkpoint yet, and may be a standby replica. What discovery knows besides: `newest`
    is its newest checkpoint, else its directory is listed. `refusal` is why it must not be
    replicated. One that `has_ended` may have no checkpoint any more: Flink deletes those that are
    not retained. `looked` is when `newest` was asked for, in seconds since the epoch; None for just
    now. `is_lost`: the JobManager that reported it answers without it, and never reported its end.
    `savepoint` is the one that its JobManager names, if it has ended since.
    """

    name: str
    request: SyncRequest
    priority: int = 0
    is_discovered: bool = False
    newest: Checkpoint | None = None
    refusal: str | None = None
    has_ended: bool = False
    looked: float | None = None
    is_lost: bool = False
    savepoint: LastSavepoint | None = None

    @property
    def key(self) -> JobKey:
        """What distinguishes the job from all others of a process."""
        request = self.request
        return JobKey(request.target_root, job_root(request.source))

    def is_in(self, shard: Shard) -> bool:
        """Return whether the job is in a shard."""
        return is_in_shard(self.key.source, shard)


def is_in_shard(source: str, shard: Shard) -> bool:
    """Return whether the job of a directory is in a shard: by its id, or by the path."""
    name = uri.name(source)
    return shard.has(name if is_distinctive(name) else uri.local_path(source))


def levels_of(jobs: Iterable[Job]) -> dict[int, int]:
    """Return the level of importance of each priority of the jobs, 0 the most."""
    priorities = sorted({job.priority for job in jobs}, reverse=True)
    return {priority: level for level, priority in enumerate(priorities)}


class Discovery(Protocol):
    """Finds the jobs of a service."""

    @property
    def target_roots(self) -> Collection[str]:
        """The TARGET_ROOTs into which it replicates, also if it has no job in its shard."""

    def jobs(self) -> Sequence[Job]:
        """Return all jobs that are to be followed now; called every interval.

        Raises `CpreplicateError` or `OSError` if that is not known: then the last ones are kept.
        """


def by_key(jobs: Iterable[Job]) -> dict[JobKey, Job]:
    """Return the jobs by their keys. Each that has a namesake in its TARGET_ROOT is marked so.

    Of two reports of one directory, the one of the higher checkpoint counts, and one that is
    refused only if there is no other.
    """
    groups: dict[JobKey, list[Job]] = {}
    for job in jobs:
        groups.setdefault(job.key, []).append(job)
    result = {}
    for key, group in groups.items():
        accepted = [job for job in group if job.refusal is None]
        result[key] = reduce(_newer, accepted or group)
    return {job.key: job for job in marked(result.values())}


def marked(jobs: Collection[Job]) -> list[Job]:
    """Return the jobs in their order; those whose directories have one name are marked so."""
    counts = Counter((job.key.target_root, job.key.name) for job in jobs if job.refusal is None)
    names = {name for name, count in counts.items() if count > 1}

    def with_mark(job: Job) -> Job:
        if (job.key.target_root, job.key.name) not in names:
            return job
        return replace(job, request=replace(job.request, has_namesake=True))

    return list(map(with_mark, jobs))


def _newer(job: Job, other: Job) -> Job:
    """Return the one of two jobs of a directory whose newest checkpoint has the higher number.

    A JobManager goes on reporting a job that ended there and was taken over by another JobManager,
    or that was restarted under another id in a directory without ids.
    """
    if job.has_ended != other.has_ended:
        return other if job.has_ended else job
    if job.refusal is not None or job.newest is None:
        return job  # its directory is listed
    if other.refusal is not None or other.newest is None:
        return other
    return other if job.newest.newest.is_older(other.newest.newest) else job


def newest_checkpoint(job: Job) -> Checkpoint:
    """Return the newest completed checkpoint in a job's directory. Raises as `find`."""
    request = job.request
    source = find(request.source, request.sides.source, request.allow_older)
    name = uri.name(source.checkpoint).removeprefix("chk-")
    checkpoint_id = int(name) if name.isdecimal() else UNNUMBERED
    return Checkpoint(source.checkpoint, Newest(checkpoint_id, source.completed or 0.0))


def is_subsumed(checkpoint: Checkpoint, job: Job) -> bool:
    """Return whether another checkpoint is the newest one of the job's directory by now."""
    try:
        return newest_checkpoint(job) != checkpoint
    except NotThere:
        return False


def is_standby(source: str, side: Side) -> bool:
    """Return whether a directory below a root is a replica that no job writes to.

    A job may write to a replica that was promoted.
    """
    replica = Replica(source, side)
    if not is_replica(replica):
        return False
    return not seal.is_sealed(replica) or not replica_state.examine(replica).unrecorded


def jobs_under(root: str, side: Side) -> list[str]:
    """Return the directories of jobs right under a root, in order.

    These have a job's id as their name, or hold checkpoints: without the option
    `execution.checkpointing.create-subdir`, Flink makes no directory of the id. Costs one listing,
    and one of each directory that has another name. Raises `NotThere` if there is none, `NoJob` if
    the root is a job's directory itself, or a file.
    """
    names = [child.name for child in _children(root, side) if child.is_directory]
    is_job = any(map(CHECKPOINT_NAME.fullmatch, names))
    found = [name for name in names if JOB_ID.fullmatch(name)]
    if not is_job:
        others = (name for name in names if _may_be_a_job(name))
        found += [name for name in others if _holds_checkpoints(uri.join(root, name), side)]
    if not found and is_job:
        raise NoJob(
            f"no job's directory is below the root {root}: it is one itself, and holds"
            f" checkpoints. Give {uri.parent(root)} as the root, or this directory as SOURCE"
        )
    if not found:
        raise NotThere(
            "no job's directory, named by 32 hexadecimal digits or with checkpoints right in it,"
            f" is below the root {root}. Check the path of the root"
        )
    return sorted(uri.join(root, name) for name in found)


def _may_be_a_job(name: str) -> bool:
    """Return whether a directory is worth a look: there may be hundreds of savepoints."""
    return not (name.startswith(".") or JOB_ID.fullmatch(name) or is_savepoint_name(name))


def _holds_checkpoints(directory: str, side: Side) -> bool:
    """Return whether checkpoints are directly in a directory. Raises `Transient`.

    One that cannot be read otherwise concerns no job that is known.
    """
    try:
        children = side.storage(directory).list(directory)
    except Transient:
        raise
    except OSError:
        return False
    return any(each.is_directory and CHECKPOINT_NAME.fullmatch(each.name) for each in children)


def _children(root: str, side: Side) -> Sequence[FileStatus]:
    try:
        return side.storage(root).list(root)
    except NotADirectoryError as error:
        raise NoJob(
            f"the root {root} is a file, or is below one. Check the path of the root"
        ) from error
