"""What manifests and journals record of the files of a replica, one by one and in columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from cpreplicate.core.path_columns import Coded, Numbers, Texts, rows_of, texts
from cpreplicate.core.tables import UNKNOWN, Crcs, Flags, Ints, Paths, PathTable, found


class LedgerEntry(NamedTuple):
    """What a manifest or journal records of a file: its length and its CRC32C.

    `written`: cpreplicate wrote the file.
    """

    length: int
    crc32c: int | None
    written: bool


class Prefix(NamedTuple):
    """The beginning of a merged file: its length and its CRC32C."""

    length: int
    crc32c: int


class Member(NamedTuple):
    """Where a packed file is: the path of its pack in the replica, offset and length in bytes.

    `crc32c` is that of its bytes, None where no manifest or journal names it.
    """

    pack: str
    offset: int
    length: int
    crc32c: int | None = None


@dataclass(frozen=True, eq=False)
class LedgerTable(PathTable[LedgerEntry]):
    """Entries by path, in columns. A CRC32C of -1 is not known."""

    row_class = LedgerEntry
    paths: Paths
    bytes: Ints
    crcs: Crcs
    is_written: Flags

    def at(self, paths: Texts) -> LedgerTable:
        """Return a row for each path: the bytes are -1, and the CRC32C unknown, where none is."""
        rows = rows_of(paths, self.paths)
        bytes_, crcs = found(self.bytes, rows, -1), found(self.crcs, rows, UNKNOWN)
        return LedgerTable(paths, bytes_, crcs, found(self.is_written, rows, False))

    def distrusting(self, paths: Iterable[str]) -> LedgerTable:
        """Return the entries without the CRC32C of these paths."""
        is_distrusted = rows_of(self.paths, texts(paths)) >= 0
        return replace(self, crcs=np.where(is_distrusted, UNKNOWN, self.crcs))


@dataclass(frozen=True, eq=False)
class PrefixTable(PathTable[Prefix]):
    """Beginnings of merged files by path, in columns."""

    row_class = Prefix
    paths: Paths
    bytes: Ints
    crcs: Ints


NO_PREFIXES = PrefixTable.of({})
_ANY_LENGTH = np.iinfo(np.int64).max


def shortest_prefixes(
    tables: Iterable[LedgerTable | PrefixTable],
    paths: Texts,
    extents: Numbers,
    lengths: Numbers | None = None,
) -> PrefixTable:
    """Return what proves the extents of merged files: of each, the shortest recorded beginning.

    A merged file only grows, so a CRC32C of it as it was before holds for its beginning now.
    A beginning has at least the extent, and at most the length of the file, if `lengths` are known.
    Files of which none is recorded are left out.
    """
    bytes_: Numbers = np.full(len(paths), _ANY_LENGTH, np.int64)
    crcs: Numbers = np.full(len(paths), UNKNOWN, np.int64)
    for table in tables:
        rows = rows_of(paths, table.paths)
        recorded, crc = found(table.bytes, rows, -1), found(table.crcs, rows, UNKNOWN)
        is_better = (crc >= 0) & (recorded >= extents) & (recorded < bytes_)
        if lengths is not None:
            is_better &= recorded <= lengths
        bytes_, crcs = np.where(is_better, recorded, bytes_), np.where(is_better, crc, crcs)
    return PrefixTable(paths, bytes_, crcs).take(crcs >= 0)


@dataclass(frozen=True, eq=False)
class MemberTable(PathTable[Member]):
    """Members of packs by their logical path, in columns. A CRC32C of -1 is not known."""

    row_class = Member
    paths: Paths
    packs: Coded
    offsets: Ints
    bytes: Ints
    crcs: Crcs

    @property
    def used_packs(self) -> list[str]:
        """The packs that have members here."""
        return self.packs.used

    @property
    def ends(self) -> Numbers:
        """Where each member ends in its pack."""
        return self.offsets + self.bytes

    def by_pack(self, lengths: Mapping[str, int], absent: int = -1) -> Numbers:
        """Return, of each member, the length of its pack."""
        column = np.array([lengths.get(pack, absent) for pack in self.packs.values], np.int64)
        return column[self.packs.codes]


NO_MEMBERS = MemberTable.of({})


def crcs_by_place(tables: Iterable[MemberTable]) -> dict[tuple[str, int, int], int]:
    """Return (pack, offset, length) to CRC32C, of all packed files whose CRC32C is known.

    A member that moved to a new pack has the same logical path at both places.
    """
    listed = (member for table in tables for member in table.values())
    return {member[:3]: member.crc32c for member in listed if member.crc32c is not None}
