"""The clock: what asks for the time is handed one, which in tests moves only by hand."""

from __future__ import annotations

import time


class Clock:
    """The time of this machine."""

    def now(self) -> float:
        """Return the seconds since the epoch: for ages. That clock may be set."""
        return time.time()

    def monotonic(self) -> float:
        """Return the seconds of a clock that nobody sets: for what is waited for."""
        return time.monotonic()


MACHINE = Clock()
