"""A filesystem in memory whose every step can be watched, stopped or failed, and whose states cost
nothing to keep.

The protocol's own `put`, `create_exclusive` and `take_over` of `RenamingStorage` run on it, so what
a crash can leave between two steps of a real filesystem is left here too.
"""

from __future__ import annotations

import contextlib
import copy
import errno
import io
import random
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple, TypeAlias

from cpreplicate.core import uri as places
from cpreplicate.storage.backends.rename_commit import RenamingStorage
from cpreplicate.storage.base import Content, refuse_unusable
from cpreplicate.storage.statuses import Attributes, FileStatus
from tests.support import checker
from tests.support.encoder import File as FileHandle
from tests.support.encoder import (
    OperatorEntry,
    RelativeFile,
    Segment,
    Tree,
    encode,
    keyed_operator,
)
from tests.support.jobs import JOB


class File(NamedTuple):
    data: bytes
    modified: float


class Children(dict[str, "File | None"]):
    """The entries of a directory, and when one of them was last made, renamed or removed."""

    modified = 0.0


Moment: TypeAlias = Literal["before", "torn", "after"]
Hook: TypeAlias = Callable[[Moment, str, str], None]
State: TypeAlias = Mapping[str, Mapping[str, "File | None"]]
"""Each directory's entries by name: a file, or None for a directory. It is never changed."""

READS = frozenset({"open", "stat", "list"})
EPOCH = 1_800_000_000.0


class Clock:
    """Virtual seconds since the epoch: they pass when a test lets them."""

    def __init__(self, now: float = EPOCH) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def pass_(self, seconds: float) -> None:
        self.now += seconds


