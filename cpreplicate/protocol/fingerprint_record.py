"""The fingerprints of a checkpoint's positions: by which records they are known.

`.cpreplicate/chk-N.fingerprints` is written under the lease, after the commit. Without it, or if it
is damaged, the checkpoint is as good: only what it proves is missing. It counts for the checkpoint
that was completed at the time in it, since numbers may begin again. It holds digests of records,
and nothing of their content. Releases before it was introduced do not know it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from cpreplicate.core.placement import OWN, own_name
from cpreplicate.core.positions.fingerprints import Fingerprint, Seen
from cpreplicate.core.positions.topics import is_topic
from cpreplicate.protocol import json_files
from cpreplicate.protocol.held import HeldReplica
from cpreplicate.protocol.replica import Replica
from cpreplicate.storage import DamagedFile

SUFFIX = ".fingerprints"
_FORMAT = 1
_LONGEST = 1 << 28  # bytes: of 500,000 partitions
_DIGITS = 64  # of a SHA-256
_MOST = (1 << 63) - 1


def record_fingerprints(
    replica: HeldReplica, name: str, fingerprints: Sequence[Fingerprint], completed: float | None
) -> None:
    """Write the fingerprints of a checkpoint that was `completed` at this time, atomically."""
    fields = {
        "format": _FORMAT,
        "completed": completed,
        "positions": [_row(each) for each in fingerprints],
        "time": json_files.now(),
    }
    content = json.dumps(fields, separators=(",", ":")).encode()
    replica.storage.put(_uri(replica, name), lambda: [content])


def read_fingerprints(
    replica: Replica, name: str, completed: float | None
) -> tuple[Fingerprint, ...]:
    """Return the fingerprints of a checkpoint, none if they are absent, damaged or of another."""
    try:
        data = replica.storage.read(_uri(replica, name), 0, _LONGEST)
    except (FileNotFoundError, IsADirectoryError, DamagedFile):
        return ()
    fields = json_files.parse(data) or {}
    try:
        if fields["format"] != _FORMAT or fields["completed"] != completed:
            return ()
        return tuple(_fingerprint(*row) for row in fields["positions"])
    except (KeyError, TypeError, ValueError):
        return ()


def remove(replica: HeldReplica, name: str) -> None:
    """Remove the fingerprints of a checkpoint, if there are some."""
    replica.storage.delete(_uri(replica, name))


def own_file(name: str) -> str:
    """Return the name of the file in `.cpreplicate/` with the fingerprints of a checkpoint."""
    return f"{own_name(name)}{SUFFIX}"


def _uri(replica: Replica, name: str) -> str:
    return replica.uri_of(f"{OWN}/{own_file(name)}")


def _row(each: Fingerprint) -> list[Any]:
    before = None if each.before is None else list(each.before)
    return [
        each.topic,
        each.partition,
        each.position,
        list(each.record),
        before,
        each.repeated,
    ]


def _fingerprint(
    topic: object,
    partition: object,
    position: object,
    record: object,
    before: object,
    count: object,
) -> Fingerprint:
    """Return what a row holds. Raises if anything in it is not as it was written."""
    if not isinstance(topic, str) or not is_topic(topic):
        raise ValueError(topic)
    return Fingerprint(
        topic,
        _number(partition),
        _number(position),
        _seen(record),
        None if before is None else _seen(before),
        _number(count),
    )


def _seen(row: object) -> Seen:
    if not isinstance(row, list):
        raise TypeError(row)
    offset, time, is_of_broker, digest = row
    if not isinstance(is_of_broker, bool) or not isinstance(digest, str) or len(digest) != _DIGITS:
        raise ValueError(row)
    return Seen(_number(offset), _number(time), is_of_broker, digest)


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MOST:
        raise ValueError(value)
    return value
