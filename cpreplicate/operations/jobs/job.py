"""The jobs of a service, as discovery finds them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import NamedTuple, Protocol

from cpreplicate.core import uri
from cpreplicate.core.lag import Newest
from cpreplicate.core.shard import Shard
from cpreplicate.errors import NotThere
from cpreplicate.operations.jobs.fleet import Member
from cpreplicate.operations.sync.request import replica_root
from cpreplicate.protocol.source import find


class Checkpoint(NamedTuple):
    """A completed checkpoint of a source: its directory, its number and its time."""

    path: str
    newest: Newest


@dataclass(frozen=True)
class ServedJob:
    """A job as discovery found it.

    `newest` is its newest checkpoint if discovery knows it, else its directory is listed.
    `refusal` is why the job must not be replicated. One that `has_ended` may have no checkpoint any
    more: Flink deletes those that are not retained. `looked` is when `newest` was asked for, in
    seconds since the epoch; None for just now.
    """

    member: Member
    newest: Checkpoint | None = None
    refusal: str | None = None
    has_ended: bool = False
    looked: float | None = None

    @property
    def key(self) -> str:
        """The URI of its replica, which names the job in the service."""
        request = self.member.request
        return replica_root(request.source, request.target_root)

    def is_in(self, shard: Shard) -> bool:
        """Return whether the job is in a shard, by the name of its replica."""
        return shard.has(uri.name(self.key))


class Discovery(Protocol):
    """Finds the jobs of a service."""

    def jobs(self) -> Sequence[ServedJob]:
        """Return all jobs that are to be followed now; called every interval.

        Raises `CpreplicateError` or `OSError` if that is not known: then the last ones are kept.
        """


def by_key(jobs: Iterable[ServedJob], followed: Mapping[str, str] = {}) -> dict[str, ServedJob]:
    """Return the jobs by their keys. Jobs that would share a replica become one that is refused.

    What is refused already concerns none that is not: whoever reports it could name any job. For
    the same reason a directory that is `followed` by its key stays followed if another appears.
    """
    groups: dict[str, list[ServedJob]] = {}
    for job in jobs:
        groups.setdefault(job.key, []).append(job)
    result = {}
    for key, group in groups.items():
        accepted = [job for job in group if job.refusal is None]
        first = [job for job in accepted if job.member.request.source == followed.get(key)]
        result[key] = reduce(_one_of, first or accepted or group)
    return result


def _one_of(job: ServedJob, other: ServedJob) -> ServedJob:
    if job.member.request.source == other.member.request.source:
        return _newer(job, other)
    refusal = (
        f"{job.member.request.source} and {other.member.request.source} would share the replica"
        f" {job.key}. Give one of them another target"
    )
    return replace(job, refusal=refusal)


def _newer(job: ServedJob, other: ServedJob) -> ServedJob:
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


def _completed(job: ServedJob) -> float:
    return job.newest.newest.completed if job.newest is not None else 0.0


def newest_checkpoint(member: Member) -> Checkpoint:
    """Return the newest completed checkpoint in a job's directory. Raises as `find`."""
    request = member.request
    source = find(request.source, request.sides.source, request.allow_older)
    name = uri.name(source.checkpoint).removeprefix("chk-")
    checkpoint_id = int(name) if name.isdecimal() else 0  # a savepoint has no number in its name
    return Checkpoint(source.checkpoint, Newest(checkpoint_id, source.completed or 0.0))


def is_subsumed(checkpoint: Checkpoint, member: Member) -> bool:
    """Return whether another checkpoint is the newest one of the job's directory by now."""
    try:
        return newest_checkpoint(member) != checkpoint
    except NotThere:
        return False
