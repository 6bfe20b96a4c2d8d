"""What is known of a job that is replicated: the basis of metrics, of `status` and of probes."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from cpreplicate.core import uri
from cpreplicate.core.lag import (
    UNNUMBERED,
    Newest,
    age_seconds,
    checkpoints_behind,
    clock_ahead,
    is_unseen,
    lag_seconds,
)
from cpreplicate.core.placement import CHECKPOINT_NAME
from cpreplicate.core.plan import Plan, total
from cpreplicate.errors import CpreplicateError, LeaseHeld, Obstacle
from cpreplicate.operations.jobs.restore_state import RestoreState
from cpreplicate.operations.sync.place import replica_root
from cpreplicate.operations.sync.report import Report
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.protocol import census
from cpreplicate.protocol.census import Census
from cpreplicate.protocol.replica import Replica
from cpreplicate.protocol.source import find

Operation = Literal["sync", "sweep", "verify"]
Readiness = Literal["ready", "lease", Obstacle]
"""Whether `promote` would succeed, as far as the last look shows: `ready`, or why not."""


SYNC_SECONDS = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, math.inf)
"""The upper bounds by which the durations of syncs are counted."""


class FirstSeen(NamedTuple):
    """A checkpoint that was not there `after` a look, and was there at the next; by this clock."""

    checkpoint_id: int
    after: float
    by: float


@dataclass
class Observation:
    """What a process has seen of a job since it started; times are seconds since the epoch.

    `operation` is what the tries did: `watch` and `fleet` try `sync`. `is_sealed`, `is_lease_held`
    (by another process), `is_restorable` and `orphan_bytes` are None if nobody looked. `failures`
    counts failed tries by their exit code. `seconds` are spent by phase. `last_error` and
    `last_exit_code` are those of the last try. `looked` is when the newest checkpoint of the source
    was last looked for, and that could be answered. A service does that at least every
    `look_within` seconds, the first time after `known_since`; None for what is no service.
    `is_unreported`: its JobManager answers without it, and never reported its end.
    `restore_state` is what the job is started from, as it was when the replica was last looked at:
    `replica_looked`. `clock_ahead`: by how many seconds at least the clock of the source's storage
    is ahead of this host's, as new checkpoints showed; None before the first one.
    """

    name: str
    source: str = ""
    replica: str = ""
    priority: int = 0
    operation: Operation = "sync"
    source_newest: Newest | None = None
    replica_newest: Newest | None = None
    tries: int = 0
    last_try: float | None = None
    last_success: float | None = None
    last_error: str | None = None
    last_exit_code: int | None = None
    looked: float | None = None
    look_within: float | None = None
    known_since: float = 0.0
    is_unreported: bool = False
    is_sealed: bool | None = None
    is_lease_held: bool | None = None
    is_restorable: bool | None = None
    readiness: Readiness | None = None
    """As of the last look at the replica; None if nobody looked."""
    orphan_bytes: int | None = None
    restore_state: RestoreState | None = None
    replica_looked: float | None = None
    clock_ahead: float | None = None
    first_seen: FirstSeen | None = None
    fingerprints_lacking: float | None = None
    """Positions without a fingerprint of the last checkpoint, infinite if none could be read."""
    files: Counter[str] = field(default_factory=Counter)
    """By `copied`, `kept` and `deleted`."""
    bytes: Counter[str] = field(default_factory=Counter)
    """As `files`."""
    seconds: Counter[str] = field(default_factory=Counter)
    """By phase, such as `copy`."""
    failures: Counter[int] = field(default_factory=Counter)
    sync_durations: Counter[float] = field(default_factory=Counter)
    """Syncs that changed the replica, by each of `SYNC_SECONDS` that they did not exceed."""
    sync_seconds: float = 0.0
    """The seconds that these syncs took together."""

    def copy(self) -> Observation:
        """Return a copy that does not change any more."""
        return replace(
            self,
            files=Counter(self.files),
            bytes=Counter(self.bytes),
            seconds=Counter(self.seconds),
            failures=Counter(self.failures),
            sync_durations=Counter(self.sync_durations),
        )

    def lag(self, now: float) -> float:
        """Return the lag in seconds, see `lag_seconds`; while the source is unseen, the age.

        Checkpoints are dated by the clock of the source's storage, so that is asked how late it is.
        """
        then = now + (self.clock_ahead or 0.0)
        if self.is_unseen(now):
            return age_seconds(self.replica_newest, then)
        return lag_seconds(self.source_newest, self.replica_newest, then)

    def is_unseen(self, now: float) -> bool:
        """Return whether the source was not looked at for so long that its lag is not known."""
        if self.look_within is None:
            return False
        looked = self.known_since if self.looked is None else self.looked
        return is_unseen(looked, self.look_within, now)

    @property
    def is_lost(self) -> bool:
        """Whether nobody knows that a job has ended which is not reported any more.

        One without checkpoints at the source has.
        """
        return self.is_unreported and self.source_newest is not None

    def saw(self, newest: Newest | None, now: float) -> None:
        """Record that the source was looked at, and what its newest checkpoint is."""
        known = self.replica_newest
        if newest is not None and newest.checkpoint_id == UNNUMBERED and known is not None:
            # a savepoint is the only checkpoint of its replica
            newest = newest._replace(checkpoint_id=known.checkpoint_id)
        before = self.source_newest
        if newest is not None and (before is None or before.is_older(newest)):
            after = -math.inf if before is None or self.looked is None else self.looked
            self.first_seen = FirstSeen(newest.checkpoint_id, min(after, now), now)
        self.source_newest, self.looked = newest, now

    def behind(self) -> int:
        """Return how many checkpoints the replica is behind."""
        return checkpoints_behind(self.source_newest, self.replica_newest)

    def committed(self, report: Report, now: float, acknowledged: float | None = None) -> None:
        """Record what a sync has committed, which may still delete what is needed no more.

        `acknowledged` is when Flink dates the checkpoint, if it reported it.
        """
        self.replica, self.readiness = report.plan.replica, "ready"
        self._compare_clocks(report)
        if report.fingerprints is not None:
            lacking = report.fingerprints.lacking
            self.fingerprints_lacking = math.inf if lacking is None else lacking
        if not report.plan.repairs:  # that of an older point
            self.saw_replica(RestoreState(report.starting, report.completed), now)
            self._replicated(self._newest_of(report, now)._replace(acknowledged=acknowledged))

    def succeeded(self, report: Report, now: float, acknowledged: float | None = None) -> None:
        """Add a sync that succeeded, also one with nothing to do.

        Files and bytes are those of its plan. Deletes that were put off do not count. Of a sync
        with nothing to do, only the time counts: otherwise the kept files would depend on how often
        a job is tried.
        """
        self.unchanged(now)
        self.timed(report)
        self.committed(report, now, acknowledged)
        if not report.plan.empty:
            self._count(report.plan, frozenset(report.undeleted))

    def timed(self, report: Report) -> None:
        """Add the time of a sync that succeeded, of this job or of all of a service."""
        self.seconds.update(report.phases)
        if not report.plan.empty:
            self.took(report.seconds)

    def add_times(self, other: Observation) -> None:
        """Add the times of syncs that another process counted."""
        self.seconds.update(other.seconds)
        self.sync_durations.update(other.sync_durations)
        self.sync_seconds += other.sync_seconds

    def unchanged(self, now: float) -> None:
        """Add a try that succeeded, and that had nothing to do or is not a sync."""
        self.still(now)
        if self.operation == "sync":
            # either of them would have made the sync fail
            self.is_sealed = self.is_lease_held = False

    def still(self, now: float) -> None:
        """Add a try that found nothing new at the source, and did not look at the replica."""
        self.tries += 1
        self.last_try = self.last_success = now
        self.last_error, self.last_exit_code = None, 0

    def failed(
        self,
        exit_code: int,
        error: str,
        now: float,
        is_sealed: bool = False,
        obstacle: Obstacle | None = None,
    ) -> None:
        """Add a try that failed; `is_sealed` is whether a seal was the reason.

        `obstacle` is what it saw in the replica that is in the way of `promote`, too.
        """
        self.tries += 1
        self.last_try = now
        self.last_error, self.last_exit_code = error, exit_code
        self.failures[exit_code] += 1
        if self.operation == "sync":
            self.is_lease_held = exit_code == LeaseHeld.exit_code
            self.is_sealed = True if is_sealed else self.is_sealed
            self._see_readiness(is_sealed, obstacle)

    def saw_replica(self, restore_state: RestoreState, now: float) -> None:
        """Record what the replica was seen to hold, and whether `promote` would succeed."""
        self.restore_state, self.replica_looked = restore_state, now
        if restore_state.refusal is None:
            self.readiness = "ready"
        elif restore_state.obstacle is not None:
            self.readiness = restore_state.obstacle

    def took(self, seconds: float) -> None:
        """Add the duration of a sync that changed the replica."""
        self.sync_durations.update(bound for bound in SYNC_SECONDS if seconds <= bound)
        self.sync_seconds += seconds

    def held(self, now: float) -> None:
        """Add a try that found another process at work: a stand-in service, or an operator."""
        self.tries += 1
        self.last_try = now
        self.last_error = self.last_exit_code = None  # what failed before may be over
        self.is_lease_held, self.readiness = True, "lease"

    def _see_readiness(self, is_sealed: bool, obstacle: Obstacle | None) -> None:
        """Record what a failed sync saw. If it saw nothing, what was seen before holds."""
        if self.is_lease_held:
            self.readiness = "lease"
        elif obstacle is not None:
            self.readiness = obstacle
        elif is_sealed:  # promoted already
            self.readiness = "ready"
        elif self.readiness == "lease":  # it may be free by now
            self.readiness = None

    def _compare_clocks(self, report: Report) -> None:
        """Compare the storage's time of a checkpoint with that at which it was seen first."""
        seen, completed = self.first_seen, report.completed
        if seen is not None and completed and seen.checkpoint_id == report.plan.checkpoint_id:
            known = self.clock_ahead or 0.0
            self.clock_ahead = clock_ahead(known, completed, seen.after, seen.by)

    def _replicated(self, newest: Newest) -> None:
        self.replica_newest = newest
        # the job may have completed another one during the sync
        if self.source_newest is None or self.source_newest.is_older(newest):
            self.source_newest = newest

    def _newest_of(self, report: Report, now: float) -> Newest:
        checkpoint_id, known = report.plan.checkpoint_id, self.replica_newest
        if report.completed is not None:
            return Newest(checkpoint_id, report.completed)
        # the storage does not date it: it was completed before it was replicated
        is_known = known is not None and known.checkpoint_id == checkpoint_id
        return known if known is not None and is_known else Newest(checkpoint_id, now)

    def _count(self, plan: Plan, put_off: frozenset[str]) -> None:
        deletes = [action for action in plan.deletes if action.target not in put_off]
        actions = {"copied": plan.copies, "kept": plan.keeps, "deleted": deletes}
        for name, rows in actions.items():
            self.files[name] += len(rows)
            self.bytes[name] += total(rows)


