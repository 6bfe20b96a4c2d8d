"""Generated `_metadata`: hypothesis strategies over the encoder's trees, and large synthetic files made fast."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import BinaryIO

from hypothesis import strategies as st

from tests.support.encoder import (
    Changelog,
    ChangelogFiles,
    Empty,
    File,
    FinishedSubtask,
    Incremental,
    InMemoryChanges,
    Inline,
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
    Sink,
    Stream,
    Subtask,
    Tree,
)

JOB = "0123456789abcdef0123456789abcdef"
DIRECTORY = f"hdfs://dcA/flink/ckpt/{JOB}"
_CORPUS = Path(__file__).parent.parent / "data" / "corpus"

# ---- strategies -----------------------------------------------------------------------------------------------------

_I32 = st.integers(0, 2**31 - 1)
_I64 = st.integers(0, 2**63 - 1)
_SIGNED = st.integers(-(2**63), 2**63 - 1)
_SIZES = st.one_of(st.integers(0, 2**40), _I64)
# Paths of few lengths, so that runs of equal shape appear; and any text, so that they are cut short.
_PLAIN_PATHS = st.sampled_from(("a", "b", "file:/dcA/x", "file:/dcA/y", f"{DIRECTORY}/shared/0", f"{DIRECTORY}/shared/1"))
_ODD_TEXT = st.text(st.one_of(st.characters(), st.sampled_from("\0é\ud800\U0001f600/ %"))).filter(
    lambda text: len(text) < 60
)
_TEXT = st.one_of(_PLAIN_PATHS, _ODD_TEXT)
_PATHS = _TEXT.filter(bool)
_NAMES = st.one_of(st.sampled_from(("000012.sst", "000013.sst", "CURRENT", "")), _TEXT)
_GROUPS = st.tuples(st.integers(0, 127), st.integers(0, 128))
_OFFSETS = st.lists(_SIGNED, max_size=3).map(tuple)


def _leaves() -> st.SearchStrategy[Stream]:
    return st.one_of(
        st.builds(File, _PATHS, _SIZES),
        st.builds(RelativeFile, _PATHS, _SIZES),
        st.builds(Segment, _SIZES, _SIZES, st.integers(0, 1), _PATHS, _TEXT),
        st.builds(Inline, _TEXT, st.binary(max_size=20)),
        st.just(Empty()),
    )


STREAMS: st.SearchStrategy[Stream | None] = st.one_of(
    st.none(), _leaves(), st.builds(Nested, st.integers(0, 9), _OFFSETS, st.one_of(st.none(), _leaves()))
)


@st.composite
def _files(draw: st.DrawFn) -> tuple[tuple[str, Stream | None], ...]:
    """A list of files: runs of entries of one shape, with something else between them."""
    files: list[tuple[str, Stream | None]] = []
    for _ in range(draw(st.integers(0, 3))):
        entry = (draw(_NAMES), draw(STREAMS))
        files += [entry] * draw(st.sampled_from((1, 2, 3, 40, 200)))
    return tuple(files)


@st.composite
def _changelog_files(draw: st.DrawFn) -> ChangelogFiles:
    files = tuple((draw(st.integers(0, 9)), stream) for _, stream in draw(_files()))
    return ChangelogFiles(draw(st.sampled_from((10, 13))), draw(_GROUPS), files, identity=draw(_TEXT))


_KEY_GROUPS = st.builds(KeyGroups, st.sampled_from((3, 7, 12)), st.integers(0, 127), _OFFSETS, STREAMS, _TEXT)
_INCREMENTAL = st.builds(
    Incremental, st.sampled_from((5, 11)), _SIGNED, _TEXT, _GROUPS, _SIGNED, STREAMS, _files(), _files(), _TEXT
)
_CHANGES = st.tuples(st.integers(-1, 127), st.binary(max_size=20))
_IN_MEMORY = st.builds(InMemoryChanges, _GROUPS, st.tuples(_I64, _I64), st.lists(_CHANGES, max_size=3).map(tuple), _TEXT)


def _changelogs(inner: st.SearchStrategy[Keyed]) -> st.SearchStrategy[Keyed]:
    handles = st.lists(st.one_of(st.none(), inner), max_size=2).map(tuple)
    return st.builds(Changelog, st.sampled_from((8, 14)), _GROUPS, _SIGNED, handles, handles, _SIGNED, _SIGNED, _TEXT)


KEYED: st.SearchStrategy[Keyed | None] = st.one_of(
    st.none(), st.recursive(st.one_of(_KEY_GROUPS, _INCREMENTAL, _IN_MEMORY, _changelog_files()), _changelogs, max_leaves=3)
)
_STATES = st.lists(st.tuples(_TEXT, st.integers(0, 2), _OFFSETS), max_size=2).map(tuple)
_MERGED = st.one_of(st.just(Empty()), st.builds(Segment, _SIZES, _SIZES, st.integers(0, 1), _PATHS, _TEXT))
OPERATOR_STATES = st.one_of(
    st.none(),
    st.builds(OperatorState, _STATES, STREAMS),
    st.builds(OperatorState, _STATES, _MERGED, st.tuples(_PATHS, _PATHS)),
)


@st.composite
def _channels(draw: st.DrawFn, version: int) -> tuple[PlainChannel | MergedChannel, ...]:
    if version == 2:
        return ()
    plain = st.builds(PlainChannel, st.tuples(_I32, _I32, _I32), _OFFSETS, _I64, STREAMS)
    merged = st.builds(MergedChannel, _I32, _I64, STREAMS, st.binary(max_size=9))
    kinds = st.one_of(plain, merged) if version >= 6 else plain
    return tuple(channel for channel in draw(st.lists(kinds, max_size=2)) for _ in range(draw(st.sampled_from((1, 3, 40)))))


@st.composite
def _operators(draw: st.DrawFn, version: int) -> OperatorEntry:
    parallelism = draw(st.integers(1, 3))
    subtasks = None
    if version == 2 or draw(st.integers(0, 4)):
        subtasks = tuple(draw(_subtasks(version, index)) for index in range(draw(st.integers(0, parallelism))))
    return OperatorEntry(
        identity=draw(st.binary(min_size=16, max_size=16)),
        parallelism=parallelism,
        max_parallelism=draw(st.integers(parallelism, 2**15)),
        subtasks=subtasks,
        coordinator=draw(st.none() | st.builds(Inline, _TEXT, st.binary(max_size=9))) if version >= 3 else None,
        name=draw(_TEXT),
        uid=draw(_TEXT),
    )


@st.composite
def _subtasks(draw: st.DrawFn, version: int, index: int) -> Subtask | FinishedSubtask:
    if version >= 3 and not draw(st.integers(0, 5)):
        return FinishedSubtask(index)
    states = draw(OPERATOR_STATES), draw(OPERATOR_STATES), draw(KEYED), draw(st.none() | KEYED)
    return Subtask(index, *states, draw(_channels(version)), draw(_channels(version)))


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    """Any `_metadata` of any version, every kind of handle in it."""
    version = draw(st.integers(2, 6))
    operators = tuple(draw(st.lists(_operators(version), max_size=3)))
    masters = tuple(draw(st.lists(st.builds(Master, _TEXT, st.binary(max_size=9)), max_size=2)))
    return Tree(version, operators, draw(_I64), masters)


# ---- large files, fast ----------------------------------------------------------------------------------------------


@cache
def properties() -> bytes:
    """The serialized `CheckpointProperties` of a real checkpoint, which Flink's own loader wants to find at the end."""
    data = min(_CORPUS.glob("2.3.0-rocks-incr/ckpt/*/chk-*/_metadata")).read_bytes()
    return data[data.rindex(b"\xac\xed\x00\x05") :]


