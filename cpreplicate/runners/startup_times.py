"""Startup times of Spark on this host by master, recorded for the choice of `auto`.

They are in a file of the cache: a lost or damaged one does no harm.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from pathlib import Path

DEFAULT_SECONDS = 6.6  # a local session to its first task and its end, measured on 2 cores
_STANDALONE_SECONDS = 12.5  # a session of a standalone cluster, likewise
_CONTAINER_SECONDS = 20.0  # one of YARN, which starts two containers first: docs/lab/executors.md
_MOST = 3.0  # times the default


def seconds(master: str) -> tuple[float, bool]:
    """Return the last startup time of this master, and whether it was measured here.

    What is far longer than a start was a wait for free slots: with that, `auto` would not ask for a
    session again, and so never learn that there are some.
    """
    recorded = _recorded().get(_key(master))
    if isinstance(recorded, (int, float)):
        return min(float(recorded), _MOST * _default(master)), True
    return _default(master), False


def _default(master: str) -> float:
    if master.startswith("local"):
        return DEFAULT_SECONDS
    return _STANDALONE_SECONDS if master.startswith("spark:") else _CONTAINER_SECONDS


def record(master: str, took: float) -> None:
    """Record the startup time of a master, in seconds, unless the cache cannot be written."""
    path = _path()
    new = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            new.write_text(json.dumps({**_recorded(), _key(master): round(took, 2)}))
            new.replace(path)
        except OSError:
            new.unlink(missing_ok=True)


def _recorded() -> dict[str, object]:
    try:
        value = json.loads(_path().read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _path() -> Path:
    home = os.environ.get("XDG_CACHE_HOME")
    return Path(
        home or os.path.expanduser("~/.cache"),  # noqa: PTH111  # never fails
        "cpreplicate",
        "spark-start.json",
    )


def _key(master: str) -> str:
    """Return the name under which the times of a master are recorded."""
    return "local" if master.startswith("local") else master
