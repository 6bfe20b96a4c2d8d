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


class Member(NamedTuple):
    """Where a packed file lies: the path of its pack in the replica, offset and length in bytes.

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
