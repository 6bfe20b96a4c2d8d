"""The loop behind `watch` and `fleet --every`: one job or many, for months.

Discovery returns the jobs, again and again. Each job is tried when it is due: its newest completed
checkpoint is found, and replicated by `sync` if that was not done before.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from cpreplicate.core import uri
from cpreplicate.core.clock import MACHINE, Clock
from cpreplicate.core.lag import is_unseen
from cpreplicate.core.log_context import begin_job
from cpreplicate.core.notify import Notify
from cpreplicate.errors import described
from cpreplicate.operations.jobs.attempt import Attempts, Make, Show, Tries
from cpreplicate.operations.jobs.coverage import Coverage, Discovered
from cpreplicate.operations.jobs.inquiries import Inquiries
from cpreplicate.operations.jobs.job import Discovery, Job, JobKey, by_key, levels_of
from cpreplicate.operations.jobs.memory import Collector
from cpreplicate.operations.jobs.observation import Observation
from cpreplicate.operations.jobs.policy import KeepTrying, Policy
from cpreplicate.operations.jobs.repeated_lines import RepeatedLines
from cpreplicate.operations.jobs.restore_point import RestorePoint, restore_point, selected
from cpreplicate.operations.jobs.schedule import Ending, Load, Schedule, Wanted
from cpreplicate.operations.jobs.state import Followed, JobState, Life
from cpreplicate.runners import RunnerStopped, WarmRunners
from cpreplicate.storage.waiting.cancellation import cancellable
from cpreplicate.storage.waiting.side_call import Executor, SideCall, all_ended, in_thread

_TICK = 1.0  # seconds: the longest pause of the loop
_ALIVE = 60.0  # seconds without a turn of the loop, after which it counts as dead
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
    look_again: float = 600.0

    @property
    def look_within(self) -> float:
        """The seconds within which each source should be looked at."""
        return max(2 * self.interval, self.least_look_within)


class Service:
    """Follows the jobs that discovery returns, until it is interrupted, or `policy` ends it.

    `show` is called with each sync. `warn` gets the failures, `notify` everything else. `coverage`
    is that of the discovery, if it has one. `executor` begins tries and looks for jobs, and
    `glances` looks at sources beside these, which hold up no end. `spread` returns what tries the
    jobs instead of this process. `make` makes small syncs instead of it.
    """

    def __init__(
        self,
        discovery: Discovery,
        runners: WarmRunners,
        executor: Executor,
        settings: ServiceSettings,
        notify: Notify,
        warn: Notify,
        show: Show = lambda _replicated: None,
        coverage: Coverage | None = None,
        policy: Policy | None = None,
        clock: Clock = MACHINE,
        glances: Executor = in_thread,
        spread: Callable[[Attempts], Tries] = lambda own: own,
        make: Make | None = None,
    ) -> None:
        self.clock, self._executor = clock, executor
        self._coverage = coverage or Coverage(clock=clock)
        self._discovery, self._runners, self._settings = discovery, runners, settings
        self._notify, self._warn = notify, warn
        self._undiscovered = RepeatedLines(warn, clock)
        self._schedule: Schedule[JobKey] = Schedule(
            settings.slots, settings.interval, settings.max_backoff
        )
        self._lock = threading.Lock()
        every, again = settings.interval, settings.look_again
        own = Attempts(
            runners,
            policy or KeepTrying(),
            every,
            again,
            self._lock,
            notify,
            show,
            clock,
            make=make,
        )
        self._attempts = spread(own)
        self._followed: dict[JobKey, JobState] = {}
        self._former: dict[Life, JobState] = {}  # that nobody reports any more, the last of each
        self._levels: Mapping[int, int] = {}
        self._is_discovered = self._is_stopping = self._is_ready = False
        self._began = clock.now()
        self._final: Exception | None = None
        self._running: list[SideCall[None]] = []
        self._discovering: SideCall[None] | None = None
        self._discover_at = 0.0
        self._discovered = clock.now()
        self._glances = Inquiries(0.0, clock, glances)
        self._collector = Collector(clock)
        self._wake = threading.Event()
        self._beat = clock.monotonic()

    def observations(self) -> list[Observation]:
        """Return copies of what is known of each job, by name."""
        with self._lock:
            return sorted(
                (state.observation.copy() for state in self._observed()),
                key=lambda observation: (observation.name, observation.replica),
            )

    def total(self) -> Observation:
        """Return a copy of what the syncs of all jobs took together, also of those that left."""
        with self._lock:
            return self._attempts.total.copy()

    def restore_points(self, job: str | None = None) -> list[RestorePoint]:
        """Return from what each job is started, or those that `job` means, by name.

        It is what the loop observed. Only if one job is meant, and another process changed its
        replica last, that is looked at for at most two seconds.
        """
        now = self.clock.now()
        with self._lock:
            states = self._observed()
            if job is not None:
                states = self._meant(states, job)
        if job is not None and len(states) == 1:
            self._attempts.look_now(states[0])
        with self._lock:
            points = [restore_point(state.observation, now) for state in states]
        return sorted(points, key=lambda point: (point.name, point.replica))

    def _meant(self, states: Sequence[JobState], job: str) -> list[JobState]:
        """Return the jobs that a text means; of one that restarted, the newest restorable life."""
        found = selected(states, lambda state: state.observation, job)
        if any(state.observation.name != job for state in found):
            return found  # by an id or a replica
        lives = {state.life for state in found}
        former = [
            state
            for life, state in self._former.items()
            if state.observation.name == job and (life in lives or not lives)
        ]
        lives |= {state.life for state in former}
        running = [state for state in found if not state.job.has_ended]
        if len(lives) != 1 or len(running) > 1:
            return found or former  # several jobs
        restorable = [state for state in (*found, *former) if state.is_restorable]
        if not restorable:
            return running or found
        return [max(restorable, key=lambda state: state.restorable_since)]

    def followed(self) -> list[Followed]:
        """Return the jobs and their replicas, for what is done with these beside the syncs."""
        with self._lock:
            return [state.followed for state in self._followed.values()]

    def forgot(self, replica: str) -> None:
        """Record that a replica was removed, so that no job is started from it any more."""
        with self._lock:
            for state in self._followed.values():
                if state.observation.replica == replica:
                    state.forgot()
                    self._attempts.forgot(state)
            former = self._former.items()
            self._former = {
                life: state for life, state in former if state.observation.replica != replica
            }

    @property
    def is_stopping(self) -> bool:
        """Whether the service ends: what is done beside the syncs ends, too."""
        return self._is_stopping

    def target_roots(self) -> Collection[str]:
        """Return into which TARGET_ROOTs the jobs of all shards are replicated."""
        return self._discovery.target_roots

    def load(self) -> Load:
        """Return how many jobs are tried at this moment, and how many wait for a slot."""
        with self._lock:
            return self._schedule.load(self.clock.monotonic())

    def is_alive(self) -> bool:
        """Return whether the loop is turning."""
        return self.clock.monotonic() - self._beat < _ALIVE

    def is_ready(self) -> bool:
        """Return whether discovery, and then each job that it found, was asked once.

        A place or a job that fails, or does not answer in time, counts too: it keeps no other job's
        service from being ready. What comes later, such as a new job, does not undo it.
        """
        self._is_ready = self._is_ready or self._was_all_asked()
        return self._is_ready

    def _was_all_asked(self) -> bool:
        within, now = self._settings.look_within, self.clock.now()
        if not self._coverage.was_asked(within):
            return False
        with self._lock:
            is_known = self._is_discovered or is_unseen(self._began, within, now)
            return is_known and all(state.was_asked(now) for state in self._observed())

    def remarks(self) -> list[str]:
        """Return what a probe of this process should state of its jobs, a line each."""
        now, within = self.clock.now(), self._settings.look_within
        with self._lock:
            observed = self._observed()
            unseen = sorted(each.label for each in observed if each.observation.is_unseen(now))
            lost = sorted(each.label for each in observed if each.observation.is_lost)
        lines = []
        if lost:
            lines.append(f"no JobManager reports these jobs, or their end: {_listed(lost)}")
        if unseen:
            lines.append(f"not looked at for more than {within:g} s: {_listed(unseen)}")
        if is_unseen(self._discovered, within, now):
            age = now - self._discovered
            lines.append(f"the list of jobs is {age:.0f} s old: it could not be renewed since")
        return [*lines, *self._remarks_on_discovery()]

    def discovered(self) -> Discovered:
        """Return which places discovery could not look at in time, and which names have no job."""
        return self._coverage.discovered(self._settings.look_within)

    def is_blind(self, seconds: float) -> bool:
        """Return whether discovery could not look at a place for so many seconds."""
        return any(self._coverage.discovered(seconds).unseen.values())

    def _remarks_on_discovery(self) -> list[str]:
        discovered = self.discovered()
        problems = {place.name: place.problem for place in self._coverage.places()}
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
        self, leave_behind: Callable[[], None], each_turn: Callable[[], None] = lambda: None
    ) -> None:
        """Follow the jobs until `stop`, or until an exception is raised in this thread.

        Then syncs under way have half of the grace to end, and are cancelled after it: their
        replicas are as before. An interrupt by the user, or a failure that ends the service by its
        policy, cancels them at once. What has not ended when the grace is over is left to
        `leave_behind`, which ends the process. `each_turn` is called at least once a second. Raises
        the failure that ends the service by its policy.
        """
        patience = self._settings.grace * _CANCEL_SHARE
        try:
            while not self._is_stopping and self._final is None:
                self._wake.wait(self.turn())
                each_turn()
                self._collector.tidy(is_resting=not self._running)
        except KeyboardInterrupt:
            patience = 0.0
            raise
        finally:
            self._end(patience if self._final is None else 0.0, leave_behind)
        if self._final is not None:
            raise self._final

    def turn(self) -> float:
        """Begin what is due, without waiting for it; return the seconds until the next turn."""
        now = self._beat = self.clock.monotonic()
        self._wake.clear()
        self._attempts.tend()
        self.is_ready()  # also if nobody asks before the next job comes
        is_discovering = self._discovering is not None and not self._discovering.has_ended
        if now >= self._discover_at and not is_discovering:
            self._discover_at = now + self._settings.interval
            self._discovering = self._executor(self._discover, "discover")
            self._glance_at_overdue()
        self._running = [call for call in self._running if not call.has_ended]
        with self._lock:
            keys = self._schedule.take(now)
        self._running += [
            self._executor(partial(self._try, key), f"job {key.name}") for key in keys
        ]
        if self._runners.give_up_idle():
            self._notify("the Spark session was idle and is ended")
        with self._lock:
            due = self._schedule.next_due()
        # what is due already waits for a slot
        return _TICK if due is None or due <= now else min(_TICK, due - now)

    def _glance_at_overdue(self) -> None:
        """Look at sources beside the tries; few at a time, so that dead ones cost few threads."""
        now, free = self.clock.now(), self._settings.slots - self._glances.pending
        with self._lock:
            overdue = {
                " ".join(key): partial(self._attempts.glance, state)
                for key, state in self._followed.items()
                if state.is_overdue(self._settings.interval, now)
            }
        self._glances.ask(dict(list(overdue.items())[: max(0, free)]))

    def _end(self, patience: float, leave_behind: Callable[[], None]) -> None:
        started = self.clock.monotonic()
        self._is_stopping = True
        if self._running and patience:
            self._notify(f"stopping: waiting up to {patience:g} s for what is being replicated")
        try:
            all_ended(self._running, patience)
        finally:  # also when a second signal ends the wait
            self._attempts.cancel()
            left = max(1.0, self._settings.grace - (self.clock.monotonic() - started))
            self._leave_if_pending(left, leave_behind)

    def _leave_if_pending(self, left: float, leave_behind: Callable[[], None]) -> None:
        discovering = [self._discovering] if self._discovering else []
        if not all_ended([*self._running, *discovering], left):
            self._warn("a storage does not answer: ended without waiting for it")
            leave_behind()

    def _discover(self) -> None:
        try:
            with cancellable(self._runners.raise_if_cancelled):
                self._set_jobs(self._discovery.jobs())
        except RunnerStopped:
            return
        except Exception as error:  # noqa: BLE001  # the service outlives it
            self._undiscovered(f"{described(error)}. The jobs known before are followed")
        else:
            self._undiscovered.forget()
        self._wake.set()

    def _set_jobs(self, found: Sequence[Job]) -> None:
        now, jobs = self.clock.monotonic(), by_key(found)
        self._discovered = self.clock.now()
        with self._lock:
            for key in self._followed.keys() - jobs.keys():
                gone = self._followed.pop(key)
                if gone.is_restorable:
                    self._former[gone.life] = gone
            self._levels = levels_of(jobs.values())
            self._is_discovered = True
            for key, job in jobs.items():
                self._followed[key] = self._followed.get(key) or self._new(job)
            wanted = {key: _wanted(job, self._followed[key]) for key, job in jobs.items()}
            self._schedule.update(wanted, now)
            for key, job in jobs.items():
                state = self._followed[key]
                state.update(job)
                if (newest := state.reported(job)) is not None and not state.is_done(newest):
                    self._schedule.hurry(key, now)
            self._label()
            self._attempts.follow(dict(self._followed))

    def _label(self) -> None:
        """Label each job by its name; one of several of a name by what distinguishes it, too."""
        followed = self._followed.items()
        names = Counter(state.job.name for state in self._followed.values())
        titles = Counter((state.job.name, key.name) for key, state in followed)
        for key, state in followed:
            name = state.job.name
            more = key.source if titles[name, key.name] > 1 else key.name
            state.label = f"{name} ({more})" if names[name] > 1 and name != more else name

    def _new(self, job: Job) -> JobState:
        return JobState(job, self._warn, self._settings.look_within, self.clock)

    def _observed(self) -> list[JobState]:
        retire_after = self._settings.retire_after
        return [each for each in self._followed.values() if not each.is_retired(retire_after)]

    def _try(self, key: JobKey) -> None:
        """Try a job once, in a thread of its own, and record how that ended."""
        with self._lock:
            state = self._followed.get(key)
        ending: Ending = "done"  # of a job that is gone
        name = state.label if state is not None else None
        begin_job(name)
        try:
            if state is not None and not self._is_stopping:
                ending = "failed"
                ending = self._attempts.attempt(state, self._levels.get(state.job.priority, 0))
                self._final = self._final or state.final
        except Exception as error:  # noqa: BLE001  # the job would never be tried again
            self._warn(f"{name}: {described(error)}. It is tried again")
        finally:
            with self._lock:
                self._schedule.ended(key, ending, self.clock.monotonic())
            self._wake.set()


def _listed(names: Sequence[str]) -> str:
    return ", ".join(_few(names))


def _few(texts: Sequence[str]) -> list[str]:
    """Return the first texts, and how many there are if those are not all."""
    more = [f"{len(texts)} in all"] if len(texts) > _MOST_NAMES else []
    return [*texts[:_MOST_NAMES], *more]


def _wanted(job: Job, state: JobState) -> Wanted:
    request = job.request
    sites = f"{uri.filesystem(request.source)} {uri.filesystem(request.target_root)}"
    return Wanted(job.priority, sites, is_first=state.is_first)
