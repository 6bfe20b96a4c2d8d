"""Whether what a thread waits for is wanted still."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

_thread = threading.local()


@contextlib.contextmanager
def cancellable(check: Callable[[], None]) -> Iterator[None]:
    """While the block runs, `check` is called now and then where this thread waits.

    What it raises ends the waiting.
    """
    _thread.check = check
    try:
        yield
    finally:
        del _thread.check


def go_on() -> None:
    """Raises whatever says that this thread's work is no longer wanted."""
    check: Callable[[], None] | None = getattr(_thread, "check", None)
    if check is not None:
        check()
