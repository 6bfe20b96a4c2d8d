"""Deadlines of calls, also of a client whose calls cannot be broken off.

hdfs-native waits for as long as a server is silent, and no signal ends the wait. So what is done
with it is done by a worker, a daemon thread, while the caller waits for the worker. A further
thread looks now and then how long the present call of each worker has lasted. If that is longer
than its deadline, the caller goes on with `NoAnswer` and leaves the worker behind. Should the call
return after all, the worker does nothing more but clean up.

Each call has its own deadline, so a long transfer of many calls may take as long as it needs.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextvars import ContextVar, copy_context
from typing import Any, TypeVar

from cpreplicate.errors import UsageError
from cpreplicate.storage import cancellation
from cpreplicate.storage.base import NoAnswer, Transient

T = TypeVar("T")
OPTION = "deadline"
"""The name of the option of a storage."""
DEFAULT = 20.0
"""The seconds that a call may take without the option."""
# Seconds between two looks at the calls. The callers do not look themselves: hundreds of threads
# that wake up for it would cost as much as the work.
_LOOK = 0.2
# Seconds by which a look is later where this process was paused, or starved of the processor.
_PAUSED = 0.5
# A silent DataNode may keep a thread for as long as the process lives: not more than these of one
# server, or of one kind of servers.
_MOST_LEFT = 512
_HANGS = 2.0  # seconds after which a cancellation does not wait for the end of a call
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_LEAST = 1.0  # seconds that a call has in any case, if its deadline allows them


class _LeftBehind(BaseException):
    """The caller waits no longer: the worker ends what it does, and cleans up."""


class _Bound:
    """An instant at which each call ends, as long as none was answered."""

    def __init__(self, until: float) -> None:
        self._until = until
        self._is_lifted = False

    def lift(self) -> None:
        """Record an answer: from now on calls have their whole time."""
        self._is_lifted = True

    def limit(self, seconds: float) -> float:
        """Return the seconds that a call may take which may take so long without this bound."""
        left = self._until - time.monotonic()
        return seconds if self._is_lifted or left <= 0 else min(seconds, max(left, _LEAST))


_bound: ContextVar[_Bound | None] = ContextVar("bound", default=None)


class _Call:
    """A call of a client: when it began, its seconds, and the deadline that they are of."""

    def __init__(self, seconds: float, deadline: Deadline, is_change: bool) -> None:
        self.began = time.monotonic()
        self.seconds, self.deadline, self.is_change = seconds, deadline, is_change

    def forgive(self, seconds: float) -> None:
        """Do not count some seconds in which this process was paused."""
        self.began = min(self.began + seconds, time.monotonic())


class _Job:
    """What a worker does for a caller."""

    def __init__(self, work: Callable[[], Any], deadline: Deadline) -> None:
        self.deadline = deadline  # which has it done: its calls may be of another one as well
        self._work: Callable[[], Any] | None = work
        self._context = copy_context()
        self._result: Any = None
        self._error: BaseException | None = None
        self.call: _Call | None = None  # the call of the client that it waits for
        self.is_left = self.cleans_up = self.has_ended = False
        self.broken_off: BaseException | None = None  # raised by the caller
        self.done = threading.Lock()  # an Event would cost ten times as much
        self.done.acquire()

    def perform(self) -> None:
        """Do the work, in the context of the caller."""
        assert self._work is not None
        try:
            self._result = self._context.run(self._work)
        except BaseException as error:  # noqa: BLE001  # raised by `outcome`, in the caller's thread
            self._error = error
        self._work, self.has_ended = None, True

    def outcome(self) -> Any:
        """Return the result of the work, or raise its exception, or that which broke it off."""
        error = self._error if self.broken_off is None else self.broken_off
        if error is None:
            return self._result
        try:
            raise error
        finally:
            self._error = self.broken_off = error = None  # the exception refers to this frame

    def break_off(self, error: BaseException) -> None:
        """Let the caller go on with an exception. Only the thread that looks at jobs calls it."""
        self.broken_off = error
        self.release()

    def release(self) -> None:
        """Let the caller go on."""
        with contextlib.suppress(RuntimeError):  # it does so already
            self.done.release()

    def raise_if_left(self) -> None:
        """Raise `_LeftBehind` before a call, once: what follows cleans up."""
        if self.is_left and not self.cleans_up:
            self.cleans_up = True
            raise _LeftBehind

    def raise_if_cancelled(self) -> None:
        """Raise the exception of the caller's check if its work was cancelled."""
        check = self._context.get(cancellation.CHECK)
        if check is not None:
            check()


