"""A hand-written encoder of `_metadata`: a tree of plain dataclasses to bytes, and the state
handles that a decoder must find.

It shares nothing with `cpreplicate.metadata` but the `Handle` type that it promises rows of;
modified UTF-8 is its own too.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from cpreplicate.core.metadata import Handle

TAIL = b"\xac\xed\x00\x05sr\x00\x04tail"


def java_utf(text: str) -> bytes:
    """Encode as modified UTF-8, one UTF-16 unit after the other, as `DataOutputStream.writeUTF`."""
    units = text.encode("utf-16-be", "surrogatepass")
    out = bytearray()
    for (unit,) in struct.iter_unpack(">H", units):
        if 0 < unit < 0x80:
            out.append(unit)
        elif unit < 0x800:
            out += bytes((0xC0 | unit >> 6, 0x80 | unit & 0x3F))
        else:
            out += bytes((0xE0 | unit >> 12, 0x80 | unit >> 6 & 0x3F, 0x80 | unit & 0x3F))
    return bytes(out)


class Sink:
    """Bytes written so far, the handles in them, and whose handles they are at the moment."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.data = bytearray()
        self.handles: list[Handle] = []
        self.state_sizes: list[int] = []  # of each handle, of a channel what it records
        self.channel_size = 0
        self.operator: int | None = None
        self.subtask: int | None = None
        self.state = self.part = ""
        self.inline_bytes = 0
        self.changelog = self.merging = False

    def u8(self, *values: int) -> None:
        self.data += bytes(values)

    def i32(self, *values: int) -> None:
        self.data += struct.pack(f">{len(values)}i", *values)

    def i64(self, *values: int) -> None:
        self.data += struct.pack(f">{len(values)}q", *values)

    def utf(self, text: str) -> None:
        data = java_utf(text)
        self.data += struct.pack(">H", len(data)) + data

    def offsets(self, values: Sequence[int]) -> None:
        self.i32(len(values))
        self.i64(*values)

    def row(
        self, start: int, kind: str, path: str | None, size: int, position: int | None = None
    ) -> None:
        length = len(self.data) - start
        self.state_sizes.append(self.channel_size if "channel" in self.state else size)
        self.handles.append(
            Handle(
                self.operator,
                self.subtask,
                self.state,
                self.part,
                kind,
                path,
                size,
                position,
                start,
                length,
            )
        )

    def stream(self, handle: Stream | None, part: str) -> None:
        self.part = part
        if handle is None:
            self.u8(0)
        else:
            handle.encode(self)

    def keyed(self, handle: Keyed | None) -> None:
        if handle is None:
            self.u8(0)
        else:
            handle.encode(self)


@dataclass(frozen=True)
class File:
    path: str
    size: int

    def encode(self, out: Sink) -> None:
        start = len(out.data)
        out.u8(2)
        out.i64(self.size)
        out.utf(self.path)
        out.row(start, "file", self.path, self.size)


@dataclass(frozen=True)
class RelativeFile:
    path: str
    size: int

    def encode(self, out: Sink) -> None:
        start = len(out.data)
        out.u8(6)
        out.utf(self.path)
        out.i64(self.size)
        out.row(start, "relative", self.path, self.size)


@dataclass(frozen=True)
class Segment:
    position: int
    size: int
    scope: int
    path: str
    logical_id: str

    def encode(self, out: Sink) -> None:
        start = len(out.data)
        out.merging = True
        out.u8(15)
        out.i64(self.position, self.size)
        out.i32(self.scope)
        out.utf(self.path)
        out.utf(self.logical_id)
        out.row(start, "segment", self.path, self.size, self.position)


@dataclass(frozen=True)
class Inline:
    name: str
    data: bytes

    def encode(self, out: Sink) -> None:
        start = len(out.data)
        out.u8(1)
        out.utf(self.name)
        out.i32(len(self.data))
        out.data += self.data
        out.inline_bytes += len(self.data)
        out.row(start, "inline", None, len(self.data))


@dataclass(frozen=True)
class Empty:
    def encode(self, out: Sink) -> None:
        start = len(out.data)
        out.merging = True
        out.u8(16)
        out.row(start, "empty", None, 0)


@dataclass(frozen=True)
class Nested:
    """Type 3 as a stream handle: key groups around another one."""

    first_group: int
    offsets: tuple[int, ...]
    stream: Stream | None

    def encode(self, out: Sink) -> None:
        out.u8(3)
        out.i32(self.first_group)
        out.offsets(self.offsets)
        out.stream(self.stream, out.part)


Stream: TypeAlias = File | RelativeFile | Segment | Inline | Empty | Nested


