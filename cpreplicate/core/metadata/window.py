"""A bounded window on a file's bytes, with the primitive fields of Java's `DataInputStream`.

`bytes` are one window and are never copied. A stream is read as needed, and bytes that are skipped
are never read.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import BinaryIO, NoReturn

from cpreplicate.core.metadata import mutf8
from cpreplicate.core.sizes import counted
from cpreplicate.errors import CutShort, MetadataError

_I32 = struct.Struct(">i").unpack_from
_TWO_I32 = struct.Struct(">ii").unpack_from
_I64 = struct.Struct(">q").unpack_from
_U16 = struct.Struct(">H").unpack_from
WINDOW = 16 << 20  # bytes
MARGIN = (
    256 << 10
)  # bytes; more than the longest run of fields that is read between two calls of `ahead`


def read_fully(stream: BinaryIO, count: int) -> bytes:
    """Read `count` bytes, or all that are left. An unbuffered stream may return fewer at a time."""
    data = stream.read(count)
    if len(data) == count or not data:
        return data
    pieces, size = [data], len(data)
    while size < count and (data := stream.read(count - size)):
        pieces.append(data)
        size += len(data)
    return b"".join(pieces)


class Window:
    """A window on a file of `length` bytes.

    `buffer[position]` is the next byte, and `buffer[0]` is the byte `base` of the file. `leaving`
    is called with (buffer, base) before a buffer is dropped. Every read past the end raises
    `MetadataError`.
    """

    def __init__(
        self, data: bytes | BinaryIO, leaving: Callable[[bytes, int], None], size: int = WINDOW
    ) -> None:
        self.position = self.base = 0
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
        self._end = len(self.buffer)

    def ahead(self) -> None:
        """Fill the buffer to at least `MARGIN` bytes, or all that are left.

        The fields that are read next then are in one buffer.
        """
        if self.position > self._safe:
            self._load(self.base + self.position)

    @property
    def offset(self) -> int:
        """The index in the file of the next byte."""
        return self.base + self.position

    @property
    def left(self) -> int:
        """The number of bytes up to the end of the file."""
        return self.length - self.base - self.position

    def fail(self, expected: str) -> NoReturn:
        """Raise `MetadataError`: the bytes here are not what was expected."""
        raise MetadataError(f"byte {self.offset}: expected {expected}")

    def cut_short(self, expected: str) -> NoReturn:
        """Raise `CutShort`: the file ends before what is expected here."""
        raise CutShort(f"byte {self.offset}: expected {expected}")

    def u8(self) -> int:
        """Read an unsigned byte."""
        if self.position >= self._end:
            self._more(1)
        self.position += 1
        return self.buffer[self.position - 1]

    def i32(self) -> int:
        """Read a signed 32-bit number."""
        if self.position + 4 > self._end:
            self._more(4)
        number: int = _I32(self.buffer, self.position)[0]
        self.position += 4
        return number

    def i64(self) -> int:
        """Read a signed 64-bit number."""
        if self.position + 8 > self._end:
            self._more(8)
        number: int = _I64(self.buffer, self.position)[0]
        self.position += 8
        return number

    def natural(self, what: str) -> int:
        """Read a 64-bit number that is not negative."""
        number = self.i64()
        if number < 0:
            self.position -= 8
            self.fail(f"{what}, found {number}")
        return number

    def natural32(self, what: str) -> int:
        """Read a 32-bit number that is not negative."""
        number = self.i32()
        if number < 0:
            self.position -= 4
            self.fail(f"{what}, found {number}")
        return number

    def utf(self, what: str) -> bytes:
        """Read a text in modified UTF-8 behind its length. It is checked but not decoded."""
        if self.position + 2 > self._end:
            self._more(2)
        count = _U16(self.buffer, self.position)[0]
        if self.position + 2 + count > self._end:
            self._more(2 + count)
        end = self.position + 2 + count
        data = self.buffer[self.position + 2 : end]
        if not data.isascii():
            try:
                mutf8.decode(data)
            except ValueError:
                self.fail(f"{what} in modified UTF-8")
        self.position = end
        return data

    def path(self, what: str) -> int:
        """Read a path and return its length. Flink's `Path` does not accept an empty one."""
        length = len(self.utf(what))
        if not length:
            self.position -= 2
            self.fail(f"{what}, found an empty one")
        return length

    def one_of(self, values: tuple[int, ...], what: str) -> int:
        """Read a byte that must be one of `values`."""
        value = self.u8()
        if value not in values:
            self.position -= 1
            self.fail(f"{what}, found {value}")
        return value

    def key_groups(self) -> None:
        """Read a range of key groups: the first one and their number."""
        if self.position + 8 > self._end:
            self._more(8)
        if min(_TWO_I32(self.buffer, self.position)) >= 0:
            self.position += 8
        else:
            self.natural32("a key group")
            self.natural32("a number of key groups")

    def count(self, what: str, least: int) -> int:
        """Read the number of entries that follow, each at least `least` bytes long.

        Raises `MetadataError` if so many cannot fit.
        """
        count = self.i32()
        if count and not 0 < count * least <= self.left:
            self.position -= 4
            refuse = self.cut_short if count > 0 else self.fail
            refuse(
                f"a number of {what} that fits the {counted(self.left, 'byte')} left, found {count}"
            )
        return count

    def absent(self, zeros: bytes) -> bool:
        """Skip these zeros, the types and counts of states that are absent, if they come next.

        One comparison takes the place of several fields.
        """
        if not self.buffer.startswith(zeros, self.position):
            return False
        self.position += len(zeros)
        return True

    def take(self, count: int) -> bytes:
        """Read bytes, of a stream at most as many as its window holds."""
        assert self._stream is None or count <= self._size, "more than a window holds"
        if self.position + count > self._end:
            self._more(count)
        self.position += count
        return self.buffer[self.position - count : self.position]

    def skip(self, count: int) -> None:
        """Skip bytes without reading them."""
        if self.position + count <= self._end:
            self.position += count
        elif count > self.left:
            self.cut_short(f"{counted(count, 'byte')}, but the file ends after {self.left}")
        else:
            self._load(self.offset + count)

    def _more(self, count: int) -> None:
        if count > self.left:
            self.cut_short(f"{counted(count, 'more byte')}, but the file ends after {self.left}")
        self._load(self.offset)

    def _load(self, offset: int) -> None:
        """Read the window that begins at an offset of the stream."""
        assert self._stream is not None, "bytes are in one window"
        self._leaving(self.buffer, self.base)
        self.buffer = b""
        self._stream.seek(offset)
        self.buffer = read_fully(self._stream, self._size)
        self.base, self.position, self._end = offset, 0, len(self.buffer)
        is_last = offset + len(self.buffer) >= self.length
        self._safe = len(self.buffer) if is_last else len(self.buffer) - MARGIN
        if not is_last and len(self.buffer) < self._size:
            raise MetadataError(
                f"byte {offset}: the stream ended, but"
                f" {counted(self.length, 'byte was', 'bytes were')} expected"
            )
