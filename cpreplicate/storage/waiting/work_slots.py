"""Threads that work and threads that wait: of many threads only some read and write at once.

Closing a file on HDFS often waits half a second, and costs nothing meanwhile. So a batch has more
threads than files that it copies at once, and a permit for each of those. A thread that waits for a
close gives its permit to another one.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from contextvars import ContextVar


class _Permit:
    """A permit that was taken and is given back once."""

    def __init__(self, permits: threading.Semaphore) -> None:
        permits.acquire()
        self._permits: threading.Semaphore | None = permits

    def give_back(self) -> None:
        permits, self._permits = self._permits, None
        if permits is not None:
            permits.release()


# of the context, not of the thread: a call may be made by another thread (`deadlines`)
_permit: ContextVar[_Permit | None] = ContextVar("permit", default=None)


@contextlib.contextmanager
def working(permits: threading.Semaphore) -> Iterator[None]:
    """Take a permit before the block runs; give it back afterwards, or when this thread waits."""
    permit = _Permit(permits)
    token = _permit.set(permit)
    try:
        yield
    finally:
        permit.give_back()
        _permit.reset(token)


def waiting() -> None:
    """Give the permit of this thread back, if it has one: what it still has to do is waiting."""
    permit = _permit.get()
    if permit is not None:
        permit.give_back()
