"""Fuzzing `_metadata`: small files of every version and handle, ways to damage them, and what must
hold of what comes out.
"""

from __future__ import annotations

import io
import random
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import cache
from typing import NamedTuple
from unittest import mock

from cpreplicate.core.closure import closure
from cpreplicate.core.metadata import Handle, Metadata, decode, decoder, rewrite
from cpreplicate.core.metadata.window import WINDOW, Window
from cpreplicate.core.placement import Placement, is_replica_path
from cpreplicate.errors import CpreplicateError, MetadataError
from tests.support.corpus import ROOT
from tests.support.encoder import (
    TAIL,
    Changelog,
    ChangelogFiles,
    Empty,
    File,
    FinishedSubtask,
    Incremental,
    Inline,
    InMemoryChanges,
    Keyed,
    KeyGroups,
    Master,
    MergedChannel,
    Nested,
    OperatorEntry,
    OperatorState,
    PlainChannel,
    RelativeFile,
    Segment,
    Stream,
    Subtask,
    Tree,
    encode,
)
from tests.support.flinkrows import same_spelling
from tests.support.generate import DIRECTORY, PROPERTIES, generate

VERSIONS = range(2, 7)
BASE = f"{DIRECTORY}/chk-1"
_PLACEMENT = Placement(BASE, DIRECTORY, "chk-1")
_ODD_PATHS = (
    "shared/%2e%2e/x",
    "shared/%252e%252e/x",
    "shared/a%2fb",
    "shared/.cpreplicate/x",
    "chk-1/_metadata",
    "x",
    "",
)
_LOCATED = re.compile(r"byte (\d+): |version -?\d+ of _metadata")

# ---- files to be damaged


class Seed(NamedTuple):
    """A file, its version, and its fields: where each number and each length lies that decoding it
    reads, and its width.
    """

    data: bytes
    version: int
    fields: tuple[tuple[int, int], ...]


@cache
def corpus() -> tuple[Seed, ...]:
    """What Flink wrote: versions 4 and 6 only."""
    return tuple(seed(path.read_bytes()) for path in sorted(ROOT.glob("**/_metadata")))


@cache
def generated(version: int) -> tuple[Seed, ...]:
    """Small files that together have every handle type of the version, and some of any handles."""
    mixed = (generate(number, version, size=2) for number in range(100))
    small = [
        one.data.replace(PROPERTIES, TAIL)
        for one in mixed
        if len(one.rows) > 2 and len(one.data) < 2500
    ]
    return tuple(
        seed(data) for data in [*(bytes(encode(tree).data) for tree in _trees(version)), *small]
    )


def seed(data: bytes) -> Seed:
    """A file that can be read, with its fields."""
    fields: list[tuple[int, int]] = []

    class Noting(Window):
        def u8(self) -> int:
            fields.append((self.offset, 1))
            return super().u8()

        def i32(self) -> int:
            fields.append((self.offset, 4))
            return super().i32()

        def i64(self) -> int:
            fields.append((self.offset, 8))
            return super().i64()

        def utf(self, what: str) -> bytes:
            fields.append((self.offset, 2))
            return super().utf(what)

    with mock.patch.object(decoder, "Window", Noting), entry_by_entry():
        return Seed(data, decode(data, BASE).version, tuple(fields))


def entry_by_entry() -> AbstractContextManager[object]:
    """Lists are not read as runs."""
    return mock.patch.object(decoder, "uniform", return_value=0)


def _trees(version: int) -> Iterator[Tree]:
    for subtask in _subtasks(version):
        coordinator = Inline("coordinator", b"1") if version >= 3 else None
        subtasks = (subtask, FinishedSubtask(1)) if version >= 3 else (subtask,)
        operators = [OperatorEntry(bytes(range(16)), 2, 4, subtasks, coordinator, "name", "uid")]
        if version >= 3:
            operators.append(OperatorEntry(bytes(16), 1, 1, None))
        yield Tree(version, tuple(operators), masters=(Master("m", b"xyz"),))


