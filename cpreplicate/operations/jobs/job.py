"""The jobs that are replicated, as a configuration or discovery names them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import NamedTuple, Protocol

from cpreplicate.core import uri
from cpreplicate.core.lag import Newest
from cpreplicate.core.placement import CHECKPOINT_NAME, JOB_ID
from cpreplicate.core.shard import Shard
from cpreplicate.errors import NoJob, NotThere
from cpreplicate.operations.sync.request import SyncRequest, replica_root
from cpreplicate.protocol import replica_state, seal
from cpreplicate.protocol.marker import is_replica
from cpreplicate.protocol.replica import Replica
from cpreplicate.protocol.source import find
from cpreplicate.storage import FileStatus, Side


class Checkpoint(NamedTuple):
    """A completed checkpoint of a source: its directory, its number and its time."""

    path: str
    newest: Newest


@dataclass(frozen=True)
class Job:
    """A job that is replicated. Of two, the one with the higher `priority` gets executors first.

    `is_discovered`: it was found below a root, or a JobManager reported it. So it may have no
    completed checkpoint yet, and may be a standby replica. What discovery knows besides: `newest`
    is its newest checkpoint, else its directory is listed. `refusal` is why it must not be
    replicated. One that `has_ended` may have no checkpoint any more: Flink deletes those that are
    not retained. `looked` is when `newest` was asked for, in seconds since the epoch; None for just
    now.
    """

    name: str
    request: SyncRequest
    priority: int = 0
    is_discovered: bool = False
    newest: Checkpoint | None = None
    refusal: str | None = None
    has_ended: bool = False
    looked: float | None = None

    @property
    def key(self) -> str:
        """The URI of its replica, which names the job in the service."""
        return replica_root(self.request.source, self.request.target_root)

    def is_in(self, shard: Shard) -> bool:
        """Return whether the job is in a shard, by the name of its replica."""
        return shard.has(uri.name(self.key))


def levels_of(jobs: Iterable[Job]) -> dict[int, int]:
    """Return the level of importance of each priority of the jobs, 0 the most."""
    priorities = sorted({job.priority for job in jobs}, reverse=True)
    return {priority: level for level, priority in enumerate(priorities)}


class Discovery(Protocol):
    """Finds the jobs of a service."""

    def jobs(self) -> Sequence[Job]:
        """Return all jobs that are to be followed now; called every interval.

        Raises `CpreplicateError` or `OSError` if that is not known: then the last ones are kept.
        """


def by_key(jobs: Iterable[Job], followed: Mapping[str, str] = {}) -> dict[str, Job]:
    """Return the jobs by their keys. Jobs that would share a replica become one that is refused.

    What is refused already concerns none that is not: whoever reports it could name any job. For
    the same reason a directory that is `followed` by its key stays followed if another appears.
    """
    groups: dict[str, list[Job]] = {}
    for job in jobs:
        groups.setdefault(job.key, []).append(job)
    result = {}
    for key, group in groups.items():
        accepted = [job for job in group if job.refusal is None]
        first = [job for job in accepted if job.request.source == followed.get(key)]
        result[key] = reduce(_one_of, first or accepted or group)
    return result


def _one_of(job: Job, other: Job) -> Job:
    if job.request.source == other.request.source:
        return _newer(job, other)
    refusal = (
        f"{job.request.source} and {other.request.source} would share the replica"
        f" {job.key}. Give one of them another target"
    )
    return replace(job, refusal=refusal)


def _newer(job: Job, other: Job) -> Job:
    """Return the one of two jobs of a directory that completed a checkpoint last.

    A JobManager goes on reporting a job that ended there and was taken over by another JobManager,
    or that was restarted under another id in a directory without ids.
    """
    if job.has_ended != other.has_ended:
        return other if job.has_ended else job
    if job.refusal is not None or job.newest is None:
        return job  # its directory is listed
    if other.refusal is not None or other.newest is None:
        return other
    return max(job, other, key=_completed)


def _completed(job: Job) -> float:
    return job.newest.newest.completed if job.newest is not None else 0.0


def newest_checkpoint(job: Job) -> Checkpoint:
    """Return the newest completed checkpoint in a job's directory. Raises as `find`."""
    request = job.request
    source = find(request.source, request.sides.source, request.allow_older)
    name = uri.name(source.checkpoint).removeprefix("chk-")
    checkpoint_id = int(name) if name.isdecimal() else 0  # a savepoint has no number in its name
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
    """Return the directories under a root that have a job's id as their name, in order.

    Costs one listing. Raises `NotThere` if there is none, `NoJob` if the root is a job's directory
    itself, or a file.
    """
    children = _children(root, side)
    directories = [
        child for child in children if child.is_directory and JOB_ID.fullmatch(child.name)
    ]
    if not directories:
        if any(CHECKPOINT_NAME.fullmatch(child.name) for child in children):
            raise NoJob(
                f"no job's directory lies below the root {root}: it is one itself, and holds"
                f" checkpoints. Give {uri.parent(root)} as the root, or this directory as SOURCE"
            )
        raise NotThere(
            f"no job's directory, named by 32 hexadecimal digits, lies below the root {root}. Check"
            " the path of the root"
        )
    return sorted(uri.join(root, child.name) for child in directories)


def _children(root: str, side: Side) -> Sequence[FileStatus]:
    try:
        return side.storage(root).list(root)
    except NotADirectoryError as error:
        raise NoJob(
            f"the root {root} is a file, or lies below one. Check the path of the root"
        ) from error
