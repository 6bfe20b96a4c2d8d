"""Calls in side threads: daemon threads that hold up neither a caller nor the end of the process.

Such a call cannot be broken off, and may last without end. Who waits for it no longer leaves it
behind.
"""

from __future__ import annotations

import contextlib
import math
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
