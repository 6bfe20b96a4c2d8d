"""The manifest of a committed checkpoint: what was copied, with its CRC32C, so that it can be proved later.

`.cpreplicate/chk-N.parquet`, one row a file: `path` (relative to the replica), `extent`, `length`, `crc32c` (null where
the file was not read by the run that wrote the manifest). It is a cache and a record, never the truth: that is the
replica's `_metadata`. It is written after the commit it describes, and removed before another takes its name.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from cpreplicate import uri
from cpreplicate.placement import OWN
from cpreplicate.storage import Storage


class Entry(NamedTuple):
    """One file: the extent that the checkpoint needs, its length when copied, and its CRC32C if it is known."""

    extent: int
    length: int
    crc32c: int | None


class Manifest(NamedTuple):
    """The files of checkpoint `checkpoint_id` by their path, for a `_metadata` of `metadata_length` bytes."""

    checkpoint_id: int
    metadata_length: int
    entries: Mapping[str, Entry]


def place(replica: str, checkpoint: str) -> str:
    """Where the manifest of a checkpoint lies."""
    return uri.join(replica, f"{OWN}/{checkpoint}.parquet")


def write(storage: Storage, replica: str, checkpoint: str, manifest: Manifest) -> None:
    """Write it, atomically."""
    data = _encoded(manifest)
    storage.put(place(replica, checkpoint), lambda: [data])


def read(storage: Storage, replica: str, checkpoint: str, metadata_length: int) -> Manifest | None:
    """The manifest, or None where there is none that fits a `_metadata` of this length."""
    import pyarrow as pa
    from pyarrow import parquet

    try:
        with storage.open(place(replica, checkpoint)) as stream:
            table = parquet.ParquetFile(io.BytesIO(stream.read())).read(use_threads=False)
            manifest = _decoded(table)
    except (FileNotFoundError, pa.ArrowException, KeyError, ValueError):
        return None
    return manifest if manifest.metadata_length == metadata_length else None


def exists(storage: Storage, replica: str, checkpoint: str) -> bool:
    """Whether there is one, readable or not."""
    return storage.stat(place(replica, checkpoint)) is not None


def remove(storage: Storage, replica: str, checkpoint: str) -> None:
    """Remove it, if it is there."""
    storage.delete(place(replica, checkpoint))


def crcs(manifests: Iterable[Manifest]) -> dict[tuple[str, int], int]:
    """(path, length) to CRC32C, of all files of some manifests whose CRC32C is known."""
    return {
        (path, entry.length): entry.crc32c
        for manifest in manifests
        for path, entry in manifest.entries.items()
        if entry.crc32c is not None
    }


def _encoded(manifest: Manifest) -> bytes:
    import pyarrow as pa
    from pyarrow import parquet

    entries = manifest.entries.values()
    table = pa.table({
        "path": pa.array(manifest.entries, pa.string()),
        "extent": pa.array([entry.extent for entry in entries], pa.int64()),
        "length": pa.array([entry.length for entry in entries], pa.int64()),
        "crc32c": pa.array([entry.crc32c for entry in entries], pa.uint32()),
    }).replace_schema_metadata({
        "checkpoint_id": str(manifest.checkpoint_id), "metadata_length": str(manifest.metadata_length),
    })  # fmt: skip
    sink = io.BytesIO()
    parquet.write_table(table, sink)
    return sink.getvalue()


def _decoded(table: object) -> Manifest:
    columns, head = table.to_pydict(), table.schema.metadata  # type: ignore[attr-defined]  # pyarrow is untyped
    rows = zip(columns["path"], columns["extent"], columns["length"], columns["crc32c"], strict=True)
    entries = {path: Entry(extent, length, crc32c) for path, extent, length, crc32c in rows}
    return Manifest(int(head[b"checkpoint_id"]), int(head[b"metadata_length"]), entries)
