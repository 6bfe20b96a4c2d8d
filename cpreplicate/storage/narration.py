"""Reports of retries while they last.

They reach whoever started the run; in executors nobody listens.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

_EVERY = 10.0  # seconds between two reports about one storage, however many calls fail meanwhile

Notify = Callable[[str], None]


def _silent(_line: str) -> None:
    """Report nothing."""


_notify: Notify = _silent


def narrate_with(notify: Notify) -> None:
    """Have the retries of this process reported through `say`."""
    global _notify  # one command runs in a process, and storages are made once for it
    _notify = notify


class Retries:
    """Reports of one storage: the first retry of an outage, then a line every ten seconds."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next = 0.0

    def report(self, uri: str, reason: str, left: float) -> None:
        """Report that a call is made again, for up to `left` seconds."""
        with self._lock:
            now = time.monotonic()
            if now < self._next:
                return
            self._next = now + _EVERY
        _notify(f"{uri}: {reason}; trying again for up to {max(left, 1):.0f} s")