def _subtasks(version: int) -> Iterator[Subtask]:
    states = (("split", 0, (1, 2)), ("union", 1, ()))
    segment = Segment(1, 2, 1, f"{DIRECTORY}/taskowned/merged", "id")
    merge = OperatorState(states, segment, (f"{DIRECTORY}/taskowned/x", f"{DIRECTORY}/shared/x"))
    for number, stream in enumerate(_streams()):
        keyed = KeyGroups((3, 7, 12)[number % 3], 0, (1, 2), stream)
        yield Subtask(
            0, OperatorState(states, stream), merge, keyed, None, *_channels(version, stream)
        )
    for path in _ODD_PATHS:
        place = f"{DIRECTORY}/{path}"
        yield Subtask(
            0, OperatorState((), Empty(), (place, f"{place}/y")), OperatorState((), File(place, 1))
        )
    for one in _keyed():
        yield Subtask(0, keyed=one, keyed_raw=Changelog(8, (0, 1), 0, (one,), (None,)))
        yield Subtask(1 if version == 2 else 0, keyed=Changelog(14, (0, 1), 0, (None, one), (one,)))


def _streams() -> tuple[Stream | None, ...]:
    file, relative = File(f"{DIRECTORY}/shared/a", 5), RelativeFile("b", 6)
    segment = Segment(1, 2, 0, f"{DIRECTORY}/shared/merged", "id")
    return file, relative, segment, None, Inline("inline", b"xyz"), Empty(), Nested(0, (1, 2), file)


def _keyed() -> Iterator[Keyed]:
    files = tuple(("00001.sst", stream) for stream in _streams())
    for kind, run in ((5, files[0]), (11, files[1]), (11, files[2])):
        yield Incremental(kind, 7, "backend", (0, 1), 9, run[1], (run,) * 5, files)
    yield InMemoryChanges((0, 1), (1, 2), ((-1, b"abc"), (3, b"")))
    for kind, position in ((10, 0), (13, 2)):
        yield ChangelogFiles(kind, (0, 1), ((3, _streams()[position]),) * 4)


def _channels(
    version: int, stream: Stream | None
) -> list[tuple[PlainChannel | MergedChannel, ...]]:
    if version == 2:
        return []
    plain = (PlainChannel((0, 0, 1), (1, 2), 3, stream),) * 3
    return [plain, (*plain, MergedChannel(0, 3, stream, b"\1\2")) if version >= 6 else plain]


# ---- damage

_LIES = (
    0,
    1,
    2,
    127,
    128,
    255,
    0x7FFF,
    0xFFFF,
    1 << 16,
    (1 << 31) - 1,
    1 << 31,
    (1 << 63) - 1,
    1 << 63,
    (1 << 64) - 1,
)


def _flipped(one: Seed, draw: random.Random, bits: int) -> bytes:
    data = bytearray(one.data)
    for _ in range(bits):
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    return bytes(data)


def _bit_flip(one: Seed, draw: random.Random, _: Sequence[Seed]) -> bytes:
    return _flipped(one, draw, 1)


def _bit_flips(one: Seed, draw: random.Random, _: Sequence[Seed]) -> bytes:
    return _flipped(one, draw, draw.randrange(2, 9))


def _truncated(one: Seed, draw: random.Random, _: Sequence[Seed]) -> bytes:
    return one.data[: draw.randrange(len(one.data))]


def _lie_anywhere(one: Seed, draw: random.Random, _: Sequence[Seed]) -> bytes:
    return _lie(one.data, draw.randrange(len(one.data)), draw.choice((1, 2, 4, 8)), draw)


def _lie_of_a_field(one: Seed, draw: random.Random, _: Sequence[Seed]) -> bytes:
    return _lie(one.data, *draw.choice(one.fields), draw)


def _lie(data: bytes, at: int, width: int, draw: random.Random) -> bytes:
    """Draw another number: off by one or two, a type or version, or a limit of an integer."""
    truth = int.from_bytes(data[at : at + width], "big")
    lie = draw.choice((truth + draw.choice((-2, -1, 1, 2)), draw.randrange(20), draw.choice(_LIES)))
    return data[:at] + (lie % (1 << 8 * width)).to_bytes(width, "big") + data[at + width :]


