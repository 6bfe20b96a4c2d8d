"""Whether what a thread waits for is wanted still."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

_thread = threading.local()


@contextlib.contextmanager
def wanted(look: Callable[[], None]) -> Iterator[None]:
    """While the block runs, `look` is called now and then where this thread waits.

    What it raises ends the waiting.
    """
    _thread.look = look
    try:
        yield
    finally:
        del _thread.look


def go_on() -> None:
    """Raises whatever says that this thread's work is no longer wanted."""
    look: Callable[[], None] | None = getattr(_thread, "look", None)
    if look is not None:
        look()
