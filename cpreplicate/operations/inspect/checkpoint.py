"""A checkpoint as `inspect` reads it: its `_metadata`, its files, and which of these are packed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cpreplicate.core import uri
from cpreplicate.core.closure import Closure, closure
from cpreplicate.core.ledger import Member
from cpreplicate.core.placement import PACKED
from cpreplicate.core.state_sizes import Directories, StateSizes, state_sizes
from cpreplicate.protocol.source import MetadataFile, Source, find_whole, read_metadata, segments_of
from cpreplicate.storage import Side


class Packed:
    """The packed files of a checkpoint in a replica.

    `paths` maps the first byte of a segment in the `_metadata` to the logical path of its file.
    `members` are the places of these files, and `packs` the URIs of their packs.
    """

    def __init__(self, file: MetadataFile, needed: Closure, source: Source) -> None:
        self.paths: dict[int, str] = {}
        self.members: dict[str, Member] = {}
        self.directory = uri.join(source.root, PACKED)
        for handle, logical_id in segments_of(file):
            pack = needed.uri_of(handle)
            if pack.startswith(f"{self.directory}/"):
                self.paths[handle.start] = logical_id
                self.members[logical_id] = Member(pack, handle.position or 0, handle.size)
        self.packs = frozenset(member.pack for member in self.members.values())

    @property
    def live_bytes(self) -> int:
        """The bytes of the packed files."""
        return sum(member.length for member in self.members.values())


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that was read: its place, its files, and its state handles."""

    source: Source
    file: MetadataFile
    needed: Closure
    packed: Packed
    sizes: StateSizes


def read(path: str, side: Side, remaps: Sequence[uri.Remap]) -> Checkpoint:
    """Return the checkpoint at `path`. Raises `NotThere`, `MetadataError`."""
    source, file = find_whole(path, side)
    return _checkpoint(source, file, remaps)


def read_found(source: Source, side: Side, remaps: Sequence[uri.Remap]) -> Checkpoint:
    """Return a checkpoint that was found. Raises `NotThere`, `MetadataError`."""
    return _checkpoint(source, read_metadata(source.checkpoint, side), remaps)


def _checkpoint(source: Source, file: MetadataFile, remaps: Sequence[uri.Remap]) -> Checkpoint:
    needed = closure(file.metadata, remaps)
    packed = Packed(file, needed, source)
    logical = {start: uri.join(source.root, path) for start, path in packed.paths.items()}
    directories = Directories(source.checkpoint, source.root)
    sizes = state_sizes(file.metadata, needed, directories, logical)
    return Checkpoint(source, file, needed, packed, sizes)
