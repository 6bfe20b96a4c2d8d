"""Reports of retries to a callback of this process, while the retries go on.

The process that starts a run sets the callback. Executors have none, so they report nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from cpreplicate.core.notify import Notify

# seconds between two reports about one storage, however many calls fail meanwhile
_INTERVAL = 10.0


def _ignore(_line: str) -> None:
    """Report nothing."""


_notify: Notify = _ignore


def report_retries_to(notify: Notify) -> None:
    """Report the retries of this process by calling `notify` with one line each."""
    global _notify  # one command runs in a process, and storages are made once for it
    _notify = notify


class RetryReports:
    """The reports of one storage: the first retry of an outage, then a line every ten seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._next = 0.0

    def report(self, uri: str, reason: str, left: float) -> None:
        """Report that a call is made again, for up to `left` seconds."""
        with self._lock:
            now = self._clock()
            if now < self._next:
                return
            self._next = now + _INTERVAL
        _notify(f"{uri}: {reason}; trying again for up to {max(left, 1):.0f} s")

    def report_end(self, error: OSError) -> None:
        """Report an error that no other try helps, and that a command may go on with."""
        _notify(str(error))
