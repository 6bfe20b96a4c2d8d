"""Rewriting by splicing: handles are replaced one by one, everything else stays byte for byte.

No length encloses operator state in any version, so a handle may take another length than the one it replaces.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import BinaryIO, NamedTuple, TypeAlias

from cpreplicate.metadata import mutf8
from cpreplicate.metadata.model import Handle, Metadata

_CHUNK = 4 << 20
_SEGMENT_PATH = 21  # type 15: u8 type, i64 position, i64 size, i32 scope, then the path


class Absolute(NamedTuple):
    """Spell the reference as this absolute URI: a `FileStateHandle`, or the path of a segment or directory."""

    path: str


class Relative(NamedTuple):
    """Spell the reference relative to the directory of the `_metadata`: a `RelativeFileStateHandle`."""

    path: str


Spelling: TypeAlias = Absolute | Relative
Respell: TypeAlias = Callable[[Handle], Spelling | None]


def rewrite(data: bytes | BinaryIO, metadata: Metadata, respell: Respell) -> Iterator[bytes]:
    """The bytes of `data`, of which `metadata` was decoded, with the handles respelled for which `respell` says so.

    None leaves a handle as it is. Raises `ValueError` for a relative segment or directory, which Flink has no form for, and
    `MetadataError` for a path that is longer than the format holds.
    """
    source = _Source(data)
    pieces: list[bytes] = []
    held = done = 0
    for handle in metadata.handles:
        spelling = None if handle.path is None else respell(handle)
        if spelling is None:
            continue
        for piece in source.between(done, handle.start):
            pieces.append(piece)
            held += len(piece)
            if held >= _CHUNK:
                yield b"".join(pieces)
                pieces, held = [], 0
        replacement = encoded(handle, spelling, source.read(handle.start, handle.length))
        pieces.append(replacement)
        held += len(replacement)
        done = handle.start + handle.length
    yield b"".join(pieces)
    yield from source.between(done, metadata.length)


def encoded(handle: Handle, spelling: Spelling, original: bytes) -> bytes:
    """The bytes of a handle under another spelling; `original` are those it had."""
    path = mutf8.encode(spelling.path)
    text = struct.pack(">H", len(path)) + path
    if handle.kind in ("segment", "directory"):
        if isinstance(spelling, Relative):
            raise ValueError(f"a {handle.kind} has no relative form, {spelling.path!r} was asked for")
        return text if handle.kind == "directory" else _resegmented(original, text)
    size = struct.pack(">q", handle.size)
    return b"\x06" + text + size if isinstance(spelling, Relative) else b"\x02" + size + text


def _resegmented(original: bytes, text: bytes) -> bytes:
    (old,) = struct.unpack_from(">H", original, _SEGMENT_PATH)
    return original[:_SEGMENT_PATH] + text + original[_SEGMENT_PATH + 2 + old :]


class _Source:
    """Bytes or a stream, by position."""

    def __init__(self, data: bytes | BinaryIO) -> None:
        self._data = data

    def read(self, start: int, length: int) -> bytes:
        if isinstance(self._data, bytes):
            return self._data[start : start + length]
        self._data.seek(start)
        return self._data.read(length)

    def between(self, start: int, end: int) -> Iterator[bytes]:
        for at in range(start, end, _CHUNK):
            yield self.read(at, min(_CHUNK, end - at))
