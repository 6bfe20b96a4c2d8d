"""The record of a replica's retention: which points are kept, what stated that, and when.

`.cpreplicate/retention.json` is written by a sync that states a policy, under the lease and after
the marker, and only if that changes it. Every sync that states none reads it. Releases before it
was introduced do not know it.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

from cpreplicate.core.placement import OWN
from cpreplicate.core.retention import Retention, Stated, StatedBy
from cpreplicate.errors import Refused
from cpreplicate.protocol import json_files
from cpreplicate.protocol.held import HeldReplica
from cpreplicate.protocol.replica import Replica

NAME = "retention.json"
_FORMAT = 1
_MOST_COUNT = 2**53  # exact in any JSON
_MOST_TEXT = 4096  # characters of a path or a command


def stated_by(command: str, path: str | None = None) -> StatedBy:
    """Return what states a policy: this process, by a command or by the file `path`.

    A path that cannot be printed names no place that a record could be compared with.
    """
    signature = json_files.signature()
    is_named = path is not None and path.isprintable() and len(path) <= _MOST_TEXT
    return StatedBy(
        command,
        json_files.word(signature, "owner"),
        json_files.word(signature, "host"),
        path if is_named else None,
    )


def described(stated: Stated) -> str:
    """Return a policy that was stated, by what, and when."""
    return f"{stated.retention}, stated by {stated.by} at {json_files.clock(stated.time)}"


def read_retention(replica: Replica, own: Collection[str]) -> Stated | None:
    """Return the policy that a replica records, None if it records none.

    `own` are the names of the files in `.cpreplicate/`. Raises `Refused` if the record is damaged:
    then it is not known which points somebody keeps on purpose.
    """
    if NAME not in own:
        return None
    try:
        fields = json_files.parse(json_files.read(replica.storage, _uri(replica)))
    except IsADirectoryError:
        fields = {}
    if fields is None:
        return None  # another run removed it just now, with all that was there
    try:
        return _stated(fields)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise Refused(
            f"{_uri(replica)} is damaged, or of another version of cpreplicate: which checkpoints"
            " the replica keeps on purpose is not known. Nothing was done. State the policy again,"
            " with the --keep options of its service and --keep-less, which replaces the file"
        ) from error


def shown_retention(replica: Replica, own: Collection[str]) -> tuple[Stated | None, str | None]:
    """Return the policy that a replica records, and why it is not known, for what only shows it."""
    try:
        return read_retention(replica, own), None
    except Refused as error:
        return None, str(error)


def record_retention(replica: HeldReplica, stated: Stated) -> None:
    """Write the record, atomically, under the lease."""
    fields = {
        "format": _FORMAT,
        **_amounts(stated.retention),
        **stated.by._asdict(),
        "time": json_files.now(),
    }
    content = json_files.encoded(fields)
    replica.storage.put(_uri(replica), lambda: [content])


def _uri(replica: Replica) -> str:
    return replica.uri_of(f"{OWN}/{NAME}")


def _amounts(retention: Retention) -> dict[str, float]:
    return {
        "last": retention.last,
        "within": retention.within,
        "hourly": retention.hourly,
        "daily": retention.daily,
    }


def _stated(fields: dict[str, Any]) -> Stated:
    """Return what the fields of a record state. Raises if one of them is not as it was written."""
    if fields["format"] != _FORMAT:
        raise ValueError(fields["format"])
    counts = (_count(fields[name]) for name in ("last", "hourly", "daily"))
    last, hourly, daily = counts
    by = StatedBy(
        _text(fields["command"]),
        json_files.word(fields, "user"),
        json_files.word(fields, "host"),
        None if fields["path"] is None else _text(fields["path"]),
    )
    within = _seconds(fields["within"])
    return Stated(Retention(last, within, hourly, daily), by, json_files.seconds(fields, "time"))


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MOST_COUNT:
        raise ValueError(value)
    return value


def _seconds(value: object) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise TypeError(value)
    if not 0 <= value < math.inf:
        raise ValueError(value)
    return float(value)


def _text(value: object) -> str:
    """Return a text as it was written, if it is safe to print on a terminal."""
    if not isinstance(value, str) or not value.isprintable() or len(value) > _MOST_TEXT:
        raise ValueError(value)
    return value
