"""Bounds of calls: a time in which each of several calls ends, as long as none was answered."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from contextvars import ContextVar

_LEAST = 1.0  # seconds that a call has in any case, if its deadline allows them


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
