"""Decoding: read a `_metadata` file field by field, as `docs/metadata-format.md` describes it.

The order of fields is that of Flink's `MetadataV2V3SerializerBase`, `MetadataV3Serializer` and
their successors.
"""

from __future__ import annotations

from array import array
from typing import BinaryIO, NamedTuple

from cpreplicate.core.metadata import handle, mutf8
from cpreplicate.core.metadata.columns import BEFORE_HANDLE, Builder
from cpreplicate.core.metadata.handle import Operator
from cpreplicate.core.metadata.model import Metadata
from cpreplicate.core.metadata.runs import Shape, shape_of, uniform
from cpreplicate.core.metadata.window import WINDOW, Window
from cpreplicate.core.sizes import counted
from cpreplicate.errors import MetadataError

MAGIC = 0x4960672D
MASTER_STATE_MAGIC = 0xC96B1696
VERSIONS = range(2, 7)
_DEEPEST = 16  # Flink nests a handle twice at most; a hostile file could nest it a million times
# Handles between two flushes; limits what a flush copies, and so do the bytes that they span.
FLUSH = 65_536
_FLUSH_BYTES = 2 << 20
_JAVA_SERIALIZATION = b"\xac\xed\x00\x05"
_MOST_PROPERTIES = 4096  # bytes; Flink 2.3 writes 750
# `SavepointType.PostCheckpointAction`, the last field of a savepoint's properties
_ENDING = tuple(b"t" + len(name).to_bytes(2, "big") + name for name in (b"SUSPEND", b"TERMINATE"))
_MODES = (0, 1, 2)  # split, union, broadcast
_FILE, _RELATIVE, _SEGMENT, _INLINE, _EMPTY = 2, 6, 15, 1, 16
_KIND = {_FILE: handle.FILE, _RELATIVE: handle.RELATIVE, _SEGMENT: handle.SEGMENT}
# What most subtasks lack: two operator states (counts), a raw keyed state (a type) and two lists of
# channels (counts), private files (a count).
_NO_OPERATOR_STATES, _NO_RAW_KEYED_NOR_CHANNELS, _NO_FILES = bytes(8), bytes(9), bytes(4)
# The three kinds of lists whose entries hold a handle each.
_LOCAL_FILES, _CHANGELOG_FILES, _CHANNELS = range(3)


class _Shape(NamedTuple):
    """A handle that was just read: its start in the buffer, its type and its lengths in bytes.

    The type is None if the handle names no file.
    """

    start: int
    kind: int | None
    path_length: int
    length: int


_NO_FILE = _Shape(0, None, 0, 0)


def decode(
    data: bytes | BinaryIO, base_uri: str, window: int = WINDOW, flush: int = FLUSH
) -> Metadata:
    """Decode a `_metadata` that is in the directory `base_uri`.

    `data` is its bytes, or a seekable stream that is read through a window of `window` bytes. At
    most `flush` handles are collected before they are moved to the result. No filesystem is
    accessed. Raises `MetadataError`, which names the byte offset, for anything that Flink would not
    have written.
    """
    return _Decoder(data, base_uri, window, flush).decode()


