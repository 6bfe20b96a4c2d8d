"""The manifest of a committed checkpoint: its files with their CRC32C, to be verified later.

`.cpreplicate/chk-N.parquet` has one row for each file: `path` (relative to the replica), `extent`,
`length`, `crc32c` (null if two attempts at a growing file raced) and `written` (false for a file
that was in an adopted directory before). The row of a packed file has its logical path, and names
its `pack` and the `offset` in it; both are null for other files. A pack has a row of its own,
without a CRC32C. Of a merged file, which may grow later, `prefix_crc32c` is that of its first
`prefix` bytes, which are at least its extent: it proves the checkpoint whatever comes behind them.
Both are null for other files. The manifest is written after the commit and names the digest of the
`_metadata` that it describes. It counts for a file as long as the file has the recorded length.
cpreplicate writes no row with a path or a pack outside the replica, or with a member outside its
pack. So a manifest with such a row is damaged or forged, and counts as damaged as a whole.
The description in its footer also has the totals of the rows, which `status` reads alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from cpreplicate.core import uri
from cpreplicate.core.ledger import NO_MEMBERS, NO_PREFIXES, LedgerTable, MemberTable, PrefixTable
from cpreplicate.core.memory import LONGEST_KEPT, Memo
from cpreplicate.core.packs import are_valid
from cpreplicate.core.path_columns import Coded, Numbers, chosen, rows_of, texts
from cpreplicate.core.placement import OWN, are_replica_paths, own_name
from cpreplicate.core.tables import UNKNOWN, Crcs, Flags, Ints, Paths, PathTable, found
from cpreplicate.protocol import parquet_files
from cpreplicate.protocol.digest import Digest
from cpreplicate.protocol.pending import PendingPut
from cpreplicate.storage import DamagedFile, Storage
from cpreplicate.storage.reading import Reading

SUFFIX = ".parquet"
_CHECKPOINT = ("checkpoint_id", "metadata_length", "metadata_crc32c")
_FOOTER = 1 << 16  # bytes at the end of a manifest that hold its footer: 2,000 for 200,000 files
# Name to type. Version 0.2.0 wrote no `pack`, no `offset` and no `prefix`.
_COLUMNS = {
    "path": "string",
    "extent": "int64",
    "length": "int64",
    "crc32c": "uint32",
    "written": "bool",
    "pack": "string",
    "offset": "int64",
    "prefix": "int64",
    "prefix_crc32c": "uint32",
}
_SCHEMA = pa.schema([(name, pa.type_for_alias(kind)) for name, kind in _COLUMNS.items()])


class ManifestEntry(NamedTuple):
    """One file: the extent that the checkpoint needs, and the length and CRC32C when it was copied.

    `written`: cpreplicate wrote it.
    """

    extent: int
    length: int
    crc32c: int | None
    written: bool = True


@dataclass(frozen=True, eq=False)
class ManifestTable(PathTable[ManifestEntry]):
    """Entries by path, in columns."""

    row_class = ManifestEntry
    paths: Paths
    extents: Ints
    bytes: Ints
    crcs: Crcs
    is_written: Flags

    @classmethod
    def of_ledger(cls, ledger: LedgerTable, extents: Numbers) -> ManifestTable:
        """Return the entries of a ledger with the extents that a checkpoint needs."""
        assert len(ledger) == len(extents), "a row has both"
        return cls(ledger.paths, extents, ledger.bytes, ledger.crcs, ledger.is_written)

    @property
    def ledger(self) -> LedgerTable:
        """What is recorded of each file."""
        return LedgerTable(self.paths, self.bytes, self.crcs, self.is_written)


class Manifest(NamedTuple):
    """The files of a checkpoint by their path, and the digest of its `_metadata`.

    Packs are among the `entries`; `members` are the packed files by their logical path. `prefixes`
    are the beginnings of merged files that prove their extents.
    """

    checkpoint_id: int
    metadata: Digest
    entries: ManifestTable
    members: MemberTable = NO_MEMBERS
    prefixes: PrefixTable = NO_PREFIXES


class Totals(NamedTuple):
    """The sums of a manifest: `files` counts packed files, `bytes` are those of files and packs."""

    files: int
    bytes: int
    packs: int


class Summary(NamedTuple):
    """What a manifest states of a checkpoint, whose `_metadata` has the digest, and its sums."""

    checkpoint_id: int
    metadata: Digest
    totals: Totals


_memo = Memo[Manifest]()


def totals(manifest: Manifest) -> Totals:
    """Return the sums of a manifest."""
    packs = len(manifest.members.used_packs)
    files = len(manifest.entries) - packs + len(manifest.members)
    return Totals(files, int(manifest.entries.bytes.sum()), packs)


def manifest_uri(replica: str, checkpoint: str) -> str:
    """Return the URI of the manifest of a checkpoint."""
    return uri.join(replica, f"{OWN}/{own_name(checkpoint)}{SUFFIX}")


def write(storage: Storage, replica: str, checkpoint: str, manifest: Manifest) -> None:
    """Write the manifest of a checkpoint, atomically."""
    with writing(storage, replica, checkpoint, manifest) as pending:
        pending.appear()


def writing(storage: Storage, replica: str, checkpoint: str, manifest: Manifest) -> PendingPut:
    """Return the manifest of a checkpoint while it is written; the caller lets it appear."""
    data = encoded(manifest)
    return PendingPut(storage, manifest_uri(replica, checkpoint), lambda: [data])


def begun(storage: Storage, replica: str, checkpoint: str) -> PendingPut:
    """Return a manifest whose content is not known yet; the caller fills in what is `encoded`."""
    return PendingPut(storage, manifest_uri(replica, checkpoint), None)


def read(storage: Reading, replica: str, checkpoint: str) -> Manifest | None:
    """Return the manifest of a checkpoint, or None if it does not exist or is damaged.

    Raises `Refused` if it is larger than any that cpreplicate writes.
    """
    place = manifest_uri(replica, checkpoint)
    try:
        data = parquet_files.content(storage, place)
    except FileNotFoundError:
        return None
    known = _memo.get(data)
    if known is not None:
        return known
    try:
        manifest = _decoded(parquet_files.decoded(data, _COLUMNS, place))
    except parquet_files.DamagedParquet:
        return None
    _keep(data, manifest)
    return manifest


def ask(storage: Reading, replica: str, checkpoint: str) -> None:
    """Begin to read a manifest that `read` is called for soon."""
    parquet_files.ask(storage, manifest_uri(replica, checkpoint))


def read_summary(storage: Reading, replica: str, checkpoint: str, length: int) -> Summary | None:
    """Return what the end of a manifest of this length states, which is all that is read.

    None if it is gone or damaged, or was written by version 0.2.0 or earlier.
    """
    try:
        fields = _described(storage, replica, checkpoint, length)
        return Summary(*_checkpoint_of(fields), _totals_of(fields))
    except (FileNotFoundError, parquet_files.DamagedParquet, DamagedFile, KeyError, ValueError):
        return None


def read_totals(storage: Reading, replica: str, checkpoint: str, length: int) -> Totals | None:
    """Return the sums of a manifest that has this length, or None if it is gone or damaged.

    Only its end is read, unless version 0.2.0 or earlier wrote it.
    """
    try:
        return _totals_of(_described(storage, replica, checkpoint, length))
    except FileNotFoundError:
        return None
    except (parquet_files.DamagedParquet, DamagedFile, KeyError, ValueError):
        whole = read(storage, replica, checkpoint)
        return None if whole is None else totals(whole)


def _described(
    storage: Reading, replica: str, checkpoint: str, length: int
) -> Mapping[bytes, bytes]:
    start = max(0, length - _FOOTER)
    tail = storage.read(manifest_uri(replica, checkpoint), start, _FOOTER)
    return parquet_files.described(tail, (*_CHECKPOINT, *Totals._fields))


def _totals_of(fields: Mapping[bytes, bytes]) -> Totals:
    return Totals(*(int(fields[name.encode()]) for name in Totals._fields))


def remove(storage: Storage, replica: str, checkpoint: str) -> None:
    """Remove the manifest of a checkpoint, if it exists."""
    storage.delete(manifest_uri(replica, checkpoint))


def encoded(manifest: Manifest) -> bytes:
    """Return a manifest as the bytes of a Parquet file."""
    entries, members = manifest.entries, manifest.members
    packs = texts(members.packs.values)
    columns = {
        "path": pa.concat_arrays([entries.paths, members.paths]),
        "extent": np.concatenate([entries.extents, members.bytes]),
        "length": np.concatenate([entries.bytes, members.bytes]),
        "crc32c": _nullable(np.concatenate([entries.crcs, members.crcs])),
        "written": np.concatenate([entries.is_written, np.ones(len(members), np.bool_)]),
        "pack": _behind_nulls(len(entries), chosen(packs, members.packs.codes)),
        "offset": _behind_nulls(len(entries), pa.array(members.offsets)),
        **_prefix_columns(manifest),
    }
    arrays = [_typed(columns[field.name], field.type) for field in _SCHEMA]
    table = pa.table(arrays, schema=_SCHEMA)
    described = {
        "checkpoint_id": str(manifest.checkpoint_id),
        "metadata_length": str(manifest.metadata.length),
        "metadata_crc32c": str(manifest.metadata.crc32c),
        **{name: str(value) for name, value in totals(manifest)._asdict().items()},
    }
    data = parquet_files.encoded(table.replace_schema_metadata(described))
    if len(data) <= LONGEST_KEPT and not (members or manifest.prefixes):
        with suppress(parquet_files.DamagedParquet):  # else nobody reads it
            _keep(data, _checked(manifest._replace(members=NO_MEMBERS, prefixes=NO_PREFIXES)))
    return data


def _keep(data: bytes, manifest: Manifest) -> None:
    """Remember what a file holds, which is decoded once for all that read it.

    What is written is read at the next turn of a service. A manifest without members and prefixes
    is decoded to columns equal to those that were encoded.
    """
    for table in (manifest.entries, manifest.members, manifest.prefixes):
        table.freeze()
    _memo.put(data, manifest)


def _prefix_columns(manifest: Manifest) -> dict[str, Any]:
    rows = rows_of(manifest.entries.paths, manifest.prefixes.paths)
    of_members = np.full(len(manifest.members), UNKNOWN, np.int64)
    columns = {"prefix": manifest.prefixes.bytes, "prefix_crc32c": manifest.prefixes.crcs}
    return {
        name: _nullable(np.concatenate([found(column, rows, UNKNOWN), of_members]))
        for name, column in columns.items()
    }


def _behind_nulls(count: int, column: Any) -> Any:
    """Return a column of members, behind as many nulls as there are entries."""
    nulls = pa.nulls(count, column.type)
    return pa.concat_arrays([nulls, column]) if len(column) else nulls


def _nullable(numbers: Numbers) -> Any:
    return pa.array(numbers, mask=numbers < 0)


def _typed(column: Any, kind: Any) -> Any:
    array = pa.array(column) if isinstance(column, np.ndarray) else column
    return array if array.type == kind else array.cast(kind)


def _decoded(table: Any) -> Manifest:
    """Return the manifest that a table of a Parquet file holds. Raises if it is damaged."""
    columns = parquet_files.arrays(
        table, _COLUMNS, required=("path", "extent", "length", "written")
    )
    is_packed = columns["pack"].is_valid().to_numpy(zero_copy_only=False)
    entries = ManifestTable(
        columns["path"],
        columns["extent"].to_numpy(),
        columns["length"].to_numpy(),
        columns["crc32c"].cast("int64").fill_null(-1).to_numpy(),
        columns["written"].to_numpy(zero_copy_only=False),
    )
    checkpoint_id, metadata = _checkpoint_of(table.schema.metadata or {})
    prefixes = _prefixes(columns)
    if not is_packed.any():
        return _checked(Manifest(checkpoint_id, metadata, entries, prefixes=prefixes))
    members = _members(columns, entries.take(is_packed), np.flatnonzero(is_packed))
    return _checked(Manifest(checkpoint_id, metadata, entries.take(~is_packed), members, prefixes))


def _prefixes(columns: Mapping[str, Any]) -> PrefixTable:
    bytes_, crcs = (
        columns[name].cast("int64").fill_null(UNKNOWN).to_numpy()
        for name in ("prefix", "prefix_crc32c")
    )
    return PrefixTable(columns["path"], bytes_, crcs).take((bytes_ >= 0) & (crcs >= 0))


def _checked(manifest: Manifest) -> Manifest:
    """Return the manifest.

    Raises `DamagedParquet` if it has a row that cpreplicate does not write.
    """
    entries, members = manifest.entries, manifest.members
    if not are_replica_paths(entries.paths).all():
        raise parquet_files.DamagedParquet("a path is not that of a file in a replica")
    if (entries.bytes < 0).any() or (entries.extents < 0).any():
        raise parquet_files.DamagedParquet("a file has a negative length")
    prefixes = manifest.prefixes
    if (prefixes.bytes > entries.ledger.at(prefixes.paths).bytes).any():
        raise parquet_files.DamagedParquet("the beginning of a file is longer than the file")
    if members and not are_valid(members, _lengths_of(members.packs.values, entries.ledger)):
        raise parquet_files.DamagedParquet("a packed file is outside the packs of the replica")
    return manifest


def _lengths_of(packs: Sequence[str], ledger: LedgerTable) -> dict[str, int]:
    return dict(zip(packs, ledger.at(texts(packs)).bytes.tolist(), strict=True))


def _members(columns: Mapping[str, Any], packed: ManifestTable, rows: Numbers) -> MemberTable:
    packs = chosen(columns["pack"], rows).dictionary_encode()
    codes = packs.indices.to_numpy(zero_copy_only=False)
    names = Coded(tuple(packs.dictionary.to_pylist()), codes)
    offsets = columns["offset"].fill_null(0).to_numpy()[rows]
    return MemberTable(packed.paths, names, offsets, packed.bytes, packed.crcs)


def _checkpoint_of(fields: Mapping[bytes, bytes]) -> tuple[int, Digest]:
    """Return the ID of the checkpoint and the digest of its `_metadata`, as the footer has them.

    Raises `DamagedParquet` if one of them is not there, or is no number.
    """
    try:
        metadata = Digest(int(fields[b"metadata_length"]), int(fields[b"metadata_crc32c"]))
        return int(fields[b"checkpoint_id"]), metadata
    except (KeyError, ValueError) as error:
        raise parquet_files.DamagedParquet(
            "the description of the checkpoint is incomplete"
        ) from error
