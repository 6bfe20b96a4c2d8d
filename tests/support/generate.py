"""Generated `_metadata`: hypothesis strategies over the encoder's trees, and large synthetic files
made fast.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from hypothesis import strategies as st

from cpreplicate.core.metadata import Handle
from tests.support.encoder import (
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
    Sink,
    Stream,
    Subtask,
    Tree,
    encode,
)
from tests.support.encoder import java_utf as _java_bytes

JOB = "0123456789abcdef0123456789abcdef"
DIRECTORY = f"hdfs://dcA/flink/ckpt/{JOB}"


def _properties() -> bytes:
    data = min(
        (Path(__file__).parent.parent / "data" / "corpus").glob(
            "2.3.0-rocks-incr/ckpt/*/chk-*/_metadata"
        )
    ).read_bytes()
    return data[data.rindex(b"\xac\xed\x00\x05") :]


# The serialized `CheckpointProperties` of a real checkpoint, which Flink's own loader wants to find
# at the end.
PROPERTIES = _properties()

# ---- strategies

_I32 = st.integers(0, 2**31 - 1)
_I64 = st.integers(0, 2**63 - 1)
_SIGNED = st.integers(-(2**63), 2**63 - 1)
_SIZES = st.one_of(st.integers(0, 2**40), _I64)
# Paths of few lengths, so that runs of equal shape appear; and any text, so that they are cut
# short.
_PLAIN_PATHS = st.sampled_from(
    ("a", "b", "file:/dcA/x", "file:/dcA/y", f"{DIRECTORY}/shared/0", f"{DIRECTORY}/shared/1")
)
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
    st.none(),
    _leaves(),
    st.builds(Nested, st.integers(0, 9), _OFFSETS, st.one_of(st.none(), _leaves())),
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
    return ChangelogFiles(
        draw(st.sampled_from((10, 13))), draw(_GROUPS), files, identity=draw(_TEXT)
    )


_KEY_GROUPS = st.builds(
    KeyGroups, st.sampled_from((3, 7, 12)), st.integers(0, 127), _OFFSETS, STREAMS, _TEXT
)
_INCREMENTAL = st.builds(
    Incremental,
    st.sampled_from((5, 11)),
    _SIGNED,
    _TEXT,
    _GROUPS,
    _SIGNED,
    STREAMS,
    _files(),
    _files(),
    _TEXT,
)
_CHANGES = st.tuples(st.integers(-1, 127), st.binary(max_size=20))
_IN_MEMORY = st.builds(
    InMemoryChanges,
    _GROUPS,
    st.tuples(_I64, _I64),
    st.lists(_CHANGES, max_size=3).map(tuple),
    _TEXT,
)


def _changelogs(inner: st.SearchStrategy[Keyed]) -> st.SearchStrategy[Keyed]:
    handles = st.lists(st.one_of(st.none(), inner), max_size=2).map(tuple)
    return st.builds(
        Changelog,
        st.sampled_from((8, 14)),
        _GROUPS,
        _SIGNED,
        handles,
        handles,
        _SIGNED,
        _SIGNED,
        _TEXT,
    )


KEYED: st.SearchStrategy[Keyed | None] = st.one_of(
    st.none(),
    st.recursive(
        st.one_of(_KEY_GROUPS, _INCREMENTAL, _IN_MEMORY, _changelog_files()),
        _changelogs,
        max_leaves=3,
    ),
)
_STATES = st.lists(st.tuples(_TEXT, st.integers(0, 2), _OFFSETS), max_size=2).map(tuple)
_MERGED = st.one_of(
    st.just(Empty()), st.builds(Segment, _SIZES, _SIZES, st.integers(0, 1), _PATHS, _TEXT)
)
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
    return tuple(
        channel
        for channel in draw(st.lists(kinds, max_size=2))
        for _ in range(draw(st.sampled_from((1, 3, 40))))
    )


@st.composite
def _operators(draw: st.DrawFn, version: int) -> OperatorEntry:
    parallelism = draw(st.integers(1, 3))
    subtasks = None
    if version == 2 or draw(st.integers(0, 4)):
        subtasks = tuple(
            draw(_subtasks(version, index)) for index in range(draw(st.integers(0, parallelism)))
        )
    return OperatorEntry(
        identity=draw(st.binary(min_size=16, max_size=16)),
        parallelism=parallelism,
        max_parallelism=draw(st.integers(parallelism, 2**15)),
        subtasks=subtasks,
        coordinator=(
            draw(st.none() | st.builds(Inline, _TEXT, st.binary(max_size=9)))
            if version >= 3
            else None
        ),
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


# ---- seeded, for tests of thousands of files


@dataclass(frozen=True, repr=False)  # hypothesis warns of long representations
class Written:
    """A generated file's bytes and what a decoder must find in them."""

    data: bytes
    rows: list[Handle]
    state_sizes: list[int]
    operators: list[tuple[str, str | None, str | None, int, int, bool]]
    version: int
    checkpoint_id: int
    master_states: int
    inline_bytes: int
    changelog: bool
    file_merging: bool