def see_newest(job: Observation, request: SyncRequest) -> None:
    """Look for the newest checkpoint of the source of a sync that failed.

    What cannot be found out becomes unknown. So does the source if the replica has checkpoints that
    `job` does not know: its lag cannot be given. Costs a few listings.
    """
    try:
        job.source_newest = _newest_at(request)
        job.replica_newest = job.replica_newest or newest_of_replica(request)
        if job.replica_newest is None and _has_checkpoint(request):
            job.source_newest = None
    except (CpreplicateError, OSError):
        job.source_newest = None


def newest_of_replica(request: SyncRequest) -> Newest | None:
    """Return the newest checkpoint of a replica, None if it has none or does not know its time.

    Costs a listing and the read of a record for each checkpoint.
    """
    found = _census(request)
    return newest_of(found.newest, found.completed(found.newest)) if found.newest else None


def newest_of(name: str, completed: float | None) -> Newest | None:
    """Return the checkpoint of a directory `chk-N`; None of a savepoint, or without a time."""
    match = CHECKPOINT_NAME.fullmatch(name)
    return None if match is None or completed is None else Newest(int(match[1]), completed)


def _newest_at(request: SyncRequest) -> Newest | None:
    source = find(request.source, request.sides.source, request.allow_older)
    return newest_of(uri.name(source.checkpoint), source.completed)


def _has_checkpoint(request: SyncRequest) -> bool:
    return _census(request).newest is not None


def _census(request: SyncRequest) -> Census:
    return census.take(Replica(replica_root(request), request.sides.target))
