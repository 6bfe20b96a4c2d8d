"""Lines that are reported sparingly: a service reports the same failure for months."""

from __future__ import annotations

import threading

from cpreplicate.core.clock import MACHINE, Clock
from cpreplicate.core.notify import Notify

_UNCHANGED = 60.0  # seconds before a line is reported again that was reported before


class RepeatedLines:
    """Reports lines to `notify`, but the same line at most once a minute."""

    def __init__(self, notify: Notify, clock: Clock = MACHINE) -> None:
        self._notify, self._clock = notify, clock
        self._reported: dict[str, float] = {}
        self._lock = threading.Lock()  # several jobs may fail at once

    def __call__(self, line: str) -> None:
        now = self._clock.monotonic()
        with self._lock:
            self._reported = {
                reported: since
                for reported, since in self._reported.items()
                if now - since < _UNCHANGED
            }
            is_new = line not in self._reported
            self._reported.setdefault(line, now)
        if is_new:
            self._notify(line)

    def forget(self) -> None:
        """Report every line again, also one that was reported just now."""
        self._reported = {}