class _Decoder:
    def __init__(self, data: bytes | BinaryIO, base_uri: str, window: int, flush: int) -> None:
        self._base_uri, self._flush = base_uri, flush
        self._handles = Builder()
        self._in = Window(data, self._handles.flush, window)
        self._version = 0
        self._operator = self._subtask = -1
        self._inline_bytes = 0
        self._channel_size = 0  # of the channel whose handle comes next
        self._changelog = self._file_merging = False
        self._operator_states = array("q")
        self._last_entries: dict[int, Shape | None] = {}

    def decode(self) -> Metadata:
        self._in.ahead()
        self._head()
        checkpoint_id = self._in.natural("a checkpoint id")
        masters = self._masters()
        operators = tuple(
            self._read_operator(index) for index in range(self._in.count("operators", 28))
        )
        ends_job = self._tail()
        self._handles.flush(self._in.buffer, self._in.base)
        return Metadata(
            version=self._version,
            checkpoint_id=checkpoint_id,
            base_uri=self._base_uri,
            length=self._in.length,
            operators=operators,
            handles=self._handles.build(),
            master_states=masters,
            inline_bytes=self._inline_bytes,
            changelog=self._changelog,
            file_merging=self._file_merging,
            operator_states=self._operator_states,
            ends_job=ends_job,
        )

    def _head(self) -> None:
        if self._in.i32() != MAGIC:
            self._in.position -= 4
            self._in.fail(f"the magic number {MAGIC:#x} of a _metadata file")
        self._version = self._in.i32()
        if self._version not in VERSIONS:
            raise MetadataError(
                f"version {self._version} of _metadata (byte 4) is not supported. Versions 2 to 6"
                " are"
            )

    def _masters(self) -> int:
        count = self._in.count("master states", 9)
        for _ in range(count):
            self._in.ahead()
            if self._in.i32() & 0xFFFFFFFF != MASTER_STATE_MAGIC:
                self._in.position -= 4
                self._in.fail(f"the magic number {MASTER_STATE_MAGIC:#x} of a master state")
            self._master(self._in.count("bytes of a master state", 1))
        return count

    def _master(self, length: int) -> None:
        end = self._in.offset + length
        self._in.i32()
        self._in.utf("a master state's name")
        self._in.skip(self._in.count("bytes of a master state", 1))
        if self._in.offset != end:
            self._in.fail(f"the end of a master state at byte {end}")

    def _tail(self) -> bool:
        """Check the end of the file, and return whether it is of a savepoint that ends its job.

        v4 and later end with Java-serialized `CheckpointProperties`, which hold no path.
        """
        self._in.ahead()
        if self._version < 4:
            if self._in.left:
                self._in.fail(
                    f"the end of the file, {counted(self._in.left, 'byte follows', 'bytes follow')}"
                )
            return False
        properties = bytes(
            self._in.buffer[self._in.position : self._in.position + _MOST_PROPERTIES]
        )
        if not properties.startswith(_JAVA_SERIALIZATION):
            is_cut = len(properties) < len(_JAVA_SERIALIZATION)
            refuse = self._in.cut_short if is_cut else self._in.fail
            refuse("the serialized checkpoint properties")
        return properties.endswith(_ENDING)

    def _read_operator(self, index: int) -> Operator:
        """Read an operator with its coordinator and its subtasks, and return it without these."""
        window = self._in
        window.ahead()
        self._operator, self._subtask = index, -1
        name = uid = None
        if self._version >= 5:
            name, uid = self._text("an operator's name"), self._text("an operator's uid")
        identity = f"{window.i64() & (1 << 64) - 1:016x}{window.i64() & (1 << 64) - 1:016x}"
        parallelism, max_parallelism = window.natural32("a parallelism"), window.i32()
        if parallelism > max_parallelism:
            window.position -= 4
            window.fail(f"a maximum parallelism of at least {parallelism}, found {max_parallelism}")
        if self._version == 2:
            window.i32()
        else:
            self._coordinator()
        subtasks = window.i32()
        finished = subtasks < 0 and self._version >= 3
        if not finished:
            window.position -= 4
            subtasks = window.count("subtasks", 4)
            for _ in range(subtasks):
                self._read_subtask(parallelism)
        return Operator(
            identity, name, uid, parallelism, max_parallelism, max(subtasks, 0), finished
        )

    def _text(self, what: str) -> str | None:
        return mutf8.decode(self._in.utf(what)) or None

    def _coordinator(self) -> None:
        self._in.ahead()
        if self._in.u8() not in (0, _INLINE):
            self._in.position -= 1
            self._in.fail("a coordinator's state: nothing or inline bytes")
        self._in.position -= 1
        self._stream(handle.COORDINATOR, handle.WHOLE)

    def _read_subtask(self, parallelism: int) -> None:
        """Read the states of one subtask. Before v3 of the format there are fewer of them."""
        window = self._in
        window.ahead()
        index = window.i32()
        finished = index < 0 and self._version >= 3
        if not 0 <= (-index - 1 if finished else index) < parallelism:
            window.position -= 4
            window.fail(f"a subtask of an operator of parallelism {parallelism}, found {index}")
        if finished:
            return
        self._subtask = index
        if self._version == 2:
            window.i64()
            if window.i32() != 0:
                window.position -= 4
                window.fail("no legacy operator state (Flink before 1.3 wrote it)")
        if not window.absent(_NO_OPERATOR_STATES):
            for state in (handle.OPERATOR, handle.OPERATOR_RAW):
                if window.i32() != 0:
                    self._operator_state(state)
        self._keyed(handle.KEYED, 0)
        if self._version >= 3 and window.absent(_NO_RAW_KEYED_NOR_CHANNELS):
            return
        self._keyed(handle.KEYED_RAW, 0)
        if self._version >= 3:
            self._channels(handle.CHANNEL_IN, (1, 3))
            self._channels(handle.CHANNEL_OUT, (2, 4))

    def _operator_state(self, state: int) -> None:
        """Read where the named states of an operator are, and the handle that holds them."""
        window = self._in
        window.ahead()
        kind = window.u8()
        if kind == 0:
            return
        if kind not in (4, 17):
            window.position -= 1
            window.fail(f"an operator state handle (type 0, 4 or 17), found type {kind}")
        self._operator_states.extend((window.offset - 1, self._operator))
        for _ in range(window.count("operator states", 7)):
            window.ahead()
            window.utf("a state's name")
            window.one_of(_MODES, "a mode of distribution, 0 to 2")
            window.skip(8 * window.count("offsets", 8))
        if kind == 17:
            self._merge_directories(state)
        self._stream(state, handle.WHOLE, allowed=(_SEGMENT, _EMPTY) if kind == 17 else None)

    def _merge_directories(self, state: int) -> None:
        """Read the two directories of merged files that an operator state names."""
        self._file_merging = True
        for part in (handle.TASK_OWNED_DIR, handle.SHARED_DIR):
            self._in.ahead()
            length = self._in.path("a directory's path")
            start = self._in.position - length - 2
            self._note(start, 1, 0, handle.DIRECTORY, length, length + 2, state, part)
        self._in.one_of((0, 1), "0 or 1, whether the state is empty")

    def _keyed(self, state: int, depth: int) -> None:
        """Read a handle of keyed state. It may hold others; `depth` is how deep it is nested."""
        window = self._in
        window.ahead()
        kind = window.u8()
        if kind == 0:
            return
        if depth > _DEEPEST:
            window.fail(f"a state handle nested at most {_DEEPEST} deep")
        if kind in (3, 7, 12):
            self._key_groups(state, handle.KEY_GROUPS, depth)
            if kind == 12:
                window.utf("a state handle id")
        elif kind in (5, 11):
            self._incremental(state, kind, depth)
        elif kind in (8, 14):
            self._changelog_handle(state, kind, depth)
        elif kind == 9:
            self._changelog_increment()
        elif kind in (10, 13):
            self._changelog_stream(state, kind, depth)
        else:
            window.position -= 1
            window.fail(f"a keyed state handle, found type {kind}")

    def _key_groups(self, state: int, part: int, depth: int) -> None:
        self._in.natural32("a key group")
        self._in.skip(8 * self._in.count("key groups", 8))
        self._stream(state, part, depth + 1)

    def _incremental(self, state: int, kind: int, depth: int) -> None:
        """Read an incremental snapshot: RocksDB's own metadata, shared and private files."""
        window = self._in
        window.skip(8)
        window.utf("a backend's id")
        window.key_groups()
        window.skip(8 if kind == 11 else 0)  # bytes that this checkpoint added: a metric
        self._stream(state, handle.META, depth + 1)
        for part in (handle.SHARED, handle.PRIVATE):
            if not window.absent(_NO_FILES):
                self._local_files(state, part, depth + 1)
        if kind == 11:
            window.ahead()
            window.utf("a state handle id")

    def _local_files(self, state: int, part: int, depth: int) -> None:
        """Read a list of {name of the local file, stream handle}: the bulk of a `_metadata`."""
        window = self._in
        window.ahead()
        left = window.count("files", 3)
        while left:
            window.ahead()
            if run := self._run(_LOCAL_FILES, left, state, part):
                left -= run
                continue
            entry, base = window.position, window.base
            name = len(window.utf("the name of a local file"))
            shape = self._stream(state, part, depth)
            left -= 1
            if window.base == base:
                self._remember(_LOCAL_FILES, entry, shape, (0, 1), 2 + name)

    def _changelog_handle(self, state: int, kind: int, depth: int) -> None:
        self._changelog = True
        self._in.key_groups()
        self._in.skip(8)
        for what in ("materialized state handles", "changelog state handles"):
            for _ in range(self._in.count(what, 1)):
                self._keyed(state, depth + 1)
        self._in.skip(16 if kind == 14 else 8)
        self._in.ahead()
        self._in.utf("a state handle id")

    def _changelog_increment(self) -> None:
        """Read changes of state that are in the `_metadata` itself."""
        window = self._in
        self._changelog = True
        window.key_groups()
        window.skip(16)
        for _ in range(window.count("state changes", 8)):
            window.ahead()
            if window.i32() < -1:
                window.position -= 4
                window.fail("a key group, or -1 for a change of metadata")
            length = window.count("bytes of a state change", 1)
            self._inline_bytes += length
            window.skip(length)
        window.ahead()
        window.utf("a state handle id")

    def _changelog_stream(self, state: int, kind: int, depth: int) -> None:
        """Read a handle of changelog files, and the id behind them."""
        window = self._in
        self._changelog = True
        window.key_groups()
        left = window.count("changelog files", 9)
        while left:
            window.ahead()
            if run := self._run(_CHANGELOG_FILES, left, state, handle.DELTA):
                left -= run
                continue
            entry, base = window.position, window.base
            window.skip(8)
            shape = self._stream(state, handle.DELTA, depth + 1)
            left -= 1
            if window.base == base:
                self._remember(_CHANGELOG_FILES, entry, shape, (), 0)
        window.ahead()
        window.skip(16)
        window.utf("a state handle id")
        if kind == 13:
            window.utf("a storage identifier")

    def _channels(self, state: int, tags: tuple[int, int]) -> None:
        """Read the states of channels; `tags` are the types of a plain handle and a merged one."""
        window = self._in
        window.ahead()
        left = window.count("channel states", 17)
        while left:
            window.ahead()
            if run := self._run(_CHANNELS, left, state, handle.WHOLE):
                left -= run
                continue
            left -= 1
            entry, base = window.position, window.base
            if self._version >= 6:
                what = f"a channel state handle of type {tags[0]} or {tags[1]}"
                if window.one_of(tags, what) == tags[1]:
                    self._merged_channel(state)
                    continue
            window.skip(12)
            counted = window.position - entry
            window.skip(8 * window.count("offsets", 8))
            self._channel_size = window.natural("a size of channel state")
            shape = self._stream(state, handle.WHOLE)
            if window.base == base:
                size = shape.start - entry - 8
                head = (*range(counted - 12), *range(counted, counted + 4), size)
                self._remember(_CHANNELS, entry, shape, head, 0)

    def _merged_channel(self, state: int) -> None:
        self._in.skip(4)
        self._channel_size = self._in.natural("a size of channel state")
        self._stream(state, handle.WHOLE)
        self._in.skip(self._in.count("bytes of channel offsets", 1))

    def _stream(
        self, state: int, part: int, depth: int = 0, allowed: tuple[int, ...] | None = None
    ) -> _Shape:
        """Read a handle of one state: a file, a segment of one, inline bytes, or none."""
        window = self._in
        window.ahead()
        start = window.position
        kind = window.u8()
        if allowed is not None and kind not in allowed:
            window.position -= 1
            window.fail(
                f"a stream state handle of type {' or '.join(map(str, allowed))}, found type {kind}"
            )
        if kind == _FILE:
            window.natural("a file's size")
            return self._noted(start, kind, window.path("a path"), state, part)
        if kind == _RELATIVE:
            length = window.path("a path")
            window.natural("a file's size")
            return self._noted(start, kind, length, state, part)
        if kind == _SEGMENT:
            return self._segment(start, state, part)
        if kind == 3:
            if depth > _DEEPEST:
                window.fail(f"a state handle nested at most {_DEEPEST} deep")
            self._key_groups(state, part, depth)
        elif kind == _INLINE:
            self._inline(start, state, part)
        elif kind == _EMPTY:
            self._file_merging = True
            self._note(start, 1, 0, handle.EMPTY, 0, 1, state, part)
        elif kind != 0:
            window.position -= 1
            window.fail(f"a stream state handle, found type {kind}")
        return _NO_FILE

    def _inline(self, start: int, state: int, part: int) -> None:
        window = self._in
        name = len(window.utf("a handle's name"))
        length = window.count("inline bytes", 1)
        self._inline_bytes += length
        self._note(start, 1, 0, handle.INLINE, 0, 7 + name + length, state, part, length)
        window.skip(length)

    def _segment(self, start: int, state: int, part: int) -> _Shape:
        window = self._in
        self._file_merging = True
        window.natural("a segment's position")
        window.natural("a segment's size")
        if window.i32() not in (0, 1):
            window.position -= 4
            window.fail("a scope, 0 (exclusive) or 1 (shared)")
        length = window.path("a path")
        window.utf("a logical file id")
        return self._noted(start, _SEGMENT, length, state, part)

    def _noted(self, start: int, kind: int, path_length: int, state: int, part: int) -> _Shape:
        """Note the handle that was just read, and return its shape."""
        length = self._in.position - start
        self._note(start, 1, 0, _KIND[kind], path_length, length, state, part)
        return _Shape(start, kind, path_length, length)

    def _note(
        self,
        start: int,
        count: int,
        stride: int,
        kind: int,
        path_length: int,
        length: int,
        state: int,
        part: int,
        size: int = 0,
    ) -> None:
        """Note handles of the current subtask, see `Builder.note`; flush many at once."""
        self._handles.note(
            start,
            count,
            stride,
            kind,
            path_length,
            length,
            self._operator,
            self._subtask,
            state << 8 | part,
            size,
            self._channel_size,
        )
        if self._handles.noted >= self._flush or start - self._handles.first >= _FLUSH_BYTES:
            self._handles.flush(self._in.buffer, self._in.base)

    def _remember(
        self, list_kind: int, start: int, shape: _Shape, head: tuple[int, ...], text_end: int
    ) -> None:
        """Keep the structure of the entry that was just read: those that follow often have it."""
        entry = None
        if shape.kind is not None:
            sample = self._in.buffer[start : self._in.position]
            place = (shape.start - start, shape.kind, shape.path_length, shape.length)
            entry = shape_of(sample, head, text_end, place)
        self._last_entries[list_kind] = entry

    def _run(self, list_kind: int, left: int, state: int, part: int) -> int:
        """Note the next entries that have the structure of the one that was read last.

        It may have been in another list of this kind. Return how many they are.
        """
        entry, window = self._last_entries.get(list_kind), self._in
        if entry is None:
            return 0
        most = min(left, _FLUSH_BYTES // entry.stride)
        count = uniform(window.buffer, window.position, entry, most)
        if count:
            self._channel_size = BEFORE_HANDLE
            self._note(
                window.position + entry.handle_start,
                count,
                entry.stride,
                _KIND[entry.kind],
                entry.path_length,
                entry.length,
                state,
                part,
            )
            window.position += count * entry.stride
        return count
