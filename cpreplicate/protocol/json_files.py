"""Notes that runs leave for each other under `.cpreplicate/`: small JSON files, read without trust
in who wrote them.
"""

from __future__ import annotations

import json
import socket
import time
from datetime import datetime, timezone
from typing import Any

from cpreplicate.protocol.users import user_name
from cpreplicate.storage import Storage

_LONGEST = 1 << 16  # bytes; no note is near


def now() -> float:
    """Seconds since the epoch."""
    return time.time()


def signature() -> dict[str, str]:
    """Who writes a note, and where."""
    return {"owner": user_name(), "host": socket.gethostname()}


def encoded(note: dict[str, Any]) -> bytes:
    """A note as it is written."""
    return json.dumps(note).encode()


def read(storage: Storage, place: str) -> bytes | None:
    """The first bytes of a note, None if there is none."""
    try:
        with storage.open(place) as stream:
            return stream.read(_LONGEST)
    except FileNotFoundError:
        return None


def parse(text: bytes | None) -> dict[str, Any] | None:
    """What a note tells; nothing if it is damaged, None if it is gone."""
    if text is None:
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def word(note: dict[str, Any], name: str) -> str:
    """A field as one short word that is safe on a terminal."""
    return "".join(c if c.isprintable() else "?" for c in str(note.get(name, "unknown"))[:64])


def clock(note: dict[str, Any], name: str) -> str:
    """A field of seconds since the epoch as people read it."""
    seconds = note.get(name)
    try:
        return datetime.fromtimestamp(float(seconds), timezone.utc).isoformat(timespec="seconds")  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError, OSError):
        return "an unknown time"