class _Workers:
    """The workers of this process: those without work, those at work, and those left behind."""

    def __init__(self) -> None:
        self._idle: deque[_Worker] = deque()
        self._active: set[_Job] = set()
        self._left: set[_Job] = set()
        self._lock = threading.Lock()
        self._has_work = threading.Event()
        self._is_watched = False

    def start(self, job: _Job) -> None:
        """Let a worker do a job. Raises `Transient` if too many have been left behind."""
        if len(self._left) >= _MOST_LEFT and self.left_of(job.deadline) >= _MOST_LEFT:
            raise Transient(
                errno.EAGAIN, f"{_MOST_LEFT} calls to {job.deadline.who} have not been answered"
            )
        try:
            worker = self._idle.pop()
        except IndexError:
            worker = _Worker(self)
        self._active.add(job)
        if not self._has_work.is_set():
            self._watch()
        worker.begin(job)

    def _watch(self) -> None:
        with self._lock:
            self._has_work.set()
            if not self._is_watched:
                threading.Thread(target=self._look, name="deadlines", daemon=True).start()
                self._is_watched = True

    def _look(self) -> None:
        """Look at the jobs under way, until the process ends."""
        while self._has_work.wait():
            if self._has_been_paused():
                self._has_been_paused()  # answers that arrived meanwhile are taken first
            for job in list(self._active):
                self._look_at(job)
            self._has_work.clear()
            if self._active:  # also if one was begun before the line above
                self._has_work.set()

    def _has_been_paused(self) -> bool:
        """Sleep until the next look. Return whether this process was paused meanwhile.

        A pause, as by SIGSTOP or of a virtual machine, counts for no call.
        """
        began = time.monotonic()
        time.sleep(_LOOK)
        late = time.monotonic() - began - _LOOK
        if late <= _PAUSED:
            return False
        for call in [job.call for job in list(self._active)]:
            if call is not None:
                call.forgive(late)
        return True

    def _look_at(self, job: _Job) -> None:
        try:
            _raise_if_overdue(job)
        except BaseException as error:  # noqa: BLE001  # raised by the caller
            self.leave(job)
            self._active.discard(job)
            job.break_off(error)

    def ends(self, worker: _Worker, job: _Job) -> None:
        """Record that a worker has done a job, and may do another one."""
        self._active.discard(job)
        if job.is_left:
            with self._lock:
                self._left.discard(job)
        self._idle.append(worker)  # before the caller goes on: its next job finds it here

    def leave(self, job: _Job) -> None:
        """Wait for a job no longer."""
        with self._lock:
            job.is_left = True
            if not job.has_ended:
                self._left.add(job)

    def left_of(self, deadline: Deadline | None) -> int:
        """Return how many workers were left behind and are not back: of a deadline, or all."""
        with self._lock:
            self._left = {job for job in self._left if not job.has_ended}
            return sum(deadline is None or job.deadline is deadline for job in self._left)


class _Worker:
    """A daemon thread that does one job after the other.

    The threads of `concurrent.futures` are waited for at the end of the process.
    """

    def __init__(self, workers: _Workers) -> None:
        self._workers = workers
        self._job: _Job | None = None
        self._wake = threading.Lock()
        self._wake.acquire()
        threading.Thread(target=self._work, name="storage", daemon=True).start()

    def begin(self, job: _Job) -> None:
        """Do a job; there is none under way."""
        self._job = job
        self._wake.release()

    def _work(self) -> None:
        while True:
            self._wake.acquire()
            job, self._job = self._job, None
            assert job is not None
            _thread.job = job
            job.perform()
            _thread.job = None
            self._workers.ends(self, job)
            job.release()
            del job  # its result is the caller's


class _Thread(threading.local):
    job: _Job | None = None


class _Ending:
    """The end of this process: once it was requested, no call may hold it up."""

    def __init__(self) -> None:
        self.requested = threading.Event()
        self._a_call, self._all = 0.0, 0.0

    def begin(self, within: float) -> None:
        """Let no call last longer than some of these seconds, and all end before they are over."""
        self._a_call, self._all = within * 0.4, time.monotonic() + within * 0.8
        self.requested.set()

    def is_over(self, lasted: float, now: float) -> bool:
        """Return whether a call that has lasted so long is broken off."""
        return self.requested.is_set() and (lasted >= self._a_call or now >= self._all)


_workers = _Workers()
_ending = _Ending()
_thread = _Thread()


