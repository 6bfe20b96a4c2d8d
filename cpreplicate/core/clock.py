"""The clock: what asks for the time is handed one, which in tests moves only by hand."""

from __future__ import annotations

import time
from typing import NamedTuple


class Clock:
    """The time of this machine."""

    def now(self) -> float:
        """Return the seconds since the epoch: for ages. That clock may be set."""
        return time.time()

    def monotonic(self) -> float:
        """Return the seconds of a clock that nobody sets: for what is waited for."""
        return time.monotonic()


MACHINE = Clock()


class Instant(NamedTuple):
    """A moment by both clocks: one may be set, the other may stand while the machine sleeps."""

    wall: float
    monotonic: float

    @classmethod
    def now(cls) -> Instant:
        """Return the present."""
        return cls(MACHINE.now(), MACHINE.monotonic())

    def age(self) -> float:
        """Return the seconds that have passed since, by the clock that says more."""
        return max(MACHINE.now() - self.wall, MACHINE.monotonic() - self.monotonic)
