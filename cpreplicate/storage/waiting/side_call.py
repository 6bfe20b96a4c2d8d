"""Calls in side threads: daemon threads that hold up neither a caller nor the end of the process.

Such a call cannot be broken off, and may last without end. Who waits for it no longer leaves it
behind.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import math
import os
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from cpreplicate.storage.waiting.cancellation import go_on

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

T = TypeVar("T")
_LOOK = 0.1  # seconds between two looks at a cancellation of the caller
_PAUSE = 0.5  # seconds between two cancellations of a call
_AGAIN = 1.0  # seconds after which a thread is asked for again where there was none


class SideCall(Generic[T]):
    """A call that another thread performs: what it returns or raises, and the wait for its end."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._call: Callable[[], T] | None = call
        self._result: T | None = None
        self._error: BaseException | None = None
        self.has_ended = False
        self.done = threading.Lock()  # an Event would cost ten times as much
        self.done.acquire()

    def perform(self) -> None:
        """Make the call; those who wait for it go on by `release`."""
        assert self._call is not None
        try:
            self._result = self._call()
        except BaseException as error:  # noqa: BLE001  # raised by `result`, in the caller's thread
            self._error = self._error or error  # the caller may have been let go with another one
        self._call, self.has_ended = None, True

    def run(self) -> None:
        """Make the call, and let the caller go on."""
        self.perform()
        self.release()

    def release(self) -> None:
        """Let the caller go on."""
        with contextlib.suppress(RuntimeError):  # it does so already
            self.done.release()

    def wait(self, seconds: float = math.inf) -> bool:
        """Wait for the end of the call, at most for some seconds; return whether it has ended."""
        timeout = min(max(seconds, 0.0), threading.TIMEOUT_MAX)
        if not self.has_ended and self.done.acquire(timeout=timeout):
            self.release()
        return self.has_ended

    def wait_or_be_cancelled(self, seconds: float) -> bool:
        """Wait as `wait`; raise the exception of the caller's check if its work is cancelled."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and not self.has_ended:
            go_on()
            self.wait(min(left, _LOOK))
        return self.has_ended

    def result(self) -> T:
        """Return what an ended call returned, or raise what it raised, once.

        What the caller is handling is no reason of the call's failure, and does not become its
        context.
        """
        error, self._error = self._error, None
        if error is None:
            return cast(T, self._result)
        context = error.__context__
        try:
            raise error
        finally:
            error.__context__ = context
            del error  # it refers to this frame

    def end(self, cancel: Callable[[], None], seconds: float = math.inf) -> None:
        """Cancel the call until it has ended; after some seconds, leave it behind.

        Once may not be enough: Spark forgets the cancellation of a job that it does not know yet.
        The cancellation may be a call that does not end, too.
        """
        until = time.monotonic() + seconds
        while not self.has_ended and time.monotonic() < until:
            cancelling = in_thread(cancel, "cancel")
            if cancelling.wait(seconds):
                cancelling.result()
            self.wait(_PAUSE)


Executor = Callable[[Callable[[], None], str], SideCall[None]]
"""Begins a call beside its caller, in a thread of that name."""


def in_thread(call: Callable[[], T], name: str) -> SideCall[T]:
    """Begin a call in a thread of its own. Raises `RuntimeError` if the system has none left."""
    begun = SideCall(call)
    threading.Thread(target=begun.run, name=name, daemon=True).start()
    return begun


class LaterCall:
    """A call that begins after some seconds, in a thread of its own, unless it is ended before.

    What watches over work begins late, and most work has ended by then: so no thread is begun that
    would only wait. One thread of the process waits for all.
    """

    def __init__(self, call: Callable[[], object], seconds: float, name: str) -> None:
        self._call: Callable[[], object] | None = call
        self._lock, self._thread = threading.Lock(), cast("threading.Thread | None", None)
        self.name = name
        _alarm.set(self, seconds)

    @property
    def is_waiting(self) -> bool:
        """Whether the call may begin later."""
        return self._call is not None

    def begin(self) -> None:
        """Begin the call now, unless it has begun, or is not to begin any more.

        Raises `RuntimeError` if the system has no thread left.
        """
        with self._lock:
            if self._call is not None:
                thread = threading.Thread(target=self._call, name=self.name, daemon=True)
                thread.start()
                self._call, self._thread = None, thread

    def end(self, seconds: float | None = None) -> None:
        """Let the call not begin. If it has begun, wait for its end, at most for some seconds."""
        with self._lock:
            self._call = None
        if self._thread is not None:
            self._thread.join(seconds)


class _Alarm:
    """Begins calls when they are due."""

    def __init__(self) -> None:
        self._calls: list[tuple[float, int, LaterCall]] = []  # a heap
        self._numbers, self._is_watched = itertools.count(), False
        # no condition: an exception of a signal, as it is taken, would leave its lock taken
        self._lock, self._changed = threading.Lock(), threading.Lock()

    def set(self, call: LaterCall, seconds: float) -> None:
        """Begin a call after some seconds."""
        entry = time.monotonic() + seconds, next(self._numbers), call
        with self._lock:
            heapq.heappush(self._calls, entry)
            is_first = self._calls[0] is entry
            if not self._is_watched:
                threading.Thread(target=self._watch, name="later", daemon=True).start()
                self._is_watched = True
        if is_first:
            with contextlib.suppress(RuntimeError):  # it is to look already
                self._changed.release()

    def waiting(self) -> list[LaterCall]:
        """Return the calls that may begin later."""
        with self._lock:
            return [call for *_, call in self._calls if call.is_waiting]

    def _watch(self) -> None:
        """Begin each call that is due, until the process ends."""
        while True:
            self._changed.acquire(timeout=self._begin_due())

    def _begin_due(self) -> float:
        """Begin what is due. Return the seconds until the next call is, -1 if there is none."""
        due, now = [], time.monotonic()
        with self._lock:
            # most that come first have ended: they wake nobody up
            while self._calls and (self._calls[0][0] <= now or not self._calls[0][2].is_waiting):
                due.append(heapq.heappop(self._calls)[2])
            left = self._calls[0][0] - now if self._calls else -1.0
        for call in due:
            try:
                call.begin()
            except (RuntimeError, MemoryError):  # the system has no thread left now
                self.set(call, _AGAIN)
        return min(left, threading.TIMEOUT_MAX)


_alarm = _Alarm()


def waiting_calls() -> list[LaterCall]:
    """Return the calls of this process that may begin later."""
    return _alarm.waiting()


def _after_fork() -> None:
    """Begin without calls: they are those of the parent."""
    global _alarm
    _alarm = _Alarm()


os.register_at_fork(after_in_child=_after_fork)


def in_pool(pool: ThreadPoolExecutor) -> Executor:
    """Return what begins calls in the threads of a pool, which the end of the process awaits."""

    def begin(call: Callable[[], None], _name: str) -> SideCall[None]:
        begun = SideCall(call)
        pool.submit(begun.run)
        return begun

    return begin


def all_ended(calls: Iterable[SideCall[Any]], seconds: float) -> bool:
    """Wait for calls, at most so many seconds for all; return whether each has ended."""
    until = time.monotonic() + seconds
    return all(call.wait(until - time.monotonic()) for call in calls)
