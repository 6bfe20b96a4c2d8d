"""Files of this host that make later runs better informed: a lost or damaged one does no harm."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Mapping
from pathlib import Path


def read(name: str) -> dict[str, object]:
    """Return the object in a file of the cache; empty if there is none or it is damaged."""
    try:
        value = json.loads(_path(name).read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def write(name: str, value: Mapping[str, object]) -> None:
    """Replace a file of the cache in one step. Do nothing if it cannot be written."""
    path = _path(name)
    new = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            new.write_text(json.dumps(value))
            new.replace(path)
        except OSError:
            new.unlink(missing_ok=True)


def _path(name: str) -> Path:
    home = os.environ.get("XDG_CACHE_HOME")
    return Path(
        home or os.path.expanduser("~/.cache"),  # noqa: PTH111  # never fails
        "cpreplicate",
        name,
    )
