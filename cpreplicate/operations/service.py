"""The loop behind `watch --flink`, `watch --jobs-under` and `fleet --every`: many jobs, for months.

Discovery returns the jobs, again and again. Each job is tried when it is due: its newest completed
checkpoint is found, and replicated by `sync` if that was not done before.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from cpreplicate.core import uri
from cpreplicate.core.lag import Newest
from cpreplicate.core.shard import WHOLE, Shard
from cpreplicate.errors import (
    CpreplicateError,
    LeaseHeld,
    NotThere,
    Refused,
    Sealed,
    SourceMovedOn,
    exit_code_of,
)
from cpreplicate.operations.fleet import Member, is_standby
from cpreplicate.operations.observation import Observation, newest_of_replica
from cpreplicate.operations.schedule import Ending, Schedule, Wanted
from cpreplicate.operations.subject import begin_job
from cpreplicate.operations.sync import Report, sync
from cpreplicate.operations.watch import Backlog, Sparing
from cpreplicate.protocol.source import find
from cpreplicate.runners import Stopped, WarmRunners
from cpreplicate.storage import Transient
from cpreplicate.storage.cancellation import cancellable

Notify = Callable[[str], None]
_TICK = 1.0  # seconds: the longest pause of the loop
_ALIVE = 60.0  # seconds without a turn of the loop, after which it counts as dead
# Seconds after which a replica is looked at again, although its source has nothing new: it may have
# been sealed or deleted.
_LOOK_AGAIN = 600.0
_CANCEL_SHARE = 0.5  # of the grace: then what still runs is cancelled


class Checkpoint(NamedTuple):
    """A completed checkpoint of a source: its directory, its number and its time."""

    path: str
    newest: Newest


@dataclass(frozen=True)
class ServedJob:
    """A job as discovery found it.

    `newest` is its newest checkpoint if discovery knows it, else its directory is listed.
    `refusal` is why the job must not be replicated. One that `has_ended` may have no checkpoint any
    more: Flink deletes those that are not retained.
    """

    member: Member
    newest: Checkpoint | None = None
    refusal: str | None = None
    has_ended: bool = False

    @property
    def key(self) -> str:
        """The URI of its replica, which names the job in the service."""
        request = self.member.request
        return uri.join(request.target_root, uri.name(request.source))


class Discovery(Protocol):
    """Finds the jobs of a service."""

    def jobs(self) -> Sequence[ServedJob]:
        """Return all jobs that are to be followed now; called every interval.

        Raises `CpreplicateError` or `OSError` if that is not known: then the last ones are kept.
        """


@dataclass(frozen=True)
class ServiceSettings:
    """How a service works; times are seconds.

    `slots` jobs of a priority are replicated at the same time. `grace` is the time from the request
    to stop to the end. A discovered job whose newest checkpoint is older than `retire_after` is not
    observed until it completes another one. Jobs of other shards are left to other services.
    """

    interval: float = 30.0
    slots: int = 20
    max_backoff: float = 600.0
    grace: float = 30.0
    retire_after: float | None = None
    shard: Shard = WHOLE


class Service:
    """Follows the jobs that discovery returns, until it is interrupted.

    `show` is called with the name and the report of each sync that changed a replica. `warn` gets
    the failures, `notify` everything else.
    """

    def __init__(
        self,
        discovery: Discovery,
        runners: WarmRunners,
        settings: ServiceSettings,
        notify: Notify,
        warn: Notify,
        show: Callable[[str, Report], object] = lambda _name, _report: None,
    ) -> None:
        self._discovery, self._runners, self._settings = discovery, runners, settings
        self._notify, self._show = notify, show
        self._failures: dict[str, Sparing] = {}
        self._warn = warn
        self._schedule = Schedule(settings.slots, settings.interval, settings.max_backoff)
        self._lock = threading.Lock()
        self._jobs: dict[str, ServedJob] = {}
        self._levels: Mapping[int, int] = {}
        self._observations: dict[str, Observation] = {}
        self._done: dict[str, Checkpoint] = {}
        self._looked: dict[str, float] = {}
        self._subsumed: dict[str, Checkpoint] = {}
        self._backlogs: dict[str, Backlog] = {}
        self._is_discovered = self._is_stopping = False
        self._running: set[Future[None]] = set()
        self._discovering: Future[None] | None = None
        self._discover_at = 0.0
        self._wake = threading.Event()
        self._beat = time.monotonic()

    def observations(self) -> list[Observation]:
        """Return copies of what is known of each job, by name."""
        with self._lock:
            return sorted(
                (self._observations[key].copy() for key in self._observed()),
                key=lambda observation: (observation.name, observation.replica),
            )

    def is_alive(self) -> bool:
        """Return whether the loop is turning."""
        return time.monotonic() - self._beat < _ALIVE

    def is_ready(self) -> bool:
        """Return whether the jobs are known, and each was tried at least once."""
        with self._lock:
            return self._is_discovered and all(
                self._observations[key].tries for key in self._observed()
            )

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
            raise Stopped

    def _discover(self) -> None:
        try:
            with cancellable(self._raise_if_cancelled):
                self._set_jobs(self._discovery.jobs())
        except Stopped:
            return
        except Exception as error:  # noqa: BLE001  # the service outlives it
            self._sparing("")(f"{_described(error)}. The jobs known before are followed")
        else:
            self._failures.pop("", None)
        self._wake.set()

    def _set_jobs(self, jobs: Sequence[ServedJob]) -> None:
        now = time.monotonic()
        by_key: dict[str, ServedJob] = {}
        for job in jobs:
            if not self._settings.shard.has(uri.name(job.key)):
                continue
            other = by_key.setdefault(job.key, job)
            if other is job:
                continue
            if other.member.request.source == job.member.request.source:
                by_key[job.key] = _newer(other, job)
                continue
            refusal = (
                f"{other.member.request.source} and {job.member.request.source} would share"
                f" the replica {job.key}. Give one of them another target"
            )
            by_key[job.key] = replace(other, refusal=refusal)
        priorities = sorted({job.member.priority for job in by_key.values()}, reverse=True)
        with self._lock:
            for key in self._jobs.keys() - by_key.keys():
                self._forget(key)
            self._levels = {priority: level for level, priority in enumerate(priorities)}
            self._jobs = by_key
            self._is_discovered = True
            self._schedule.update({key: _wanted(job) for key, job in by_key.items()}, now)
            for key, job in by_key.items():
                self._observe(key, job)
                if job.newest is not None and job.newest != self._done.get(key):
                    self._schedule.hurry(key, now)

    def _observe(self, key: str, job: ServedJob) -> None:
        member = job.member
        observation = self._observations.setdefault(key, Observation(member.name))
        observation.name, observation.priority = member.name, member.priority
        observation.source, observation.replica = member.request.source, key
        newest = self._reported(key, job)
        if newest is not None:
            observation.source_newest = newest.newest

    def _reported(self, key: str, job: ServedJob) -> Checkpoint | None:
        """Return the checkpoint that discovery knows, unless Flink has subsumed it since.

        The REST API answers from a cache, by default up to 3 s old (`web.refresh-interval`).
        """
        return None if job.newest == self._subsumed.get(key) else job.newest

    def _forget(self, key: str) -> None:
        of_all = (
            self._observations,
            self._done,
            self._looked,
            self._subsumed,
            self._backlogs,
            self._failures,
        )
        for of_jobs in of_all:
            of_jobs.pop(key, None)

    def _observed(self) -> list[str]:
        return [key for key in self._jobs if not self._is_retired(key)]

    def _is_retired(self, key: str) -> bool:
        newest = self._observations[key].source_newest
        limit = self._settings.retire_after
        is_discovered = self._jobs[key].member.is_discovered
        if limit is None or newest is None or not is_discovered:
            return False
        return key in self._done and time.time() - newest.completed > limit

    def _try(self, key: str) -> None:
        """Try a job once, in a thread of its own, and record how that ended."""
        with self._lock:
            job = self._jobs.get(key)
        ending: Ending = "failed"
        begin_job(job.member.name if job is not None else None)
        try:
            ending = self._ending_of(key, job)
        except Exception as error:  # noqa: BLE001  # the job would never be tried again
            name = job.member.name if job is not None else key
            self._warn(f"{name}: {_described(error)}. It is tried again")
        finally:
            with self._lock:
                self._schedule.ended(key, ending, time.monotonic())
                if key not in self._jobs:
                    self._forget(key)  # again: what the try has added since
            self._wake.set()

    def _ending_of(self, key: str, job: ServedJob | None) -> Ending:
        if job is None or self._is_stopping:
            return "done"
        try:
            with cancellable(self._raise_if_cancelled):
                self._replicate(key, job)
        except Stopped:
            return "done"
        except Exception as error:  # noqa: BLE001  # it concerns this job only
            return self._failed(key, job, error)
        return "done"

    def _replicate(self, key: str, job: ServedJob) -> None:
        if job.refusal is not None:
            raise Refused(job.refusal)
        request = job.member.request
        if self._is_skipped(key, job.member):
            return
        reported = self._reported(key, job)
        checkpoint = reported or newest_checkpoint(job.member)
        with self._lock:
            if key not in self._observations:
                return
            self._observations[key].source_newest = checkpoint.newest
            is_done = self._done.get(key) == checkpoint
            if is_done and time.monotonic() - self._looked.get(key, 0.0) < _LOOK_AGAIN:
                self._observations[key].still(time.time())
                return
        started = time.monotonic()
        notify = _named(job.member.name, self._notify)
        runner = self._runners.share(self._levels.get(job.member.priority, 0))
        try:
            report = sync(replace(request, source=checkpoint.path), notify, runner)
        except (NotThere, SourceMovedOn) as error:
            if reported is None:
                if _is_subsumed(job.member, checkpoint):
                    raise SourceMovedOn(str(error)) from error
                raise
            self._subsumed[key] = reported
            self._replicate(key, job)  # the newest one of the directory
            return
        self._succeeded(key, job, checkpoint, report)
        if report.undeleted:
            backlog = self._backlogs.setdefault(key, Backlog(request))
            backlog.add(report)
        self._delete_backlog(key, started + self._settings.interval, notify)

    def _delete_backlog(self, key: str, until: float, notify: Notify) -> None:
        """Make deletes that were put off. The job is replicated, whether they succeed or not."""
        backlog = self._backlogs.get(key)
        if backlog is None:
            return
        try:
            backlog.work_off(until, notify)
        except (CpreplicateError, OSError) as error:
            self._sparing(key)(f"{error}. Files that are no longer needed are left to `sweep`")

    def _is_skipped(self, key: str, member: Member) -> bool:
        """Return whether a discovered directory is a replica itself, which no job writes to."""
        if not member.is_discovered or key in self._done:
            return False
        if not is_standby(member.request.source, member.request.sides.source):
            return False
        with self._lock:
            if key in self._observations:
                self._observations[key].unchanged(time.time())
        return True

    def _succeeded(self, key: str, job: ServedJob, checkpoint: Checkpoint, report: Report) -> None:
        self._failures.pop(key, None)
        with self._lock:
            if key in self._observations:
                self._done[key], self._looked[key] = checkpoint, time.monotonic()
                self._observations[key].succeeded(report, time.time())
        if report.runner is not None:
            self._show(job.member.name, report)

    def _failed(self, key: str, job: ServedJob, error: Exception) -> Ending:
        member = job.member
        replica_newest = self._newest_of_replica(key, member)
        with self._lock:
            observation = self._observations.get(key, Observation(member.name))
            observation.replica_newest = observation.replica_newest or replica_newest
            may_be_empty = job.has_ended or not observation.source_newest
            if isinstance(error, NotThere) and member.is_discovered and may_be_empty:
                observation.source_newest = None
                observation.unchanged(time.time())  # none yet, or none any more
                return "done"
            if isinstance(error, LeaseHeld):
                observation.held(time.time())  # by a stand-in, or a run of an operator
                return "done"
            text = _described(error)
            is_sealed = isinstance(error, Sealed)
            observation.failed(exit_code_of(error), text, time.time(), is_sealed)
        self._sparing(key)(f"{member.name}: {text}. It is tried again")
        if isinstance(error, SourceMovedOn):
            return "again"
        return "unreachable" if isinstance(error, Transient) else "failed"

    def _newest_of_replica(self, key: str, member: Member) -> Newest | None:
        """Return what the replica has, after the first try of a process failed."""
        with self._lock:
            observation = self._observations.get(key)
        if observation is None or observation.replica_newest is not None:
            return None
        with (
            suppress(CpreplicateError, OSError, Stopped),
            cancellable(self._raise_if_cancelled),
        ):
            return newest_of_replica(member.request)
        return None

    def _sparing(self, key: str) -> Sparing:
        return self._failures.setdefault(key, Sparing(self._warn))


def newest_checkpoint(member: Member) -> Checkpoint:
    """Return the newest completed checkpoint in a job's directory. Raises as `find`."""
    request = member.request
    source = find(request.source, request.sides.source, request.allow_older)
    name = uri.name(source.checkpoint).removeprefix("chk-")
    checkpoint_id = int(name) if name.isdecimal() else 0  # a savepoint has no number in its name
    return Checkpoint(source.checkpoint, Newest(checkpoint_id, source.completed or 0.0))


def _is_subsumed(member: Member, checkpoint: Checkpoint) -> bool:
    """Return whether another checkpoint is the newest one by now."""
    try:
        return newest_checkpoint(member) != checkpoint
    except NotThere:
        return False


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


def _described(error: Exception) -> str:
    is_known = isinstance(error, (CpreplicateError, OSError))
    return str(error) if is_known else f"unexpected {type(error).__name__}: {error}"


def _wanted(job: ServedJob) -> Wanted:
    request = job.member.request
    sites = f"{uri.filesystem(request.source)} {uri.filesystem(request.target_root)}"
    return Wanted(job.member.priority, sites)


def _named(name: str, notify: Notify) -> Notify:
    return lambda line: notify(f"{name}: {line}")
