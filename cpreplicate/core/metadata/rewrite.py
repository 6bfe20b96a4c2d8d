"""Rewriting by splicing: handles are replaced one by one, and every other byte stays.

No version has a length field that encloses operator state. A handle may therefore take another
length than the one it replaces.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cpreplicate.core.ledger import MemberTable
from cpreplicate.core.metadata import mutf8
from cpreplicate.core.metadata.columns import Handles
from cpreplicate.core.metadata.handle import FILE, RELATIVE, SHARED, Handle
from cpreplicate.core.metadata.model import Metadata
from cpreplicate.core.metadata.window import read_fully
from cpreplicate.core.path_columns import (
    Numbers,
    Parts,
    Texts,
    are_few,
    are_plain,
    chosen,
    coded,
    rows_of,
    split,
)
from cpreplicate.core.sizes import counted
from cpreplicate.errors import MetadataError

_BYTES = pa.large_binary()
_CHUNK = 4 << 20  # bytes; a yielded chunk is at most as long, unless it is one long piece
_SEGMENT_TYPE = 15
_SEGMENT_SCOPE, _SEGMENT_PATH = 17, 21  # after u8 type, i64 position and i64 size; i32 scope
_EXCLUSIVE, _SHARED = 0, 1  # `CheckpointedStateScope`, by its ordinal


class Absolute(NamedTuple):
    """An absolute URI as the new spelling of a reference.

    It becomes a `FileStateHandle`, or the path of a segment or directory.
    """

    path: str


class Relative(NamedTuple):
    """A path relative to the directory of the `_metadata` as the new spelling of a reference.

    It becomes a `RelativeFileStateHandle`.
    """

    path: str


class Segment(NamedTuple):
    """A part of the file at this absolute URI as the new spelling of a reference.

    It becomes a `SegmentFileStateHandle`. `position` and `size` are in bytes. `logical_id` must be
    unique in a checkpoint and stable from one to the next, since Flink's shared state registry uses
    it as a key.
    """

    path: str
    position: int
    size: int
    logical_id: str


class PlainSpelling(NamedTuple):
    """A whole file of `size` bytes as the new spelling of a segment.

    Its path is an absolute URI, or relative to the directory of the `_metadata`.
    """

    path: str
    size: int
    is_relative: bool


Spelling: TypeAlias = Absolute | Relative | Segment | PlainSpelling
PathRewriter: TypeAlias = Callable[[Handle], Spelling | None]
"""Return the new spelling of a handle's path, or None to leave the handle as it is."""


class Moves(NamedTuple):
    """How most handles are spelled anew at once: those of files with plain names.

    `place` returns what the places of files begin with from what their recorded paths do, or None
    where each file is to be asked for. `spell` returns the spelling of such a beginning.
    `are_single` returns which of some places need another spelling. The `members` are parts of
    files that are below `root`.
    """

    place: Callable[[str], str | None]
    spell: Callable[[str], Absolute | Relative]
    are_single: Callable[[Texts], Numbers]
    members: MemberTable
    root: str


def rewrite(
    data: bytes | BinaryIO,
    metadata: Metadata,
    path_rewriter: PathRewriter,
    moves: Moves | None = None,
) -> Iterator[bytes]:
    """Yield the bytes of `data`, from which `metadata` was decoded, with rewritten paths.

    With `moves`, `path_rewriter` is asked for few handles. Raises `ValueError` for a relative
    segment or directory, which Flink has no form for, and `MetadataError` for a path that is longer
    than the format holds.
    """
    pieces: list[bytes] = []
    size = 0
    for piece in _pieces(_Source(data, metadata.length), metadata, path_rewriter, moves):
        if size + len(piece) > _CHUNK:
            yield b"".join(pieces)
            pieces, size = [], 0
        pieces.append(piece)
        size += len(piece)
    yield b"".join(pieces)


def _pieces(
    source: _Source, metadata: Metadata, path_rewriter: PathRewriter, moves: Moves | None
) -> Iterator[bytes]:
    handles, copied = metadata.handles, 0
    for rows in _blocks(handles):
        starts, ends = handles.start[rows], (handles.start + handles.length)[rows]
        if len(rows) == 1:  # much may be before it, such as inline state
            yield from source.between(copied, int(starts[0]))
            copied = int(starts[0])
        original = source.read(copied, int(ends[-1]) - copied)
        new = _new_handles(handles, rows, original, copied, path_rewriter, moves)
        yield from _sliced(_spliced(original, starts - copied, ends - copied, new))
        copied = int(ends[-1])
    yield from source.between(copied, metadata.length)


def _blocks(handles: Handles) -> Iterator[Numbers]:
    """Yield the rows of handles that name files, in groups that are within a chunk."""
    rows = handles.named()
    ends = (handles.start + handles.length)[rows]
    first = copied = 0
    while first < len(rows):
        last = max(int(np.searchsorted(ends, copied + _CHUNK, side="right")), first + 1)
        yield rows[first:last]
        first, copied = last, int(ends[last - 1])


