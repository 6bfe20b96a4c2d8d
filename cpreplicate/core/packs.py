"""Packs: what is packed, where a member lies, and which members move to a new pack. Pure.

A packed file keeps its *logical path*, the path that it would have in a replica without packs. That
path is the logical file id of its segment, so `_metadata` alone records what lies where.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Literal, NamedTuple

from cpreplicate.core.closure import File
from cpreplicate.core.placement import PACKED
from cpreplicate.core.plan import Action, Member

PackMode = Literal["off", "on", "auto"]
_AUTO_FILES = 1_000  # files to be packed from which `auto` packs
FIRST_WITH_SEGMENTS = 5  # Flink 2 writes v5 and later; of those that write v4, 1.20 reads segments
_LIVE_SHARE = 0.5  # of a pack's bytes: where less is referenced, its members move to a new pack


class Packing(NamedTuple):
    """Whether to pack, and what: files of fewer than `below` bytes."""

    mode: PackMode
    below: int


def is_pack(path: str) -> bool:
    """Return whether a path in a replica is that of a pack."""
    return path.startswith(f"{PACKED}/")


def stem_of(pack: str) -> str:
    """Return what the paths of all packs of the same run begin with, without the last hyphen."""
    return pack.rpartition("-")[0]


def is_written(path: str, written: Container[str]) -> bool:
    """Return whether a file is among those that cpreplicate wrote.

    Of a pack the beginning of its path is enough, since an attempt that was given up for lost may
    write one more.
    """
    return path in written or (is_pack(path) and stem_of(path) in written)


def extents(members: Iterable[Member]) -> dict[str, int]:
    """Return how long each pack must at least be, by its path."""
    ends: dict[str, int] = {}
    for pack, offset, length, _crc32c in members:
        ends[pack] = max(ends.get(pack, 0), offset + length)
    return ends


def to_pack(
    copies: Iterable[Action],
    needed: Mapping[str, File],
    plain: Container[str],
    packing: Packing,
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
    chosen = frozenset(target for target in small if not needed[target].segment)
    return chosen if packing.mode == "on" or len(chosen) >= _AUTO_FILES else frozenset()


def to_repack(
    kept: Mapping[str, Member], lengths: Mapping[str, int], packing: Packing
) -> frozenset[str]:
    """Return the members that a checkpoint keeps and that move to a new pack.

    These are the members of packs of which less than half of the bytes are kept; `lengths` maps a
    pack to its length. With `off` nothing moves.
    """
    if packing.mode == "off":
        return frozenset()
    live: dict[str, int] = {}
    for member in kept.values():
        live[member.pack] = live.get(member.pack, 0) + member.length
    sparse = {pack for pack, count in live.items() if count < _LIVE_SHARE * lengths[pack]}
    return frozenset(target for target, member in kept.items() if member.pack in sparse)


def physical_paths(
    needed: Iterable[str],
    packed: Container[str],
    members: Mapping[str, Member],
    moving: Container[str],
) -> set[str]:
    """Return the paths of the files and packs that a checkpoint needs, but for packs still to come.

    `needed` are the logical paths of its files: of these `packed` are copied into new packs,
    `members` lie in packs, and some of them are `moving` to new ones.
    """
    plain = {path for path in needed if path not in members and path not in packed}
    return plain.union(member.pack for path, member in members.items() if path not in moving)


def repacks(
    keeps: Iterable[Action], members: Mapping[str, Member], moving: Container[str]
) -> tuple[Action, ...]:
    """Return the rows of a plan for the members that move to a new pack."""
    return tuple(
        keep._replace(
            action="repack", reason=f"less than half of {members[keep.target].pack} is still needed"
        )
        for keep in keeps
        if keep.target in moving
    )
