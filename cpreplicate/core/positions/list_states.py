"""The list states in the stream of an operator state handle.

The order of fields is that of `OperatorBackendSerializationProxy`; the offsets of the elements
stand in the `_metadata`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from cpreplicate.core.positions.fields import Fields, block, flag
from cpreplicate.core.positions.model import Unreadable
from cpreplicate.core.positions.snappy import IDENTIFIER, first_bytes
from cpreplicate.core.sizes import counted

MOST_BYTES = 8 << 20  # of a stream and of an element of it; that of a split has some 60
_VERSIONS = (5, 6)  # 6 has a flag for compression (Flink 1.18 and later)
_SERIALIZER = (
    "org.apache.flink.api.common.typeutils.base.array"
    ".BytePrimitiveArraySerializer$BytePrimitiveArraySerializerSnapshot"
)


def elements(stream: bytes, offsets: Sequence[int]) -> Iterator[bytes]:
    """Yield the byte arrays that stand at `offsets` of a stream, which has only lists of such.

    Raises `Unreadable` for another serializer or version, and for offsets outside of the stream or
    not in the order in which Flink writes.
    """
    fields = Fields(stream)
    is_compressed = _head(fields)
    end = fields.position
    for offset in offsets:
        if not end <= offset < len(stream):
            raise Unreadable(
                f"an element at byte {offset} of a state of {counted(len(stream), 'byte')}"
            )
        if is_compressed:
            yield _compressed(stream, offset)
            end = offset + 1  # where it ends is known to Snappy only
        else:
            fields.position = offset
            yield fields.block()
            end = fields.position


def raw_elements(stream: bytes, offsets: Mapping[str, Sequence[int]], name: str) -> Iterator[bytes]:
    """Yield the elements of one list of a stream, whose serializers are not known.

    `offsets` are those of lists of the stream: each element ends where the next one of them begins.
    Raises `Unreadable` as `elements`.
    """
    _, start, is_compressed = raw_head(stream, offsets)
    for place in _pieces(stream, start, offsets):
        if place.name == name:
            yield first_bytes(place.piece, 0, MOST_BYTES) if is_compressed else place.piece


def raw_head(stream: bytes, offsets: Mapping[str, Sequence[int]]) -> tuple[bytes, int, bool]:
    """Return what is in front of all elements, its length, and whether those are compressed.

    Raises `Unreadable` for a version that is not known.
    """
    fields = Fields(stream)
    version = fields.i32()
    if version not in _VERSIONS:
        raise Unreadable(f"version {version} of an operator state is not known")
    is_compressed = fields.flag() if version > 5 else False
    end = min((place for places in offsets.values() for place in places), default=len(stream))
    if not fields.position <= end <= len(stream):
        raise Unreadable(f"an element at byte {end} of a state of {counted(len(stream), 'byte')}")
    head = stream[:end].removesuffix(IDENTIFIER) if is_compressed else stream[:end]
    return head, len(head), is_compressed


def _compressed(stream: bytes, offset: int) -> bytes:
    length = Fields(first_bytes(stream, offset, 4)).i32()
    if not 0 <= length <= MOST_BYTES:
        raise Unreadable(f"an element of {counted(length, 'byte')}")
    return Fields(first_bytes(stream, offset, 4 + length)).block()


def _head(fields: Fields) -> bool:
    """Read the names and serializers of the states; return whether the elements are compressed."""
    version = fields.i32()
    if version not in _VERSIONS:
        raise Unreadable(f"version {version} of an operator state is not known")
    is_compressed = fields.flag() if version > 5 else False
    for _ in range(fields.i16()):
        _list_state(fields)
    if fields.i16() != 0:
        raise Unreadable("broadcast state beside list states is not known")
    return is_compressed


def _list_state(fields: Fields) -> None:
    """Read past the type of one list state. Raises `Unreadable` for another serializer."""
    fields.utf()
    fields.expect(1, "a kind of state")
    for _ in range(fields.count(4)):
        fields.utf()
        fields.utf()
    for _ in range(fields.count(12)):
        fields.utf()
        fields.expect(2, "a version of a serializer snapshot")
        serializer = fields.utf()
        if serializer != _SERIALIZER:
            raise Unreadable(f"the serializer {serializer} is not known")
        fields.i32()


def datum(element: bytes) -> tuple[int, bytes]:
    """Return version and content of what `SimpleVersionedSerialization` wrote into an element."""
    fields = Fields(element)
    version, content = fields.i32(), fields.block()
    fields.end()
    return version, content


class Rebuilt(NamedTuple):
    """A stream of list states with other elements, and the offsets of each list in it."""

    stream: bytes
    offsets: dict[str, tuple[int, ...]]


def rebuilt(
    stream: bytes,
    offsets: Mapping[str, Sequence[int]],
    replaced: Mapping[str, Sequence[bytes]],
    raw: Collection[str] = (),
    emptied: Collection[str] = (),
) -> Rebuilt:
    """Return a stream in which the elements of some lists are replaced, one for one.

    `offsets` are those of all lists of the stream. Lists in `raw` are read by `raw_elements`, and
    those in `emptied` have no element any more. The new stream is not compressed. All else is as it
    was. Raises `Unreadable` as `elements`.
    """
    if emptied or replaced.keys() <= set(raw):
        head, start, is_compressed = raw_head(stream, offsets)
    else:
        fields = Fields(stream)
        is_compressed, start = _head(fields), fields.position
        head = stream[:start]
    out = bytearray()
    if is_compressed:
        head = head[:4] + flag(False) + head[5:]
    moved: dict[str, list[int]] = {name: [] for name in offsets}
    for place in _pieces(stream, start, offsets):
        piece = first_bytes(place.piece, 0, MOST_BYTES) if is_compressed else place.piece
        if place.name in emptied:
            continue
        if place.name is not None:
            moved[place.name].append(len(head) + len(out))
            if place.name in replaced:
                element = replaced[place.name][place.nth]
                piece = element if place.name in raw else _replaced(piece, element)
        out += piece
    return Rebuilt(head + bytes(out), {name: tuple(each) for name, each in moved.items()})


class _Place(NamedTuple):
    """A piece of a stream: an element of a list and what follows it; no `name`: what is before."""

    piece: bytes
    name: str | None = None
    nth: int = 0


def _pieces(stream: bytes, start: int, offsets: Mapping[str, Sequence[int]]) -> Iterator[_Place]:
    starts = sorted(
        (place, name, nth) for name, places in offsets.items() for nth, place in enumerate(places)
    )
    ends = [*(place for place, _, _ in starts), len(stream)]
    if not start <= ends[0] or ends[-1] > len(stream):
        raise Unreadable(
            f"an element at byte {ends[0]} of a state of {counted(len(stream), 'byte')}"
        )
    yield _Place(stream[start : ends[0]])
    for (place, name, nth), end in zip(starts, ends[1:], strict=True):
        yield _Place(stream[place:end], name, nth)


def _replaced(piece: bytes, element: bytes) -> bytes:
    rest = Fields(piece)
    rest.block()
    return block(element) + rest.take(rest.left)