@dataclass(frozen=True)
class KeyGroups:
    """Types 3 and 7 (no id) and 12."""

    kind: int
    first_group: int
    offsets: tuple[int, ...]
    stream: Stream | None
    identity: str = "id"

    def encode(self, out: Sink) -> None:
        out.u8(self.kind)
        out.i32(self.first_group)
        out.offsets(self.offsets)
        out.stream(self.stream, "key-groups")
        if self.kind == 12:
            out.utf(self.identity)


Files: TypeAlias = tuple[tuple[str, "Stream | None"], ...]


@dataclass(frozen=True)
class Incremental:
    """Types 5 (old) and 11."""

    kind: int
    checkpoint_id: int
    backend: str
    groups: tuple[int, int]
    checkpointed_size: int
    meta: Stream | None
    shared: Files
    private: Files
    identity: str = "id"

    def encode(self, out: Sink) -> None:
        out.u8(self.kind)
        out.i64(self.checkpoint_id)
        out.utf(self.backend)
        out.i32(*self.groups)
        if self.kind == 11:
            out.i64(self.checkpointed_size)
        out.stream(self.meta, "meta")
        for part, files in (("shared", self.shared), ("private", self.private)):
            out.i32(len(files))
            for name, stream in files:
                out.utf(name)
                out.stream(stream, part)
        if self.kind == 11:
            out.utf(self.identity)


@dataclass(frozen=True)
class Changelog:
    """Types 8 (old) and 14."""

    kind: int
    groups: tuple[int, int]
    checkpointed_size: int
    materialized: tuple[Keyed | None, ...]
    delta: tuple[Keyed | None, ...]
    materialization_id: int = 1
    checkpoint_id: int = 1
    identity: str = "id"

    def encode(self, out: Sink) -> None:
        out.changelog = True
        out.u8(self.kind)
        out.i32(*self.groups)
        out.i64(self.checkpointed_size)
        for handles in (self.materialized, self.delta):
            out.i32(len(handles))
            for handle in handles:
                out.keyed(handle)
        out.i64(self.materialization_id)
        if self.kind == 14:
            out.i64(self.checkpoint_id)
        out.utf(self.identity)


@dataclass(frozen=True)
class InMemoryChanges:
    """Type 9: no state handle, its bytes count as inline."""

    groups: tuple[int, int]
    interval: tuple[int, int]
    changes: tuple[tuple[int, bytes], ...]
    identity: str = "id"

    def encode(self, out: Sink) -> None:
        out.changelog = True
        out.u8(9)
        out.i32(*self.groups)
        out.i64(*self.interval)
        out.i32(len(self.changes))
        for group, data in self.changes:
            out.i32(group, len(data))
            out.data += data
            out.inline_bytes += len(data)
        out.utf(self.identity)


@dataclass(frozen=True)
class ChangelogFiles:
    """Types 10 (old) and 13."""

    kind: int
    groups: tuple[int, int]
    files: tuple[tuple[int, Stream | None], ...]
    sizes: tuple[int, int] = (0, 0)
    identity: str = "id"
    storage: str = "filesystem"

    def encode(self, out: Sink) -> None:
        out.changelog = True
        out.u8(self.kind)
        out.i32(*self.groups)
        out.i32(len(self.files))
        for offset, stream in self.files:
            out.i64(offset)
            out.stream(stream, "delta")
        out.i64(*self.sizes)
        out.utf(self.identity)
        if self.kind == 13:
            out.utf(self.storage)


Keyed: TypeAlias = KeyGroups | Incremental | Changelog | InMemoryChanges | ChangelogFiles


@dataclass(frozen=True)
class OperatorState:
    """Type 4, or 17 where it has its two directories."""

    states: tuple[tuple[str, int, tuple[int, ...]], ...]
    delegate: Stream | None
    directories: tuple[str, str] | None = None

    def encode(self, out: Sink) -> None:
        out.u8(4 if self.directories is None else 17)
        out.i32(len(self.states))
        for name, mode, offsets in self.states:
            out.utf(name)
            out.u8(mode)
            out.offsets(offsets)
        if self.directories is not None:
            self._encode_directories(out, self.directories)
        out.stream(self.delegate, "")

    def _encode_directories(self, out: Sink, directories: tuple[str, str]) -> None:
        out.merging = True
        for out.part, directory in zip(("task-owned-dir", "shared-dir"), directories, strict=True):
            start = len(out.data)
            out.utf(directory)
            out.row(start, "directory", directory, 0)
        out.u8(isinstance(self.delegate, Empty))


@dataclass(frozen=True)
class PlainChannel:
    place: tuple[int, int, int]
    offsets: tuple[int, ...]
    size: int
    stream: Stream | None

    def encode(self, out: Sink, tag: int) -> None:
        if out.version >= 6:
            out.u8(tag)
        out.i32(*self.place)
        out.offsets(self.offsets)
        out.i64(self.size)
        out.channel_size = self.size
        out.stream(self.stream, "")


