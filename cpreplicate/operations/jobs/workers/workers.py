"""Worker processes that try the jobs of a service, and what the service does for them.

The service finds the jobs, decides which one is due, and answers whoever asks for their state. So
its slots, priorities and pauses hold for all workers together. So do the limits on bytes and calls:
the workers ask the rate limiter of the service. A worker keeps what it knows of its jobs, and the
service a copy of that, with which another worker goes on.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

from cpreplicate.core.sizes import counted
from cpreplicate.errors import CpreplicateError, described
from cpreplicate.operations.jobs.attempt import Attempts
from cpreplicate.operations.jobs.job import JobKey
from cpreplicate.operations.jobs.observation import Observation
from cpreplicate.operations.jobs.schedule import Ending
from cpreplicate.operations.jobs.state import JobState
from cpreplicate.operations.jobs.workers.division import Division
from cpreplicate.operations.jobs.workers.messages import (
    Alive,
    Asked,
    AtSpark,
    Begin,
    Cancel,
    Common,
    Forgot,
    Known,
    Learned,
    Took,
)
from cpreplicate.operations.jobs.workers.process import (
    SILENT,
    WorkerDied,
    WorkerProcess,
    resident_memory,
)
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import Side, Sides
from cpreplicate.storage.rpc import RpcAddress, serve
from cpreplicate.storage.waiting.side_call import all_ended, in_thread
from cpreplicate.storage.wrappers.limits import pace

_SILENT_SECONDS = 30  # a worker sends something each second
_LIVED = 60.0  # seconds: a worker that lived so long is replaced at once
_MOST_PAUSE = 60.0  # seconds before a worker is replaced that dies again and again
_LOOK = 2.5  # seconds for which a look at a replica is waited for
_CANCEL = 1.0  # seconds for which it is waited that all workers hear of an end
_HOST = "127.0.0.1"
_MOST_NAMES = 20
_BARE: Mapping[str, Any] = {"sides": Sides(), "execution": ExecutionOptions()}


class ProcessCounts(NamedTuple):
    """The resident bytes of each process of a service, and how many workers have died."""

    memory: Mapping[str, int]
    deaths: int = 0


def counts_of_one() -> ProcessCounts:
    """Return those of a service without workers: this process."""
    memory = resident_memory(os.getpid())
    return ProcessCounts({} if memory is None else {"service": memory})


@dataclass
class _Seat:
    """The place of a worker: its process, if there is one, and when another one may start.

    `deaths` is how many in a row died young.
    """

    name: str
    worker: WorkerProcess | None = None
    began: float = 0.0
    start_at: float = 0.0
    deaths: int = 0
    last: str = ""

    def died(self, now: float, death: str) -> None:
        """Record the death of the worker. The first is followed by another one at once."""
        self.deaths = 1 if now - self.began >= _LIVED else self.deaths + 1
        doubled = 2.0 ** min(self.deaths - 2, 30) if self.deaths > 1 else 0.0
        self.start_at, self.last = now + min(_MOST_PAUSE, doubled), death
        self.worker = None


@dataclass
class Workers:
    """Tries the jobs of a service in as many processes as `count_of` returns; see `Tries`.

    `count_of` gets the number of jobs and the number of processes there are. Where it returns 1,
    the process of the service tries the jobs by itself. `command` starts a worker, and `begin` is
    its first message. `heard` gets the messages of workers that are lines, details or syncs. A
    worker that sends nothing for `silent_seconds` of the service's loop is killed.
    """

    count_of: Callable[[int, int], int]
    command: Sequence[str]
    begin: Begin
    heard: Callable[[NamedTuple], None]
    notify: Callable[[str], None]
    warn: Callable[[str], None]
    silent_seconds: int = _SILENT_SECONDS
    _seats: list[_Seat] = field(default_factory=list)
    _retired: list[WorkerProcess] = field(default_factory=list)
    _states: Mapping[JobKey, JobState] = field(default_factory=dict)
    _is_divided: bool = True
    _division: Division[JobKey] = field(default_factory=Division)
    _at: dict[JobKey, WorkerProcess] = field(default_factory=dict)
    _here: Counter[JobKey] = field(default_factory=Counter)
    _deaths: int = 0
    _is_ending: bool = False
    _ticked: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _resources: ExitStack = field(default_factory=ExitStack)
    _address: RpcAddress | None = None

    def helping(self, own: Attempts) -> Workers:
        """Return what tries the jobs; `own` does where this process does by itself."""
        self._own = own
        return self

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        """End the workers, all at the same time."""
        self._is_ending = True
        ending = [in_thread(worker.end, "end of a worker") for worker in self._workers()]
        all_ended(ending, 10.0)
        self._resources.close()

    def kill(self) -> None:
        """End the workers at once, whatever they do."""
        self._is_ending = True
        for worker in self._workers():
            worker.kill()

    @property
    def total(self) -> Observation:
        """See `Tries`."""
        return self._own.total

    def counts(self) -> ProcessCounts:
        """Return the memory of each process, and how many workers died."""
        workers = [(seat.name, seat.worker) for seat in list(self._seats)]
        memory = {f"worker-{name}": worker.memory for name, worker in workers if worker}
        known = {name: size for name, size in memory.items() if size is not None}
        return ProcessCounts({**counts_of_one().memory, **known}, self._deaths)

    def follow(self, states: Mapping[JobKey, JobState]) -> None:
        """See `Tries`."""
        self._is_divided = self._is_divided and states.keys() == self._states.keys()
        self._states = states

    def forgot(self, state: JobState) -> None:
        """See `Tries`."""
        worker = self._at.get(state.job.key)
        if worker is not None:
            in_thread(partial(worker.send, Forgot(state.job.key)), "forget")

    def cancel(self) -> None:
        """See `Tries`."""
        self._own.cancel()
        self._is_ending = True
        workers = self._workers()
        cancelling = [in_thread(partial(each.send, Cancel()), "cancel") for each in workers]
        all_ended(cancelling, _CANCEL)

    def tend(self) -> None:
        """Start what is missing, end what is not needed, and kill what does not answer."""
        if self._is_ending:
            return
        self._divide()
        # turns are counted, not time: while this process is paused, nobody is silent
        is_second = (now := self._own.clock.monotonic()) - self._ticked >= 1.0
        self._ticked = now if is_second else self._ticked
        for worker in self._workers() if is_second else ():
            if worker.silent_for() > self.silent_seconds:
                worker.kill(SILENT)
        self._bury()
        for seat in self._seats:
            if seat.worker is None:
                self._start(seat)
        for worker in [each for each in self._retired if each.is_idle]:
            self._retired.remove(worker)
            in_thread(worker.end, "end of a worker")

    def attempt(self, state: JobState, level: int) -> Ending:
        """See `Tries`. A try whose worker dies has failed, and is tried again."""
        seat = self._seat_of(state)
        if seat is None:
            return self._try_here(state, level)
        worker = self._worker_for(state, seat)
        if worker is None:
            return self._without_worker(state, seat)
        try:
            ending = self._ask(worker, "attempt", state, level)
        except WorkerDied:
            return self._failed(state, f"worker {worker.name} died: {worker.death}")
        return self._try_here(state, level) if ending == "spark" else ending

    def glance(self, state: JobState) -> None:
        """See `Tries`."""
        self._look(state, "glance", self._own.glance)

    def look_now(self, state: JobState) -> None:
        """See `Tries`."""
        if state.is_of_others:
            self._look(state, "look_now", self._own.look_now)

    def _look(self, state: JobState, asked: Asked, own: Callable[[JobState], None]) -> None:
        seat = self._seat_of(state) if state.job.key in self._states else None
        worker = None if seat is None else self._worker_for(state, seat)
        if worker is None:  # or what it learned would be of a job that nobody follows any more
            own(state)
            return
        try:
            self._ask(worker, asked, state, 0, _LOOK if asked == "look_now" else None)
        except WorkerDied:
            return

    def running(self) -> list[WorkerProcess]:
        """Return the workers that run, in the order of their numbers."""
        seated = [seat.worker for seat in list(self._seats)]
        return [worker for worker in seated if worker is not None]

    def _workers(self) -> list[WorkerProcess]:
        return [*self.running(), *self._retired]

    def _divide(self) -> None:
        """Divide the jobs, if they have changed, between as many processes as they are worth."""
        if self._is_divided:
            return
        self._is_divided = True
        states = self._states
        count = self.count_of(len(states), max(1, len(self._seats)))
        with self._lock:
            self._division.divide(states.keys(), count)
            gone = self._at.keys() - states.keys()
            left = [(key, self._at.pop(key)) for key in gone]
            surplus = self._seats[count if count > 1 else 0 :]
            self._retired += [seat.worker for seat in surplus if seat.worker is not None]
            wanted = count if count > 1 else 0
            kept = self._seats[:wanted]
            fresh = [_Seat(str(number + 1)) for number in range(len(kept), wanted)]
            self._seats = [*kept, *fresh]
        if left:
            in_thread(partial(_forget, left), "forget")
        if surplus or fresh:
            self.notify(_shared(len(states), count))

    def _start(self, seat: _Seat) -> None:
        now = self._own.clock.monotonic()
        if now < seat.start_at:
            return
        begin = self.begin._replace(sides=self._limited(self.begin.sides))
        seat.began = now
        try:
            worker = WorkerProcess(seat.name, self.command, begin, self._heard)
        except (OSError, RuntimeError) as error:  # no process, descriptor or thread is left
            seat.died(now, f"it could not be started: {described(error)}")
            self._deaths += 1
            self.warn(f"worker {seat.name}: {seat.last}. It is tried again")
            return
        seat.worker = worker

    def _limited(self, sides: Sides) -> Sides:
        """Return sides whose limits are kept by the rate limiter of this process."""
        return sides._replace(source=self._of_run(sides.source), target=self._of_run(sides.target))

    def _of_run(self, side: Side) -> Side:
        if not side.limits.any:
            return side
        if self._address is None:
            answers = {"reserve": pace(side.limits).reserve}
            self._address = self._resources.enter_context(serve(answers, _HOST))
        return replace(side, limits=side.limits._replace(address=self._address))

    def _seat_of(self, state: JobState) -> _Seat | None:
        """Return the place of the worker of a job, None if this process tries it by itself."""
        key = state.job.key
        with self._lock:
            if not self._seats or self._here[key] or _has_backlog(state):
                return None
            return self._seats[self._division.of(key)]

    def _worker_for(self, state: JobState, seat: _Seat) -> WorkerProcess | None:
        """Return the worker of a job: the one that is busy with it, else that of its place."""
        key = state.job.key
        with self._lock:
            before, worker = self._at.get(key), seat.worker
            if worker is not None and worker.death is not None:
                return None  # another one is about to take its place
            if before is worker or worker is None:
                return worker
            if before is not None and before.death is None and key in before.under_way:
                return before
            self._at[key] = worker
        if before is not None and before.death is None:
            in_thread(partial(before.forget, key), "forget")
        return worker

    def _ask(
        self,
        worker: WorkerProcess,
        asked: Asked,
        state: JobState,
        level: int,
        seconds: float | None = None,
    ) -> Ending | AtSpark:
        key = state.job.key
        return worker.ask(asked, key, level, lambda: self._news(worker, state), seconds)

    def _news(
        self, worker: WorkerProcess, state: JobState
    ) -> tuple[Sequence[NamedTuple], Known | None]:
        """Return what a worker does not know yet of a job."""
        job, label = state.job, state.label
        # when it was found decides only whether that is what discovery reported
        discovered = state.discovered if job.newest is not None else 0.0
        facts, sent = (job, label, discovered), worker.known.get(job.key)
        if sent == facts:
            return (), None
        worker.known[job.key] = facts
        common, new = self._common(worker, state)
        memory = None
        if sent is None:
            with self._own.lock:
                memory = state.memory
        request = replace(job.request, **_BARE)
        known = Known(replace(job, request=request), label, state.discovered, common, memory)
        return new, known

    def _common(self, worker: WorkerProcess, state: JobState) -> tuple[int, Sequence[Common]]:
        request = state.job.request
        for number, common in worker.commons.items():
            if common == (request.sides, request.execution):
                return number, ()
        number = len(worker.commons)
        worker.commons[number] = request.sides, request.execution
        execution = replace(request.execution, show=None)
        return number, [Common(number, self._limited(request.sides), execution)]

    def _heard(self, message: NamedTuple) -> None:
        """Take over what a worker sends by itself."""
        if isinstance(message, Learned):
            with self._own.lock:
                state = self._states.get(message.key)
                if state is not None and not self._here[message.key]:
                    state.remember(message.memory)
        elif isinstance(message, Took):
            with self._own.lock:
                self._own.total.add_times(message.times)
        elif not isinstance(message, Alive):
            try:
                self.heard(message)
            except Exception as error:  # noqa: BLE001  # it concerns this message only
                self.warn(f"what a worker sent could not be reported: {described(error)}")

    def _bury(self) -> None:
        """Report the workers that have died, and let others take their places."""
        for worker in self._workers():
            if worker.death is None:
                continue
            self._deaths += 1
            for seat in self._seats:
                if seat.worker is worker:
                    seat.died(self._own.clock.monotonic(), worker.death)
            if worker in self._retired:
                self._retired.remove(worker)
            states = [self._states.get(key) for key in worker.victims]
            labels = sorted({state.label for state in states if state is not None})
            self.warn(
                f"worker {worker.name} (process {worker.pid}) died: {worker.death}. Another one"
                f" goes on with its jobs. {_tried(labels)}"
            )

    def _without_worker(self, state: JobState, seat: _Seat) -> Ending:
        """Return how a try ends for which there is no worker at this moment."""
        if self._is_ending:
            return "done"
        left = seat.start_at - self._own.clock.monotonic()
        if left <= 0:
            return "again"
        again = f"worker {seat.name} died {seat.deaths} times in a row, the last time: {seat.last}"
        return self._failed(state, again)

    def _failed(self, state: JobState, reason: str) -> Ending:
        if self._is_ending:
            return "done"
        with self._own.lock:
            state.observation.failed(CpreplicateError.exit_code, reason, self._own.clock.now())
        return "failed"

    def _try_here(self, state: JobState, level: int) -> Ending:
        """Try a job in this process, as one that is worth the Spark session, which it has.

        Its worker goes on from what was done here.
        """
        key = state.job.key
        with self._lock:
            self._here[key] = 1
        try:
            return self._own.attempt(state, level)
        finally:
            with self._lock:
                worker = self._at.pop(key, None)
                del self._here[key]
            if worker is not None and worker.death is None:
                worker.forget(key)


def _forget(jobs: Sequence[tuple[JobKey, WorkerProcess]]) -> None:
    for key, worker in jobs:
        worker.forget(key)


def _has_backlog(state: JobState) -> bool:
    """Return whether this process has put off deletes of a job, and makes them."""
    return state.backlog is not None and bool(state.backlog.targets)


def _shared(jobs: int, count: int) -> str:
    if count == 1:
        return f"this process replicates {counted(jobs, 'job')} by itself"
    return f"{count} worker processes share {counted(jobs, 'job')}"


def _tried(labels: Sequence[str]) -> str:
    if not labels:
        return "It was trying none"
    more = [f"{len(labels)} in all"] if len(labels) > _MOST_NAMES else []
    return f"Tried again: {', '.join([*labels[:_MOST_NAMES], *more])}"
