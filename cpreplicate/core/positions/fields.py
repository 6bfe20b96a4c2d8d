"""The fields of Java's `DataOutputStream` in bytes that are in memory; each read is bounded."""

from __future__ import annotations

import struct

from cpreplicate.core.metadata import mutf8
from cpreplicate.core.positions.model import Unreadable
from cpreplicate.core.sizes import counted

_U8, _I16, _I32, _I64 = map(struct.Struct, (">B", ">h", ">i", ">q"))


class Fields:
    """Reads fields one by one. Every read past the end raises `Unreadable`."""

    def __init__(self, data: bytes, position: int = 0) -> None:
        self._data, self.position = data, position

    @property
    def left(self) -> int:
        """The number of bytes up to the end."""
        return len(self._data) - self.position

    def take(self, count: int) -> bytes:
        """Read `count` bytes."""
        if not 0 <= count <= self.left:
            raise Unreadable(
                f"{counted(count, 'byte does', 'bytes do')} not fit the {self.left} that are left"
            )
        self.position += count
        return self._data[self.position - count : self.position]

    def u8(self) -> int:
        """Read an unsigned byte."""
        return self._number(_U8)

    def i16(self) -> int:
        """Read a signed 16-bit number."""
        return self._number(_I16)

    def i32(self) -> int:
        """Read a signed 32-bit number."""
        return self._number(_I32)

    def i64(self) -> int:
        """Read a signed 64-bit number."""
        return self._number(_I64)

    def flag(self) -> bool:
        """Read a byte that must be 0 or 1."""
        value = self.u8()
        if value > 1:
            raise Unreadable(f"a flag is 0 or 1, not {value}")
        return value == 1

    def utf(self) -> str:
        """Read a text in modified UTF-8 behind its length."""
        data = self.take(self._number(_I16) & 0xFFFF)
        try:
            return mutf8.decode(data)
        except ValueError as error:
            raise Unreadable("a text is not modified UTF-8") from error

    def count(self, least: int) -> int:
        """Read the number of entries that follow, each at least `least` bytes long."""
        count = self.i32()
        if not 0 <= count * least <= self.left:
            raise Unreadable(
                f"{counted(count, 'entry does', 'entries do')} not fit the"
                f" {counted(self.left, 'byte that is', 'bytes that are')} left"
            )
        return count

    def block(self) -> bytes:
        """Read bytes behind their 32-bit length."""
        return self.take(self.i32())

    def expect(self, number: int, what: str) -> None:
        """Read a 32-bit number that must be this one."""
        found = self.i32()
        if found != number:
            raise Unreadable(f"{what} {found} is not known, {number} is")

    def end(self) -> None:
        """Raise `Unreadable` unless all bytes were read."""
        if self.left:
            raise Unreadable(f"{counted(self.left, 'byte follows', 'bytes follow')}")

    def _number(self, form: struct.Struct) -> int:
        if self.left < form.size:
            do = counted(form.size, "byte does", "bytes do")
            raise Unreadable(f"{do} not fit the {self.left} that are left")
        self.position += form.size
        number: int = form.unpack_from(self._data, self.position - form.size)[0]
        return number


def i32(*numbers: int) -> bytes:
    """Return numbers as `DataOutputStream.writeInt` writes them."""
    return b"".join(map(_I32.pack, numbers))


def i64(*numbers: int) -> bytes:
    """Return numbers as `DataOutputStream.writeLong` writes them."""
    return b"".join(map(_I64.pack, numbers))


def block(data: bytes) -> bytes:
    """Return bytes behind their 32-bit length."""
    return i32(len(data)) + data


def flag(is_set: bool) -> bytes:
    """Return a byte that is 0 or 1."""
    return bytes([is_set])
