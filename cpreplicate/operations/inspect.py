"""`inspect`: what a checkpoint holds, read from its `_metadata` alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cpreplicate.core import uri
from cpreplicate.core.closure import closure, foreign_groups
from cpreplicate.core.metadata import Handle, Metadata
from cpreplicate.protocol.source import find, read_metadata
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
class Inspection:
    """What a checkpoint holds.

    `bytes` is about the total size of its files. `foreign` counts files of other jobs or roots.
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


def inspect(path: str, side: Side, remaps: Sequence[uri.Remap]) -> Inspection:
    """Return a summary of the checkpoint at `path`. Raises `NotThere`, `MetadataError`."""
    source = find(path, side)
    metadata = read_metadata(source.checkpoint, side).metadata
    needed = closure(metadata, remaps)
    handles = [handle for handle in metadata.handles if handle.kind != "directory"]
    return Inspection(
        checkpoint=source.checkpoint,
        checkpoint_id=metadata.checkpoint_id,
        version=metadata.version,
        operators=_operators(metadata, handles),
        handles=len(handles),
        files=len(needed.files),
        bytes=needed.bytes,
        inline_bytes=metadata.inline_bytes,
        foreign=foreign_groups(needed.files, source.job_root or source.checkpoint),
    )


def references(path: str, side: Side, remaps: Sequence[uri.Remap]) -> Iterator[ReferenceRow]:
    """Yield every state handle of the checkpoint at `path`, in the order of the file."""
    metadata = read_metadata(find(path, side).checkpoint, side).metadata
    uris = closure(metadata, remaps).uris
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


def _operators(metadata: Metadata, handles: Sequence[Handle]) -> tuple[OperatorSummary, ...]:
    bytes_of: dict[int, dict[int | None, int]] = defaultdict(lambda: defaultdict(int))
    files_of: dict[int, set[str]] = defaultdict(set)
    for handle in handles:
        if handle.operator is not None:
            bytes_of[handle.operator][handle.subtask] += handle.size
            if handle.path is not None:
                files_of[handle.operator].add(handle.path)
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
