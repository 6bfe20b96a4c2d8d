"""The headers of a Parquet file's pages: what they announce, before pyarrow believes it.

The footer has no checksum, and neither have these headers. pyarrow allocates what they announce,
and decodes whatever encoding they name. cpreplicate itself writes data pages of version 1, with
plain values or a dictionary.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

# Numbers of Thrift's compact protocol, and of Parquet's `PageHeader`
_TRUE, _FALSE, _BYTE, _INT16, _INT32, _INT64, _DOUBLE, _BINARY, _STRUCT = (*range(1, 9), 12)
_TYPE, _UNCOMPRESSED, _COMPRESSED, _DATA, _DICTIONARY = 1, 2, 3, 5, 7
_COUNT, _ENCODING = 1, 2
_DATA_PAGE, _DICTIONARY_PAGE = 0, 2
_PLAIN, _OLD_DICTIONARY, _RLE, _NEW_DICTIONARY = 0, 2, 3, 8
_ENCODINGS = {_PLAIN, _OLD_DICTIONARY, _RLE, _NEW_DICTIONARY}
_DEEPEST = 4
_LONGEST_INTEGER = 10  # bytes

_Fields = dict[int, "int | _Fields"]


class Pages(NamedTuple):
    """What the pages of a column announce together."""

    values: int
    uncompressed: int
    has_dictionary: bool


def pages_of(data: bytes, start: int, length: int) -> Pages:
    """Return what the pages in that part of a file announce.

    Raises `ValueError` if they are not pages as cpreplicate writes them, or do not fill the part.
    """
    end = start + length
    if not 0 <= start <= end <= len(data):
        raise ValueError("a column is outside the file")
    values = uncompressed = 0
    has_dictionary = False
    for header in _headers(data, start, end):
        uncompressed += _positive(header, _UNCOMPRESSED)
        is_dictionary = header.get(_TYPE) == _DICTIONARY_PAGE
        described = header.get(_DICTIONARY if is_dictionary else _DATA)
        is_known = is_dictionary or header.get(_TYPE) == _DATA_PAGE
        if not is_known or not isinstance(described, dict):
            raise ValueError("a page of an unknown type")
        if described.get(_ENCODING) not in _ENCODINGS:
            raise ValueError("a page with an unknown encoding")
        has_dictionary |= is_dictionary
        values += 0 if is_dictionary else _positive(described, _COUNT)
    return Pages(values, uncompressed, has_dictionary)


def _headers(data: bytes, position: int, end: int) -> Iterator[_Fields]:
    while position < end:
        reader = _Compact(data, position, end)
        header = reader.struct()
        yield header
        position = reader.position + _positive(header, _COMPRESSED)
        if position > end:
            raise ValueError("a page ends outside its column")


def _positive(fields: Mapping[int, object], number: int) -> int:
    value = fields.get(number)
    if not isinstance(value, int) or value < 0:
        raise ValueError("a page header without a size")
    return value


class _Compact:
    """Reads structures of Thrift's compact protocol, without lists and maps. Raises `ValueError`.

    Texts and floating-point numbers are skipped.
    """

    def __init__(self, data: bytes, position: int, end: int) -> None:
        self._data, self.position, self._end = data, position, end

    def struct(self, depth: int = 0) -> _Fields:
        """Return the fields of a structure by their numbers."""
        if depth > _DEEPEST:
            raise ValueError("a page header is nested too deeply")
        fields: _Fields = {}
        number = 0
        while head := self._byte():
            delta, kind = head >> 4, head & 0xF
            number = number + delta if delta else self._integer()
            value = self._value(kind, depth)
            if value is not None:
                fields[number] = value
        return fields

    def _value(self, kind: int, depth: int) -> int | _Fields | None:
        """Read the value of a field: a number, the fields of a struct, or None if it is skipped."""
        if kind in (_TRUE, _FALSE):
            return int(kind == _TRUE)
        if kind == _BYTE:
            return self._byte()
        if kind in (_INT16, _INT32, _INT64):
            return self._integer()
        if kind == _STRUCT:
            return self.struct(depth + 1)
        if kind not in (_DOUBLE, _BINARY):
            raise ValueError("a page header has a field of another type")
        self._skip(8 if kind == _DOUBLE else self._unsigned())
        return None

    def _integer(self) -> int:
        value = self._unsigned()
        return (value >> 1) ^ -(value & 1)

    def _unsigned(self) -> int:
        value = 0
        for place in range(_LONGEST_INTEGER):
            byte = self._byte()
            value |= (byte & 0x7F) << (7 * place)
            if byte < 0x80:
                return value
        raise ValueError("a number in a page header is too long")

    def _byte(self) -> int:
        self._skip(1)
        return self._data[self.position - 1]

    def _skip(self, count: int) -> None:
        self.position += count
        if self.position > self._end:
            raise ValueError("a page header ends outside its column")
