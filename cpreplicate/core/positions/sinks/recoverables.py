"""How a part file is resumed or committed, as the recoverable writer of a filesystem records it.

The order of fields is that of `OutputStreamBasedPartFileWriter`, of `LocalRecoverableSerializer`,
`HadoopRecoverableSerializer` (which Azure has, too) and `S3RecoverableSerializer`. Those three
write the lowest byte of a number first, and Java's streams the highest.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from cpreplicate.core.positions.fields import Fields
from cpreplicate.core.positions.model import Unreadable
from cpreplicate.core.sizes import counted

_IN_PROGRESS, _PENDING = 0xB3A4073D, 0x2C853C89
_LOCAL, _HADOOP, _S3 = 0x1E744B57, 0xD7436C5E, 0x98761432
_VERSION = 1  # of the recoverables of the three filesystems


class Recoverable(NamedTuple):
    """A part file that is not committed.

    `path` has its first `length` bytes now, None if no file has: then they are parts of the
    multipart `upload`. `target` is its path once it is committed.
    """

    target: str
    path: str | None
    length: int
    upload: str | None = None


def in_progress(version: int, data: bytes) -> Recoverable:
    """Read what a writer goes on with, `InProgressFileRecoverable`. Raises `Unreadable`."""
    fields = _opened(_IN_PROGRESS, "part files in progress", version, data)
    target = _target(fields) if version > 1 else None
    return _of_filesystem(fields, target)


def pending(version: int, data: bytes) -> Recoverable:
    """Read what a committer commits, `PendingFileRecoverable`. Raises `Unreadable`."""
    fields = _opened(_PENDING, "pending part files", version, data)
    target = None
    if version > 1:
        target = _target(fields)
        fields.i64()  # its size, which the filesystem records, too
    return _of_filesystem(fields, target)


def of_filesystem(version: int, data: bytes, target: str | None = None) -> Recoverable:
    """Read the recoverable of a filesystem, whose `target` may be known. Raises `Unreadable`."""
    fields = _Little(data)
    magic = fields.u32() if version == _VERSION else None
    if magic in (_LOCAL, _HADOOP):
        found = _with_file(fields, "file:" if magic == _LOCAL else "")
    elif magic == _S3:
        found = _with_upload(fields, target)
    else:
        raise Unreadable("how a part file is resumed on its filesystem is not known")
    fields.end()
    return found


def _opened(magic: int, what: str, version: int, data: bytes) -> Fields:
    fields = Fields(data)
    if version not in (1, 2):
        raise Unreadable(f"version {version} of {what} is not known")
    if fields.i32() & 0xFFFFFFFF != magic:
        raise Unreadable(f"the magic number of {what} is missing")
    return fields


def _target(fields: Fields) -> str | None:
    return fields.utf() if fields.flag() else None


def _of_filesystem(fields: Fields, target: str | None) -> Recoverable:
    found = of_filesystem(fields.i32(), fields.block(), target)
    fields.end()
    return found


class _Little:
    """Reads fields of Java's `ByteBuffer`, lowest byte first. Raises `Unreadable` past the end."""

    def __init__(self, data: bytes) -> None:
        self._fields = Fields(data)

    def u32(self) -> int:
        """Read an unsigned 32-bit number."""
        return int.from_bytes(self._fields.take(4), "little")

    def count(self) -> int:
        """Read a 32-bit number of bytes or entries; `Unreadable` if so many do not fit."""
        count = self.u32()
        if count > self._fields.left:
            entries, left = counted(count, "entry", "entries"), counted(self._fields.left, "byte")
            raise Unreadable(f"{entries} would take more than the {left} that remain")
        return count

    def length(self, least: int = 0) -> int:
        """Read a 64-bit number of bytes, which is not below `least`."""
        value: int = struct.unpack("<q", self._fields.take(8))[0]
        if value < least:
            raise Unreadable(f"a part file of {counted(value, 'byte')}")
        return value

    def text(self, length: int) -> str:
        """Read a text in UTF-8 of so many bytes."""
        try:
            return self._fields.take(length).decode("utf-8")
        except UnicodeDecodeError as error:
            raise Unreadable("a path is not UTF-8") from error

    def end(self) -> None:
        """Raise `Unreadable` unless all bytes were read."""
        self._fields.end()


def _with_file(fields: _Little, scheme: str) -> Recoverable:
    length, target, temporary = fields.length(), fields.u32(), fields.u32()
    names = fields.text(target), fields.text(temporary)
    if not all(names):
        raise Unreadable("a part file has no path")
    return Recoverable(scheme + names[0], scheme + names[1], length)


def _with_upload(fields: _Little, target: str | None) -> Recoverable:
    """Read a multipart upload: parts that were uploaded, and an object with what follows them."""
    key, upload = fields.text(fields.count()), fields.text(fields.count())
    for _ in range(fields.count()):
        fields.u32()  # the number of a part
        fields.text(fields.count())  # its ETag
    in_parts, rest = fields.length(), fields.text(fields.count())
    length = in_parts + max(0, fields.length(-1))  # -1 without such an object
    if not key or not upload:
        raise Unreadable("a multipart upload has no key or no id")
    bucket = "" if target is None else target.removesuffix(key)
    whole = key if target is None else target
    return Recoverable(whole, f"{bucket}{rest}" if rest else None, length, upload)