def written(tree: Tree) -> Written:
    """A tree, encoded."""
    sink = encode(tree)
    operators = [_operator(tree.version >= 5, operator) for operator in tree.operators]
    return Written(
        bytes(sink.data),
        sink.handles,
        sink.state_sizes,
        operators,
        tree.version,
        tree.checkpoint_id,
        len(tree.masters),
        sink.inline_bytes,
        sink.changelog,
        sink.merging,
    )


def _operator(
    named: bool, one: OperatorEntry
) -> tuple[str, str | None, str | None, int, int, bool]:
    name, uid = (one.name or None, one.uid or None) if named else (None, None)
    return one.identity.hex(), name, uid, one.parallelism, one.max_parallelism, one.subtasks is None


def generate(seed: int, version: int, size: int = 3) -> Written:
    """A file of any handles, the same for the same seed.

    `size` is about how many things each list has.
    """
    return written(_Seeded(seed, version, size).tree())


def java_utf(text: str) -> bytes:
    """What `DataOutputStream.writeUTF` writes: modified UTF-8 behind its length."""
    data = _java_bytes(text)
    return struct.pack(">H", len(data)) + data


class _Seeded:
    def __init__(self, seed: int, version: int, size: int) -> None:
        self.draw, self.version, self.size = random.Random(seed), version, size

    def tree(self) -> Tree:
        operators = tuple(self.operator() for _ in range(self.draw.randrange(self.size + 1)))
        masters = tuple(Master(self.text(), self.blob()) for _ in range(self.draw.randrange(3)))
        return Tree(self.version, operators, self.draw.randrange(2**63), masters, PROPERTIES)

    def text(self) -> str:
        if self.draw.random() < 0.7:
            return self.draw.choice(
                (
                    "CURRENT",
                    "000012.sst",
                    "000013.sst",
                    f"{DIRECTORY}/shared/{self.draw.randrange(20)}",
                )
            )
        return "".join(
            self.draw.choice("ab/% \0é\u20ac\ud800\U0001f600")
            for _ in range(self.draw.randrange(12))
        )

    def path(self) -> str:
        return self.text() or "file:/x"

    def blob(self) -> bytes:
        return self.draw.randbytes(self.draw.randrange(20))

    def size_of(self) -> int:
        return self.draw.randrange(2 ** self.draw.choice((8, 40, 63)))

    def offsets(self) -> tuple[int, ...]:
        return tuple(self.draw.randrange(-9, 2**40) for _ in range(self.draw.randrange(4)))

    def groups(self) -> tuple[int, int]:
        return self.draw.randrange(128), self.draw.randrange(129)

    def segment(self) -> Segment:
        return Segment(
            self.size_of(), self.size_of(), self.draw.randrange(2), self.path(), self.text()
        )

    def leaf(self) -> Stream:
        return self.draw.choice(
            (
                lambda: File(self.path(), self.size_of()),
                lambda: RelativeFile(self.path(), self.size_of()),
                self.segment,
                lambda: Inline(self.text(), self.blob()),
                Empty,
            )
        )()

    def stream(self) -> Stream | None:
        chance = self.draw.random()
        if chance < 0.1:
            return None
        return (
            Nested(self.draw.randrange(9), self.offsets(), self.leaf())
            if chance < 0.2
            else self.leaf()
        )

    def files(self) -> tuple[tuple[str, Stream | None], ...]:
        files: list[tuple[str, Stream | None]] = []
        for _ in range(self.draw.randrange(self.size)):
            files += [(self.text(), self.stream())] * self.draw.choice((1, 1, 2, 3, 40))
        return tuple(files)

    def operator(self) -> OperatorEntry:
        parallelism = self.draw.randrange(1, self.size + 1)
        subtasks = None
        if self.version == 2 or self.draw.random() < 0.8:
            subtasks = tuple(
                self.subtask(index) for index in range(self.draw.randrange(parallelism + 1))
            )
        coordinator = (
            Inline(self.text(), self.blob())
            if self.version >= 3 and self.draw.random() < 0.5
            else None
        )
        most = self.draw.randrange(parallelism, 2**15)
        return OperatorEntry(
            self.draw.randbytes(16),
            parallelism,
            most,
            subtasks,
            coordinator,
            self.text(),
            self.text(),
        )

    def subtask(self, index: int) -> Subtask | FinishedSubtask:
        if self.version >= 3 and self.draw.random() < 0.15:
            return FinishedSubtask(index)
        states = self.operator_state(), self.operator_state(), self.keyed(), self.keyed()
        return Subtask(index, *states, self.channels(), self.channels())

    def operator_state(self) -> OperatorState | None:
        chance = self.draw.random()
        if chance < 0.3:
            return None
        states = tuple(
            (self.text(), self.draw.randrange(3), self.offsets())
            for _ in range(self.draw.randrange(3))
        )
        if chance < 0.7:
            return OperatorState(states, self.stream())
        return OperatorState(
            states, self.draw.choice((Empty(), self.segment())), (self.path(), self.path())
        )

    def keyed(self, depth: int = 0) -> Keyed | None:
        kind = self.draw.choice(
            (0, 3, 5, 7, 9, 10, 11, 11, 12, 13)
            if depth > 2
            else (0, 3, 5, 7, 8, 9, 10, 11, 12, 13, 14)
        )
        if kind in (8, 14):
            materialized, delta = (
                tuple(self.keyed(depth + 1) for _ in range(self.draw.randrange(3)))
                for _ in range(2)
            )
            groups, size, identity = self.groups(), self.size_of(), self.text()
            return Changelog(kind, groups, size, materialized, delta, identity=identity)
        if kind in (5, 11):
            files = self.files(), self.files()
            return Incremental(
                kind,
                7,
                self.text(),
                self.groups(),
                self.size_of(),
                self.stream(),
                *files,
                self.text(),
            )
        if kind in (10, 13):
            files10 = tuple((self.draw.randrange(9), stream) for _, stream in self.files())
            return ChangelogFiles(kind, self.groups(), files10, identity=self.text())
        if kind == 9:
            changes = tuple(
                (self.draw.randrange(-1, 9), self.blob()) for _ in range(self.draw.randrange(3))
            )
            return InMemoryChanges(self.groups(), (1, 2), changes, self.text())
        return (
            KeyGroups(kind, self.draw.randrange(128), self.offsets(), self.stream(), self.text())
            if kind
            else None
        )

    def channels(self) -> tuple[PlainChannel | MergedChannel, ...]:
        channels: list[PlainChannel | MergedChannel] = []
        for _ in range(self.draw.randrange(3) if self.version >= 3 else 0):
            one: PlainChannel | MergedChannel = PlainChannel(
                (1, 2, 3), self.offsets(), self.size_of(), self.stream()
            )
            if self.version >= 6 and self.draw.random() < 0.5:
                one = MergedChannel(1, self.size_of(), self.stream(), self.blob())
            channels += [one] * self.draw.choice((1, 3, 40))
        return tuple(channels)


