"""The loop behind `watch --flink`, `watch --jobs-under` and `fleet --every`: many jobs, for months.

Discovery returns the jobs, again and again. Each job is tried when it is due: its newest completed
checkpoint is found, and replicated by `sync` if that was not done before.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial

from cpreplicate.core import uri
from cpreplicate.core.lag import Newest, is_unseen
from cpreplicate.core.notify import Notify
from cpreplicate.errors import (
    CpreplicateError,
    LeaseHeld,
    NotThere,
    Refused,
    Sealed,
    SourceBroken,
    SourceMovedOn,
    described,
    exit_code_of,
)
from cpreplicate.operations.jobs.fleet import Member, is_standby
from cpreplicate.operations.jobs.inquiries import Inquiries
from cpreplicate.operations.jobs.job import (
    Checkpoint,
    Discovery,
    ServedJob,
    by_key,
    is_subsumed,
    newest_checkpoint,
)
from cpreplicate.operations.jobs.schedule import Ending, Load, Schedule, Wanted
from cpreplicate.operations.jobs.sight import Discovered, Sight
from cpreplicate.operations.jobs.watch import Sparing
from cpreplicate.operations.log_context import begin_job
from cpreplicate.operations.observation import Observation, newest_of_replica
from cpreplicate.operations.sync.put_off import Backlog
from cpreplicate.operations.sync.report import Report
from cpreplicate.operations.sync.sync import sync
from cpreplicate.runners import RunnerStopped, WarmRunners
from cpreplicate.storage import Transient
from cpreplicate.storage.cancellation import cancellable

_TICK = 1.0  # seconds: the longest pause of the loop
_ALIVE = 60.0  # seconds without a turn of the loop, after which it counts as dead
# Seconds after which a replica is looked at again, although its source has nothing new: it may have
# been sealed or deleted.
_LOOK_AGAIN = 600.0
_MOST_NAMES = 20  # of jobs in a line
_CANCEL_SHARE = 0.5  # of the grace: then what still runs is cancelled


@dataclass(frozen=True)
class ServiceSettings:
    """How a service works; times are seconds.

    `slots` jobs of a priority are replicated at the same time. `grace` is the time from the request
    to stop to the end. A discovered job whose newest checkpoint is older than `retire_after` is not
    observed until it completes another one. A source is unseen if nobody has looked at it within
    two intervals, or within `least_look_within` if that is longer: a busy machine is no failure.
    """

    interval: float = 30.0
    slots: int = 20
    max_backoff: float = 600.0
    grace: float = 30.0
    retire_after: float | None = None
    least_look_within: float = 5.0

    @property
    def look_within(self) -> float:
        """The seconds within which each source should be looked at."""
        return max(2 * self.interval, self.least_look_within)


class _Followed:
    """What a service remembers of a job.

    `done` is the checkpoint that was replicated last, and `looked` when its replica was looked at,
    by the monotonic clock. `discovered` is when discovery asked for what it found, in seconds since
    the epoch. `is_source_lost` is whether the source could not be reached at the last look.
    `label` is its name, with its id if another job has the same name.
    """

    def __init__(self, job: ServedJob, warn: Notify, look_within: float) -> None:
        self.job = job
        self.label = job.member.name
        self.observation = Observation(job.member.name, look_within=look_within)
        self.observation.known_since = time.time()
        self.failures = Sparing(warn)
        self.done: Checkpoint | None = None
        self.looked = -math.inf
        self.backlog: Backlog | None = None
        self.discovered = 0.0
        self.is_source_lost = False
        self._look_within = look_within
        self._subsumed: Checkpoint | None = None

    def update(self, job: ServedJob) -> None:
        """Take over what discovery found."""
        self.job = job
        observation, member = self.observation, job.member
        observation.name, observation.priority = member.name, member.priority
        observation.source, observation.replica = member.request.source, job.key
        self.discovered = time.time() if job.looked is None else job.looked
        if (reported := self.reported(job)) is not None:
            observation.saw(reported.newest, self.discovered)

    def reported(self, job: ServedJob) -> Checkpoint | None:
        """Return the checkpoint that discovery knows, unless Flink has subsumed it since.

        The REST API answers from a cache, by default up to 3 s old (`web.refresh-interval`). What
        discovery found long ago is not known: the directory of the job is listed then.
        """
        is_old = is_unseen(self.discovered, self._look_within, time.time())
        return None if is_old or job.newest == self._subsumed else job.newest

    def subsumed(self, checkpoint: Checkpoint) -> None:
        """Record that a checkpoint that discovery reported is gone."""
        self._subsumed = checkpoint

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
        newest = self.observation.source_newest
        if retire_after is None or newest is None or not self.job.member.is_discovered:
            return False
        return self.done is not None and time.time() - newest.completed > retire_after


class Service:
    """Follows the jobs that discovery returns, until it is interrupted.

    `show` is called with the job's name, its label (the name, with its id if another job has the
    same name) and the report of each sync that changed a replica. `warn` gets
    the failures, `notify` everything else. `sight` is that of the discovery, if it has one.
    """

    def __init__(
        self,
        discovery: Discovery,
        runners: WarmRunners,
        settings: ServiceSettings,
        notify: Notify,
        warn: Notify,
        show: Callable[[str, str, Report], object] = lambda _name, _label, _report: None,
        sight: Sight | None = None,
    ) -> None:
        self._sight = sight or Sight()
        self._discovery, self._runners, self._settings = discovery, runners, settings
        self._notify, self._show = notify, show
        self._warn, self._undiscovered, self._shadowed = warn, Sparing(warn), Sparing(warn)
        self._schedule = Schedule(settings.slots, settings.interval, settings.max_backoff)
        self._lock = threading.Lock()
        self._followed: dict[str, _Followed] = {}
        self._levels: Mapping[int, int] = {}
        self._is_discovered = self._is_stopping = False
        self._running: set[Future[None]] = set()
        self._discovering: Future[None] | None = None
        self._discover_at = 0.0
        self._discovered = time.time()
        self._glances = Inquiries(0.0)
        self._wake = threading.Event()
        self._beat = time.monotonic()

    def observations(self) -> list[Observation]:
        """Return copies of what is known of each job, by name."""
        with self._lock:
            return sorted(
                (followed.observation.copy() for followed in self._observed()),
                key=lambda observation: (observation.name, observation.replica),
            )

    def load(self) -> Load:
        """Return how many jobs are tried at this moment, and how many wait for a slot."""
        with self._lock:
            return self._schedule.load(time.monotonic())

    def is_alive(self) -> bool:
        """Return whether the loop is turning."""
        return time.monotonic() - self._beat < _ALIVE

    def is_ready(self) -> bool:
        """Return whether discovery looked everywhere once, and each job was tried at least once.

        A place that fails, or does not answer in time, counts too: it keeps no other job's service
        from being ready.
        """
        if not self._sight.was_asked(self._settings.look_within):
            return False
        with self._lock:
            return (self._is_discovered or bool(self._sight.places())) and all(
                followed.observation.tries for followed in self._observed()
            )

    def remarks(self) -> list[str]:
        """Return what a probe of this process should state of its jobs, a line each."""
        now, within = time.time(), self._settings.look_within
        with self._lock:
            observed = self._observed()
            unseen = sorted(each.label for each in observed if each.observation.is_unseen(now))
        lines = []
        if unseen:
            lines.append(f"not looked at for more than {within:g} s: {_listed(unseen)}")
        if is_unseen(self._discovered, within, now):
            age = now - self._discovered
            lines.append(f"the list of jobs is {age:.0f} s old: it could not be renewed since")
        return [*lines, *self._remarks_on_discovery()]

    def discovered(self) -> Discovered:
        """Return which places discovery could not look at in time, and which names have no job."""
        return self._sight.discovered(self._settings.look_within)

    def is_blind(self, seconds: float) -> bool:
        """Return whether discovery could not look at a place for so many seconds."""
        return any(self._sight.discovered(seconds).unseen.values())

    def _remarks_on_discovery(self) -> list[str]:
        discovered = self.discovered()
        problems = {place.name: place.problem for place in self._sight.places()}
        lines = [
            f"no jobs can be looked for at {name}: {problems.get(name) or 'it does not answer'}"
            for name, is_dark in discovered.unseen.items()
            if is_dark
        ]
        unmatched = [name for name, is_unmatched in discovered.unmatched.items() if is_unmatched]
        if unmatched:
            lines.append(f"no job is followed for: {_listed(unmatched)}")
        return _few(lines)

    def discover_soon(self) -> None:
        """Look for jobs at the next turn, within a second; callable from a signal handler.

        That interrupts this very loop, perhaps while it holds the lock of the event.
        """
        self._discover_at = 0.0

    def stop(self) -> None:
        """End `run`, from another thread."""
        self._is_stopping = True
        self._wake.set()

    def run(
        self,
        leave_behind: Callable[[], None],
        each_turn: Callable[[], None] = lambda: None,
    ) -> None:
        """Follow the jobs until `stop`, or until an exception is raised in this thread.

        Then syncs under way have half of the grace to end, and are cancelled after it: their
        replicas are as before. An interrupt by the user cancels them at once. What has not ended
        when the grace is over is left to `leave_behind`, which ends the process. `each_turn` is
        called at least once a second.
        """
        with ThreadPoolExecutor(1000, "job") as pool:
            try:
                while not self._is_stopping:
                    self._turn(pool)
                    each_turn()
                self._end(self._settings.grace * _CANCEL_SHARE, leave_behind)
            except KeyboardInterrupt:
                self._end(0.0, leave_behind)
                raise
            except BaseException:
                self._end(self._settings.grace * _CANCEL_SHARE, leave_behind)
                raise

    def _turn(self, pool: ThreadPoolExecutor) -> None:
        now = self._beat = time.monotonic()
        self._wake.clear()
        is_discovering = self._discovering is not None and not self._discovering.done()
        if now >= self._discover_at and not is_discovering:
            self._discover_at = now + self._settings.interval
            self._discovering = pool.submit(self._discover)
            self._glance_at_overdue()
        self._running = {future for future in self._running if not future.done()}
        with self._lock:
            keys = self._schedule.take(now)
        self._running |= {pool.submit(self._try, key) for key in keys}
        if self._runners.give_up_idle():
            self._notify("the Spark session was idle and is ended")
        with self._lock:
            due = self._schedule.next_due()
        # what is due already waits for a slot
        pause = _TICK if due is None or due <= now else min(_TICK, due - now)
        self._wake.wait(pause)

    def _glance_at_overdue(self) -> None:
        """Look at sources beside the tries; few at a time, so that dead ones cost few threads."""
        now, free = time.time(), self._settings.slots - self._glances.pending
        with self._lock:
            overdue = {
                key: partial(self._glance, followed)
                for key, followed in self._followed.items()
                if followed.is_overdue(self._settings.interval, now)
            }
        self._glances.ask(dict(list(overdue.items())[: max(0, free)]))

    def _glance(self, followed: _Followed) -> None:
        """See the newest checkpoint of a source, so that its lag is known meanwhile."""
        now, observation = time.time(), followed.observation
        before = observation.looked
        with suppress(Exception), cancellable(self._raise_if_cancelled):
            with followed.looking():
                newest = newest_checkpoint(followed.job.member).newest
            with self._lock:
                if observation.looked == before:  # else somebody else looked, perhaps later
                    observation.saw(newest, now)

    def _end(self, patience: float, leave_behind: Callable[[], None]) -> None:
        started = time.monotonic()
        self._is_stopping = True
        if self._running and patience:
            self._notify(f"stopping: waiting up to {patience:g} s for what is being replicated")
        try:
            wait(self._running, patience)
        finally:  # also when a second signal ends the wait
            self._runners.cancel()
            left = max(1.0, self._settings.grace - (time.monotonic() - started))
            self._leave_if_pending(left, leave_behind)

    def _leave_if_pending(self, left: float, leave_behind: Callable[[], None]) -> None:
        pending = self._running | ({self._discovering} if self._discovering else set())
        if wait(pending, left).not_done:
            self._warn("a storage does not answer: ended without waiting for it")
            leave_behind()

    def _raise_if_cancelled(self) -> None:
        if self._runners.is_cancelled:
            raise RunnerStopped

    def _discover(self) -> None:
        try:
            with cancellable(self._raise_if_cancelled):
                self._set_jobs(self._discovery.jobs())
        except RunnerStopped:
            return
        except Exception as error:  # noqa: BLE001  # the service outlives it
            self._undiscovered(f"{described(error)}. The jobs known before are followed")
        else:
            self._undiscovered.forget()
        self._wake.set()

    def _set_jobs(self, found: Sequence[ServedJob]) -> None:
        now, jobs = time.monotonic(), by_key(found, self._sources())
        self._report_shadowed(found, jobs)
        self._discovered = time.time()
        priorities = sorted({job.member.priority for job in jobs.values()}, reverse=True)
        with self._lock:
            for key in self._followed.keys() - jobs.keys():
                del self._followed[key]
            self._levels = {priority: level for level, priority in enumerate(priorities)}
            self._is_discovered = True
            self._schedule.update({key: _wanted(job) for key, job in jobs.items()}, now)
            for key, job in jobs.items():
                followed = self._followed.get(key) or self._new(job)
                self._followed[key] = followed
                followed.update(job)
                if job.newest is not None and job.newest != followed.done:
                    self._schedule.hurry(key, now)
            self._label()

    def _label(self) -> None:
        names = Counter(each.job.member.name for each in self._followed.values())
        for key, followed in self._followed.items():
            name, job_id = followed.job.member.name, uri.name(key)
            is_one_of_many = names[name] > 1 and name != job_id
            followed.label = f"{name} ({job_id})" if is_one_of_many else name

    def _sources(self) -> dict[str, str]:
        """Return the directories that are followed, by the keys of their jobs."""
        with self._lock:
            jobs = {key: followed.job for key, followed in self._followed.items()}
        return {key: job.member.request.source for key, job in jobs.items() if job.refusal is None}

    def _report_shadowed(self, found: Sequence[ServedJob], jobs: Mapping[str, ServedJob]) -> None:
        """Report jobs that are left out for one that was followed before."""
        for job in found:
            kept, source = jobs[job.key], job.member.request.source
            if kept.refusal is None and kept.member.request.source != source:
                self._shadowed(
                    f"{job.member.name}: {source} is left out: it would share the replica {job.key}"
                    f" with {kept.member.request.source}, which is followed. Give one of them"
                    " another target"
                )

    def _new(self, job: ServedJob) -> _Followed:
        return _Followed(job, self._warn, self._settings.look_within)

    def _observed(self) -> list[_Followed]:
        retire_after = self._settings.retire_after
        return [each for each in self._followed.values() if not each.is_retired(retire_after)]

    def _try(self, key: str) -> None:
        """Try a job once, in a thread of its own, and record how that ended."""
        with self._lock:
            followed = self._followed.get(key)
        ending: Ending = "done"  # of a job that is gone
        name = followed.label if followed is not None else None
        begin_job(name)
        try:
            if followed is not None and not self._is_stopping:
                ending = "failed"
                ending = self._ending_of(followed)
        except Exception as error:  # noqa: BLE001  # the job would never be tried again
            self._warn(f"{name}: {described(error)}. It is tried again")
        finally:
            with self._lock:
                self._schedule.ended(key, ending, time.monotonic())
            self._wake.set()

    def _ending_of(self, followed: _Followed) -> Ending:
        job = followed.job  # discovery may find another state of it meanwhile
        try:
            with cancellable(self._raise_if_cancelled):
                self._replicate(followed, job)
        except RunnerStopped:
            return "done"
        except Exception as error:  # noqa: BLE001  # it concerns this job only
            return self._failed(followed, job, error)
        return "done"

    def _replicate(self, followed: _Followed, job: ServedJob) -> None:
        if job.refusal is not None:
            raise Refused(job.refusal)
        with followed.looking():
            if self._is_skipped(followed, job.member):
                return
            reported, now = followed.reported(job), time.time()
            looked = now if reported is None else followed.discovered
            checkpoint = reported or newest_checkpoint(job.member)
        with self._lock:
            followed.observation.saw(checkpoint.newest, looked)
            is_done = followed.done == checkpoint
            if is_done and time.monotonic() - followed.looked < _LOOK_AGAIN:
                followed.observation.still(time.time())
                return
        try:
            self._sync(followed, job.member, checkpoint)
        except SourceBroken:  # its `_metadata` is there: nothing superseded it
            raise
        except (NotThere, SourceMovedOn) as error:
            if reported is not None:
                followed.subsumed(reported)
                self._replicate(followed, job)  # the newest one of the directory
            elif is_subsumed(checkpoint, job.member):
                raise SourceMovedOn(str(error)) from error
            else:
                raise

    def _sync(self, followed: _Followed, member: Member, checkpoint: Checkpoint) -> None:
        started = time.monotonic()
        notify = _named(followed.label, self._notify)
        runner = self._runners.share(self._levels.get(member.priority, 0))
        report = sync(replace(member.request, source=checkpoint.path), notify, runner)
        followed.failures.forget()
        with self._lock:
            followed.done, followed.looked = checkpoint, time.monotonic()
            followed.observation.succeeded(report, time.time())
        if report.runner is not None:
            self._show(member.name, followed.label, report)
        if report.undeleted:
            followed.backlog = followed.backlog or Backlog(member.request)
            followed.backlog.add(report)
        if followed.backlog is not None:
            self._delete(followed, followed.backlog, started + self._settings.interval)

    def _delete(self, followed: _Followed, backlog: Backlog, until: float) -> None:
        """Make deletes that were put off. The job is replicated, whether they succeed or not."""
        try:
            backlog.work_off(until, _named(followed.label, self._notify))
        except (CpreplicateError, OSError) as error:
            followed.failures(f"{error}. Files that are no longer needed are left to `sweep`")

    def _is_skipped(self, followed: _Followed, member: Member) -> bool:
        """Return whether a discovered directory is a replica itself, which no job writes to."""
        if not member.is_discovered or followed.done is not None:
            return False
        if not is_standby(member.request.source, member.request.sides.source):
            return False
        if not followed.observation.tries:
            self._notify(
                f"{followed.label}: {member.request.source} is a replica that no job writes to. It"
                " is not replicated further"
            )
        with self._lock:
            followed.observation.saw(None, time.time())
            followed.observation.unchanged(time.time())
        return True

    def _failed(self, followed: _Followed, job: ServedJob, error: Exception) -> Ending:
        member, observation = job.member, followed.observation
        replica_newest = self._newest_of_replica(followed, member)
        with self._lock:
            observation.replica_newest = observation.replica_newest or replica_newest
            may_be_empty = job.has_ended or not observation.source_newest
            if isinstance(error, NotThere) and member.is_discovered and may_be_empty:
                observation.saw(None, time.time())
                observation.unchanged(time.time())  # none yet, or none any more
                return "done"
            if isinstance(error, LeaseHeld):
                observation.held(time.time())  # by a stand-in, or a run of an operator
                return "done"
            text = described(error)
            is_sealed = isinstance(error, Sealed)
            observation.failed(exit_code_of(error), text, time.time(), is_sealed)
        followed.failures(f"{followed.label}: {text}. It is tried again")
        if isinstance(error, SourceMovedOn):
            return "again"
        return "unreachable" if isinstance(error, Transient) else "failed"

    def _newest_of_replica(self, followed: _Followed, member: Member) -> Newest | None:
        """Return what the replica has, after the first try of a process failed."""
        if followed.observation.replica_newest is not None:
            return None
        with (
            suppress(CpreplicateError, OSError, RunnerStopped),
            cancellable(self._raise_if_cancelled),
        ):
            return newest_of_replica(member.request)
        return None


def _listed(names: Sequence[str]) -> str:
    return ", ".join(_few(names))


def _few(texts: Sequence[str]) -> list[str]:
    """Return the first texts, and how many there are if those are not all."""
    more = [f"{len(texts)} in all"] if len(texts) > _MOST_NAMES else []
    return [*texts[:_MOST_NAMES], *more]


def _wanted(job: ServedJob) -> Wanted:
    request = job.member.request
    sites = f"{uri.filesystem(request.source)} {uri.filesystem(request.target_root)}"
    return Wanted(job.member.priority, sites)


def _named(name: str, notify: Notify) -> Notify:
    return lambda line: notify(f"{name}: {line}")
