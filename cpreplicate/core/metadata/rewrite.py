"""Rewriting by splicing: handles are replaced one by one, everything else stays byte for byte.

No length encloses operator state in any version, so a handle may take another length than the one
it replaces.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import BinaryIO, NamedTuple, TypeAlias

from cpreplicate.core.metadata import mutf8
from cpreplicate.core.metadata.model import Handle, Metadata
from cpreplicate.core.metadata.window import read_fully
from cpreplicate.errors import MetadataError

_CHUNK = 4 << 20  # bytes; a chunk that is yielded is at most that, or one piece
_SEGMENT_PATH = 21  # type 15: u8 type, i64 position, i64 size, i32 scope, then the path


class Absolute(NamedTuple):
    """Spell the reference as this absolute URI: a `FileStateHandle`, or the path of a segment or
    directory.
    """

    path: str


class Relative(NamedTuple):
    """Spell the reference relative to the directory of the `_metadata`: a
    `RelativeFileStateHandle`.
    """

    path: str


Spelling: TypeAlias = Absolute | Relative
Respell: TypeAlias = Callable[[Handle], Spelling | None]


def rewrite(data: bytes | BinaryIO, metadata: Metadata, respell: Respell) -> Iterator[bytes]:
    """The bytes of `data`, of which `metadata` was decoded, with the handles respelled for which
    `respell` says so.

    None leaves a handle as it is. Raises `ValueError` for a relative segment or directory, which
    Flink has no form for, and `MetadataError` for a path that is longer than the format holds.
    """
    pieces: list[bytes] = []
    size = 0
    for piece in _pieces(_Source(data, metadata.length), metadata, respell):
        if size + len(piece) > _CHUNK:
            yield b"".join(pieces)
            pieces, size = [], 0
        pieces.append(piece)
        size += len(piece)
    yield b"".join(pieces)


def _pieces(source: _Source, metadata: Metadata, respell: Respell) -> Iterator[bytes]:
    done = 0
    for handle in metadata.handles:
        spelling = None if handle.path is None else respell(handle)
        if spelling is None:
            continue
        yield from source.between(done, handle.start)
        yield encoded(handle, spelling, source.read(handle.start, handle.length))
        done = handle.start + handle.length
    yield from source.between(done, metadata.length)


def encoded(handle: Handle, spelling: Spelling, original: bytes) -> bytes:
    """The bytes of a handle under another spelling; `original` are those it had."""
    path = mutf8.encode(spelling.path)
    text = struct.pack(">H", len(path)) + path
    if handle.kind in ("segment", "directory"):
        if isinstance(spelling, Relative):
            raise ValueError(
                f"a {handle.kind} has no relative form, {spelling.path!r} was asked for"
            )
        return text if handle.kind == "directory" else _resegmented(original, text)
    size = struct.pack(">q", handle.size)
    return b"\x06" + text + size if isinstance(spelling, Relative) else b"\x02" + size + text


def _resegmented(original: bytes, text: bytes) -> bytes:
    (old,) = struct.unpack_from(">H", original, _SEGMENT_PATH)
    return original[:_SEGMENT_PATH] + text + original[_SEGMENT_PATH + 2 + old :]


class _Source:
    """Bytes or a stream, read from the begin to the end."""

    def __init__(self, data: bytes | BinaryIO, length: int) -> None:
        self._stream = None if isinstance(data, bytes | bytearray | memoryview) else data
        self._buffer = b"" if self._stream is not None else bytes(data)  # type: ignore[arg-type]  # it is no stream here
        self._base, self._length = 0, length
        if self._stream is None and len(self._buffer) != length:
            raise MetadataError(
                f"byte {len(self._buffer)}: not the bytes that were decoded, those were {length}"
            )

    def read(self, start: int, length: int) -> bytes:
        at = start - self._base
        if at + length > len(self._buffer):
            self._load(start, length)
            at = 0
        return self._buffer[at : at + length]

    def between(self, start: int, end: int) -> Iterator[bytes]:
        for at in range(start, end, _CHUNK):
            yield self.read(at, min(_CHUNK, end - at))

    def _load(self, start: int, length: int) -> None:
        assert self._stream is not None, "bytes are all there"
        self._stream.seek(start)
        self._base, self._buffer = (
            start,
            read_fully(self._stream, min(_CHUNK, self._length - start)),
        )
        if len(self._buffer) < length:
            raise MetadataError(
                f"byte {start + len(self._buffer)}: the stream ended, {self._length} bytes were"
                " expected"
            )
