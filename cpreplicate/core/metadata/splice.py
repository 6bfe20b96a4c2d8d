"""Splicing of a `_metadata`: some of its bytes are replaced, all others stay.

No version has a length that encloses state, so what is replaced may take another length.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import BinaryIO, NamedTuple

from cpreplicate.core.metadata.handle import Handle
from cpreplicate.core.metadata.rewrite import Absolute, Segment, encoded
from cpreplicate.core.metadata.window import read_fully
from cpreplicate.core.sizes import counted
from cpreplicate.errors import MetadataError

_CHUNK = 4 << 20  # bytes
_COUNT = 4  # bytes of the number of offsets
_INLINE_HEAD = 7  # bytes of an inline handle beside its name and content: type and two lengths


class Edit(NamedTuple):
    """The bytes from `start` to `end` of the file are replaced by `new`."""

    start: int
    end: int
    new: bytes


def offsets_edit(place: int, former: int, offsets: tuple[int, ...]) -> Edit:
    """Return the edit of the offsets of a list state, whose `former` ones begin at `place`.

    Their number stands in front of them.
    """
    new = struct.pack(f">i{len(offsets)}q", len(offsets), *offsets)
    return Edit(place - _COUNT, place + 8 * former, new)


def inline_edit(start: int, end: int, former: int, content: bytes) -> Edit:
    """Return the edit of an inline handle from `start` to `end` that had `former` bytes.

    Its name stays: Flink compares handles by it.
    """
    name = end - start - _INLINE_HEAD - former
    content_at = start + 3 + name
    return Edit(content_at, end, struct.pack(">i", len(content)) + content)


def file_edit(handle: Handle, original: bytes, file: str, size: int, identity: str) -> Edit:
    """Return the edit of a handle whose state is now a file of its own, at an absolute URI.

    A segment stays one, since a merged operator state takes no other handle; `identity` is its
    logical id. `original` are the bytes of the handle.
    """
    is_segment = handle.kind == "segment"
    spelling = Segment(file, 0, size, identity) if is_segment else Absolute(file)
    new = encoded(handle._replace(size=size), spelling, original)
    return Edit(handle.start, handle.start + handle.length, new)


def spliced(data: bytes | BinaryIO, length: int, edits: Iterable[Edit]) -> Iterator[bytes]:
    """Yield the bytes of a file of `length` bytes with these edits, which do not overlap."""
    copied = 0
    for edit in sorted(edits):
        if edit.start < copied:
            raise MetadataError(f"byte {edit.start}: two changes of the same bytes")
        yield from _between(data, copied, edit.start)
        yield edit.new
        copied = edit.end
    yield from _between(data, copied, length)


def _between(data: bytes | BinaryIO, start: int, end: int) -> Iterator[bytes]:
    if isinstance(data, bytes):
        yield data[start:end]
        return
    data.seek(start)
    while start < end and (piece := read_fully(data, min(_CHUNK, end - start))):
        yield piece
        start += len(piece)
    if start < end:
        raise MetadataError(
            f"byte {start}: the stream ended, but {counted(end, 'byte was', 'bytes were')} expected"
        )
