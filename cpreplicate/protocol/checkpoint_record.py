"""The record of a checkpoint: which `_metadata` cpreplicate published, and in what order.

`.cpreplicate/chk-N.json` holds the digests of the `_metadata` that is published and of the one that
is about to be. It is in place before the commit. So a `_metadata` without a matching record was not
written by cpreplicate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from cpreplicate.core.placement import OWN, checkpoint_of, own_name
from cpreplicate.protocol import json_files
from cpreplicate.protocol.digest import Digest
from cpreplicate.protocol.held import HeldReplica
from cpreplicate.protocol.replica import Replica

RECORD_SUFFIX = ".json"
UNKNOWN_SEQUENCE = -1  # the sequence of a checkpoint whose record is lost
_FORMAT = 1


class Record(NamedTuple):
    """What cpreplicate knows of a checkpoint in a replica.

    Of two checkpoints, the one with the higher `sequence` was published later. `adopted`: it was
    there when the directory was adopted. `completed` is when the checkpoint was completed at the
    source, in seconds since the epoch: the time of the `_metadata` there. It is None if that is not
    known, as in records of version 0.2.0 and earlier. `savepoint` is the URI of the savepoint that
    it was replicated from, None of a checkpoint. `summary` is the SHA-256 of the summary of the
    other points that was true when this checkpoint was published, None if there was none.
    """

    sequence: int
    digests: tuple[Digest, ...]
    adopted: bool = False
    completed: float | None = None
    savepoint: str | None = None
    summary: str | None = None


def record_uri(replica: Replica, name: str) -> str:
    """Return the URI of a checkpoint's record."""
    return replica.uri_of(f"{OWN}/{own_name(name)}{RECORD_SUFFIX}")


def read_record(replica: Replica, name: str) -> Record | None:
    """Return the record of a checkpoint, or None if it does not exist or is malformed."""
    fields = json_files.parse(json_files.read(replica.storage, record_uri(replica, name)))
    if not fields:
        return None
    try:
        digests = tuple(Digest(int(length), int(crc32c)) for length, crc32c in fields["digests"])
        sequence, adopted = int(fields["sequence"]), bool(fields["adopted"])
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    completed = json_files.seconds(fields, "completed")
    completed = completed if completed and completed > 0 else None
    savepoint = fields.get("savepoint")
    savepoint = savepoint if isinstance(savepoint, str) else None
    summary = fields.get("summary")
    summary = summary if isinstance(summary, str) else None
    return Record(sequence, digests, adopted, completed, savepoint, summary)


def ask_record(replica: Replica, name: str) -> None:
    """Begin to read a record that `read_record` is called for soon."""
    json_files.ask(replica.storage, record_uri(replica, name))


def encoded_record(record: Record) -> bytes:
    """Return the content of a record's file, signed by this process."""
    fields = {
        "format": _FORMAT,
        **record._asdict(),
        "time": json_files.now(),
        **json_files.signature(),
    }
    for name in ("savepoint", "summary"):
        if fields[name] is None:
            del fields[name]
    return json_files.encoded(fields)


def write_record(replica: HeldReplica, name: str, record: Record) -> None:
    """Write the record of a checkpoint, atomically."""
    content = encoded_record(record)
    replica.storage.put(record_uri(replica, name), lambda: [content])


def matching_record(replica: Replica, name: str, is_it: Callable[[Digest], bool]) -> Record | None:
    """Return the record of a checkpoint if it lists the `_metadata` that is there, else None.

    `is_it` compares that with a digest. If the record is damaged or lost, a manifest that names the
    `_metadata` replaces it. So it does if the record has other digests: a run that was held up may
    have written its own over it.
    """
    record = read_record(replica, name)
    if record is not None and any(map(is_it, record.digests)):
        return record
    if record is not None and record.adopted:
        return None
    manifest = replica.manifest(name)
    if manifest is None or not is_it(manifest.metadata):
        return None
    digests = (manifest.metadata,)
    return record._replace(digests=digests) if record else Record(UNKNOWN_SEQUENCE, digests)


def recorded_names(own: Iterable[str]) -> list[str]:
    """Return the names of the checkpoints that have a record among the files of `.cpreplicate/`."""
    names = [name.removesuffix(RECORD_SUFFIX) for name in own if name.endswith(RECORD_SUFFIX)]
    return [checkpoint for name in names if (checkpoint := checkpoint_of(name)) is not None]