@dataclass(frozen=True)
class MergedChannel:
    """v6 only."""

    subtask: int
    size: int
    stream: Stream | None
    offsets: bytes

    def encode(self, out: Sink, tag: int) -> None:
        out.u8(tag + 2)
        out.i32(self.subtask)
        out.i64(self.size)
        out.channel_size = self.size
        out.stream(self.stream, "")
        out.i32(len(self.offsets))
        out.data += self.offsets


Channel: TypeAlias = PlainChannel | MergedChannel


@dataclass(frozen=True)
class Subtask:
    index: int
    managed: OperatorState | None = None
    raw: OperatorState | None = None
    keyed: Keyed | None = None
    keyed_raw: Keyed | None = None
    inputs: tuple[Channel, ...] = ()
    outputs: tuple[Channel, ...] = ()

    def encode(self, out: Sink) -> None:
        out.subtask = self.index
        out.i32(self.index)
        if out.version == 2:
            out.i64(0)
            out.i32(0)
        for out.state, state in (("operator", self.managed), ("operator-raw", self.raw)):
            out.i32(state is not None)
            if state is not None:
                state.encode(out)
        for out.state, keyed in (("keyed", self.keyed), ("keyed-raw", self.keyed_raw)):
            out.keyed(keyed)
        if out.version >= 3:
            self._encode_channels(out)

    def _encode_channels(self, out: Sink) -> None:
        for out.state, tag, channels in (
            ("channel-in", 1, self.inputs),
            ("channel-out", 2, self.outputs),
        ):
            out.i32(len(channels))
            for channel in channels:
                channel.encode(out, tag)


@dataclass(frozen=True)
class FinishedSubtask:
    """v3 and later."""

    index: int

    def encode(self, out: Sink) -> None:
        out.i32(-self.index - 1)


@dataclass(frozen=True)
class OperatorEntry:
    """`subtasks` is None for a fully finished operator (v3 and later)."""

    identity: bytes
    parallelism: int
    max_parallelism: int
    subtasks: tuple[Subtask | FinishedSubtask, ...] | None
    coordinator: Inline | None = None
    name: str = ""
    uid: str = ""

    def encode(self, out: Sink) -> None:
        if out.version >= 5:
            out.utf(self.name)
            out.utf(self.uid)
        out.data += self.identity
        out.i32(self.parallelism, self.max_parallelism)
        out.subtask, out.state = None, "coordinator"
        if out.version == 2:
            out.i32(0)
        else:
            out.stream(self.coordinator, "")
        out.i32(-1 if self.subtasks is None else len(self.subtasks))
        for subtask in self.subtasks or ():
            subtask.encode(out)


def keyed_operator(
    identity: bytes,
    checkpoint: int,
    own: Sequence[Stream],
    shared: Sequence[tuple[str, Stream]],
    segments: Sequence[Segment],
) -> OperatorEntry:
    """Return an operator whose first subtask has an incremental state of these files, and each
    further one a segment.
    """
    private = tuple(("own", each) for each in own[1:])
    state = Incremental(11, checkpoint, "backend", (0, 63), 1, own[0], tuple(shared), private)
    merged = [
        Subtask(1 + index, keyed=KeyGroups(12, 64, (0,), each))
        for index, each in enumerate(segments)
    ]
    return OperatorEntry(identity, 1 + len(merged), 128, (Subtask(0, keyed=state), *merged))


@dataclass(frozen=True)
class Master:
    name: str
    data: bytes

    def encode(self, out: Sink) -> None:
        inner = Sink(out.version)
        inner.i32(0)
        inner.utf(self.name)
        inner.i32(len(self.data))
        inner.data += self.data
        out.data += struct.pack(">I", 0xC96B1696)
        out.i32(len(inner.data))
        out.data += inner.data


@dataclass(frozen=True)
class Tree:
    """A whole `_metadata`."""

    version: int
    operators: tuple[OperatorEntry, ...] = ()
    checkpoint_id: int = 1
    masters: tuple[Master, ...] = ()
    tail: bytes = field(default=TAIL)


def encode(tree: Tree) -> Sink:
    """Write a tree; the sink has its bytes and the handles that a decoder must find in them."""
    out = Sink(tree.version)
    out.i32(0x4960672D, tree.version)
    out.i64(tree.checkpoint_id)
    out.i32(len(tree.masters))
    for master in tree.masters:
        master.encode(out)
    out.i32(len(tree.operators))
    for out.operator, operator in enumerate(tree.operators):
        operator.encode(out)
    if tree.version >= 4:
        out.data += tree.tail
    return out
