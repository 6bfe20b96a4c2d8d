"""The manifest of a committed checkpoint: its files with their CRC32C, to be verified later.

`.cpreplicate/chk-N.parquet` has one row for each file: `path` (relative to the replica), `extent`,
`length`, `crc32c` (null if two attempts at a growing file raced) and `written` (false for a file
that was in an adopted directory before). The row of a packed file has its logical path, and names
its `pack` and the `offset` in it; both are null for other files. A pack has a row of its own,
without a CRC32C. The manifest is written after the commit and names the digest of the
`_metadata` that it describes. It vouches for a file as long as the file has the recorded length.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from cpreplicate.core import uri
from cpreplicate.core.placement import OWN
from cpreplicate.core.plan import Member
from cpreplicate.protocol import parquet_files
from cpreplicate.protocol.digest import Digest
from cpreplicate.protocol.pending import PendingPut
from cpreplicate.storage import Storage

SUFFIX = ".parquet"
# Name to type. Version 0.2.0 wrote no `pack` and no `offset`.
_COLUMNS = {
    "path": "string",
    "extent": "int64",
    "length": "int64",
    "crc32c": "uint32",
    "written": "bool",
    "pack": "string",
    "offset": "int64",
}


class Entry(NamedTuple):
    """One file: the extent that the checkpoint needs, and the length and CRC32C when it was copied.

    `written`: cpreplicate wrote it.
    """

    extent: int
    length: int
    crc32c: int | None
    written: bool = True


class Manifest(NamedTuple):
    """The files of a checkpoint by their path, and the digest of its `_metadata`.

    Packs are among the `entries`; `members` are the packed files by their logical path.
    """

    checkpoint_id: int
    metadata: Digest
    entries: Mapping[str, Entry]
    members: Mapping[str, Member] = {}


def manifest_uri(replica: str, checkpoint: str) -> str:
    """Return the URI of the manifest of a checkpoint."""
    return uri.join(replica, f"{OWN}/{checkpoint}{SUFFIX}")


def write(storage: Storage, replica: str, checkpoint: str, manifest: Manifest) -> None:
    """Write the manifest of a checkpoint, atomically."""
    with writing(storage, replica, checkpoint, manifest) as pending:
        pending.appear()


def writing(storage: Storage, replica: str, checkpoint: str, manifest: Manifest) -> PendingPut:
    """Return the manifest of a checkpoint while it is written; the caller lets it appear."""
    data = _encoded(manifest)
    return PendingPut(storage, manifest_uri(replica, checkpoint), lambda: [data])


def read(storage: Storage, replica: str, checkpoint: str) -> Manifest | None:
    """Return the manifest of a checkpoint, or None if it does not exist or is damaged."""
    try:
        with storage.open(manifest_uri(replica, checkpoint)) as stream:
            data = stream.read()
    except FileNotFoundError:
        return None
    try:
        return _decoded(parquet_files.decoded(data))
    except parquet_files.Damaged:
        return None


def remove(storage: Storage, replica: str, checkpoint: str) -> None:
    """Remove the manifest of a checkpoint, if it exists."""
    storage.delete(manifest_uri(replica, checkpoint))


def _encoded(manifest: Manifest) -> bytes:
    import pyarrow as pa

    rows = [
        *((path, *entry, None, None) for path, entry in manifest.entries.items()),
        *(
            (path, length, length, crc32c, True, pack, offset)
            for path, (pack, offset, length, crc32c) in manifest.members.items()
        ),
    ]
    values = list(zip(*rows, strict=True)) or [()] * len(_COLUMNS)
    columns = {
        name: pa.array(column, pa.type_for_alias(kind))
        for (name, kind), column in zip(_COLUMNS.items(), values, strict=True)
    }
    described = {
        "checkpoint_id": str(manifest.checkpoint_id),
        "metadata_length": str(manifest.metadata.length),
        "metadata_crc32c": str(manifest.metadata.crc32c),
    }
    return parquet_files.encoded(pa.table(columns).replace_schema_metadata(described))


def _decoded(table: Any) -> Manifest:
    entries: dict[str, Entry] = {}
    members: dict[str, Member] = {}
    for path, extent, length, crc32c, written, pack, offset in zip(
        *parquet_files.columns(table, _COLUMNS), strict=True
    ):
        if pack is None:
            entries[path] = Entry(extent, length, crc32c, written)
        else:
            members[path] = Member(pack, offset, length, crc32c)
    checkpoint_id, metadata = _described(table)
    return Manifest(checkpoint_id, metadata, entries, members)


def _described(table: Any) -> tuple[int, Digest]:
    """Return the ID of the checkpoint and the digest of its `_metadata`, or raise `Damaged`."""
    fields = table.schema.metadata or {}
    try:
        metadata = Digest(int(fields[b"metadata_length"]), int(fields[b"metadata_crc32c"]))
        return int(fields[b"checkpoint_id"]), metadata
    except (KeyError, ValueError) as error:
        raise parquet_files.Damaged("the description of the checkpoint is incomplete") from error
