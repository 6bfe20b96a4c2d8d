"""Cancellation of work in threads that wait."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

_thread = threading.local()


@contextlib.contextmanager
def cancellable(check: Callable[[], None]) -> Iterator[None]:
    """While the block runs, call `check` now and then while this thread waits.

    An exception that it raises ends the wait.
    """
    _thread.check = check
    try:
        yield
    finally:
        del _thread.check


def go_on() -> None:
    """Raise the exception of the check if the work of this thread was cancelled."""
    check: Callable[[], None] | None = getattr(_thread, "check", None)
    if check is not None:
        check()
