"""The statuses of files, from the protobuf that Hadoop's client makes of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from cpreplicate.core import uri as uris
from cpreplicate.storage.statuses import FileStatus

_DIRECTORY = 1  # FileStatusProto.FileType.FT_DIR


class JavaStatus(NamedTuple):
    """A `FileStatus` of Java. Its path includes the filesystem that the file is on."""

    path: str
    length: int
    is_directory: bool
    modified: float
    permission: int

    def of(self, uri: str) -> FileStatus:
        """Return the status under the URI that was asked for."""
        return FileStatus(
            uri, uris.name(uri), self.length, self.is_directory, self.modified, self.permission
        )


def statuses(data: memoryview) -> Iterator[JavaStatus]:
    """Yield the statuses that `FileStatus.write` wrote.

    Each is a length in four bytes and an `FSProtos.FileStatusProto`.
    """
    start = 0
    while start < len(data):
        length = int.from_bytes(data[start : start + 4], "big")
        fields = _fields(data[start + 4 : start + 4 + length])
        permission = _fields(fields[4])[1] & 0o7777
        yield JavaStatus(
            str(fields[2], "utf-8"),
            fields.get(3, 0),
            fields[1] == _DIRECTORY,
            fields.get(7, 0) / 1000,
            permission,
        )
        start += 4 + length


def _fields(data: memoryview) -> dict[int, Any]:
    """Return the fields of a protobuf message by number: integers, or bytes.

    Of a repeated field, the last value counts.
    """
    fields: dict[int, Any] = {}
    position = 0
    while position < len(data):
        key, position = _varint(data, position)
        value, position = _varint(data, position)
        if key & 7 == 2:  # bytes, and `value` is their length
            fields[key >> 3] = data[position : position + value]
            position += value
        else:
            fields[key >> 3] = value
    return fields


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    """Return the integer at a position, and the position after it."""
    value = shift = 0
    while data[position] > 0x7F:
        value |= (data[position] & 0x7F) << shift
        position, shift = position + 1, shift + 7
    return value | data[position] << shift, position + 1
