"""One try of a job of a service: find its newest completed checkpoint, and replicate it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple, Protocol

from cpreplicate.core import uri
from cpreplicate.core.clock import Clock
from cpreplicate.core.lag import Newest
from cpreplicate.core.notify import Notify, named
from cpreplicate.core.placement import CHECKPOINT_NAME
from cpreplicate.errors import (
    CpreplicateError,
    LeaseHeld,
    NotNewer,
    NotThere,
    Refused,
    Sealed,
    SourceBroken,
    SourceMovedOn,
    described,
    exit_code_of,
    obstacle_of,
)
from cpreplicate.operations.jobs.job import (
    Checkpoint,
    Job,
    JobKey,
    is_standby,
    is_subsumed,
    newest_checkpoint,
)
from cpreplicate.operations.jobs.observation import Observation, newest_of, newest_of_replica
from cpreplicate.operations.jobs.policy import Policy
from cpreplicate.operations.jobs.restore_state import restore_state_of
from cpreplicate.operations.jobs.schedule import Ending
from cpreplicate.operations.jobs.state import JobState
from cpreplicate.operations.sync.place import replica_root
from cpreplicate.operations.sync.put_off import Backlog
from cpreplicate.operations.sync.report import Report
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.sync.source.state import stopped_with
from cpreplicate.operations.sync.sync import Committed, sync
from cpreplicate.protocol import json_files
from cpreplicate.protocol.replica import Replica
from cpreplicate.runners import NeedsSpark, RunnerStopped, WarmRunners
from cpreplicate.storage import Transient
from cpreplicate.storage.waiting.admission import admitted
from cpreplicate.storage.waiting.cancellation import cancellable
from cpreplicate.storage.waiting.side_call import Executor, in_thread

_MOST_LOOK = 2.0  # seconds for which who asks waits for a look at a replica


class Replicated(NamedTuple):
    """What a sync of a job did; `label` is the job's name, with its id if another has the same."""

    job: str
    label: str
    report: Report


Show = Callable[[Replicated], object]
Make = Callable[[str, SyncRequest, Notify, int], Report]
"""Makes a sync of a job, of that label and level, elsewhere; `NeedsSpark`: it is too large."""


class Tries(Protocol):
    """What tries the jobs of a service, in this process or in others."""

    @property
    def total(self) -> Observation:
        """What the syncs of all jobs took together."""

    def attempt(self, state: JobState, level: int) -> Ending:
        """Try a job once, at its level of importance, and record in its state how that went."""

    def glance(self, state: JobState) -> None:
        """See the newest checkpoint of a source, so that its lag is known meanwhile."""

    def look_now(self, state: JobState) -> None:
        """Look at a replica that others may have changed, and wait for that, but not for long."""

    def follow(self, states: Mapping[JobKey, JobState]) -> None:
        """Take over which jobs are followed from now on. Waits for nothing."""

    def forgot(self, state: JobState) -> None:
        """Take over that the replica of a job was removed."""

    def tend(self) -> None:
        """Do what is due beside the tries; called by the loop of the service each turn."""

    def cancel(self) -> None:
        """Cancel the tries under way, from another thread. Waits for nothing."""


