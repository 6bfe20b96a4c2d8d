"""Small JSON files under `.cpreplicate/`: marker, records, lease and seal.

They are read without trust in who wrote them. What is read is one JSON object, called its fields.
"""

from __future__ import annotations

import json
import math
import socket
import time
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from cpreplicate.protocol.users import user_name
from cpreplicate.storage import DamagedFile
from cpreplicate.storage.base import ANSWER_COUNTS
from cpreplicate.storage.reading import Reading

_LONGEST = 1 << 16  # bytes; no file of cpreplicate's comes near


def now() -> float:
    """Return the time in seconds since the epoch."""
    return time.time()


def signature() -> dict[str, str]:
    """Return the fields that say who writes a file, and on which host."""
    return {"owner": user_name(), "host": socket.gethostname()}


def encoded(fields: dict[str, Any]) -> bytes:
    """Return the bytes of a file with these fields."""
    return json.dumps(fields).encode()


def read(storage: Reading, path: str) -> bytes | None:
    """Return the first bytes of a file, none of a damaged one, or None if it does not exist."""
    try:
        return storage.read(path, 0, _LONGEST)
    except FileNotFoundError:
        return None
    except DamagedFile:  # it is as malformed as one with other bytes; the storage has named it
        return b""


def ask(storage: Reading, path: str, seconds: float = ANSWER_COUNTS, times: int = 1) -> None:
    """Begin to read a file that `read` is called for soon, so many times.

    The bytes count for some seconds.
    """
    storage.ask("read", path, 0, _LONGEST, seconds=seconds, times=times)


def parse(data: bytes | None) -> dict[str, Any] | None:
    """Return the fields of a file: {} if it is malformed, None if it does not exist."""
    if data is None:
        return None
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


def word(fields: Mapping[str, Any], name: str) -> str:
    """Return a field as one short word that is safe to print on a terminal."""
    text = str(fields.get(name, "unknown"))[:64]
    return "".join(character if character.isprintable() else "?" for character in text)


def seconds(fields: Mapping[str, Any], name: str) -> float | None:
    """Return a field of seconds since the epoch, None if it is absent or malformed."""
    try:
        value = float(fields.get(name))  # type: ignore[arg-type]  # anything may be in the file
    except (TypeError, ValueError, OverflowError):
        return None
    return value if math.isfinite(value) else None


def clock_of(fields: Mapping[str, Any], name: str) -> str:
    """Return a field of seconds since the epoch as people read it."""
    return clock(seconds(fields, name))


def clock(time: float | None) -> str:
    """Return a time in seconds since the epoch as people read it."""
    try:
        moment = datetime.fromtimestamp(math.nan if time is None else time, timezone.utc)
    except (ValueError, OverflowError, OSError):
        return "an unknown time"
    return moment.isoformat(timespec="seconds")
