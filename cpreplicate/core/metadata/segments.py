"""The logical file ids of merged segments (`SegmentFileStateHandle`), read on demand.

They stand behind the path, and the decoder skips them: only replicas with packs need them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

import numpy as np

from cpreplicate.core.metadata import mutf8
from cpreplicate.core.metadata.handle import SEGMENT
from cpreplicate.core.metadata.model import Metadata
from cpreplicate.core.metadata.window import read_fully

_PATH_LENGTH_AT = 21  # u8 type, i64 position, i64 size, i32 scope
_WINDOW = 4 << 20  # bytes


class SegmentRow(NamedTuple):
    """A segment as recorded: `path` of the file that holds it, `position` and `size` in bytes."""

    path: str
    position: int
    size: int
    logical_id: str


def segments(data: bytes | BinaryIO, metadata: Metadata) -> Iterator[SegmentRow]:
    """Yield the segments of the `_metadata` that `metadata` was decoded from, in its order."""
    handles = metadata.handles
    rows = np.flatnonzero(handles.kind == SEGMENT)
    reader = _Reader(data)
    for start, length, position, size in zip(
        handles.start[rows].tolist(),
        handles.length[rows].tolist(),
        handles.position[rows].tolist(),
        handles.size[rows].tolist(),
        strict=True,
    ):
        path, logical_id = _texts(reader.read(start, length))
        yield SegmentRow(path, position, size, logical_id)


def _texts(handle: bytes) -> tuple[str, str]:
    (path_length,) = struct.unpack_from(">H", handle, _PATH_LENGTH_AT)
    path_end = _PATH_LENGTH_AT + 2 + path_length
    path = mutf8.decode(handle[_PATH_LENGTH_AT + 2 : path_end])
    return path, mutf8.decode(handle[path_end + 2 :])


class _Reader:
    """Bytes, or a stream that is read through a window from its beginning to its end."""

    def __init__(self, data: bytes | BinaryIO) -> None:
        self._stream = None if isinstance(data, bytes) else data
        self._base, self._buffer = 0, data if isinstance(data, bytes) else b""

    def read(self, start: int, length: int) -> bytes:
        first = start - self._base
        if first + length > len(self._buffer) and self._stream is not None:
            self._stream.seek(start)
            self._base, self._buffer = start, read_fully(self._stream, max(length, _WINDOW))
            first = 0
        return self._buffer[first : first + length]