def _new_handles(
    handles: Handles,
    rows: Numbers,
    original: bytes,
    base: int,
    path_rewriter: PathRewriter,
    moves: Moves | None,
) -> Texts:
    """Return the new bytes of these handles; `original` begins at byte `base` of the file."""
    is_moved: Numbers = np.zeros(len(rows), np.bool_)
    moved = pa.array([], _BYTES)
    if moves is not None:
        is_moved, moved = _moved(handles, rows, moves)
    singles = []
    for handle in handles.chosen(rows[~is_moved]):
        first = handle.start - base
        as_it_was = original[first : first + handle.length]
        singles.append(_single(handle, path_rewriter(handle), as_it_was))
    return _merged(is_moved, moved, pa.array(singles, _BYTES))


def _merged(is_first: Numbers, first: Texts, others: Texts) -> Texts:
    """Return the rows of two columns in one, in which those flagged are of the first one."""
    if not len(others) or not len(first):
        return first if len(first) else others
    places = np.concatenate([np.flatnonzero(is_first), np.flatnonzero(~is_first)])
    order = np.empty(len(is_first), np.int64)
    order[places] = np.arange(len(is_first))
    return pa.concat_arrays([first, others]).take(pa.array(order))


def _single(handle: Handle, spelling: Spelling | None, original: bytes) -> bytes:
    return original if spelling is None else encoded(handle, spelling, original)


def _moved(handles: Handles, rows: Numbers, moves: Moves) -> tuple[Numbers, Texts]:
    """Return which of these handles move with their directory, and the new bytes of those."""
    beginnings, names = split(handles.recorded(rows))
    values, codes = coded(beginnings)
    places = [moves.place(mutf8.decode(text)) for text in values]
    has_place = np.array([place is not None for place in places], np.bool_)
    kinds = handles.kind[rows]
    is_file = (kinds == FILE) | (kinds == RELATIVE)
    is_plain = are_plain(names)
    is_moved = is_file & is_plain & has_place[codes]
    moved = Parts([place or "" for place in places], codes[is_moved], chosen(names, is_moved))
    moved = moved._replace(names=moved.names.cast(pa.large_string()))
    texts = moved.texts()
    is_single = moves.are_single(texts)
    is_moved[is_moved] = ~is_single
    moved, texts, rows = moved.take(~is_single), chosen(texts, ~is_single), rows[is_moved]
    member = rows_of(texts, moves.members.paths)
    is_member = member >= 0
    members = moves.members.take(member[is_member])
    is_shared = handles.part[rows[is_member]] == SHARED
    sizes = handles.size[rows[~is_member]]
    plain = _respelled(moved.take(~is_member), sizes, moves)
    return is_moved, _merged(is_member, _as_segments(members, is_shared, moves.root), plain)


def _as_segments(members: MemberTable, is_shared: Numbers, root: str) -> Texts:
    """Return handles of these members of packs, as `_segment` makes them one by one."""
    if not members:
        return pa.array([], _BYTES)
    packs = pa.array([mutf8.encode(f"{root}{pack}") for pack in members.packs.values], _BYTES)
    scopes = np.where(is_shared, _SHARED, _EXCLUSIVE)
    return _joined(
        pa.scalar(bytes([_SEGMENT_TYPE]), _BYTES),
        _fixed(members.offsets.astype(">i8")),
        _fixed(members.bytes.astype(">i8")),
        _fixed(scopes.astype(">i4")),
        _with_lengths(packs.take(pa.array(members.packs.codes))),
        _with_lengths(members.paths.cast(_BYTES)),
    )


def _respelled(places: Parts, sizes: Numbers, moves: Moves) -> Texts:
    """Return handles of files at these places of the replica, with their sizes."""
    spellings = [moves.spell(prefix) for prefix in places.prefixes]
    if are_few(sizes):
        return _respelled_few(places, sizes, spellings)
    prefixes = pa.array([mutf8.encode(spelling.path) for spelling in spellings], _BYTES)
    names = places.names.cast(_BYTES)
    texts = _with_lengths(_joined(prefixes.take(pa.array(places.codes)), names))
    numbers = _fixed(sizes.astype(">i8"))
    relative = _joined(pa.scalar(b"\x06", _BYTES), texts, numbers)
    absolute = _joined(pa.scalar(b"\x02", _BYTES), numbers, texts)
    is_relative = np.array([isinstance(spelling, Relative) for spelling in spellings], np.bool_)
    return pc.if_else(pa.array(is_relative[places.codes]), relative, absolute)


def _respelled_few(
    places: Parts, sizes: Numbers, spellings: Sequence[Absolute | Relative]
) -> Texts:
    rows = zip(places.codes.tolist(), places.names.to_pylist(), sizes.tolist(), strict=True)
    new = [
        _file(mutf8.utf(spelling.path + name), size, isinstance(spelling, Relative))
        for spelling, name, size in ((spellings[code], *rest) for code, *rest in rows)
    ]
    return pa.array(new, _BYTES)


