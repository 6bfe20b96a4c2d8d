"""The memory of what a service has done: it is given back while the service rests.

The command line hardly ever collects cycles by itself (`cli.main`): a plan has millions of objects
and no cycles. A failure has some, of its exception and the frames that it came through.
"""

from __future__ import annotations

import gc

from cpreplicate.core.clock import Clock
from cpreplicate.core.memory import return_unused

_PAUSE = 60.0  # seconds between two collections, at least
_BUSY = 5  # so many pauses pass while jobs are tried: then a collection holds them up
_SHARE = 0.005  # of the time, that collections take at most


class Collector:
    """Collects what is unreachable, and returns to the system what nobody uses."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._collected, self._pause = clock.monotonic(), _PAUSE

    def tidy(self, is_resting: bool) -> None:
        """Collect, if that is due; later if no job is at rest."""
        began = self._clock.monotonic()
        if began - self._collected < self._pause * (1 if is_resting else _BUSY):
            return
        gc.collect()
        return_unused()
        self._collected = self._clock.monotonic()
        self._pause = max(_PAUSE, (self._collected - began) / _SHARE)
