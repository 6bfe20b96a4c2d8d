"""How long Spark took to start here, by master; remembered so that `auto` can weigh it."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

DEFAULT_SECONDS = 6.6  # a local session to its first task and its end, measured on 2 cores


def seconds(master: str) -> tuple[float, bool]:
    """What the last session of this master took to start, and whether that was measured here."""
    found = _read().get(_key(master))
    return (float(found), True) if isinstance(found, (int, float)) else (DEFAULT_SECONDS, False)


def record(master: str, took: float) -> None:
    """Remember it.

    Where the cache cannot be written, the next run knows no better than this one did.
    """
    place = _place()
    with contextlib.suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        new = place.with_suffix(f".{os.getpid()}")
        new.write_text(json.dumps({**_read(), _key(master): round(took, 2)}))
        new.replace(place)


def _key(master: str) -> str:
    return "local" if master.startswith("local") else master


def _place() -> Path:
    home = os.environ.get("XDG_CACHE_HOME")
    # never fails
    return Path(
        home or os.path.expanduser("~/.cache"),  # noqa: PTH111  # never fails
        "cpreplicate",
        "spark-start.json",
    )


def _read() -> dict[str, object]:
    try:
        found = json.loads(_place().read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