def synthetic(references: int, subtasks: int = 1, inline_bytes: int = 0, directory: str = DIRECTORY, version: int = 6) -> bytes:
    """A `_metadata` of one operator with that many shared files, evenly over its subtasks, and inline operator state."""
    return b"".join(_chunks(references, subtasks, inline_bytes, directory, version))


def write_synthetic(
    file: BinaryIO, references: int, subtasks: int = 1, inline_bytes: int = 0, directory: str = DIRECTORY, version: int = 6
) -> None:
    """`synthetic`, written piece by piece."""
    for chunk in _chunks(references, subtasks, inline_bytes, directory, version):
        file.write(chunk)


def _chunks(references: int, subtasks: int, inline_bytes: int, directory: str, version: int) -> Iterator[bytes]:
    head = Sink(version)
    head.i32(0x4960672D, version)
    head.i64(1)
    head.i32(0, 1)
    if version >= 5:
        head.utf("rocks")
        head.utf("")
    head.data += bytes(range(16))
    head.i32(subtasks, max(subtasks, 32_768))
    head.data += b"\0\0\0\0" if version == 2 else b"\0"
    head.i32(subtasks)
    yield bytes(head.data)
    entries = _entries(random.Random(references), directory)
    for index in range(subtasks):
        files = references * (index + 1) // subtasks - references * index // subtasks
        inline = inline_bytes * (index + 1) // subtasks - inline_bytes * index // subtasks
        yield from _subtask(version, index, inline, files, entries)
    if version >= 4:
        yield properties()


