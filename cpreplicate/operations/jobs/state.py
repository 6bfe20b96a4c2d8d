"""What a service remembers of a job between its tries."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from cpreplicate.core import uri
from cpreplicate.core.clock import MACHINE, Clock
from cpreplicate.core.lag import is_behind, is_unseen
from cpreplicate.core.notify import Notify
from cpreplicate.operations.jobs.job import Checkpoint, Job
from cpreplicate.operations.jobs.observation import Observation
from cpreplicate.operations.jobs.repeated_lines import RepeatedLines
from cpreplicate.operations.sync.place import likely_root
from cpreplicate.operations.sync.put_off import Backlog
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.protocol.savepoints import LastSavepoint
from cpreplicate.storage import Transient
from cpreplicate.storage.waiting.side_call import SideCall


class Life(NamedTuple):
    """What the lives of a job have in common that restarts under another id."""

    name: str
    target_root: str
    directory: str


class Followed(NamedTuple):
    """A job of a service, and its replica, for what is done with that beside the syncs.

    `has_checkpoint`: its source holds one, or nobody has looked yet. `is_in_step`: the replica was
    replicated, and nothing has failed since.
    """

    label: str
    replica: str
    request: SyncRequest
    has_checkpoint: bool
    is_in_step: bool


class Memory(NamedTuple):
    """What a service knows of a job beside what discovery found, as another process takes it over.

    The fields are those of `JobState`.
    """

    observation: Observation
    done: Checkpoint | None
    looked: float
    savepoint: LastSavepoint | None
    is_source_lost: bool
    is_located: bool
    is_first: bool
    was_replica_asked: bool
    is_of_others: bool


class JobState:
    """What a service knows of a job.

    `done` is the checkpoint that was replicated last, and `looked` when its replica was looked at,
    by the monotonic clock. `discovered` is when discovery asked for what it found, in seconds since
    the epoch. `is_located`: the place of the replica is known. `was_replica_asked`: what it holds
    was asked before the first try. `is_first`: it holds nothing yet. `is_source_lost`: the source
    could not be reached at the last look. `savepoint` is the one with which the job was reported to
    have ended. `is_of_others`: another process made, or makes, the last change of its replica.
    `look` is the last look at that on request. `final` is the failure that ends the service.
    `label` is its name, with its id or its directory if another job has the same name.
    """

    def __init__(self, job: Job, warn: Notify, look_within: float, clock: Clock = MACHINE) -> None:
        self.job, self.label, self._clock = job, job.name, clock
        self.observation = Observation(job.name, look_within=look_within, known_since=clock.now())
        self.failures = RepeatedLines(warn, clock)
        self.done: Checkpoint | None = None
        self.looked = -math.inf
        self.backlog: Backlog | None = None
        self.discovered = 0.0
        self.is_source_lost = self.is_located = self.is_first = False
        self.was_replica_asked = self.is_of_others = False
        self.look: SideCall[None] | None = None
        self.savepoint: LastSavepoint | None = None
        self.final: Exception | None = None
        self._look_within = look_within
        self._subsumed: Checkpoint | None = None

    @property
    def life(self) -> Life:
        """What another id of the same job would have, too."""
        key = self.job.key
        return Life(self.job.name, key.target_root, uri.parent(key.source))

    @property
    def is_restorable(self) -> bool:
        """Whether a job can be started from what the replica was seen to hold."""
        seen = self.observation.restore_state
        return seen is not None and seen.starting is not None and seen.refusal is None

    @property
    def restorable_since(self) -> float:
        """When that was completed at the source, in seconds since the epoch; 0 if not known."""
        seen = self.observation.restore_state
        return (seen.completed if seen is not None else None) or 0.0

    @property
    def followed(self) -> Followed:
        """What is known of the job and its replica now."""
        seen = self.observation
        has_checkpoint = seen.looked is None or seen.source_newest is not None
        is_in_step = self.done is not None and seen.last_exit_code == 0 and not seen.is_sealed
        return Followed(self.label, seen.replica, self.job.request, has_checkpoint, is_in_step)

    def forgot(self) -> None:
        """Record that the replica was removed: nothing can be started from it any more."""
        self.done = None
        self.observation.restore_state = self.observation.replica_newest = None

    def update(self, job: Job, discovered: float | None = None) -> None:
        """Take over what discovery found: now, unless it is known when."""
        self.job = job
        found = self._clock.now() if job.looked is None else job.looked
        self.discovered = found if discovered is None else discovered
        self._see_job(is_news=True)

    def _see_job(self, is_news: bool) -> None:
        """Let the observation be that of the job as discovery found it.

        `is_news`: nobody has looked at the source since.
        """
        job, observation = self.job, self.observation
        observation.name, observation.priority = job.name, job.priority
        observation.source, observation.is_unreported = job.request.source, job.is_lost
        if not self.is_located:
            observation.replica = likely_root(job.request)
        if is_news and (reported := self.reported(job)) is not None:
            observation.saw(reported.newest, self.discovered)

    @property
    def memory(self) -> Memory:
        """What another process that goes on with the job has to know."""
        return Memory(
            self.observation.copy(),
            self.done,
            self.looked,
            self.savepoint,
            self.is_source_lost,
            self.is_located,
            self.is_first,
            self.was_replica_asked,
            self.is_of_others,
        )

    def remember(self, memory: Memory) -> None:
        """Go on from what another process knew of the job. What discovery found stays."""
        self.observation, self.done, self.looked, self.savepoint, *flags = memory
        self.is_source_lost, self.is_located, self.is_first = flags[:3]
        self.was_replica_asked, self.is_of_others = flags[3:]
        looked = self.observation.looked
        self._see_job(is_news=looked is None or looked < self.discovered)

    def located(self, replica: str) -> None:
        """Record the place of the replica, which a try found."""
        self.observation.replica, self.is_located = replica, True

    def reported(self, job: Job) -> Checkpoint | None:
        """Return the checkpoint that discovery knows, unless the job may have a newer one.

        The REST API answers from a cache, by default up to 3 s old (`web.refresh-interval`). What
        discovery found long ago, or is lower than what was seen since, is not known: the directory
        of the job is listed then. Numbers restart when a job is started from scratch.
        """
        found = job.newest
        is_old = is_unseen(self.discovered, self._look_within, self._clock.now())
        if found is None or is_old or found == self._subsumed:
            return None
        seen = [self.observation.source_newest, self.done and self.done.newest]
        is_passed = any(each is not None and found.newest.is_older(each) for each in seen)
        return None if is_passed else found

    def is_done(self, checkpoint: Checkpoint) -> bool:
        """Return whether it is the checkpoint that was replicated last."""
        done = self.done
        if done is None or done.path != checkpoint.path:
            return False
        return done.newest.is_same(checkpoint.newest)

    def subsumed(self, checkpoint: Checkpoint) -> None:
        """Record that a checkpoint that discovery reported is gone."""
        self._subsumed = checkpoint

    def was_asked(self, now: float) -> bool:
        """Return whether the job was tried once, or its source looked at, or that takes too long.

        A first copy of hours is no reason to count as not asked.
        """
        seen = self.observation
        return bool(seen.tries) or seen.looked is not None or seen.is_unseen(now)

    def is_overdue(self, interval: float, now: float) -> bool:
        """Return whether to look at the source beside the tries: one takes long, or none is due.

        That is the case during a long sync, and after failures, such as those of the target. A
        source that could not be reached is left to the tries: each look costs its time.
        """
        observation = self.observation
        if self.job.refusal is not None or observation.looked is None:
            return False
        soon = (interval + self._look_within) / 2  # before it is unseen
        return not self.is_source_lost and now - observation.looked > soon

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Record whether the source can be reached within the context, which looks at it."""
        try:
            yield
        except Transient:
            self.is_source_lost = True
            raise
        self.is_source_lost = False

    def is_retired(self, retire_after: float | None) -> bool:
        """Return whether a discovered job, all of which is replicated, is older than that."""
        newest, done = self.observation.source_newest, self.done
        if retire_after is None or newest is None or not self.job.is_discovered:
            return False
        if done is None or is_behind(newest, done.newest):
            return False
        is_dated = newest.completed > 0  # how old another one is is not known
        return is_dated and self._clock.now() - newest.completed > retire_after
