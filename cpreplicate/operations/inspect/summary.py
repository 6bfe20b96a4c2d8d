"""What a checkpoint holds, read from its `_metadata`; the files themselves are not opened."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cpreplicate.core import uri
from cpreplicate.core.closure import Closure
from cpreplicate.core.metadata import Metadata, handle
from cpreplicate.core.path_columns import Numbers
from cpreplicate.core.short_repr import short_repr
from cpreplicate.core.state_sizes import CHANGELOG, INLINE, KINDS, PLACES, StateSizes, sums
from cpreplicate.operations.inspect import dating, earlier
from cpreplicate.operations.inspect.checkpoint import Checkpoint, read
from cpreplicate.operations.inspect.dating import Dating
from cpreplicate.operations.inspect.depending import Dependency, dependencies
from cpreplicate.operations.inspect.earlier import Increment
from cpreplicate.operations.kafka.positions import CheckpointPositions, positions_of
from cpreplicate.protocol.checkpoint_record import read_record
from cpreplicate.protocol.replica import Replica
from cpreplicate.protocol.source import Source
from cpreplicate.storage import Side

SKEWED = 3.0  # times the median: more makes checkpoints late


@dataclass(frozen=True)
class Skew:
    """How the state of an operator is divided over its subtasks, in bytes.

    `ratio` is the largest by the median, None if the median is zero. `largest` is the number of
    the subtask.
    """

    largest: int
    largest_bytes: int
    median_bytes: int

    @property
    def ratio(self) -> float | None:
        return self.largest_bytes / self.median_bytes if self.median_bytes else None

    @property
    def is_skewed(self) -> bool:
        """Whether the largest subtask has more than three times the bytes of the median."""
        return self.largest_bytes > SKEWED * self.median_bytes


@dataclass(frozen=True)
class OperatorSummary:
    """One operator of a checkpoint.

    `bytes` is the state of its handles, also inline, with each file once; `kinds` and `places` are
    parts of it (see `core.state_sizes`). `files` counts distinct files. `skew` is None if no
    subtask has state: the state of a coordinator is of none.
    """

    id: str
    name: str | None
    uid: str | None
    parallelism: int
    max_parallelism: int
    subtasks: int
    bytes: int
    files: int
    kinds: Mapping[str, int]
    places: Mapping[str, int]
    skew: Skew | None = None


@dataclass(frozen=True)
class PackSummary:
    """The packed files of a checkpoint: how many there are, and in how many packs.

    `live_bytes` are those of the packed files, `dead_bytes` the other bytes of these packs.
    """

    files: int
    packs: int
    live_bytes: int
    dead_bytes: int


@short_repr("checkpoint", "version", "operators", "files", "bytes")
@dataclass(frozen=True)
class Inspection:
    """What a checkpoint holds.

    `files` counts packed files, not packs. `bytes` is about their total size. `kinds` and `places`
    are the state of all handles, each file once, with changelog increments in memory. `foreign`
    counts files of other jobs or roots, and `depends_on` names them. `packed` is None if there are
    no packs.
    `completed` is when the checkpoint was completed, in seconds since the epoch, None if that is
    not known. That of a replica was completed at its source. `positions` and `dating` are None if
    they were not looked for. `increment` is None without an earlier checkpoint beside this one.
    """

    checkpoint: str
    checkpoint_id: int
    version: int
    operators: tuple[OperatorSummary, ...]
    handles: int
    files: int
    bytes: int
    inline_bytes: int
    kinds: Mapping[str, int]
    places: Mapping[str, int]
    foreign: Mapping[str, int]
    depends_on: tuple[Dependency, ...] = ()
    packed: PackSummary | None = None
    completed: float | None = None
    increment: Increment | None = None
    dating: Dating | None = None
    positions: CheckpointPositions | None = None


def inspect(
    path: str,
    side: Side,
    remaps: Sequence[uri.Remap],
    with_positions: bool = False,
    with_stat: bool = False,
) -> Inspection:
    """Return a summary of the checkpoint at `path`. Raises `NotThere`, `MetadataError`.

    `with_positions`: positions are also read from the small files that hold some. `with_stat`: the
    directories of the files are listed.
    """
    return summary_of(read(path, side, remaps), side, remaps, with_positions, with_stat)


def summary_of(
    checkpoint: Checkpoint,
    side: Side,
    remaps: Sequence[uri.Remap],
    with_positions: bool = False,
    with_stat: bool = False,
) -> Inspection:
    """Return a summary of a checkpoint that was read, as `inspect`."""
    file, needed, held = checkpoint.file, checkpoint.needed, checkpoint.sizes
    metadata, packed = file.metadata, checkpoint.packed
    depends_on = tuple(dependencies(checkpoint))
    outside = {each.directory: each.files for each in depends_on if not each.is_in_replica}
    handles, state = metadata.handles, held.sizes_once()
    in_memory = metadata.inline_bytes - sum(handles.size[handles.kind == handle.INLINE].tolist())
    return Inspection(
        checkpoint=checkpoint.source.checkpoint,
        checkpoint_id=metadata.checkpoint_id,
        version=metadata.version,
        operators=_operators(metadata, held),
        handles=len(held.size),
        files=len(needed.files) - len(packed.packs) + len(packed.members),
        bytes=_bytes(needed, checkpoint),
        inline_bytes=metadata.inline_bytes,
        kinds=_named(KINDS, sums(held.kind, state), CHANGELOG, in_memory),
        places=_named(PLACES, sums(held.place, state), INLINE, in_memory),
        foreign=outside,
        depends_on=depends_on,
        packed=_pack_summary(checkpoint, side),
        completed=completed(checkpoint.source, side),
        increment=earlier.increment(checkpoint, side, remaps),
        dating=dating.of_files(needed, side) if with_stat else None,
        positions=positions_of(file, side, remaps, with_positions),
    )


def completed(source: Source, side: Side) -> float | None:
    """Return when a checkpoint was completed: as a replica recorded it, else as it is dated."""
    record = read_record(Replica(source.root, side), uri.name(source.checkpoint))
    return source.completed if record is None else record.completed


def _bytes(needed: Closure, checkpoint: Checkpoint) -> int:
    packed = checkpoint.packed
    if not packed.packs:
        return needed.bytes
    plain = (file.size for file_uri, file in needed.files.items() if file_uri not in packed.packs)
    return sum(plain) + packed.live_bytes


def _pack_summary(checkpoint: Checkpoint, side: Side) -> PackSummary | None:
    """Return a summary of the packs. Costs one listing if there are any."""
    packed = checkpoint.packed
    if not packed.packs:
        return None
    children = side.storage(packed.directory).list(packed.directory)
    lengths = {uri.join(packed.directory, child.name): child.length for child in children}
    whole = sum(lengths.get(pack, 0) for pack in packed.packs)
    live = packed.live_bytes
    return PackSummary(len(packed.members), len(packed.packs), live, max(0, whole - live))


def _named(
    names: Sequence[str], by_number: Mapping[int, int], extra: int = 0, bytes_: int = 0
) -> dict[str, int]:
    """Return sums by name; that of the number `extra` has `bytes_` more."""
    found = {name: by_number.get(number, 0) for number, name in enumerate(names)}
    found[names[extra]] += bytes_
    return found


def _operators(metadata: Metadata, held: StateSizes) -> tuple[OperatorSummary, ...]:
    """Return a summary of each operator."""
    operators = metadata.operators
    state = held.sizes_once(held.operator)
    totals = sums(held.operator, state)
    kinds = _by_operator(held.operator, held.kind, state, len(KINDS))
    places = _by_operator(held.operator, held.place, state, len(PLACES))
    is_named, is_subtask = held.file >= 0, held.subtask >= 0
    width = int(held.file.max(initial=0)) + 1
    pairs = np.unique(held.operator[is_named].astype(np.int64) * width + held.file[is_named])
    files = np.bincount(pairs // width, minlength=len(operators)).tolist()
    tasks = _by_operator(
        held.operator[is_subtask],
        held.subtask[is_subtask],
        held.sizes_once(held.operator, held.subtask)[is_subtask],
        int(held.subtask.max(initial=-1)) + 1,
    )
    return tuple(
        OperatorSummary(
            id=operator.id,
            name=operator.name,
            uid=operator.uid,
            parallelism=operator.parallelism,
            max_parallelism=operator.max_parallelism,
            subtasks=operator.subtasks,
            bytes=totals.get(index, 0),
            files=files[index],
            kinds=_named(KINDS, kinds.get(index, {})),
            places=_named(PLACES, places.get(index, {})),
            skew=_skew(tasks.get(index, {}), operator.subtasks),
        )
        for index, operator in enumerate(operators)
    )


def _by_operator(
    operator: Numbers, number: Numbers, size: Numbers, count: int
) -> dict[int, dict[int, int]]:
    """Return the sums of sizes by operator and by a number below `count`."""
    found: dict[int, dict[int, int]] = {}
    for key, total in sums(operator.astype(np.int64) * max(count, 1) + number, size).items():
        found.setdefault(key // max(count, 1), {})[key % max(count, 1)] = total
    return found


def _skew(bytes_of: Mapping[int, int], subtasks: int) -> Skew | None:
    """Return how state is divided over subtasks, some of which may have none."""
    if not any(bytes_of.values()):
        return None
    empty = [0] * max(0, subtasks - len(bytes_of))
    largest = max(bytes_of, key=lambda subtask: bytes_of[subtask])
    median = int(statistics.median([*bytes_of.values(), *empty]))
    return Skew(largest, bytes_of[largest], median)