def _subtask(version: int, index: int, inline: int, files: int, entries: Callable[[int], bytes]) -> Iterator[bytes]:
    out = Sink(version)
    out.i32(index)
    if version == 2:
        out.i64(0)
        out.i32(0)
    if inline:
        yield from _inline_state(out, inline)
        out.data.clear()
    else:
        out.i32(0)
    out.i32(0)
    out.u8(11)
    out.i64(1)
    out.utf("2c1f9d44-7e2b-4d75-8d76-0a6ad8a3a1f0")
    out.i32(index % 128, 1)
    out.i64(0)
    RelativeFile("f3e4334a-65e1-46a5-b1ff-df077c55f999", 2223).encode(out)
    out.i32(files)
    yield bytes(out.data)
    for first in range(0, files, 10_000):
        yield entries(min(10_000, files - first))
    out.data.clear()
    out.i32(1)
    out.utf("MANIFEST-000005")
    RelativeFile("f3e4334a-65e1-46a5-b1ff-df077c55f999", 1366).encode(out)
    out.utf("0e1fd8a9-8f1c-4c8e-9c5e-6f8ac5d5a001")
    out.u8(0)
    if version >= 3:
        out.i32(0, 0)
    yield bytes(out.data)


def _inline_state(out: Sink, inline: int) -> Iterator[bytes]:
    out.i32(1)
    out.u8(4)
    out.i32(0)
    out.u8(1)
    out.utf("inline")
    out.i32(inline)
    yield bytes(out.data)
    for first in range(0, inline, 1 << 20):
        yield b"\x5a" * min(1 << 20, inline - first)


def _entries(seeded: random.Random, directory: str) -> Callable[[int], bytes]:
    """Makes lists of files as RocksDB names them, in `shared/` under random UUIDs as Flink does."""
    path = f"{directory}/shared/".encode()
    length = struct.pack(">H", len(path) + 36)
    made = 0

    def make(count: int) -> bytes:
        nonlocal made
        digits = seeded.randbytes(16 * count).hex().encode()
        parts = []
        for at in range(0, 32 * count, 32):
            d = digits[at : at + 32]
            uuid = b"-".join((d[:8], d[8:12], d[12:16], d[16:20], d[20:]))
            parts.append(b"\0\x0a%06d.sst\x02\0\0\0\0%b%b%b%b" % (made % 1_000_000, d[:4], length, path, uuid))
            made += 1
        return b"".join(parts)

    return make
