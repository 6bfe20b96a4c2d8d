"""Startup times of Spark on this host by master, recorded for the choice of `auto`."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

DEFAULT_SECONDS = 6.6  # a local session to its first task and its end, measured on 2 cores


def seconds(master: str) -> tuple[float, bool]:
    """Return the last startup time of this master, and whether it was measured here."""
    recorded = _read().get(_key(master))
    if isinstance(recorded, (int, float)):
        return float(recorded), True
    return DEFAULT_SECONDS, False


def record(master: str, took: float) -> None:
    """Record the startup time of a master. Do nothing if the cache cannot be written."""
    cache = _cache()
    with contextlib.suppress(OSError):
        cache.parent.mkdir(parents=True, exist_ok=True)
        new = cache.with_suffix(f".{os.getpid()}")
        new.write_text(json.dumps({**_read(), _key(master): round(took, 2)}))
        new.replace(cache)


def _key(master: str) -> str:
    return "local" if master.startswith("local") else master


def _cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME")
    return Path(
        home or os.path.expanduser("~/.cache"),  # noqa: PTH111  # never fails
        "cpreplicate",
        "spark-start.json",
    )


def _read() -> dict[str, object]:
    try:
        times = json.loads(_cache().read_text())
    except (OSError, ValueError):
        return {}
    return times if isinstance(times, dict) else {}
