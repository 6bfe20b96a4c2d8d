"""`inspect`: what a checkpoint holds, read from its `_metadata` alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cpreplicate.core import uri
from cpreplicate.core.closure import Closure, closure, foreign_groups
from cpreplicate.core.ledger import Member
from cpreplicate.core.metadata import Handle, Metadata
from cpreplicate.core.placement import PACKED
from cpreplicate.operations.positions import CheckpointPositions, positions_of
from cpreplicate.protocol.checkpoint_record import read_record
from cpreplicate.protocol.replica import Replica
from cpreplicate.protocol.source import MetadataFile, Source, find, read_metadata, segments_of
from cpreplicate.storage import Side


@dataclass(frozen=True)
class OperatorSummary:
    """One operator of a checkpoint.

    `bytes` counts each handle's size, also of inline state. `files` counts distinct files.
    """

    id: str
    name: str | None
    uid: str | None
    parallelism: int
    max_parallelism: int
    subtasks: int
    bytes: int
    files: int
    largest_subtask_bytes: int


@dataclass(frozen=True)
class PackSummary:
    """The packed files of a checkpoint: how many there are, and in how many packs.

    `live_bytes` are those of the packed files, `dead_bytes` the other bytes of these packs.
    """

    files: int
    packs: int
    live_bytes: int
    dead_bytes: int


@dataclass(frozen=True)
class Inspection:
    """What a checkpoint holds.

    `files` counts packed files, not packs. `bytes` is about their total size. `foreign` counts
    files of other jobs or roots. `packed` is None if there are no packs. `completed` is when the
    checkpoint was completed, in seconds since the epoch, None if that is not known. That of a
    replica was completed at its source. `positions` are None if they were not looked for.
    """

    checkpoint: str
    checkpoint_id: int
    version: int
    operators: tuple[OperatorSummary, ...]
    handles: int
    files: int
    bytes: int
    inline_bytes: int
    foreign: Mapping[str, int]
    packed: PackSummary | None = None
    completed: float | None = None
    positions: CheckpointPositions | None = None


class ReferenceRow(NamedTuple):
    """One state handle, as `inspect --refs` lists it."""

    operator: str | None
    subtask: int | None
    state: str
    handle: str
    path: str | None
    uri: str | None
    size: int
    position: int | None


@dataclass(frozen=True)
class References:
    """Every state handle of a checkpoint, in the order of its `_metadata`."""

    rows: tuple[ReferenceRow, ...]


def inspect(
    path: str, side: Side, remaps: Sequence[uri.Remap], with_positions: bool = False
) -> Inspection:
    """Return a summary of the checkpoint at `path`. Raises `NotThere`, `MetadataError`.

    `with_positions`: positions are also read from the small files that hold some.
    """
    source = find(path, side)
    file = read_metadata(source.checkpoint, side)
    metadata, needed = file.metadata, closure(file.metadata, remaps)
    handles = [handle for handle in metadata.handles if handle.kind != "directory"]
    packed = _Packed(file, needed, source)
    return Inspection(
        checkpoint=source.checkpoint,
        checkpoint_id=metadata.checkpoint_id,
        version=metadata.version,
        operators=_operators(metadata, handles, packed),
        handles=len(handles),
        files=len(needed.files) - len(packed.packs) + len(packed.members),
        bytes=_bytes(needed, packed),
        inline_bytes=metadata.inline_bytes,
        foreign=foreign_groups(needed.files, source.job_root or source.checkpoint),
        packed=_pack_summary(packed, source, side),
        completed=_completed(source, side),
        positions=positions_of(file, side, remaps, with_positions),
    )


def _completed(source: Source, side: Side) -> float | None:
    """Return when a checkpoint was completed: as a replica recorded it, else as it is dated."""
    record = read_record(Replica(source.root, side), uri.name(source.checkpoint))
    return source.completed if record is None else record.completed


class _Packed:
    """The packed files of a checkpoint that lies in a replica.

    `paths` maps the first byte of a segment in the `_metadata` to the logical path of its file.
    `members` are the places of these files, and `packs` the URIs of their packs.
    """

    def __init__(self, file: MetadataFile, needed: Closure, source: Source) -> None:
        self.paths: dict[int, str] = {}
        self.members: dict[str, Member] = {}
        packs = f"{uri.join(source.root, PACKED)}/"
        for handle, logical_id in segments_of(file):
            pack = needed.uri_of(handle)
            if pack.startswith(packs):
                self.paths[handle.start] = logical_id
                self.members[logical_id] = Member(pack, handle.position or 0, handle.size)
        self.packs = frozenset(member.pack for member in self.members.values())

    @property
    def live_bytes(self) -> int:
        """The bytes of the packed files."""
        return sum(member.length for member in self.members.values())


def _bytes(needed: Closure, packed: _Packed) -> int:
    plain = (file.size for file_uri, file in needed.files.items() if file_uri not in packed.packs)
    return sum(plain) + packed.live_bytes


def _pack_summary(packed: _Packed, source: Source, side: Side) -> PackSummary | None:
    """Return a summary of the packs. Costs one listing if there are any."""
    if not packed.packs:
        return None
    directory = uri.join(source.root, PACKED)
    children = side.storage(directory).list(directory)
    lengths = {uri.join(directory, child.name): child.length for child in children}
    whole = sum(lengths.get(pack, 0) for pack in packed.packs)
    live = packed.live_bytes
    return PackSummary(len(packed.members), len(packed.packs), live, max(0, whole - live))


def references(path: str, side: Side, remaps: Sequence[uri.Remap]) -> References:
    """Return the state handles of the checkpoint at `path`. Raises `NotThere`, `MetadataError`."""
    metadata = read_metadata(find(path, side).checkpoint, side).metadata
    return References(tuple(_rows(metadata, closure(metadata, remaps).uris)))


def _rows(metadata: Metadata, uris: Mapping[str, str]) -> Iterator[ReferenceRow]:
    for handle in metadata.handles:
        if handle.kind != "directory":
            yield ReferenceRow(
                operator=(
                    None if handle.operator is None else metadata.operators[handle.operator].id
                ),
                subtask=handle.subtask,
                state=handle.state,
                handle=handle.kind,
                path=handle.path,
                uri=None if handle.path is None else uris[handle.path],
                size=handle.size,
                position=handle.position,
            )


def _operators(
    metadata: Metadata, handles: Sequence[Handle], packed: _Packed
) -> tuple[OperatorSummary, ...]:
    bytes_of: dict[int, dict[int | None, int]] = defaultdict(lambda: defaultdict(int))
    files_of: dict[int, set[str]] = defaultdict(set)
    for handle in handles:
        if handle.operator is not None:
            bytes_of[handle.operator][handle.subtask] += handle.size
            if handle.path is not None:
                files_of[handle.operator].add(packed.paths.get(handle.start, handle.path))
    return tuple(
        OperatorSummary(
            id=operator.id,
            name=operator.name,
            uid=operator.uid,
            parallelism=operator.parallelism,
            max_parallelism=operator.max_parallelism,
            subtasks=operator.subtasks,
            bytes=sum(bytes_of[index].values()),
            files=len(files_of[index]),
            largest_subtask_bytes=max(
                (size for task, size in bytes_of[index].items() if task is not None), default=0
            ),
        )
        for index, operator in enumerate(metadata.operators)
    )
