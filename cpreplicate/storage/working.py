"""Threads that work and threads that wait: of many threads only some read and write at once.

Closing a file on HDFS often waits half a second, and costs nothing meanwhile. So a batch has more
threads than files that it copies at once, and a permit for each of those. A thread that waits for a
close gives its permit to another one.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

_thread = threading.local()


@contextlib.contextmanager
def working(permits: threading.Semaphore) -> Iterator[None]:
    """Take a permit before the block runs; give it back afterwards, or when this thread waits."""
    permits.acquire()
    _thread.permits = permits
    try:
        yield
    finally:
        if _thread.permits is not None:
            permits.release()
        _thread.permits = None


def waiting() -> None:
    """Give the permit of this thread back, if it has one: what it still has to do is waiting."""
    permits: threading.Semaphore | None = getattr(_thread, "permits", None)
    if permits is not None:
        _thread.permits = None
        permits.release()
