"""What `status` reports of a replica, and whether `promote` would succeed. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from cpreplicate.core.placement import job_root
from cpreplicate.core.retention import Stated
from cpreplicate.core.shard import WHOLE, Shard
from cpreplicate.core.short_repr import short_repr
from cpreplicate.operations.jobs.job import is_in_shard
from cpreplicate.operations.jobs.observation import Observation
from cpreplicate.operations.kafka.positions import CheckpointPositions
from cpreplicate.operations.replicas.lives import Life
from cpreplicate.protocol.job_record import JobRecord
from cpreplicate.protocol.lease import Holder
from cpreplicate.protocol.manifest import Totals
from cpreplicate.protocol.verification_record import Verified


class Orphans(NamedTuple):
    """What a sweep would remove from a replica, of whatever age."""

    files: int
    bytes: int


@short_repr("observed.replica", "checkpoint", "unready")
@dataclass(frozen=True)
class ReplicaStatus:
    """What is known of a replica.

    `observed` has its newest checkpoint, that of the source, the error of an examination that
    failed, and whether the replica is sealed. `job` is its id. `name` is None without a
    configuration. `checkpoint` is None without a committed one. `source_error` is why the source
    has no checkpoint, or, unless `is_source_known`, why that is not known. `ended` is why
    `promote` refuses what may not be the last checkpoint of its job, of which the source has none
    any more, None if it does not. `totals` are those of
    the newest checkpoint. `is_verified`: `verified` is about that, and found it restorable.
    `recorded` has the name that a sync recorded. `warnings` name links and checkpoints of others in
    the replica: `sync` and `promote` refuse it because of them. `has_links`: of links first.
    `refusal` is why `promote` refuses it, as of `readiness`. `unfinished` is when a run left its
    journal that did not complete, or is at work, in seconds since the epoch. `is_there`: there is a
    replica. `is_damaged`: `verified` is about the checkpoint that would be promoted, or was, found
    it damaged, and neither a sync nor a verification that compared as much has cleared that since.
    `kafka_behind` is by how many records the topics of a Kafka trail its positions, None if it has
    none or one of its partitions does not exist there: then `kafka_missing` has the topics.
    `retention` is which points it keeps, as it records that, and `retention_error` why that is not
    known. `derived` are the checkpoints that `rebase` wrote in it. `savepoint` is the URI of the
    savepoint that `checkpoint` is, None of another one. What was not looked for, or is
    not there, is None. `life` is when its job completed checkpoints, None if that cannot be read,
    and `later_life` the newest of its later lives that have a point to go back to. `stored` is how
    many bytes all its files take. `looked` is when this was seen: others may be looked at long
    after that.
    """

    job: str
    observed: Observation
    name: str | None = None
    checkpoint: str | None = None
    source_error: str | None = None
    totals: Totals | None = None
    orphans: Orphans | None = None
    sealed: str | None = None
    verified: Verified | None = None
    is_verified: bool = False
    holder: Holder | None = None
    unfinished: float | None = None
    is_source_known: bool = True
    ended: str | None = None
    is_there: bool = True
    warnings: tuple[str, ...] = ()
    has_links: bool = False
    recorded: JobRecord | None = None
    refusal: str | None = None
    is_damaged: bool = False
    positions: CheckpointPositions | None = None
    kafka_behind: int | None = None
    kafka_missing: tuple[str, ...] = ()
    derived: tuple[str, ...] = ()
    retention: Stated | None = None
    retention_error: str | None = None
    savepoint: str | None = None
    life: Life | None = None
    later_life: Life | None = None
    stored: int | None = None
    looked: float = math.inf

    def is_in(self, shard: Shard) -> bool:
        """Return whether a service of this shard follows the job."""
        return shard == WHOLE or is_in_shard(job_root(self.observed.source) or self.job, shard)

    @property
    def has_point(self) -> bool:
        """Whether nothing is known that is in the way of a promotion.

        Nor is a run at work, which ends, or the end of the job: its point is there.
        """
        is_readable = self.observed.last_error is None and self.refusal is None
        return is_readable and self.checkpoint is not None and not self.is_damaged

    def is_later(self, than: ReplicaStatus) -> bool:
        """Return whether this is of a later life of a job, and has a point to go back to.

        It began after the last checkpoint of that one, and its source has the same root: else it
        may be another job of the same name.
        """
        name, life, former = self.recorded and self.recorded.name, self.life, than.life
        if name is None or than.recorded is None or name != than.recorded.name:
            return False
        if life is None or former is None or not self.has_point or self is than:
            return False
        return bool(life.roots & former.roots) and life.begin > former.last

    @property
    def unready(self) -> str | None:
        """Why `promote` would not succeed, None if nothing is known that is in its way.

        The right to write, and whether all files are there, are for `doctor` and for
        `promote --dry-run`.
        """
        if self.observed.last_error is not None:
            return self.observed.last_error
        if not self.is_there:
            return "there is no replica"
        if self.refusal is not None:
            return self.refusal
        if self.is_damaged and self.verified is not None:
            name = self.verified.checkpoint
            return f"`verify --record` found missing or damaged files of {name}"
        if self.holder is not None and not self.holder.is_stale:
            return f"a run of {self.holder.owner}@{self.holder.host} holds its lease"
        return self.ended

    def age(self, now: float) -> float | None:
        """Return the seconds since the newest checkpoint was completed, when that was seen."""
        newest = self.observed.replica_newest
        if newest is None or newest.completed <= 0:  # the storage does not date it
            return None
        return max(0.0, min(now, self.looked) - newest.completed)

    def lag(self, now: float) -> float | None:
        """Return the lag in seconds, infinite without a replica; None if it is not known.

        It is not if the job may have gone further, with its checkpoints deleted.
        """
        if self.ended is not None:
            return None
        observed = self.observed
        is_read = observed.replica_newest is not None or observed.last_error is None
        seen = min(now, self.looked)
        lag = observed.lag(seen) if is_read and self.is_source_known else None
        # behind, but nobody knows since when: the storage does not date it
        is_undated = observed.replica_newest is not None and self.age(now) is None
        return None if lag and is_undated else lag

    def is_lagging(self, limit: float, now: float) -> bool:
        """Return whether the lag is over a limit in seconds.

        A lag that is not known is at most the age of the replica's newest checkpoint.
        """
        lag = self.lag(now)
        if lag is None:
            lag = self.age(now)
        return lag is None or lag > limit


@short_repr("replicas", "lagging")
@dataclass(frozen=True)
class FleetStatus:
    """The status of every replica that was asked for, at a time in seconds since the epoch.

    `kafka` are the servers of the Kafka that was asked, and `kafka_error` why it did not answer,
    `kafka_denied` topics that the user may not describe there.
    `elsewhere` is how many more replicas are of jobs in other shards than `shard`.
    """

    replicas: tuple[ReplicaStatus, ...]
    now: float
    max_lag: float | None = None
    kafka: str | None = None
    kafka_error: Exception | None = None
    kafka_denied: frozenset[str] = frozenset()
    shard: Shard = WHOLE
    elsewhere: int = 0

    def of_shard(self, shard: Shard) -> FleetStatus:
        """Return the status of the jobs in a shard."""
        rows = tuple(row for row in self.replicas if row.is_in(shard))
        return replace(self, replicas=rows, shard=shard, elsewhere=len(self.replicas) - len(rows))

    @property
    def lagging(self) -> tuple[ReplicaStatus, ...]:
        """The replicas that lag more than is allowed."""
        if self.max_lag is None:
            return ()
        return tuple(each for each in self.replicas if each.is_lagging(self.max_lag, self.now))

    @property
    def of_earlier_lives(self) -> tuple[ReplicaStatus, ...]:
        """The replicas of jobs that have a later life with a point to go back to."""
        return tuple(each for each in self.replicas if each.later_life is not None)


def bytes_of(rows: Iterable[ReplicaStatus]) -> int:
    """Return the bytes of replicas: of all their files if those were listed.

    Else they are those of their newest checkpoints.
    """
    return sum(
        row.stored if row.stored is not None else row.totals.bytes if row.totals is not None else 0
        for row in rows
    )
