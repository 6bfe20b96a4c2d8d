"""Streams of files that are read at a position, through a function."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

_PIECE = 1 << 20  # bytes of a read of all; the inherited method reads 8 KiB at a time

ReadAt = Callable[[int, memoryview], int]
"""Read bytes at a position into a buffer; return how many, 0 at the end of the file."""


class PositionedReader(io.RawIOBase):
    """A file as a raw stream. A seek costs nothing: `read_at` is called with each position."""

    def __init__(
        self, read_at: ReadAt, length: Callable[[], int], close: Callable[[], None] = lambda: None
    ) -> None:
        """`length` is called for a seek from the end, and `close` once."""
        self._read_at, self._length, self._close = read_at, length, close
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence == io.SEEK_END:
            offset += self._length()
        elif whence == io.SEEK_CUR:
            offset += self._position
        self._position = offset
        return offset

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        count = self._read_at(self._position, view) if view else 0
        self._position += count
        return count

    def readall(self) -> bytes:
        return b"".join(iter(lambda: self.read(_PIECE) or b"", b""))

    def close(self) -> None:
        if not self.closed:
            self._close()
            self._read_at = _nothing  # which may hold this object, and what it has read
        super().close()


def _nothing(*_: object) -> int:
    return 0
