"""Packs: what is packed, where a member is, and which members move to a new pack. Pure.

A packed file keeps its *logical path*, the path that it would have in a replica without packs. That
path is the logical file id of its segment, so `_metadata` alone records what is where.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Container, Iterable, Mapping
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa

from cpreplicate.core.closure import FileTable
from cpreplicate.core.ledger import NO_MEMBERS, MemberTable
from cpreplicate.core.path_columns import Texts, rows_of, texts, without
from cpreplicate.core.placement import PACKED, are_replica_paths, is_replica_path
from cpreplicate.core.plan import Action, Keeps

PackMode = Literal["off", "on", "auto"]
_AUTO_FILES = 1_000  # files to be packed from which `auto` packs
FIRST_WITH_SEGMENTS = 5  # Flink 2 writes v5 and later; of those that write v4, 1.20 reads segments
PACK_BYTES = 256 << 20  # of a pack, at most, but for its last member
# Packs that a process writes at once, whatever its cores: over a long-distance link a stream waits
# for its window and for the pipeline of each block.
WRITERS = 4
_WRITER_WORTH = 16 << 20  # bytes that are worth one more of them
_PACK = re.compile(rf"{PACKED}/.+-[0-9a-f]{{12}}")
_LIVE_SHARE = 0.5  # of a pack's bytes: where less is referenced, its members move to a new pack


class PackOptions(NamedTuple):
    """Whether to pack, and what: files of fewer than `below` bytes."""

    mode: PackMode = "off"
    below: int = 1 << 20


def writers_for(size: int, most: int = WRITERS) -> int:
    """Return how many packs of members of so many bytes are written at once."""
    return min(most, 1 + size // _WRITER_WORTH)


def is_pack(path: str) -> bool:
    """Return whether a path in a replica is that of a pack."""
    return path.startswith(f"{PACKED}/")


def stem_of(pack: str) -> str:
    """Return what the paths of all packs of the same run begin with, without the last hyphen."""
    return pack.rpartition("-")[0]


def is_written(path: str, written: Container[str]) -> bool:
    """Return whether a file is among those that cpreplicate wrote.

    Of a pack the beginning of its path is enough, since an attempt that was given up for lost may
    write one more. It ends in random digits, as no name does that another program chose.
    """
    return path in written or (_PACK.fullmatch(path) is not None and stem_of(path) in written)


def are_valid(members: MemberTable, lengths: Mapping[str, int]) -> bool:
    """Return whether these may be members of a replica's packs.

    Records are not trusted: a member is in a pack of the replica, of which `lengths` are those
    that are recorded, and its logical path is that of a file of the replica.
    """
    are_packs = all(is_pack(pack) and is_replica_path(pack) for pack in members.packs.values)
    if not are_packs or not are_replica_paths(members.paths).all():
        return False
    ends = members.ends  # wraps if a record names numbers near the largest one
    is_inside = (members.offsets >= 0) & (members.bytes >= 0) & (ends >= members.offsets)
    recorded = members.by_pack(lengths)
    return bool((is_inside & ((recorded < 0) | (ends <= recorded))).all())


def extents(members: MemberTable) -> dict[str, int]:
    """Return how long each pack must at least be, by its path."""
    ends = np.zeros(len(members.packs.values), np.int64)
    np.maximum.at(ends, members.packs.codes, members.ends)
    lengths = dict(zip(members.packs.values, ends.tolist(), strict=True))
    return {pack: lengths[pack] for pack in members.used_packs}


def to_pack(
    copies: Iterable[Action], needed: FileTable, plain: Container[str], packing: PackOptions
) -> frozenset[str]:
    """Return the targets of copies that become members of packs.

    Merged files grow and are few: they are copied as they are. So are those that the replica had as
    files of their own, `plain`: other checkpoints may need them, and a damaged one must not stay.
    `auto` packs only where there is much to pack.
    """
    if packing.mode == "off":
        return frozenset()
    new = (action for action in copies if action.target not in plain)
    small = [action.target for action in new if action.bytes < packing.below]
    merged = needed.paths.filter(pa.array(needed.is_segment)).to_pylist()
    chosen = frozenset(small).difference(merged)
    return chosen if packing.mode == "on" or len(chosen) >= _AUTO_FILES else frozenset()


def to_repack(kept: MemberTable, lengths: Mapping[str, int], packing: PackOptions) -> MemberTable:
    """Return the members that a checkpoint keeps and that move to a new pack.

    These are the members of packs of which less than half of the bytes are kept; `lengths` maps a
    pack to its length. With `off` nothing moves.
    """
    if packing.mode == "off" or not kept:
        return NO_MEMBERS
    live = np.zeros(len(kept.packs.values), np.int64)
    np.add.at(live, kept.packs.codes, kept.bytes)
    return kept.take(live[kept.packs.codes] < _LIVE_SHARE * kept.by_pack(lengths, absent=0))


def physical_paths(
    needed: Texts, packed: Collection[str], members: MemberTable, moving: MemberTable
) -> Texts:
    """Return the paths of the files and packs that a checkpoint needs, but for packs still to come.

    `needed` are the logical paths of its files: of these `packed` are copied into new packs,
    `members` are in packs, and some of them are `moving` to new ones.
    """
    plain = without(needed, texts(packed), members.paths)
    kept = members.without(moving.paths)
    return pa.concat_arrays([plain, texts(kept.used_packs)])


def repack_actions(keeps: Keeps, moving: MemberTable) -> tuple[Action, ...]:
    """Return the rows of a plan for the members that move to a new pack."""
    return tuple(
        keep._replace(
            action="repack", reason=f"less than half of {moving[keep.target].pack} is still needed"
        )
        for keep in keeps.take(rows_of(keeps.files.paths, moving.paths) >= 0)
    )