def _with_lengths(texts: Texts) -> Texts:
    """Return texts as `DataOutputStream.writeUTF` writes them; they are in modified UTF-8."""
    lengths = pc.binary_length(texts).to_numpy(zero_copy_only=False)
    if lengths.max(initial=0) > mutf8.LONGEST:
        mutf8.encode(texts[int(lengths.argmax())].as_py().decode())  # raises
    return _joined(_fixed(lengths.astype(">u2")), texts)


def _joined(*columns: Texts) -> Texts:
    return pc.binary_join_element_wise(*columns, pa.scalar(b"", _BYTES))


def _fixed(numbers: Numbers) -> Texts:
    """Return the bytes of each number."""
    kind, buffers = pa.binary(numbers.itemsize), [None, pa.py_buffer(numbers)]
    return pa.Array.from_buffers(kind, len(numbers), buffers).cast(_BYTES)


def _spliced(original: bytes, starts: Numbers, ends: Numbers, new: Texts) -> bytes:
    """Return the bytes in which those from each start to its end are replaced."""
    if are_few(starts):
        return _spliced_few(original, starts, ends, new)
    bounds = np.empty(2 * len(starts) + 1, np.int64)
    bounds[0], bounds[1::2], bounds[2::2] = 0, starts, ends
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(original)]
    pieces = pa.Array.from_buffers(_BYTES, 2 * len(starts), buffers)
    between = pieces.take(pa.array(np.arange(0, 2 * len(starts), 2)))
    spliced = _joined(between, new)
    first, end = np.frombuffer(spliced.buffers()[1], np.int64)[[0, len(starts)]].tolist()
    return bytes(spliced.buffers()[2][first:end])


def _spliced_few(original: bytes, starts: Numbers, ends: Numbers, new: Texts) -> bytes:
    pieces, copied = list[bytes](), 0
    for start, end, piece in zip(starts.tolist(), ends.tolist(), new.to_pylist(), strict=True):
        pieces += original[copied:start], piece
        copied = end
    return b"".join(pieces)


def _sliced(data: bytes) -> Iterator[bytes]:
    for first in range(0, len(data), _CHUNK):
        yield data[first : first + _CHUNK]


def encoded(handle: Handle, spelling: Spelling, original: bytes) -> bytes:
    """Return the bytes of a handle with another spelling; `original` are its bytes in the file."""
    text = mutf8.utf(spelling.path)
    if isinstance(spelling, Segment):
        return _segment(handle, spelling, original, text)
    if isinstance(spelling, PlainSpelling):
        return _file(text, spelling.size, spelling.is_relative)
    if handle.kind in ("segment", "directory"):
        if isinstance(spelling, Relative):
            raise ValueError(
                f"a {handle.kind} has no relative form, but {spelling.path!r} was given"
            )
        return text if handle.kind == "directory" else _resegmented(original, text)
    return _file(text, handle.size, isinstance(spelling, Relative))


def _file(text: bytes, size: int, is_relative: bool) -> bytes:
    number = struct.pack(">q", size)
    return b"\x06" + text + number if is_relative else b"\x02" + number + text


def _segment(handle: Handle, spelling: Segment, original: bytes, text: bytes) -> bytes:
    """Return a handle of type 15, with its own scope or the one that Flink gives to its part."""
    if handle.kind == "segment":
        (scope,) = struct.unpack_from(">i", original, _SEGMENT_SCOPE)
    else:
        scope = _SHARED if handle.part == "shared" else _EXCLUSIVE
    head = struct.pack(">bqqi", _SEGMENT_TYPE, spelling.position, spelling.size, scope)
    return head + text + mutf8.utf(spelling.logical_id)


def _resegmented(original: bytes, text: bytes) -> bytes:
    (old,) = struct.unpack_from(">H", original, _SEGMENT_PATH)
    return original[:_SEGMENT_PATH] + text + original[_SEGMENT_PATH + 2 + old :]


class _Source:
    """The original file, bytes or a stream, read from its beginning to its end."""

    def __init__(self, data: bytes | BinaryIO, length: int) -> None:
        self._stream: BinaryIO | None = None
        self._buffer = b""
        self._base, self._length = 0, length
        if not isinstance(data, (bytes, bytearray, memoryview)):
            self._stream = data
            return
        self._buffer = bytes(data)
        if len(self._buffer) != length:
            raise MetadataError(
                f"byte {len(self._buffer)}: the file changed since it was decoded, when it had"
                f" {counted(length, 'byte')}"
            )

    def read(self, start: int, length: int) -> bytes:
        offset = start - self._base
        if offset + length > len(self._buffer):
            self._load(start, length)
            offset = 0
        return self._buffer[offset : offset + length]

    def between(self, start: int, end: int) -> Iterator[bytes]:
        for offset in range(start, end, _CHUNK):
            yield self.read(offset, min(_CHUNK, end - offset))

    def _load(self, start: int, length: int) -> None:
        assert self._stream is not None, "bytes are in the buffer from the start"
        self._stream.seek(start)
        self._base = start
        self._buffer = read_fully(self._stream, min(_CHUNK, self._length - start))
        if len(self._buffer) < length:
            raise MetadataError(
                f"byte {start + len(self._buffer)}: the stream ended, but"
                f" {counted(self._length, 'byte was', 'bytes were')} expected"
            )
