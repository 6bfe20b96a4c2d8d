"""Cancellation of work in threads that wait."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

_thread = threading.local()


@contextlib.contextmanager
def cancellable(check: Callable[[], None]) -> Iterator[None]:
    """While the block runs, call `check` now and then while this thread waits.

    An exception that it raises ends the wait. Blocks may be nested: then all checks are called.
    """
    outer: Callable[[], None] | None = getattr(_thread, "check", None)

    def both() -> None:
        if outer is not None:
            outer()
        check()

    _thread.check = both
    try:
        yield
    finally:
        _thread.check = outer


def go_on() -> None:
    """Raise the exception of the check if the work of this thread was cancelled."""
    check: Callable[[], None] | None = getattr(_thread, "check", None)
    if check is not None:
        check()
