"""The manifest of a committed checkpoint: what was copied, with its CRC32C, so that it can be
proved later.

`.cpreplicate/chk-N.parquet`, one row a file: `path` (relative to the replica), `extent`, `length`,
`crc32c` (null where two attempts at a growing file raced), `written` (false for a file that an
adopted directory had already). It follows the commit and names the digest of the `_metadata` that
it describes. It vouches for a file as long as the file has the recorded length.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from cpreplicate.core import uri
from cpreplicate.core.placement import OWN
from cpreplicate.protocol.digest import Digest
from cpreplicate.storage import Storage

SUFFIX = ".parquet"
# What pyarrow raises for a damaged file.
DAMAGED = (
    OSError,
    ValueError,
    LookupError,
    TypeError,
    NotImplementedError,
    ArithmeticError,
    MemoryError,
)


class Entry(NamedTuple):
    """One file: the extent that the checkpoint needs, its length when copied, its CRC32C, and
    whether cpreplicate wrote it.
    """

    extent: int
    length: int
    crc32c: int | None
    written: bool = True


class Manifest(NamedTuple):
    """The files of checkpoint `checkpoint_id` by their path, for the `_metadata` with this digest."""

    checkpoint_id: int
    metadata: Digest
    entries: Mapping[str, Entry]


def place(replica: str, checkpoint: str) -> str:
    """Return where the manifest of a checkpoint lies."""
    return uri.join(replica, f"{OWN}/{checkpoint}{SUFFIX}")


def write(storage: Storage, replica: str, checkpoint: str, manifest: Manifest) -> None:
    """Write it, atomically."""
    data = _encoded(manifest)
    storage.put(place(replica, checkpoint), lambda: [data])


def read(storage: Storage, replica: str, checkpoint: str) -> Manifest | None:
    """Return the manifest, or None where there is none that can be read."""
    import pyarrow as pa
    from pyarrow import parquet

    try:
        with storage.open(place(replica, checkpoint)) as stream:
            data = stream.read()
    except FileNotFoundError:
        return None
    try:
        return _decoded(parquet.ParquetFile(pa.BufferReader(data)).read(use_threads=False))
    except DAMAGED:
        return None


def remove(storage: Storage, replica: str, checkpoint: str) -> None:
    """Remove it, if it is there."""
    storage.delete(place(replica, checkpoint))


def _encoded(manifest: Manifest) -> bytes:
    import pyarrow as pa
    from pyarrow import parquet

    entries = manifest.entries.values()
    table = pa.table({
        "path": pa.array(manifest.entries, pa.string()),
        "extent": pa.array([entry.extent for entry in entries], pa.int64()),
        "length": pa.array([entry.length for entry in entries], pa.int64()),
        "crc32c": pa.array([entry.crc32c for entry in entries], pa.uint32()),
        "written": pa.array([entry.written for entry in entries], pa.bool_()),
    }).replace_schema_metadata({
        "checkpoint_id": str(manifest.checkpoint_id),
        "metadata_length": str(manifest.metadata.length),
        "metadata_crc32c": str(manifest.metadata.crc32c),
    })  # fmt: skip
    sink = pa.BufferOutputStream()
    parquet.write_table(table, sink)
    return bytes(sink.getvalue())


def _decoded(table: object) -> Manifest:
    columns, head = table.to_pydict(), table.schema.metadata  # type: ignore[attr-defined]  # pyarrow is untyped
    rows = zip(*(columns[name] for name in ("extent", "length", "crc32c", "written")), strict=True)
    entries = dict(zip(columns["path"], map(Entry._make, rows), strict=True))
    metadata = Digest(int(head[b"metadata_length"]), int(head[b"metadata_crc32c"]))
    return Manifest(int(head[b"checkpoint_id"]), metadata, entries)