class Deadline:
    """The deadline of the calls to one server, or to one kind of servers.

    `who` names it in messages, and `place` its filesystem. `breaks_off` is called when nothing was
    answered for that long: it may close connections, so that the client makes new ones. It is also
    called when a `change` is left behind, else the client might make that change later, against
    what another run did meanwhile. With it, a server that is silent is asked by one call at a time
    until it answers, and other calls fail at once.
    """

    def __init__(
        self,
        seconds: float,
        place: str,
        who: str,
        breaks_off: Callable[[], None] | None = None,
    ) -> None:
        self.seconds = seconds
        self.who = who
        self._place = place
        self._breaks_off = breaks_off
        self._answered = 0.0  # when the last call was answered
        self._is_silent = False
        self._asking: _Job | None = None

    def run(self, work: Callable[[], T]) -> T:
        """Do what makes calls, in a worker; raise `NoAnswer` if one of them is not answered."""
        if _thread.job is not None:
            return work()
        job = _Job(work, self)
        _workers.start(job)
        try:
            job.done.acquire()
        except BaseException:  # a signal: let the worker clean up, if it can
            _workers.leave(job)
            job.done.acquire()
            raise
        result: T = job.outcome()
        return result

    def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """Make one call of a client and return its result."""
        return self._call(False, function, *arguments)

    def change(self, function: Callable[..., T], *arguments: Any) -> T:
        """Make one call that changes what others may see."""
        return self._call(True, function, *arguments)

    def _call(self, is_change: bool, function: Callable[..., T], *arguments: Any) -> T:
        job = _thread.job
        if job is None:
            return self.run(lambda: self._call(is_change, function, *arguments))
        job.raise_if_left()
        if self._is_silent:
            self._begin_asking(job)
        call = job.call = _Call(limit(self.seconds), self, is_change)
        try:
            result = function(*arguments)
            answered()
            return result
        finally:
            job.call = None
            if self._asking is job:
                self._asking = None
            if job.is_left:
                job.cleans_up = True
                raise _LeftBehind
            self._answered, self._is_silent = call.began, False  # by an error, perhaps

    def progress(self) -> None:
        """Record that the present call goes on: its deadline begins again."""
        job = _thread.job
        if job is not None and job.call is not None:
            answered()
            job.call.began, job.call.seconds = time.monotonic(), self.seconds

    def no_answer(self, lasted: float) -> NoAnswer:
        """Return the exception for a call that was not answered for some seconds."""
        text = f"{self.who} has not answered for {lasted:.3g} s"
        return NoAnswer(errno.ETIMEDOUT, text, self._place)

    def gives_up(self, call: _Call) -> None:
        """Record that a call was left behind. One that had less time means nothing for others."""
        if call.seconds >= self.seconds and self._answered < call.began:
            self._is_silent = self._breaks_off is not None
            self._break()
        else:
            self.leaves(call)

    def leaves(self, call: _Call) -> None:
        """Let no call that was left behind make its change later."""
        if call.is_change:
            self._break()

    def _break(self) -> None:
        if self._breaks_off is None:
            return
        # in a thread of its own: it may ask for the addresses of a host
        with contextlib.suppress(RuntimeError):  # there are too many threads
            threading.Thread(target=self._breaks_off, name="break", daemon=True).start()

    def _begin_asking(self, job: _Job) -> None:
        """Let a job ask a silent server, unless another one does."""
        asking = self._asking
        if asking is None or asking is job or asking.is_left or asking.has_ended:
            self._asking = job
            return
        lasted = time.monotonic() - self._answered if self._answered else self.seconds
        raise self.no_answer(lasted)


def _raise_if_overdue(job: _Job) -> None:
    """Raise `NoAnswer` if the present call of a job has lasted too long."""
    call, now = job.call, time.monotonic()
    if call is None:
        if job.is_left and _ending.is_over(0.0, now):
            raise NoAnswer(errno.ETIMEDOUT, "the process ends")
        return
    lasted = now - call.began
    if lasted >= call.seconds:
        call.deadline.gives_up(call)
        raise call.deadline.no_answer(lasted)
    if _ending.is_over(lasted, now):
        raise call.deadline.no_answer(lasted)
    if lasted >= _HANGS:
        try:
            job.raise_if_cancelled()
        except BaseException:
            call.deadline.leaves(call)
            raise


def limit(seconds: float) -> float:
    """Return the seconds that a call may take which may take so long by its own deadline."""
    bound = _bound.get()
    return seconds if bound is None else bound.limit(seconds)


def answered() -> None:
    """Record that a call was answered: the block of `bounded` makes progress."""
    bound = _bound.get()
    if bound is not None:
        bound.lift()


@contextlib.contextmanager
def bounded(seconds: float) -> Iterator[None]:
    """Let each call in the block end in some seconds from now, as long as none was answered.

    A long transfer that makes progress is not broken off.
    """
    token = _bound.set(_Bound(time.monotonic() + seconds))
    try:
        yield
    finally:
        _bound.reset(token)


def deadline_of(text: str | None) -> float:
    """Return the seconds of the option, as in `20`, `20s`, `500ms`. Raises `UsageError`."""
    if text is None:
        return DEFAULT
    number = text.strip().rstrip("mhs")
    unit = text.strip()[len(number) :] or "s"
    try:
        seconds = float(number) * _UNITS[unit]
    except (ValueError, KeyError):
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise UsageError(f"{OPTION} = {text!r}: expected a time such as 20s or 500ms")
    return seconds


def end_calls(within: float) -> None:
    """Break off what calls are under way, so that the process can end within some seconds."""
    _ending.begin(within)


def is_ending() -> bool:
    """Return whether `end_calls` was called."""
    return _ending.requested.is_set()


def left_behind() -> int:
    """Return how many calls were left behind and have not returned."""
    return _workers.left_of(None)


def _after_fork() -> None:
    """Begin without workers: threads do not exist in a forked child."""
    global _workers
    _workers = _Workers()
    _thread.job = None


os.register_at_fork(after_in_child=_after_fork)