def _spliced(one: Seed, draw: random.Random, others: Sequence[Seed]) -> bytes:
    """The head of one file and the tail of another of its version, often as many fields from the
    end.
    """
    other = draw.choice([other for other in others if other.version == one.version])
    if draw.random() < 0.5:
        return one.data[: _place(one, draw)] + other.data[_place(other, draw) :]
    at = draw.randrange(1, min(len(one.fields), len(other.fields)) + 1)
    return one.data[: one.fields[-at][0]] + other.data[other.fields[-at][0] :]


def _repeated(one: Seed, draw: random.Random, _: Sequence[Seed]) -> bytes:
    start, end = sorted((_place(one, draw), _place(one, draw)))
    return one.data[:start] + one.data[start:end] * draw.randrange(2, 4) + one.data[end:]


def _transplanted(one: Seed, draw: random.Random, others: Sequence[Seed]) -> bytes:
    """A piece of a file of another version in the place of a piece."""
    other = draw.choice([other for other in others if other.version != one.version])
    start, end = _piece(one, draw)
    first, last = _piece(other, draw)
    return one.data[:start] + other.data[first:last] + one.data[end:]


def _piece(one: Seed, draw: random.Random) -> tuple[int, int]:
    """Some fields that follow each other."""
    first = draw.randrange(len(one.fields))
    last = min(first + draw.randrange(1, 9), len(one.fields) - 1)
    return one.fields[first][0], one.fields[last][0]


def _place(one: Seed, draw: random.Random) -> int:
    return draw.choice(one.fields)[0] if draw.random() < 0.8 else draw.randrange(len(one.data))


DAMAGES: dict[str, Callable[[Seed, random.Random, Sequence[Seed]], bytes]] = {
    "bit flip": _bit_flip,
    "several bit flips": _bit_flips,
    "truncation": _truncated,
    "lie anywhere": _lie_anywhere,
    "lie of a field": _lie_of_a_field,
    "head and tail": _spliced,
    "piece repeated": _repeated,
    "piece of another version": _transplanted,
}

# ---- what must hold


def read(data: bytes, stream: bool = False, window: int = WINDOW) -> Metadata | None:
    """Decode the bytes. Return None if the error names the version or the offset."""
    try:
        return decode(io.BytesIO(data) if stream else data, BASE, window)
    except MetadataError as error:
        message = str(error)
    place = _LOCATED.match(message)
    assert place, f"names neither byte nor version: {message}"
    assert int(place[1] or 0) <= len(data), f"beyond the end, {len(data)}: {message}"
    return None


def survives(data: bytes) -> bool:
    """Whether the bytes could be read.

    Fails if anything but a `MetadataError` comes out, or a reading that is of no use.
    """
    metadata = read(data)
    if metadata is None:
        return False
    handles = list(metadata.handles)
    assert all(handle.size >= 0 and handle.path != "" for handle in handles)
    _lie_in_order(handles, len(data))
    _rewritten_as_they_are(data, metadata, handles)
    _placed_in_the_replica(metadata)
    return True


def rows(data: bytes, stream: bool = False, window: int = WINDOW) -> list[Handle] | None:
    """The handles that are read, from bytes or from a stream; None if they are refused."""
    metadata = read(data, stream, window)
    return None if metadata is None else list(metadata.handles)


def rows_one_by_one(data: bytes) -> list[Handle] | None:
    """The handles that are read where no list is read as runs."""
    with entry_by_entry():
        return rows(data)


def _lie_in_order(handles: list[Handle], length: int) -> None:
    end = 0
    for handle in handles:
        assert end <= handle.start < handle.start + handle.length <= length, handle
        end = handle.start + handle.length


def _rewritten_as_they_are(data: bytes, metadata: Metadata, handles: list[Handle]) -> None:
    assert b"".join(rewrite(data, metadata, lambda _: None)) == data
    # a NUL may have been one byte or two
    if not any("\0" in handle.path for handle in handles if handle.path):
        assert b"".join(rewrite(data, metadata, same_spelling)) == data


def _placed_in_the_replica(metadata: Metadata) -> None:
    try:
        found = closure(metadata)
        targets = [
            *_PLACEMENT.place_all(found.files, found.plain),
            *map(_PLACEMENT.place_directory, found.directories),
        ]
    except CpreplicateError:
        return
    assert all(map(is_replica_path, targets)), targets
