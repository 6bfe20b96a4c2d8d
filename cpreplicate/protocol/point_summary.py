"""The summary of a replica's points: what their records, manifests and `_metadata` state, in one
file, so that a sync need not read them all.

`.cpreplicate/points.summary` is a line of JSON and a Parquet file. The line has the place of the
replica and its points, oldest first, each with what a listing showed of it when it was read: length
and time of its record and manifest, and the time of its directory. Object stores have no such
time: there it is what a listing of all points at once showed of its `_metadata`, and each of the
three has its tag. The rows are the files of the points, each with the first and the last of some
points in a row that have it so.

It is derived, and never trusted by itself. The record of a checkpoint that was published later has
the SHA-256 of the whole file, and is read. A point of the summary counts only while the listings of
the replica show the same of it. See `replica_state.examine` and ADR 0021.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from cpreplicate.core.ledger import (
    NO_MEMBERS,
    NO_PREFIXES,
    LedgerTable,
    MemberTable,
    PrefixTable,
)
from cpreplicate.core.packs import are_valid
from cpreplicate.core.path_columns import Coded, Numbers, Texts, chosen, rows_of, texts
from cpreplicate.core.placement import OWN, are_replica_paths, own_name
from cpreplicate.core.tables import UNKNOWN, Crcs, Flags, Ints, Lengths, Paths, Table, found
from cpreplicate.errors import Refused
from cpreplicate.protocol import manifest, parquet_files
from cpreplicate.protocol.checkpoint_record import RECORD_SUFFIX, Record
from cpreplicate.protocol.digest import Digest
from cpreplicate.protocol.manifest import Manifest, ManifestTable
from cpreplicate.protocol.replica import CommittedCheckpoint, Replica
from cpreplicate.storage.statuses import FileStatus

NAME = "points.summary"
WORTH = 4  # points that no summary has yet: to read them again costs more than to write it
_MOST_ROWS = 1_000_000
_FORMAT = 1
_COLUMNS = {
    "path": "string",
    "first": "int32",
    "last": "int32",
    "extent": "int64",
    "length": "int64",
    "crc32c": "int64",
    "written": "bool",
    "pack": "string",
    "offset": "int64",
    "prefix": "int64",
    "prefix_crc32c": "int64",
    "growing": "bool",
}
_PLAIN = ""  # the pack of a file that is in none


Look: TypeAlias = tuple[int, float] | tuple[int, float, str]
"""The length and time of a file in a listing, and its tag if it has one."""


class Mark(NamedTuple):
    """What listings show of a point: its record, its manifest, and the time of its directory.

    Where directories have no times, it is what they show of its `_metadata`.
    """

    record: Look
    manifest: Look
    place: float | Look

    @property
    def latest(self) -> float:
        """The latest time of these."""
        place = self.place[1] if isinstance(self.place, tuple) else self.place
        return max(self.record[1], self.manifest[1], place)


class Point(NamedTuple):
    """A committed checkpoint as it was read, but for its files.

    `metadata_modified` is the time of its `_metadata`. `knows_growing`: it is known which of its
    files are merged ones.
    """

    name: str
    checkpoint_id: int
    mark: Mark
    metadata: Digest
    metadata_modified: float
    record: Record
    knows_growing: bool


@dataclass(frozen=True, eq=False)
class _Rows(Table):
    """Files of points. A row holds for the points from `first` to `last`, counted from 0."""

    paths: Paths
    first: Ints
    last: Ints
    extents: Ints
    bytes: Ints
    crcs: Crcs
    is_written: Flags
    packs: Coded
    offsets: Ints
    prefixes: Ints
    prefix_crcs: Crcs
    is_growing: Flags

    def __len__(self) -> int:
        return len(self.paths)


class Fresh(NamedTuple):
    """A point that was read, to be summarised."""

    point: Point
    checkpoint: CommittedCheckpoint
    manifest: Manifest


class Summary:
    """The points of a replica, oldest first, as a file has them that has this SHA-256."""

    def __init__(self, digest: str, points: Sequence[Point], rows: _Rows) -> None:
        self.digest = digest
        self.points = {point.name: point for point in points}
        self._places = {point.name: place for place, point in enumerate(points)}
        self._rows = rows
        is_plain = rows.packs.codes == _code_of_plain(rows)
        self._plain, self._packed = (
            rows.take(np.flatnonzero(each)) for each in (is_plain, ~is_plain)
        )
        self._checkpoints: dict[str, CommittedCheckpoint] = {}

    def unchanged(
        self,
        children: Sequence[FileStatus],
        own: Mapping[str, FileStatus],
        metadata: Mapping[str, FileStatus],
    ) -> list[Point]:
        """Return the points of which these listings show the same as when they were read.

        `metadata` has the `_metadata` of points `without_times`.
        """
        listed = {child.name: child for child in children if child.name in self.points}
        return [
            point
            for name, point in self.points.items()
            if name in listed and mark_of(listed[name], own, metadata.get(name)) == point.mark
        ]

    def without_times(self, children: Sequence[FileStatus]) -> int:
        """Return how many of its points are in directories that have no times."""
        names = [child.name for child in children if child.is_directory and not child.dated]
        return len(self.points.keys() & names)

    def checkpoint(self, name: str) -> CommittedCheckpoint:
        """Return what a point references, and its manifest."""
        known = self._checkpoints.get(name)
        if known is None:
            known = self._checkpoints[name] = self._checkpoint(name)
        return known

    def agrees(self, read: CommittedCheckpoint, record: Record | None) -> bool:
        """Return whether a point has what was read of it just now."""
        point, held = self.points[read.name], self.checkpoint(read.name)
        if record is None or (point.metadata, point.record) != (read.metadata, bare(record)):
            return False
        if read.outside:
            return False
        return len(held.files) == len(read.files) and bool(
            (held.files.at(read.files.paths) == read.files.bytes).all()
        )

    def with_points(
        self, root: str, kept: Sequence[str], fresh: Sequence[Fresh]
    ) -> NewSummary | None:
        """Return a summary of the `kept` ones of these points, and of others; see `summarised`."""
        old = sorted((self._places[name], self.points[name]) for name in kept)
        rows = _at_places(self._rows, [place for place, _ in old])
        return _summarised(root, [point for _, point in old], rows, fresh)

    def _checkpoint(self, name: str) -> CommittedCheckpoint:
        point, place = self.points[name], self._places[name]
        plain, at = self._plain, self._at(self._plain, place)
        paths, extents = chosen(plain.paths, at), plain.extents[at]
        listed = Manifest(
            point.checkpoint_id,
            point.metadata,
            ManifestTable(paths, extents, plain.bytes[at], plain.crcs[at], plain.is_written[at]),
            _members(self._packed.take(self._at(self._packed, place))),
            _prefixes(plain, at),
        )
        is_growing = plain.is_growing[at]
        growing = chosen(paths, is_growing).to_pylist() if is_growing.any() else ()
        return CommittedCheckpoint(
            *(name, point.checkpoint_id, point.metadata),
            Lengths(paths, extents),
            (),
            frozenset(growing) if point.knows_growing else None,
            listed.members,
            listed,
        )

    @staticmethod
    def _at(rows: _Rows, place: int) -> Numbers:
        return np.flatnonzero((rows.first <= place) & (place <= rows.last))

    def _of(self, rows: _Rows, names: Collection[str]) -> _Rows:
        """Return the rows that hold for one of these points, or more."""
        is_one = np.zeros(len(self.points) + 1, np.int64)
        is_one[[self._places[name] + 1 for name in names]] = 1
        before = np.cumsum(is_one)
        return rows.take(np.flatnonzero(before[rows.last + 1] > before[rows.first]))

    def paths_of(self, names: Collection[str]) -> Texts:
        """Return the paths of the files and packs that one of these points needs."""
        return self._of(self._plain, names).paths

    def growing_of(self, names: Collection[str]) -> Texts:
        """Return the paths of the files of these points that may be merged ones.

        Of a point of which that is not known, any file may be one.
        """
        plain = self._of(self._plain, names)
        unknown = [name for name in names if not self.points[name].knows_growing]
        of_known = chosen(plain.paths, plain.is_growing)
        return pa.concat_arrays([of_known, self.paths_of(unknown)])

    def recorded(self, names: Collection[str]) -> list[Recorded]:
        """Return what the manifests of these points list: of a file, the last one as the last."""
        plain, packed = self._of(self._plain, names), self._of(self._packed, names)
        layers: list[Recorded] = []
        for rows in _layers(plain):
            ledger = LedgerTable(rows.paths, rows.bytes, rows.crcs, rows.is_written)
            every = np.arange(len(rows))
            layers.append(Recorded(ledger, NO_MEMBERS, _prefixes(rows, every)))
        for rows in _layers(packed):
            layers.append(Recorded(_NO_FILES, _members(rows), NO_PREFIXES))
        return layers


class Recorded(NamedTuple):
    """What manifests list of files, of packed files, and of the beginnings of merged ones."""

    files: LedgerTable
    members: MemberTable
    prefixes: PrefixTable


_NO_FILES = LedgerTable.of({})


class NewSummary(NamedTuple):
    """A summary that is to be written: its SHA-256 and its content."""

    digest: str
    content: bytes


def bare(record: Record) -> Record:
    """Return a record without what it vouches for, as a summary has it."""
    return record._replace(summary=None)


def summary_uri(replica: Replica) -> str:
    """Return the URI of the summary of a replica."""
    return replica.uri_of(f"{OWN}/{NAME}")


def mark_of(
    directory: FileStatus, own: Mapping[str, FileStatus], metadata: FileStatus | None
) -> Mark | None:
    """Return what listings show of a point: the replica's, and that of `.cpreplicate/`.

    `metadata` is what one shows of its `_metadata`. None if its record or manifest is missing,
    something is a link, or has no time; in a directory without a time, if a file has no tag.
    """
    name = own_name(directory.name)
    record, listed = own.get(f"{name}{RECORD_SUFFIX}"), own.get(f"{name}{manifest.SUFFIX}")
    if record is None or listed is None or not directory.is_directory:
        return None
    if directory.is_link or not (_is_dated(record) and _is_dated(listed)):
        return None
    if directory.dated is not None:
        return Mark(_look(record), _look(listed), directory.modified)
    if metadata is None or not _is_dated(metadata):
        return None
    if any(each.tag is None for each in (record, listed, metadata)):
        return None
    return Mark(_look(record), _look(listed), _look(metadata))


def _is_dated(file: FileStatus) -> bool:
    return not (file.is_link or file.is_directory or file.dated is None)


def _look(file: FileStatus) -> Look:
    seen = (file.length, file.modified)
    return seen if file.tag is None else (*seen, file.tag)


def is_summarisable(checkpoint: CommittedCheckpoint, listed: Manifest) -> bool:
    """Return whether the manifest of a checkpoint has just the files that its `_metadata` needs."""
    if checkpoint.outside or checkpoint.is_damaged or listed.metadata != checkpoint.metadata:
        return False
    files, members = checkpoint.files, checkpoint.members
    has_files = len(files) == len(listed.entries) and bool(
        (rows_of(files.paths, listed.entries.paths) >= 0).all()
    )
    return has_files and len(members) == len(listed.members) and _are_same(members, listed.members)


def _are_same(members: MemberTable, others: MemberTable) -> bool:
    rows = rows_of(members.paths, others.paths)
    if not len(rows):
        return True
    if (rows < 0).any():
        return False
    same = others.take(rows)
    return (
        members.packs.tolist() == same.packs.tolist()
        and bool((members.offsets == same.offsets).all())
        and bool((members.bytes == same.bytes).all())
    )


def summarised(root: str, fresh: Sequence[Fresh]) -> NewSummary | None:
    """Return a summary of points, or None if it would be larger than any that is written."""
    return _summarised(root, [], _Rows.joined([]), fresh)


def read(replica: Replica, own: Mapping[str, FileStatus]) -> Summary | None:
    """Return the summary of a replica, which nothing vouches for yet.

    None if there is none, or it is damaged, or of another place or version.
    """
    if NAME not in own or own[NAME].is_link:
        return None
    place = summary_uri(replica)
    try:
        data = parquet_files.content(replica.storage, place)
        head, _, body = data.partition(b"\n")
        points = list(_points(json.loads(head), replica.root))
        rows = _decoded(parquet_files.decoded(body, _COLUMNS, place), len(points))
        return Summary(hashlib.sha256(data).hexdigest(), points, rows)
    except (FileNotFoundError, Refused, parquet_files.DamagedParquet):
        return None
    except (ValueError, TypeError, LookupError, RecursionError, OverflowError):
        return None


def _points(fields: Any, root: str) -> Iterator[Point]:
    """Yield the points of the first line. Raises `ValueError`, `TypeError` and `LookupError`."""
    if (fields["format"], fields["root"]) != (_FORMAT, root):
        raise ValueError("it is of another place or version")
    for name, number, mark, metadata, modified, record, knows_growing in fields["points"]:
        sequence, digests, completed, savepoint = record
        yield Point(
            *(name, number),
            Mark(*(tuple(each) if isinstance(each, list) else each for each in mark)),
            Digest(*metadata),
            modified,
            Record(sequence, tuple(Digest(*each) for each in digests), False, completed, savepoint),
            knows_growing,
        )


def _head(root: str, points: Sequence[Point]) -> bytes:
    fields = [
        (
            *(point.name, point.checkpoint_id, point.mark),
            *(point.metadata, point.metadata_modified),
            (
                *(point.record.sequence, point.record.digests),
                *(point.record.completed, point.record.savepoint),
            ),
            point.knows_growing,
        )
        for point in points
    ]
    head = {"format": _FORMAT, "root": root, "points": fields}
    return json.dumps(head, separators=(",", ":")).encode()


def _decoded(table: Any, count: int) -> _Rows:
    """Return the rows of a table. Raises `ValueError` if there is one that is never written."""
    columns = parquet_files.arrays(table, _COLUMNS, required=_COLUMNS)
    numbers = {
        name: columns[name].to_numpy(zero_copy_only=False)
        for name, kind in _COLUMNS.items()
        if kind != "string"
    }
    packs = columns["pack"].dictionary_encode()
    codes = packs.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    rows = _Rows(
        columns["path"],
        numbers["first"].astype(np.int64),
        numbers["last"].astype(np.int64),
        numbers["extent"],
        numbers["length"],
        numbers["crc32c"],
        numbers["written"],
        Coded(tuple(packs.dictionary.to_pylist()), codes),
        numbers["offset"],
        numbers["prefix"],
        numbers["prefix_crc32c"],
        numbers["growing"],
    )
    is_inside = (rows.first >= 0) & (rows.first <= rows.last) & (rows.last < count)
    is_valid = is_inside & (rows.extents >= 0) & (rows.bytes >= 0)
    members = _members(rows.take(np.flatnonzero(codes != _code_of_plain(rows))))
    if not (is_valid.all() and are_replica_paths(rows.paths).all() and are_valid(members, {})):
        raise ValueError("a row is not one of a replica")
    return rows


def _code_of_plain(rows: _Rows) -> int:
    values = rows.packs.values
    return values.index(_PLAIN) if _PLAIN in values else UNKNOWN


def _members(rows: _Rows) -> MemberTable:
    """Return the packed files of rows that have a pack."""
    if not len(rows):
        return NO_MEMBERS
    codes, places = np.unique(rows.packs.codes, return_inverse=True)
    packs = Coded(tuple(rows.packs.values[code] for code in codes.tolist()), places)
    return MemberTable(rows.paths, packs, rows.offsets, rows.bytes, rows.crcs)


def _prefixes(rows: _Rows, at: Numbers) -> PrefixTable:
    """Return what is recorded of the beginnings of the merged files among some rows."""
    known = at[rows.prefixes[at] >= 0]
    if not len(known):
        return NO_PREFIXES
    return PrefixTable(chosen(rows.paths, known), rows.prefixes[known], rows.prefix_crcs[known])


def _layers(rows: _Rows) -> Iterator[_Rows]:
    """Yield rows, none twice and of a path one at a time: the last one of each path at last."""
    codes = rows.paths.dictionary_encode().indices.to_numpy(zero_copy_only=False)
    order = np.lexsort((rows.first, codes))
    rows, codes = rows.take(order), codes[order]
    behind = np.searchsorted(codes, codes, side="right") - np.arange(len(codes)) - 1
    for layer in range(int(behind.max(initial=-1)), -1, -1):
        yield rows.take(np.flatnonzero(behind == layer))


def _summarised(
    root: str, old: list[Point], rows: _Rows, fresh: Sequence[Fresh]
) -> NewSummary | None:
    """Return the summary of `old` points, which have these rows, and of others."""
    points = [*old, *(each.point for each in fresh)]
    order = sorted(range(len(points)), key=lambda place: points[place].record.sequence)
    tables = [rows, *(_rows_of(each, len(old) + at) for at, each in enumerate(fresh))]
    if order != list(range(len(points))):
        tables = [_moved(table, np.argsort(order)) for table in tables]
    compact = _compact(_Rows.joined(tables))
    if len(compact) > _MOST_ROWS:
        return None
    head = _head(root, [points[place] for place in order])
    content = head + b"\n" + _encoded(compact)
    return NewSummary(hashlib.sha256(content).hexdigest(), content)


def _rows_of(fresh: Fresh, place: int) -> _Rows:
    """Return the files of a point: those of its manifest, with the extents of its `_metadata`."""
    entries, members = fresh.manifest.entries, fresh.manifest.members
    prefixes = fresh.manifest.prefixes
    at = rows_of(entries.paths, prefixes.paths)
    growing = texts(fresh.checkpoint.growing or ())
    plain, packed = len(entries), len(members)
    unknown, zero = np.full(packed, UNKNOWN, np.int64), np.zeros(plain, np.int64)
    where = np.full(plain + packed, place, np.int64)
    return _Rows(
        pa.concat_arrays([entries.paths, members.paths]),
        where,
        where,
        np.concatenate([fresh.checkpoint.files.at(entries.paths), members.bytes]),
        np.concatenate([entries.bytes, members.bytes]),
        np.concatenate([entries.crcs, members.crcs]),
        np.concatenate([entries.is_written, np.ones(packed, np.bool_)]),
        Coded.joined([Coded((_PLAIN,), zero), members.packs]),
        np.concatenate([zero, members.offsets]),
        np.concatenate([found(prefixes.bytes, at, UNKNOWN), unknown]),
        np.concatenate([found(prefixes.crcs, at, UNKNOWN), unknown]),
        np.concatenate([rows_of(entries.paths, growing) >= 0, np.zeros(packed, np.bool_)]),
    )


def _at_places(rows: _Rows, places: Sequence[int]) -> _Rows:
    """Return the rows of some points, which are counted from 0 then."""
    is_kept = np.zeros(int(rows.last.max(initial=-1)) + 1, np.int64)
    is_kept[[place for place in places if place < len(is_kept)]] = 1
    before = np.concatenate([[0], np.cumsum(is_kept)])
    moved = replace(rows, first=before[rows.first], last=before[rows.last + 1] - 1)
    return moved.take(np.flatnonzero(moved.first <= moved.last))


def _moved(rows: _Rows, places: Numbers) -> _Rows:
    """Return a row for each point of each row, at other places."""
    counts = rows.last - rows.first + 1
    single = rows.take(np.repeat(np.arange(len(rows)), counts))
    ends = np.cumsum(counts)
    offsets = np.arange(len(single)) - np.repeat(ends - counts, counts)
    where = places[single.first + offsets]
    return replace(single, first=where, last=where)


def _compact(rows: _Rows) -> _Rows:
    """Return the rows with those joined that hold the same for points in a row."""
    if not len(rows):
        return rows
    codes = rows.paths.dictionary_encode().indices.to_numpy(zero_copy_only=False)
    order = np.lexsort((rows.first, codes))
    rows, codes = rows.take(order), codes[order]
    goes_on = (codes[1:] == codes[:-1]) & (rows.first[1:] == rows.last[:-1] + 1)
    for name in _Rows.columns.keys() - {"paths", "first", "last"}:
        column = getattr(rows, name)
        values = column.codes if isinstance(column, Coded) else column
        goes_on &= values[1:] == values[:-1]
    starts = np.flatnonzero(np.concatenate([[True], ~goes_on]))
    ends = np.append(starts[1:], len(rows)) - 1
    return replace(rows.take(starts), last=rows.last[ends])


def _encoded(rows: _Rows) -> bytes:
    columns = {
        "path": rows.paths,
        "first": rows.first,
        "last": rows.last,
        "extent": rows.extents,
        "length": rows.bytes,
        "crc32c": rows.crcs,
        "written": rows.is_written,
        "pack": texts(rows.packs.values).take(pa.array(rows.packs.codes)),
        "offset": rows.offsets,
        "prefix": rows.prefixes,
        "prefix_crc32c": rows.prefix_crcs,
        "growing": rows.is_growing,
    }
    arrays = [
        (pa.array(column) if isinstance(column, np.ndarray) else column).cast(_COLUMNS[name])
        for name, column in columns.items()
    ]
    return parquet_files.encoded(pa.table(arrays, names=[*columns]))
