"""Cancellation of work in threads that wait."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar

# of the context, not of the thread: a call may be made by another thread (`deadlines`)
CHECK: ContextVar[Callable[[], None] | None] = ContextVar("check", default=None)


@contextlib.contextmanager
def cancellable(check: Callable[[], None]) -> Iterator[None]:
    """While the block runs, call `check` now and then while this thread waits.

    An exception that it raises ends the wait. Blocks may be nested: then all checks are called.
    """
    outer = CHECK.get()

    def both() -> None:
        if outer is not None:
            outer()
        check()

    token = CHECK.set(both)
    try:
        yield
    finally:
        CHECK.reset(token)


def current() -> Callable[[], None]:
    """Return what ends the work of this thread, for threads that work for it."""
    return CHECK.get() or _go_on


def _go_on() -> None:
    """Nothing ends the work."""


def go_on() -> None:
    """Raise the exception of the check if the work of this thread was cancelled."""
    check = CHECK.get()
    if check is not None:
        check()
