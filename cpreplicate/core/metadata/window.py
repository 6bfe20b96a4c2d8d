"""A file's bytes through a bounded window, with the primitive fields of Java's `DataInputStream`.

`bytes` are one window, never copied. A stream is read on as needed, and what is skipped is never
read.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import BinaryIO, NoReturn

from cpreplicate.core.metadata import mutf8
from cpreplicate.errors import MetadataError

_I32, _I64, _U16 = (
    struct.Struct(">i").unpack_from,
    struct.Struct(">q").unpack_from,
    struct.Struct(">H").unpack_from,
)
WINDOW = 16 << 20
MARGIN = 256 << 10  # more than the longest run of fields that is read between two calls of `ahead`


def read_fully(stream: BinaryIO, count: int) -> bytes:
    """That many bytes, or all that are left: an unbuffered stream may return fewer at a time."""
    data = stream.read(count)
    if len(data) == count or not data:
        return data
    pieces, found = [data], len(data)
    while found < count and (data := stream.read(count - found)):
        pieces.append(data)
        found += len(data)
    return b"".join(pieces)


class Window:
    """`buffer[at]` is the next byte; the buffer begins at byte `base` of a file of `length` bytes.

    `leaving` is called with (buffer, base) before a buffer is given up. Every read past the end is
    a `MetadataError`.
    """

    def __init__(
        self, data: bytes | BinaryIO, leaving: Callable[[bytes, int], None], size: int = WINDOW
    ) -> None:
        self.at = self.base = 0
        self._leaving = leaving
        self._size = max(size, 2 * MARGIN)
        self._stream: BinaryIO | None = None
        self._safe = 0
        if isinstance(data, (bytes, bytearray, memoryview)):
            self.buffer = bytes(data)
            self.length = len(self.buffer)
        else:
            self.buffer = b""
            self._stream = data
            self.length = data.seek(0, 2)
        self._safe = self.length if self._stream is None else -1

    def ahead(self) -> None:
        """Have at least `MARGIN` bytes in the buffer, or all that are left: fields read next lie in
        one buffer.
        """
        if self.at > self._safe:
            self._load(self.base + self.at)

    @property
    def offset(self) -> int:
        """The byte of the file that is read next."""
        return self.base + self.at

    @property
    def left(self) -> int:
        """Bytes from here to the end of the file."""
        return self.length - self.base - self.at

    def fail(self, expected: str) -> NoReturn:
        """The bytes here are not what was expected."""
        raise MetadataError(f"byte {self.offset}: expected {expected}")

    def u8(self) -> int:
        """An unsigned byte."""
        if self.at >= len(self.buffer):
            self._more(1)
        self.at += 1
        return self.buffer[self.at - 1]

    def i32(self) -> int:
        """A signed 32-bit number."""
        if self.at + 4 > len(self.buffer):
            self._more(4)
        self.at += 4
        return int(_I32(self.buffer, self.at - 4)[0])

    def i64(self) -> int:
        """A signed 64-bit number."""
        if self.at + 8 > len(self.buffer):
            self._more(8)
        self.at += 8
        return int(_I64(self.buffer, self.at - 8)[0])

    def natural(self, what: str) -> int:
        """A 64-bit number that is not negative."""
        number = self.i64()
        if number < 0:
            self.at -= 8
            self.fail(f"{what}, found {number}")
        return number

    def natural32(self, what: str) -> int:
        """A 32-bit number that is not negative."""
        number = self.i32()
        if number < 0:
            self.at -= 4
            self.fail(f"{what}, found {number}")
        return number

    def utf(self, what: str) -> bytes:
        """Modified UTF-8 behind its length, checked but not decoded."""
        if self.at + 2 > len(self.buffer):
            self._more(2)
        count = _U16(self.buffer, self.at)[0]
        if self.at + 2 + count > len(self.buffer):
            self._more(2 + count)
        self.at += 2 + count
        data = self.buffer[self.at - count : self.at]
        if not data.isascii():
            try:
                mutf8.decode(data)
            except ValueError:
                self.at -= 2 + count
                self.fail(f"{what} in modified UTF-8")
        return data

    def path(self, what: str) -> int:
        """The length of a path, which Flink's `Path` does not take empty."""
        length = len(self.utf(what))
        if not length:
            self.at -= 2
            self.fail(f"{what}, found an empty one")
        return length

    def one_of(self, values: tuple[int, ...], what: str) -> int:
        """A byte that is one of some values."""
        value = self.u8()
        if value not in values:
            self.at -= 1
            self.fail(f"{what}, found {value}")
        return value

    def key_groups(self) -> None:
        """A range of key groups: its first and how many they are."""
        self.natural32("a key group")
        self.natural32("a number of key groups")

    def count(self, what: str, least: int) -> int:
        """The number of things that follow, each at least `least` bytes long: as many as can fit,
        or an error.
        """
        count = self.i32()
        if count < 0 or count * least > self.length - self.base - self.at:
            self.at -= 4
            self.fail(f"a number of {what} that fits the {self.left} bytes left, found {count}")
        return count

    def skip(self, count: int) -> None:
        """Pass over bytes without reading them."""
        if count > self.left:
            self.fail(f"{count} bytes, the file ends after {self.left}")
        if self.at + count <= len(self.buffer):
            self.at += count
        else:
            self._load(self.offset + count)

    def _more(self, count: int) -> None:
        if count > self.left:
            self.fail(f"{count} more bytes, the file ends after {self.left}")
        self._load(self.offset)

    def _load(self, offset: int) -> None:
        assert self._stream is not None, "bytes are one window"
        self._leaving(self.buffer, self.base)
        self.buffer = b""
        self._stream.seek(offset)
        self.buffer = read_fully(self._stream, self._size)
        self.base, self.at = offset, 0
        is_last = offset + len(self.buffer) >= self.length
        self._safe = len(self.buffer) if is_last else len(self.buffer) - MARGIN
        if not is_last and len(self.buffer) < self._size:
            raise MetadataError(
                f"byte {offset}: the stream ended, {self.length} bytes were expected"
            )
