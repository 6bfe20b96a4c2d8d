"""What manifests and journals record of the files of a replica, one by one and in columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from cpreplicate.core.path_tables import (
    Numbers,
    PathTable,
    Texts,
    chosen,
    last_rows,
    rows_of,
    texts,
)
from cpreplicate.core.rows import new_row

_NONE = np.zeros(0, np.int64)
_UNKNOWN = -1  # a CRC32C that is not known


class LedgerEntry(NamedTuple):
    """What a manifest or journal records of a file: its length and its CRC32C.

    `written`: cpreplicate wrote the file.
    """

    length: int
    crc32c: int | None
    written: bool


class Member(NamedTuple):
    """Where a packed file lies: the path of its pack in the replica, offset and length in bytes.

    `crc32c` is that of its bytes, None where no manifest or journal names it.
    """

    pack: str
    offset: int
    length: int
    crc32c: int | None = None


class LedgerTable(PathTable[LedgerEntry]):
    """Entries by path, in columns. A CRC32C of -1 is not known."""

    def __init__(self, paths: Texts, bytes_: Numbers, crcs: Numbers, is_written: Numbers) -> None:
        self._paths = paths
        self.bytes, self.crcs, self.is_written = bytes_, crcs, is_written

    @classmethod
    def of(cls, entries: Mapping[str, LedgerEntry]) -> LedgerTable:
        """Return a mapping as a table, which it may be already."""
        if isinstance(entries, LedgerTable):
            return entries
        rows, count = list(entries.values()), len(entries)
        return cls(
            texts(entries),
            np.fromiter((row.length for row in rows), np.int64, count),
            crcs_of(row.crc32c for row in rows),
            np.fromiter((row.written for row in rows), np.bool_, count),
        )

    @property
    def paths(self) -> Texts:
        return self._paths

    def rows(self, chosen: slice) -> Iterator[LedgerEntry]:
        columns = (self.bytes[chosen].tolist(), crc_values(self.crcs[chosen]))
        for row in zip(*columns, self.is_written[chosen].tolist(), strict=True):
            yield new_row(LedgerEntry, row)

    def take(self, rows: Numbers) -> LedgerTable:
        """Return some of the entries; `rows` are indexes, or a flag for each row."""
        paths = chosen(self.paths, rows)
        return LedgerTable(paths, self.bytes[rows], self.crcs[rows], self.is_written[rows])

    def at(self, paths: Texts) -> LedgerTable:
        """Return a row for each path: the bytes are -1, and the CRC32C unknown, where none is."""
        rows = rows_of(paths, self.paths)
        absent = rows < 0
        if not len(self):
            none = np.full(len(paths), -1)
            return LedgerTable(paths, none, none, np.zeros(len(paths), np.bool_))
        return LedgerTable(
            paths,
            np.where(absent, -1, self.bytes[rows]),
            np.where(absent, _UNKNOWN, self.crcs[rows]),
            self.is_written[rows] & ~absent,
        )

    @classmethod
    def merged(cls, tables: Sequence[LedgerTable]) -> LedgerTable:
        """Return the entries of all tables, of those for one path the last."""
        tables = [table for table in tables if table]
        if len(tables) == 1:
            return tables[0]
        every = cls(
            pa.concat_arrays([texts(()), *(table.paths for table in tables)]),
            np.concatenate([_NONE, *(table.bytes for table in tables)]),
            np.concatenate([_NONE, *(table.crcs for table in tables)]),
            np.concatenate([_NONE.astype(bool), *(table.is_written for table in tables)]),
        )
        return every.take(last_rows(every.paths))

    def distrusting(self, paths: Iterable[str]) -> LedgerTable:
        """Return the entries without the CRC32C of these paths."""
        rows = rows_of(texts(paths), self.paths)
        crcs = self.crcs.copy()
        crcs[rows[rows >= 0]] = _UNKNOWN
        return LedgerTable(self.paths, self.bytes, crcs, self.is_written)


class MemberTable(PathTable[Member]):
    """Members of packs by their logical path, in columns.

    `codes` are indexes into `packs`. A CRC32C of -1 is not known.
    """

    def __init__(
        self,
        paths: Texts,
        packs: Sequence[str],
        codes: Numbers,
        offsets: Numbers,
        bytes_: Numbers,
        crcs: Numbers,
    ) -> None:
        self._paths, self.packs, self.codes = paths, packs, codes
        self.offsets, self.bytes, self.crcs = offsets, bytes_, crcs

    @classmethod
    def of(cls, members: Mapping[str, Member]) -> MemberTable:
        """Return a mapping as a table, which it may be already."""
        if isinstance(members, MemberTable):
            return members
        rows, count = list(members.values()), len(members)
        known: dict[str, int] = {}
        codes = [known.setdefault(row.pack, len(known)) for row in rows]
        return cls(
            texts(members),
            tuple(known),
            np.array(codes, np.int64),
            np.fromiter((row.offset for row in rows), np.int64, count),
            np.fromiter((row.length for row in rows), np.int64, count),
            crcs_of(row.crc32c for row in rows),
        )

    @property
    def paths(self) -> Texts:
        return self._paths

    def rows(self, chosen: slice) -> Iterator[Member]:
        columns = (self.codes, self.offsets, self.bytes)
        lists = (column[chosen].tolist() for column in columns)
        for code, offset, length, crc32c in zip(*lists, crc_values(self.crcs[chosen]), strict=True):
            yield new_row(Member, (self.packs[code], offset, length, crc32c))

    def take(self, rows: Numbers) -> MemberTable:
        """Return some of the members; `rows` are indexes, or a flag for each row."""
        return MemberTable(
            chosen(self.paths, rows),
            self.packs,
            self.codes[rows],
            self.offsets[rows],
            self.bytes[rows],
            self.crcs[rows],
        )

    @classmethod
    def merged(cls, tables: Sequence[MemberTable]) -> MemberTable:
        """Return the members of all tables, of those with one path the last."""
        tables = [table for table in tables if table]
        if len(tables) == 1:
            return tables[0]
        known: dict[str, int] = {}
        codes: list[Numbers] = [_NONE]
        for table in tables:
            places = [known.setdefault(pack, len(known)) for pack in table.packs]
            codes.append(np.array(places, np.int64)[table.codes])
        every = cls(
            pa.concat_arrays([texts(()), *(table.paths for table in tables)]),
            tuple(known),
            np.concatenate(codes),
            np.concatenate([_NONE, *(table.offsets for table in tables)]),
            np.concatenate([_NONE, *(table.bytes for table in tables)]),
            np.concatenate([_NONE, *(table.crcs for table in tables)]),
        )
        return every.take(last_rows(every.paths))

    def without(self, paths: Iterable[str]) -> MemberTable:
        """Return the members but for those with these paths."""
        gone = rows_of(texts(paths), self.paths)
        is_kept = np.ones(len(self), np.bool_)
        is_kept[gone[gone >= 0]] = False
        return self if is_kept.all() else self.take(is_kept)

    @property
    def used_packs(self) -> list[str]:
        """The packs that have members here."""
        return [self.packs[code] for code in np.unique(self.codes).tolist()]

    @property
    def ends(self) -> Numbers:
        """Where each member ends in its pack."""
        return self.offsets + self.bytes

    def by_pack(self, lengths: Mapping[str, int], absent: int = -1) -> Numbers:
        """Return, of each member, the length of its pack."""
        column = np.array([lengths.get(pack, absent) for pack in self.packs], np.int64)
        return column[self.codes] if len(column) else np.zeros(0, np.int64)


def crcs_of(values: Iterable[int | None]) -> Numbers:
    """Return CRC32Cs as a column."""
    return np.array([_UNKNOWN if value is None else value for value in values], np.int64)


def crc_values(crcs: Numbers) -> list[int | None]:
    """Return a column of CRC32Cs as objects."""
    return [None if value == _UNKNOWN else value for value in crcs.tolist()]


NO_MEMBERS = MemberTable.of({})
