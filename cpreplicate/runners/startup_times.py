"""Startup times of Spark on this host by master, recorded for the choice of `auto`."""

from __future__ import annotations

from cpreplicate.runners import cache

DEFAULT_SECONDS = 6.6  # a local session to its first task and its end, measured on 2 cores
_FILE = "spark-start.json"


def seconds(master: str) -> tuple[float, bool]:
    """Return the last startup time of this master, and whether it was measured here."""
    recorded = cache.read(_FILE).get(key(master))
    if isinstance(recorded, (int, float)):
        return float(recorded), True
    return DEFAULT_SECONDS, False


def record(master: str, took: float) -> None:
    """Record the startup time of a master, in seconds, unless the cache cannot be written."""
    cache.write(_FILE, {**cache.read(_FILE), key(master): round(took, 2)})


def key(master: str) -> str:
    """Return the name under which the times of a master are recorded."""
    return "local" if master.startswith("local") else master
