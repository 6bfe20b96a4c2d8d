"""Snappy's framing format, as Flink's `SnappyStreamCompressionDecorator` writes operator state."""

from __future__ import annotations

import pyarrow as pa

from cpreplicate.core.positions.model import Unreadable

_COMPRESSED, _PLAIN, _IDENTIFIER = 0, 1, 0xFF
IDENTIFIER = b"\xff\x06\x00\x00sNaPpY"  # the first chunk of a stream
_CHUNK_HEAD, _CRC = 4, 4  # bytes: type and u24 length; a checksum of the content
_LARGEST = 65_536  # bytes of content of a chunk, by the format


def first_bytes(data: bytes, start: int, count: int) -> bytes:
    """Return the first `count` bytes of content of the chunks from `start` on, or all there are.

    Raises `Unreadable` for anything that is no chunk of the format.
    """
    pieces, size, position = [], 0, start
    while size < count and position < len(data):
        kind = data[position]
        length = int.from_bytes(data[position + 1 : position + _CHUNK_HEAD], "little")
        body = data[position + _CHUNK_HEAD : position + _CHUNK_HEAD + length]
        if len(body) < length:
            raise Unreadable("a Snappy chunk ends behind the state")
        position += _CHUNK_HEAD + length
        if kind == _IDENTIFIER:
            continue
        pieces.append(_content(kind, body[_CRC:]))
        size += len(pieces[-1])
    return b"".join(pieces)[:count]


def _content(kind: int, body: bytes) -> bytes:
    """Return the content of a chunk of this type. Raises `Unreadable`."""
    if kind == _PLAIN:
        return body
    if kind != _COMPRESSED:
        raise Unreadable(f"a Snappy chunk of type {kind} is not known")
    size = _size(body)
    if size > _LARGEST:
        raise Unreadable(f"a Snappy chunk of {size} bytes is longer than the format allows")
    try:
        content: bytes = pa.decompress(body, decompressed_size=size, codec="snappy", asbytes=True)
    except (pa.ArrowInvalid, OSError) as error:
        raise Unreadable("a Snappy chunk is damaged") from error
    return content


def _size(body: bytes) -> int:
    """Return the number in front of a Snappy block: 7 bits a byte, the lowest first."""
    size = 0
    for index, byte in enumerate(body[:5]):
        size |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return size
    raise Unreadable("a Snappy chunk has no size")