class SimulatedDisk(RenamingStorage):
    """Threads may share one. `hook(moment, verb, uri)` is called around each step, outside of any
    lock, and may block or raise.

    Steps are mkdir, create, write, close, set_attributes, rename (reported with the new name),
    delete, rmdir, and the reads open, stat and list. What `hook` raises "before" happens instead of
    the step, what it raises "torn" in the midst of it: a write has left a random part of its bytes,
    a rename by links both names. With `links` a rename that does not replace is link(2) and
    unlink(2), and a file is taken over under a lock, as on a local filesystem; else both are as on
    HDFS. Who finds that lock taken does not wait for it.
    """

    def __init__(
        self, state: State | None = None, clock: Clock | None = None, links: bool = False
    ) -> None:
        self.hook: Hook = lambda *_: None
        self.clock = clock or Clock()
        self.links = links
        self.pieces = 2  # writes that a chunk of content takes
        self.version = 0  # counts the changes
        self._tree: dict[str, Mapping[str, File | None]] = dict(state or {})
        self._links: dict[str, str] = {}  # symbolic links to directories
        self._lock = threading.RLock()
        self._take_overs = threading.Lock()
        self._draw = random.Random(0)

    def snapshot(self) -> State:
        """All that the disk holds now; another disk can be made of it."""
        with self._lock:
            return dict(self._tree)

    def become(self, state: State) -> None:
        """Hold what a snapshot held."""
        with self._lock:
            self._tree, self.version = dict(state), self.version + 1

    def place(self, uri: str, data: bytes) -> None:
        """Have a file there, in no step: how a test sets the stage."""
        with self._lock:
            self._make_directories(places.parent(uri), lambda directory: self._set(directory, {}))
            self._enter(uri, File(data, self.clock()))

    def link(self, uri: str, to: str) -> None:
        """Have a symbolic link to a directory in the place of one, in no step.

        What the directory held is gone. A snapshot does not hold the link.
        """
        with self._lock:
            inner = f"{uri}/"
            self._tree = {
                each: children
                for each, children in self._tree.items()
                if each != uri and not each.startswith(inner)
            }
            self._leave(uri)
            self._links[uri] = to

    def without_links(self, state: State) -> None:
        """Hold what a snapshot held, and no symbolic links."""
        with self._lock:
            self._links.clear()
        self.become(state)

    def remove(self, uri: str) -> None:
        """Have no such file, in no step."""
        with self._lock:
            self._leave(uri)

    def data(self, uri: str) -> bytes | None:
        """The bytes of a file, in no step; None if there is none."""
        with self._lock:
            entry = self._tree.get(places.parent(uri), {}).get(places.name(uri))
        return None if entry is None else entry.data

    def is_file(self, uri: str) -> bool:
        """Whether there is such a file, in no step."""
        return self.data(uri) is not None

    def modified(self, uri: str) -> float:
        """When a file was written, in no step."""
        return self._file(uri).modified

    def open(self, uri: str) -> BinaryIO:
        uri = self._followed(uri)
        with self._step("open", uri):
            return io.BytesIO(self._file(uri).data)

    def stat(self, uri: str) -> FileStatus | None:
        place = self._followed(uri)
        with self._step("stat", place), self._lock:
            if uri in self._links:
                return _link(uri)
            return self._status(uri, place) if self._is_there(place) else None

    def list(self, uri: str) -> list[FileStatus]:
        place = self._followed(uri)
        with self._step("list", place), self._lock:
            if self._is_there(place) and place not in self._tree:
                raise NotADirectoryError(errno.ENOTDIR, "not a directory", uri)
            children = self._tree.get(place, {})
            links = [each for each in self._links if places.parent(each) == place]
            return [
                *(
                    self._status(places.join(uri, name), places.join(place, name))
                    for name in children
                ),
                *(_link(places.join(uri, places.name(each))) for each in links),
            ]

    def write_new(self, uri: str, content: Content) -> int:
        chunks, uri = content(), self._followed(uri)
        self._make_directories(places.parent(uri), self._mkdir)
        with self._step("create", uri):
            self._create(uri)
        length = sum(self._write(uri, piece) for chunk in chunks for piece in self._cut(chunk))
        with self._step("close", uri):
            return length

    def set_attributes(self, uri: str, attributes: Attributes) -> None:
        uri = self._followed(uri)
        with self._step("set_attributes", uri), self._lock:
            self._enter(uri, self._file(uri)._replace(modified=attributes.modified))

    def rename(self, uri: str, new_uri: str, replace: bool) -> bool:
        uri, new_uri = self._followed(uri), self._followed(new_uri)
        with self._step("rename", new_uri):
            with self._lock:
                if not self._can_rename(uri, new_uri, replace):
                    return False
                self._enter(new_uri, self._file(uri))
                if replace or not self.links:
                    self._leave(uri)
                    return True
            self.hook("torn", "rename", new_uri)
            with self._lock:
                self._leave(uri)
            return True

    def take_over(self, uri: str, seen: bytes, data: bytes) -> bool:
        if not self.links:
            return super().take_over(uri, seen, data)
        if not self._take_overs.acquire(blocking=False):
            return False
        try:
            with contextlib.suppress(FileNotFoundError), self.open(uri) as stream:
                if stream.read() == seen:
                    self.put(uri, lambda: [data])
                    return True
            return False
        finally:
            self._take_overs.release()

    def delete(self, uri: str, durable: bool = False) -> bool:  # noqa: ARG002  # memory has no order to keep
        uri = self._followed(uri)
        with self._step("delete", uri), self._lock:
            if uri in self._tree:
                raise IsADirectoryError(errno.EISDIR, "is a directory", uri)
            return self._is_there(uri) and self._leave(uri)

    def rmdir(self, uri: str) -> bool:
        uri = self._followed(uri)
        with self._step("rmdir", uri), self._lock:
            if not self._is_there(uri) or self._tree.get(uri):
                return False
            if uri not in self._tree:
                raise NotADirectoryError(errno.ENOTDIR, "not a directory", uri)
            del self._tree[uri]
            return self._leave(uri)

    @contextlib.contextmanager
    def _step(self, verb: str, uri: str) -> Iterator[None]:
        refuse_unusable(uri)
        self.hook("before", verb, uri)
        yield
        self.hook("after", verb, uri)

    def _followed(self, uri: str) -> str:
        """Return the place itself of one that may be reached through symbolic links."""
        for link, to in self._links.items():
            if uri == link or uri.startswith(f"{link}/"):
                return self._followed(to + uri[len(link) :])
        return uri

    def _mkdir(self, uri: str) -> None:
        with self._step("mkdir", uri):
            self._set(uri, {})

    def _make_directories(self, uri: str, make: Callable[[str], None]) -> None:
        if uri in self._tree or "/" not in uri:
            return
        self._make_directories(places.parent(uri), make)
        make(uri)

    def _create(self, uri: str) -> None:
        with self._lock:
            if self._is_there(uri):
                raise FileExistsError(errno.EEXIST, "is there already", uri)
            self._enter(uri, File(b"", self.clock()))

    def _cut(self, chunk: bytes) -> Iterator[bytes]:
        size = max(1, -(-len(chunk) // self.pieces))
        return (chunk[at : at + size] for at in range(0, len(chunk), size))

    def _write(self, uri: str, piece: bytes) -> int:
        with self._step("write", uri):
            torn = self._draw.randrange(1, len(piece)) if len(piece) > 1 else 0
            if torn:
                self._append(uri, piece[:torn])
                self.hook("torn", "write", uri)
            self._append(uri, piece[torn:])
            return len(piece)

    def _append(self, uri: str, data: bytes) -> None:
        with self._lock:
            # one that was deleted has no name any more, and can be written nevertheless
            if data and self._is_there(uri):
                self._enter(uri, File(self._file(uri).data + data, self.clock()))

    def _can_rename(self, uri: str, new_uri: str, replace: bool) -> bool:
        if not self._is_there(uri) or places.parent(new_uri) not in self._tree:
            return False
        if uri in self._tree or (replace and new_uri in self._tree):
            raise IsADirectoryError(errno.EISDIR, "is a directory", new_uri)
        if not replace and self._is_there(new_uri):
            raise FileExistsError(errno.EEXIST, "is there already", new_uri)
        return True

    def _is_there(self, uri: str) -> bool:
        return places.name(uri) in self._tree.get(places.parent(uri), ())

    def _entry(self, uri: str) -> File | None:
        return self._tree[places.parent(uri)][places.name(uri)]

    def _file(self, uri: str) -> File:
        with self._lock:
            if not self._is_there(uri):
                raise FileNotFoundError(errno.ENOENT, "no such file", uri)
            entry = self._entry(uri)
            if entry is None:
                raise IsADirectoryError(errno.EISDIR, "is a directory", uri)
            return entry

    def _set(self, directory: str, children: Mapping[str, File | None]) -> None:
        """Make a directory."""
        with self._lock:
            if self._is_there(directory) and directory not in self._tree:
                raise NotADirectoryError(errno.ENOTDIR, "not a directory", directory)
            if directory not in self._tree:  # else another thread was first
                self._tree[directory] = children
                self._enter(directory, None)

    def _enter(self, uri: str, entry: File | None) -> None:
        parent = places.parent(uri)
        self._fill(parent, {**self._tree.get(parent, {}), places.name(uri): entry})

    def _leave(self, uri: str) -> bool:
        parent, name = places.parent(uri), places.name(uri)
        others = {other: entry for other, entry in self._tree[parent].items() if other != name}
        self._fill(parent, others)
        return True

    def _fill(self, directory: str, entries: Mapping[str, File | None]) -> None:
        children = Children(entries)
        before = self._tree.get(directory)
        is_written = before is not None and before.keys() == entries.keys()
        children.modified = _modified(before) if is_written else self.clock()
        self._tree[directory] = children
        self.version += 1

    def _status(self, uri: str, place: str) -> FileStatus:
        status = _status(uri, self._entry(place))
        return (
            status._replace(modified=_modified(self._tree.get(place)))
            if status.is_directory
            else status
        )


def files(state: State, below: str = "") -> dict[str, bytes]:
    """The bytes of each file of a state below a place."""
    return {
        f"{directory}/{name}": entry.data
        for directory, children in state.items()
        if directory == below or directory.startswith(f"{below}/" if below else "")
        for name, entry in children.items()
        if entry is not None
    }


def _modified(children: Mapping[str, File | None] | None) -> float:
    return children.modified if isinstance(children, Children) else 0.0


def _link(uri: str) -> FileStatus:
    return FileStatus(uri, places.name(uri), 0, True, 0.0, is_link=True)


def _status(uri: str, entry: File | None) -> FileStatus:
    if entry is None:
        return FileStatus(uri, places.name(uri), 0, True, 0.0)
    return FileStatus(uri, places.name(uri), len(entry.data), False, entry.modified)


class Point(NamedTuple):
    """A moment at which a run may die: `state` is the index of what it leaves then."""

    moment: Moment
    verb: str
    uri: str
    state: int


class Recorder:
    """Keeps every point of what happens on a disk, and every distinct state between the points."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self.points: list[Point] = []
        self.states: list[State] = []
        self._disk, self._version, self._lock = disk, -1, threading.Lock()
        disk.hook = self

    def __call__(self, moment: Moment, verb: str, uri: str) -> None:
        with self._lock:
            if self._version != self._disk.version:
                self._version = self._disk.version
                self.states.append(self._disk.snapshot())
            self.points.append(Point(moment, verb, uri, len(self.states) - 1))


class SimulatedJob:
    """A job at the source.

    Its checkpoints are drawn: shared and exclusive files, foreign and merged ones if asked for.
    """

    def __init__(
        self, disk: SimulatedDisk, draw: random.Random, root: str = "file:/dcA", job: str = JOB
    ) -> None:
        self.root, self.job = f"{root}/{job}", job
        self.bytes: dict[str, bytes] = {}  # of every file that ever was, by its local path
        self.references: dict[
            int, list[checker.Need]
        ] = {}  # of each checkpoint, in the order of its `_metadata`
        self._disk, self._draw = disk, draw
        self._shared: list[str] = []
        self._shared_of: dict[int, list[str]] = {}  # of each checkpoint
        self._segments: dict[str, list[Segment]] = {}

    def complete(self, number: int, foreign: bool = False, merged: bool = False) -> str:
        """Write the next checkpoint, which shares files with the one before; its place."""
        checkpoint = f"{self.root}/chk-{number}"
        self._shared = [place for place in self._shared if self._draw.random() < 0.7]
        self._shared += self._some(f"{self.root}/shared", 1)
        self._shared += (
            self._some(f"file:/dcA/earlier-{self._draw.randrange(2)}/shared", 1) if foreign else []
        )
        self._shared_of[number] = list(self._shared)
        segments = self._grown(f"{self.root}/shared/merged", number) if merged else []
        operators = (self._operator(checkpoint, number, segments),)
        version = self._draw.randint(5 if merged else 3, 6)
        data = bytes(encode(Tree(version, operators, number)).data)
        self._disk.place(f"{checkpoint}/_metadata", data)
        local = Path(places.local_path(f"{checkpoint}/_metadata"))
        self.references[number] = checker.needs_of(data, local, check_directories=False)
        return checkpoint

    def memory(self) -> tuple[object, ...]:
        """All that the job knows, for `recall`."""
        segments = {place: list(each) for place, each in self._segments.items()}
        return dict(self.bytes), dict(self.references), list(self._shared), segments

    def recall(self, memory: tuple[object, ...]) -> None:
        """Be as it was when it had this memory, which stays as it is."""
        self.bytes, self.references, self._shared, self._segments = copy.deepcopy(memory)  # type: ignore[assignment]

    def restored(self, job: str) -> SimulatedJob:
        """Start another job from this one's newest checkpoint, so that it references its files."""
        other = SimulatedJob(self._disk, self._draw, places.parent(self.root), job)
        other.bytes, other._shared = self.bytes, list(self._shared)
        return other

    def go_back(self, number: int) -> None:
        """Go on from an earlier checkpoint, and keep counting: its files are needed again."""
        self._shared = list(self._shared_of[number])

    def subsume(self, number: int) -> None:
        """Delete a checkpoint, and the files that only it needed, as Flink does."""
        gone = {need.path for need in self.references[number]}
        kept = {
            need.path
            for other in self.references
            if other > number
            for need in self.references[other]
        }
        self._disk.remove(f"{self.root}/chk-{number}/_metadata")
        for path in sorted(gone - kept):
            self._disk.remove(f"file:{path}")

    def _operator(self, checkpoint: str, number: int, segments: list[Segment]) -> OperatorEntry:
        own = [self._handle(place, checkpoint) for place in self._some(checkpoint, 2)]
        shared = [(f"{place[-8:]}.sst", self._handle(place)) for place in self._shared]
        return keyed_operator(bytes(16), number, own, shared, segments)

    def _some(self, directory: str, least: int) -> list[str]:
        """New files in a directory; some are empty."""
        found = [
            f"{directory}/{self._draw.getrandbits(64):016x}"
            for _ in range(self._draw.randint(least, least + 2))
        ]
        for place in found:
            self._append(place, self._draw.choice([0, 1, 40, 300]))
        return found

    def _grown(self, stem: str, number: int) -> list[Segment]:
        """The segments of the merged files, in each of which this checkpoint wrote one more.

        The oldest ones were dropped.
        """
        found = []
        for place in [f"{stem}-{index}" for index in range(2)]:
            start, size = (
                len(self.bytes.get(places.local_path(place), b"")),
                self._draw.randint(1, 200),
            )
            self._append(place, size)
            self._segments[place] = [
                *self._segments.get(place, [])[-1:],
                Segment(start, size, 1, place, f"{number}"),
            ]
            found += self._segments[place]
        return found

    def _append(self, place: str, size: int) -> None:
        path = places.local_path(place)
        self.bytes[path] = self.bytes.get(path, b"") + self._draw.randbytes(size)
        self._disk.place(place, self.bytes[path])

    def _handle(self, place: str, checkpoint: str | None = None) -> FileHandle | RelativeFile:
        size = len(self.bytes[places.local_path(place)])
        is_relative = checkpoint is not None and self._draw.random() < 0.5
        return RelativeFile(places.name(place), size) if is_relative else FileHandle(place, size)
