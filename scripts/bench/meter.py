"""Measure who uses the machine's CPU: this process with its descendants, or other processes."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple

from scripts.bench import measured


class Shares(NamedTuple):
    """Seconds, and shares of the CPU of all cores."""

    seconds: float
    ours: float
    others: float


class Meter:
    """Counts from its making on; `since` is that moment, in seconds since the epoch."""

    def __init__(self) -> None:
        self.since, self._began = time.time(), time.perf_counter()
        self._busy, self._ours = measured._machine(), _ours()

    def read(self) -> Shares:
        """Until now."""
        seconds, ours = time.perf_counter() - self._began, _ours() - self._ours
        others = max(0.0, measured._machine() - self._busy - ours)
        return Shares(seconds, ours / seconds / measured._CORES, others / seconds / measured._CORES)


def _ours() -> float:
    """Return the CPU seconds of this process's descendants, including those that have ended."""
    stats = [
        measured._text(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
        for pid in measured._tree(os.getpid())
    ]
    return sum(sum(map(int, fields[11:15])) for fields in stats if fields) / measured._TICK
