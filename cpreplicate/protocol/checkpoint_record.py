"""The record of a checkpoint: which `_metadata` cpreplicate published, and in what order.

`.cpreplicate/chk-N.json` holds the digests of the `_metadata` that is published and of the one that
is about to be. It is in place before the commit. So a `_metadata` without a matching record was not
written by cpreplicate.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from cpreplicate.core.placement import CHECKPOINT_NAME, OWN
from cpreplicate.protocol import json_files
from cpreplicate.protocol.digest import Digest
from cpreplicate.protocol.replica import Replica

RECORD_SUFFIX = ".json"
_FORMAT = 1
UNKNOWN_SEQUENCE = -1  # the sequence of a checkpoint whose record is lost


class Record(NamedTuple):
    """What cpreplicate knows of a checkpoint here.

    Of two, the one with the higher `sequence` was published later.
    """

    sequence: int
    digests: tuple[Digest, ...]
    adopted: bool = False


def record_place(replica: Replica, name: str) -> str:
    """Return where the record of a checkpoint lies."""
    return replica.uri_of(f"{OWN}/{name}{RECORD_SUFFIX}")


def read_record(replica: Replica, name: str) -> Record | None:
    """Return the record of a checkpoint; None if there is none that can be understood."""
    note = json_files.parse(json_files.read(replica.storage, record_place(replica, name)))
    try:
        digests = (
            tuple(Digest(int(length), int(crc32c)) for length, crc32c in note["digests"])
            if note
            else ()
        )
        return Record(int(note["sequence"]), digests, bool(note["adopted"])) if note else None
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def write_record(replica: Replica, name: str, record: Record) -> None:
    """Write the record of a checkpoint, atomically."""
    note = {
        "format": _FORMAT,
        **record._asdict(),
        "time": json_files.now(),
        **json_files.signature(),
    }
    replica.storage.put(record_place(replica, name), lambda: [json_files.encoded(note)])


def matching_record(replica: Replica, name: str, digest: Digest) -> Record | None:
    """The record of this `_metadata`.

    Where it is damaged or lost, the manifest that names the digest is as good.
    """
    record = read_record(replica, name)
    if record is not None and digest in record.digests:
        return record
    known = replica.manifest(name) if record is None else None
    return (
        Record(UNKNOWN_SEQUENCE, (digest,))
        if known is not None and known.metadata == digest
        else None
    )


def recorded_names(own: Iterable[str]) -> list[str]:
    names = [name.removesuffix(RECORD_SUFFIX) for name in own if name.endswith(RECORD_SUFFIX)]
    return [name for name in names if CHECKPOINT_NAME.fullmatch(name)]


def newest_first(replica: Replica) -> list[str]:
    """Return the committed checkpoints, last published first.

    The highest N first where one has no record.
    """
    return last_published_first(
        {name: read_record(replica, name) for name in replica.committed_names()}
    )


def last_published_first(records: Mapping[str, Record | None]) -> list[str]:
    """Names of checkpoints; by their numbers where a record is missing."""
    are_known = all(
        record is not None and record.sequence != UNKNOWN_SEQUENCE for record in records.values()
    )

    def key(name: str) -> tuple[int, int]:
        record = records[name]
        return record.sequence if are_known and record is not None else 0, int(
            name.removeprefix("chk-")
        )

    return sorted(records, key=key, reverse=True)