@dataclass
class Attempts:
    """Tries jobs, several at the same time, and records in their states how that went.

    Put-off deletes take `interval` seconds from the start of a try at most. After `look_again`
    seconds a replica is looked at although its source has nothing new: it may have been sealed or
    deleted. `lock` guards the observations, and `total`: the time of all jobs. `show` is called
    with each sync. `notify` gets everything else, and `policy` decides what failures mean.
    `changed` is called with a state that changes in the midst of a try. `make` makes syncs that are
    small, None if this process does. `looks` makes looks at replicas, beside their caller.
    """

    runners: WarmRunners
    policy: Policy
    interval: float
    look_again: float
    lock: threading.Lock
    notify: Notify
    show: Show
    clock: Clock
    changed: Callable[[JobState], object] = lambda _state: None
    make: Make | None = None
    looks: Executor = in_thread
    total: Observation = field(default_factory=lambda: Observation("all jobs"))

    def attempt(self, state: JobState, level: int) -> Ending:
        """See `Tries`. Only a bug raises anything, or `NeedsSpark` where another process has it."""
        job = state.job  # discovery may find another state of it meanwhile
        until = self.clock.monotonic() + self.interval
        try:
            with cancellable(self.runners.raise_if_cancelled), admitted():
                if self._finds_first_copy(state, job):
                    return "first"
                self._replicate(state, job, level)
                self._delete(state, until)
        except RunnerStopped:
            return "done"
        except NeedsSpark:
            raise
        except Exception as error:  # noqa: BLE001  # it concerns this job only
            return self._failed(state, job, error)
        return "done"

    def follow(self, states: Mapping[JobKey, JobState]) -> None:
        """See `Tries`. The states are all that is needed."""

    def forgot(self, state: JobState) -> None:
        """See `Tries`. The states are all that is needed."""

    def tend(self) -> None:
        """See `Tries`. Nothing is due beside the tries of this process."""

    def cancel(self) -> None:
        """See `Tries`."""
        self.runners.cancel()

    def _finds_first_copy(self, state: JobState, job: Job) -> bool:
        """Look at the replica before the first try; return whether it holds no checkpoint.

        What it holds is known then while the first try of this process takes its time.
        """
        if state.was_replica_asked or job.refusal is not None:
            return False
        state.was_replica_asked = True
        self._look_at_replica(state, job)
        seen = state.observation.restore_state
        if seen is None:
            return False
        if seen.starting is not None:
            newest = newest_of(uri.name(seen.starting.checkpoint), seen.completed)
            with self.lock:
                state.observation.replica_newest = state.observation.replica_newest or newest
        state.is_first = seen.starting is None and seen.obstacle is None
        return state.is_first

    def look_now(self, state: JobState) -> None:
        """See `Tries`."""
        with self.lock:
            look = state.look
            if look is None or look.has_ended:
                if not state.is_of_others:
                    return
                ask = partial(self._look_at_replica, state, state.job)
                look = state.look = self.looks(ask, "look")
        look.wait(_MOST_LOOK)

    def glance(self, state: JobState) -> None:
        """See `Tries`."""
        now, observation = self.clock.now(), state.observation
        before = observation.looked
        with suppress(Exception), cancellable(self.runners.raise_if_cancelled):
            with state.looking():
                newest = newest_checkpoint(state.job).newest
            with self.lock:
                if observation.looked == before:  # else somebody else looked, perhaps later
                    observation.saw(newest, now)

    def _replicate(self, state: JobState, job: Job, level: int) -> None:
        if job.refusal is not None:
            raise Refused(job.refusal)
        with state.looking():
            if self._is_skipped(state, job):
                return
            reported, now = state.reported(job), self.clock.now()
            looked = now if reported is None else state.discovered
            checkpoint = reported or newest_checkpoint(job)
        with self.lock:
            state.observation.saw(checkpoint.newest, looked)
            is_done = state.is_done(checkpoint)
            if is_done and self.clock.monotonic() - state.looked < self.look_again:
                state.observation.still(self.clock.now())
                return
        self.changed(state)
        try:
            self._sync(state, job, checkpoint, level)
        except SourceBroken:  # its `_metadata` is there: nothing superseded it
            raise
        except (NotThere, SourceMovedOn, NotNewer) as error:
            if reported is not None:
                state.subsumed(reported)
            elif not is_subsumed(checkpoint, job):
                raise
            elif not isinstance(error, NotNewer):
                raise SourceMovedOn(str(error)) from error
            self._replicate(state, job, level)  # the newest one of the directory

    def _sync(self, state: JobState, job: Job, checkpoint: Checkpoint, level: int) -> None:
        request = replace(job.request, source=checkpoint.path, follows=True)

        def committed(report: Report) -> None:
            with self.lock:
                state.located(report.plan.replica)
                acknowledged = _carried_out(checkpoint, report).newest.acknowledged
                state.observation.committed(report, self.clock.now(), acknowledged)
            self.changed(state)

        report = self._made(state.label, request, level, committed)
        state.failures.forget()
        done = _carried_out(checkpoint, report)
        with self.lock:
            state.done, state.looked, state.is_first = done, self.clock.monotonic(), False
            state.is_of_others = not report.committed
            state.observation.succeeded(report, self.clock.now(), done.newest.acknowledged)
            self.total.timed(report)
            state.located(report.plan.replica)
        self.show(Replicated(job.name, state.label, report))
        if report.undeleted:
            state.backlog = state.backlog or Backlog(job.request)
            state.backlog.add(report)

    def _made(self, label: str, request: SyncRequest, level: int, committed: Committed) -> Report:
        """Return the report of a sync that was made by whom it is worth."""
        notify = named(label, self.notify)
        if self.make is not None:
            with suppress(NeedsSpark):
                report = self.make(label, request, notify, level)
                if report.committed:
                    committed(report)
                return report
        return sync(request, notify, self.runners.share(level), committed)

    def _delete(self, state: JobState, until: float) -> None:
        """Make deletes that were put off. The job is replicated, whether they succeed or not."""
        if state.backlog is None:
            return
        try:
            state.backlog.work_off(until, named(state.label, self.notify), self.clock)
        except (CpreplicateError, OSError) as error:
            state.failures(
                f"{described(error)}. Files that are no longer needed are left to `sweep`"
            )

    def _is_skipped(self, state: JobState, job: Job) -> bool:
        """Return whether a discovered directory is a replica itself, which no job writes to."""
        if not job.is_discovered or state.done is not None:
            return False
        if not is_standby(job.request.source, job.request.sides.source):
            return False
        if not state.observation.tries:
            self.notify(
                f"{state.label}: {job.request.source} is a replica that no job writes to. It is"
                " not replicated further"
            )
        with self.lock:
            state.observation.saw(None, self.clock.now())
            state.observation.unchanged(self.clock.now())
        return True

    def _failed(self, state: JobState, job: Job, error: Exception) -> Ending:
        observation = state.observation
        replica_newest = self._newest_of_replica(state, job)
        if state.is_source_lost or not isinstance(error, Transient):  # else the target is lost
            self._look_at_replica(state, job)
        is_waiting = self.policy.is_waiting(job, observation.source_newest, error)
        state.final = self.policy.final(error, is_first=state.done is None)
        if is_waiting:
            self._report_end(state, job)
        with self.lock:
            observation.replica_newest = observation.replica_newest or replica_newest
            if is_waiting:
                observation.saw(None, self.clock.now())
                observation.unchanged(self.clock.now())  # none yet, or none any more
                return "done"
            if isinstance(error, LeaseHeld):
                state.is_of_others = True
                observation.held(self.clock.now())  # by a stand-in, or a run of an operator
                return "done"
            text, is_sealed = described(error), isinstance(error, Sealed)
            code, obstacle = exit_code_of(error), obstacle_of(error)
            observation.failed(code, text, self.clock.now(), is_sealed, obstacle)
        if state.final is None:
            state.failures(f"{state.label}: {text}. It is tried again")
        if isinstance(error, SourceMovedOn):
            return "again"
        return "unreachable" if isinstance(error, Transient) else "failed"

    def _report_end(self, state: JobState, job: Job) -> None:
        """Report once that a job has ended, if it had checkpoints, or a savepoint is named."""
        if state.observation.source_newest is None and job.savepoint == state.savepoint:
            return
        state.savepoint = job.savepoint
        self.notify(
            f"{state.label}: {job.request.source} holds no completed checkpoint any more: the"
            f" job has ended, and Flink deleted them.{_stopped_with(job)} Its replica stays as"
            " it is"
        )

    def _look_at_replica(self, state: JobState, job: Job) -> None:
        """Record what the job is started from, and whether it was promoted since.

        The try may have failed before it looked at the replica: the source may be lost.
        """
        known, side = state.observation.restore_state, job.request.sides.target
        looked = state.observation.replica_looked
        with (
            suppress(CpreplicateError, OSError, RunnerStopped),
            cancellable(self.runners.raise_if_cancelled),
        ):
            replica = Replica(replica_root(job.request), side)
            with self.lock:
                state.located(replica.root)
            restore_state = restore_state_of(replica, known)
            with self.lock:
                if state.observation.replica_looked == looked:  # else a sync has committed since
                    state.observation.saw_replica(restore_state, self.clock.now())

    def _newest_of_replica(self, state: JobState, job: Job) -> Newest | None:
        """Return what the replica has, after the first try of a process failed."""
        if state.observation.replica_newest is not None:
            return None
        with (
            suppress(CpreplicateError, OSError, RunnerStopped),
            cancellable(self.runners.raise_if_cancelled),
        ):
            return newest_of_replica(job.request)
        return None


def _carried_out(checkpoint: Checkpoint, report: Report) -> Checkpoint:
    """Return what was replicated, with all that is known of when it was completed."""
    completed, name = report.completed, report.plan.checkpoint
    known = uri.name(checkpoint.path)
    if CHECKPOINT_NAME.fullmatch(known) and known != name:  # it was subsumed meanwhile
        path = uri.join(uri.parent(checkpoint.path), name)
        number = report.plan.checkpoint_id
        return Checkpoint(path, Newest(number, completed or 0.0))
    if completed is None:
        return checkpoint
    newest = checkpoint.newest._replace(completed=completed, is_dated=True)
    return checkpoint._replace(newest=newest)


def _stopped_with(job: Job) -> str:
    """Return, for the line about the end of a job, the savepoint that may have stopped it."""
    stopped = stopped_with(job.request, job.request.source, job.savepoint)
    if stopped is None:
        return ""
    savepoint, command = stopped
    if savepoint.is_reported:
        completed = json_files.clock(savepoint.completed)
        return (
            f" Its JobManager names its last savepoint, {savepoint.path}, completed {completed}:"
            f" `{command}` replicates that."
        )
    return f" If it was stopped with {savepoint.path}, `{command}` replicates that."
