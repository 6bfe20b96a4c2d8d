"""Rewriting by splicing: handles are replaced one by one, and every other byte stays.

No version has a length field that encloses operator state. A handle may therefore take another
length than the one it replaces.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import BinaryIO, NamedTuple, TypeAlias

from cpreplicate.core.metadata import mutf8
from cpreplicate.core.metadata.model import Handle, Metadata
from cpreplicate.core.metadata.window import read_fully
from cpreplicate.errors import MetadataError

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


class Whole(NamedTuple):
    """A whole file of `size` bytes as the new spelling of a segment.

    Its path is an absolute URI, or relative to the directory of the `_metadata`.
    """

    path: str
    size: int
    is_relative: bool


Spelling: TypeAlias = Absolute | Relative | Segment | Whole
PathRewriter: TypeAlias = Callable[[Handle], Spelling | None]
"""Return the new spelling of a handle's path, or None to leave the handle as it is."""


def rewrite(
    data: bytes | BinaryIO, metadata: Metadata, path_rewriter: PathRewriter
) -> Iterator[bytes]:
    """Yield the bytes of `data`, from which `metadata` was decoded, with rewritten paths.

    Raises `ValueError` for a relative segment or directory, which Flink has no form for, and
    `MetadataError` for a path that is longer than the format holds.
    """
    pieces: list[bytes] = []
    size = 0
    for piece in _pieces(_Source(data, metadata.length), metadata, path_rewriter):
        if size + len(piece) > _CHUNK:
            yield b"".join(pieces)
            pieces, size = [], 0
        pieces.append(piece)
        size += len(piece)
    yield b"".join(pieces)


def _pieces(source: _Source, metadata: Metadata, path_rewriter: PathRewriter) -> Iterator[bytes]:
    copied = 0
    for handle in metadata.handles:
        spelling = None if handle.path is None else path_rewriter(handle)
        if spelling is None:
            continue
        yield from source.between(copied, handle.start)
        yield encoded(handle, spelling, source.read(handle.start, handle.length))
        copied = handle.start + handle.length
    yield from source.between(copied, metadata.length)


def encoded(handle: Handle, spelling: Spelling, original: bytes) -> bytes:
    """Return the bytes of a handle with another spelling; `original` are its bytes in the file."""
    text = _text(spelling.path)
    if isinstance(spelling, Segment):
        return _segment(handle, spelling, original, text)
    if isinstance(spelling, Whole):
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
    return head + text + _text(spelling.logical_id)


def _text(text: str) -> bytes:
    data = mutf8.encode(text)
    return struct.pack(">H", len(data)) + data


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
                f" {length} bytes"
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
                f"byte {start + len(self._buffer)}: the stream ended, but {self._length} bytes"
                " were expected"
            )