# ---- large files, fast


def synthetic(
    references: int,
    subtasks: int = 1,
    inline: int = 0,
    directory: str = DIRECTORY,
    version: int = 6,
) -> Iterator[bytes]:
    """A `_metadata` in pieces: one operator with that many shared files over its subtasks, and
    inline coordinator state.

    Its handles are the coordinator's, and for each subtask the meta file of its incremental state
    and its shared files.
    """
    head = Sink(version)
    head.i32(0x4960672D, version)
    head.i64(1)
    head.i32(0, 1)
    if version >= 5:
        head.utf("rocks")
        head.utf("")
    head.data += bytes(range(16))
    head.i32(subtasks, max(subtasks, 32_768))
    head.u8(1)
    head.utf("coordinator")
    head.i32(inline)
    yield bytes(head.data)
    for first in range(0, inline, 1 << 20):
        yield b"\x5a" * min(1 << 20, inline - first)
    yield struct.pack(">i", subtasks)
    entries = _entries(random.Random(references), directory)
    for index in range(subtasks):
        yield from _subtask(
            version,
            index,
            references * (index + 1) // subtasks - references * index // subtasks,
            entries,
        )
    if version >= 4:
        yield PROPERTIES


def _subtask(
    version: int, index: int, files: int, entries: Callable[[int], bytes]
) -> Iterator[bytes]:
    out = Sink(version)
    out.i32(index, 0, 0)
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
    out.i32(0)
    out.utf("0e1fd8a9-8f1c-4c8e-9c5e-6f8ac5d5a001")
    out.u8(0)
    out.i32(0, 0)
    yield bytes(out.data)


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
            parts.append(
                b"\0\x0a%06d.sst\x02\0\0\0\0%b%b%b%b"
                % (made % 1_000_000, d[:4], length, path, uuid)
            )
            made += 1
        return b"".join(parts)

    return make
