"""Real processes to be killed beside a job that completes checkpoints, and what must hold of their
replica after that.
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from random import Random
from types import TracebackType
from typing import IO, NamedTuple

import pyarrow.parquet as pq

from cpreplicate.operations.sync import sync
from cpreplicate.operations.sync.diff import diff
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.storage import Side
from cpreplicate.storage.base import TEMPORARY
from tests.support import checker
from tests.support.hdfs import HdfsCluster, HdfsError
from tests.support.jobs import JOB, pattern, put_checkpoint
from tests.support.waiting import PATIENCE
from tests.support.waiting import wait_until as wait_until  # modules import it from here, too

# in the environment of a victim, and so of every process that it starts
_MARK = "TESTS_VICTIM"
_MOVED_ON = (10, 12)
_NOWHERE = Path("/replica")  # the path of the replica that the checker is given
Tree = Mapping[str, bytes]


class Shape(NamedTuple):
    """A checkpoint each `interval` seconds, of `new` files and those of the `lives - 1` before.

    `retained` of them stay.
    """

    interval: float
    new: int
    lives: int
    length: int
    retained: int = 3

    @functools.cache  # noqa: B019  # there are few shapes
    def files(self, number: int) -> Mapping[str, int]:
        """Path to length of the files of a checkpoint.

        The oldest that it shares are in no later one.
        """
        made = range(max(1, number - self.lives + 1), number + 1)
        shared = {
            f"shared/{each:04}-{index}": self.length * (1 + (each + index) % 3)
            for each in made
            for index in range(self.new)
        }
        return {**shared, f"chk-{number}/own": 1000 + number}


class RunningJob:
    """Completes checkpoints in its source for as long as the block runs.

    A subsumed one loses its `_metadata` first.
    """

    def __init__(self, shape: Shape, side: Side, root: str) -> None:
        self.files, self.source, self.newest = shape.files, f"{root}/{JOB}", 0
        self._shape, self._side, self._root = shape, side, root
        self._interval = shape.interval
        self._quiet, self._over = threading.Lock(), threading.Event()
        self._pool = ThreadPoolExecutor(1, "job")
        self._running: Future[None] = Future()

    def __enter__(self) -> RunningJob:
        self._complete()
        self._running = self._pool.submit(self._run)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._pool.shutdown()
        if error is None:
            self._running.result()

    @contextlib.contextmanager
    def paused(self) -> Iterator[int]:
        """The newest checkpoint, which stays so."""
        with self._quiet:
            yield self.newest

    def slow_down(self) -> None:
        """Complete checkpoints half as often: the machine is too slow to replicate one in time."""
        self._interval *= 2

    def _run(self) -> None:
        while not self._over.wait(self._interval):
            with self._quiet:
                self._complete()

    def _complete(self) -> None:
        number = self.newest + 1
        if self._root.startswith("file:"):
            self._write(number)
        put_checkpoint(self._side, self._root, number, self.files(number))
        self.newest = number
        if number > self._shape.retained:
            self._subsume(number - self._shape.retained)

    def _write(self, number: int) -> None:
        """Its files, with no such care as the tool takes: the job must not keep the disk from the
        run that is killed.
        """
        for name in set(self.files(number)) - set(self.files(number - 1)):
            path = Path(self.source.removeprefix("file:"), name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(pattern(name, self.files(number)[name]))

    def _subsume(self, number: int) -> None:
        storage = self._side.storage(self._root)
        for name in [
            f"chk-{number}/_metadata",
            *(set(self.files(number)) - set(self.files(number + 1))),
        ]:
            storage.delete(f"{self.source}/{name}")
        storage.rmdir(f"{self.source}/chk-{number}")


class Place(ABC):
    """Where a replica is, seen by other means than the tool's own."""

    @abstractmethod
    def names(self, directory: str) -> list[str]:
        """What a directory of the replica holds, nothing if there is none."""

    @abstractmethod
    def read(self, path: str) -> bytes:
        """A file of the replica."""

    def tree(self) -> Tree:
        """Every file; a replica is two levels deep.

        What is not whole yet may not be readable, and has no bytes.
        """
        paths = [
            (directory, name) for directory in self.names("") for name in self.names(directory)
        ]
        return {
            f"{where}/{name}": b"" if name.startswith(TEMPORARY) else self.read(f"{where}/{name}")
            for where, name in paths
        }

    def committed(self) -> list[int]:
        """The committed checkpoints, oldest first."""
        names = [
            name
            for name in self.names("")
            if name.startswith("chk-") and "_metadata" in self.names(name)
        ]
        return sorted(int(name.removeprefix("chk-")) for name in names)

    def copied(self) -> frozenset[str]:
        """What is in the directory that has most of the files, whole or not."""
        return frozenset(self.names("shared"))


class LocalPlace(Place):
    def __init__(self, root: Path) -> None:
        self._root = root / JOB

    def names(self, directory: str) -> list[str]:
        try:
            return [each.name for each in (self._root / directory).iterdir()]
        except FileNotFoundError:
            return []

    def read(self, path: str) -> bytes:
        return (self._root / path).read_bytes()


class HdfsPlace(Place):
    def __init__(self, cluster: HdfsCluster, root: str) -> None:
        self._cluster, self._root = cluster, f"{root}/{JOB}"

    def names(self, directory: str) -> list[str]:
        try:
            return self._cluster.names(f"{self._root}/{directory}".rstrip("/"))
        except HdfsError as error:
            if "FileNotFoundException" in str(error):
                return []
            raise

    def read(self, path: str) -> bytes:
        try:
            return self._cluster.get(f"{self._root}/{path}")
        except HdfsError as error:
            raise (
                FileNotFoundError(path) if "FileNotFoundException" in str(error) else error
            ) from error


class Victim:
    """A run of the tool as a process of its own, with all that it starts."""

    def __init__(self, *words: object, program: Sequence[str] = ("-m", "cpreplicate")) -> None:
        self._mark = uuid.uuid4().hex
        self._messages = tempfile.TemporaryFile()  # noqa: SIM115  # closed by `end`
        self._output = tempfile.TemporaryFile()  # noqa: SIM115  # the same
        command = [sys.executable, *program, *map(str, words)]
        environment = {**os.environ, _MARK: self._mark, "PYTHONFAULTHANDLER": "1"}
        self._process = subprocess.Popen(
            command, env=environment, stdout=self._output, stderr=self._messages
        )
        self.pid = self._process.pid

    @property
    def code(self) -> int | None:
        """Its exit code, negative if a signal ended it; None while it runs."""
        return self._process.poll()

    def kill(self) -> bool:
        """kill -9, of this process only; whether that is what ended it."""
        self._process.kill()
        return self._process.wait(PATIENCE) == -signal.SIGKILL

    def ended(self, seconds: float = PATIENCE) -> int:
        """Its exit code, once it has ended of itself; if it does not, fail with what it waits
        for.
        """
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired as error:
            threads_of_java = self._threads_of_java()
            self._process.send_signal(signal.SIGABRT)  # Python prints what its threads do
            self._process.wait(PATIENCE)
            raise AssertionError(
                f"it has not ended\n{self.messages()}\n{threads_of_java}"
            ) from error

    def messages(self) -> str:
        """Its stderr until now."""
        return _content(self._messages)

    def output(self) -> str:
        """Its stdout until now."""
        return _content(self._output)

    def processes(self, *words: str) -> list[int]:
        """The processes that live and were started by it or below it, and itself.

        Those with these words in their command.
        """
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # not ours to look at, or just gone
                mine = f"{_MARK}={self._mark}".encode() in (entry / "environ").read_bytes()
                if mine and all(
                    word.encode() in (entry / "cmdline").read_bytes() for word in words
                ):
                    found.append(int(entry.name))
        return found

    def _threads_of_java(self) -> str:
        """What the threads of its Java processes do."""
        stacks = [
            subprocess.run(["jstack", str(pid)], capture_output=True, text=True, check=False)
            for pid in self.processes("java")
        ]
        return "\n".join(stack.stdout for stack in stacks)

    def end(self) -> None:
        """End whatever is left of it."""
        self._process.kill()
        self._process.wait(PATIENCE)
        wait_until(lambda: not kill_all(self.processes()))
        self._messages.close()
        self._output.close()


def _content(file: IO[bytes]) -> str:
    """What a process has written until now; not by `seek`, for it writes where the file is read."""
    size = os.fstat(file.fileno()).st_size
    return os.pread(file.fileno(), size, 0).decode(errors="replace")


@contextlib.contextmanager
def started(*words: object, program: Sequence[str] = ("-m", "cpreplicate")) -> Iterator[Victim]:
    """A victim of which nothing is left after the block, whatever happens in it."""
    victim = Victim(*words, program=program)
    try:
        yield victim
    finally:
        victim.end()


def assert_killed_or_moved_on(victim: Victim) -> None:
    """It was killed or came to its end, which may be that the source had moved on."""
    messages = victim.messages()
    assert victim.code in (-signal.SIGKILL, 0, *_MOVED_ON), messages
    assert "Traceback" not in messages, messages
    assert "is incomplete at the source" not in messages, messages


def kill(pid: int) -> None:
    """Kill a process with SIGKILL; it may be gone."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def kill_all(pids: Collection[int]) -> int:
    """Kill these processes with SIGKILL, and return how many they were."""
    for pid in pids:
        kill(pid)
    return len(pids)


class Moment(NamedTuple):
    """When to kill: at a random time within so many seconds of the start, or of the first sign of
    something.
    """

    sign: str
    within: float


class Standby:
    """A replica whose runs are killed, with what has been seen of it so far.

    `request` is what its runs are to do.
    """

    newest = 0  # checkpoint that was committed when it was looked at

    def __init__(self, job: RunningJob, place: Place, request: SyncRequest, draw: Random) -> None:
        self._job, self._place, self.request, self._draw = job, place, request, draw
        self._seen: Tree = {}

    def kill_runs(
        self,
        kills: int,
        moments: Sequence[Moment],
        *words: object,
        enough: Callable[[Counter[str]], bool] = lambda _died: True,
    ) -> Counter[str]:
        """Kill so many runs, each followed by one that must complete; return where they died.

        It goes on until `enough` holds of where they died, however many ended before they could be
        killed, as when the source moved on: which these are depends on how fast the machine is.
        """
        died: Counter[str] = Counter()
        while died.total() < kills or not enough(died):
            self.wait_for_work()
            with started(*words) as victim:
                killed = self.kill(victim, moments[died.total() % len(moments)])
                died.update([self.looked_at()] if killed else [])
                if victim.code in _MOVED_ON:
                    self._job.slow_down()
                assert_killed_or_moved_on(victim)
                self.converge()
                if victim.processes():
                    wait_until(lambda: not victim.processes())
                    self.looked_at()
        print(f"killed {words[0]}: {dict(died)}")
        return died

    def kill(self, victim: Victim, moment: Moment) -> bool:
        """Kill a run then; whether it had not ended before."""
        if moment.sign != "start":
            self.wait_for(moment.sign, victim)
        until = time.monotonic() + self._draw.uniform(0, moment.within)
        while victim.code is None and time.monotonic() < until:
            time.sleep(0.001)
        return victim.kill()

    def wait_for_work(self) -> None:
        """Until there is a checkpoint that the replica does not hold."""
        wait_until(lambda: self._job.newest > self.newest)

    def wait_for(self, sign: str, victim: Victim) -> None:
        """Until a run shows that it has come so far, or has ended."""
        before = (self._place.committed(), self._place.copied())
        signs = ("copy", "commit") if sign == "commit" else (sign,)
        wait_until(
            lambda: victim.code is not None or any(self._shows(each, *before) for each in signs),
            pause=0.01,
        )
        wait_until(lambda: victim.code is not None or self._shows(sign, *before), pause=0.0005)

    def _shows(self, sign: str, committed: list[int], copied: frozenset[str]) -> bool:
        if sign == "lease":
            return "lease" in self._place.names(".cpreplicate")
        return (
            self._place.copied() != copied
            if sign == "copy"
            else self._place.committed() != committed
        )

    def looked_at(self) -> str:
        """Every committed checkpoint is whole, and the newest did not go back.

        How far the run came since the last look.
        """
        tree = self._tree()
        newest = max(committed(tree), default=0)
        assert newest >= self.newest, (
            f"chk-{self.newest} was committed, now chk-{newest} is the newest"
        )
        assert_whole(tree, self._job.files)
        where = where_it_died(self._seen, tree, self._job.files)
        self._seen, self.newest = tree, newest
        return where

    def _tree(self) -> Tree:
        """Read anew while an executor or a NameNode still does what a run had asked for before it
        died, or while the run that lives commits.
        """
        (tree,) = wait_until(self._tree_at_rest, "a look amid which nothing vanished or appeared")
        return tree

    def _tree_at_rest(self) -> Sequence[Tree]:
        with contextlib.suppress(FileNotFoundError):
            before, tree = self._place.committed(), self._place.tree()
            if before == committed(tree) == self._place.committed():
                return [tree]
        return []

    def converge(self) -> None:
        """Running again, at once, makes it hold the newest checkpoint.

        There is nothing more to do then.
        """
        with self._job.paused() as newest:
            sync.sync(self.request, lambda _line: None)
            self.looked_at()
            assert committed(self._seen) == [newest], (
                f"{committed(self._seen)} are committed, the source is at {newest}"
            )
            plan = diff(self.request).plan
            assert plan.empty, plan.actions

    def left(self) -> list[str]:
        """Files that are neither needed by the newest checkpoint nor of the tool's own record."""
        needed = {*self._job.files(self.newest), f"chk-{self.newest}/_metadata"}
        return [
            path
            for path in self._seen
            if path not in needed and not path.startswith(".cpreplicate/")
        ]

    def recorded(self) -> set[str]:
        """Files that a manifest or a journal lists as complete."""
        tables = [
            pq.read_table(io.BytesIO(data), columns=["path", "length"])
            for path, data in self._seen.items()
            if path.startswith(".cpreplicate/") and path.endswith(".parquet")
            if not path.rpartition("/")[2].startswith(TEMPORARY)
        ]
        rows = [row for table in tables for row in table.to_pylist()]
        return {row["path"] for row in rows if row["length"] is not None}


def committed(tree: Tree) -> list[int]:
    """The committed checkpoints, oldest first."""
    names = [path.removesuffix("/_metadata") for path in tree if path.endswith("/_metadata")]
    return sorted(int(name.removeprefix("chk-")) for name in names)


def assert_whole(tree: Tree, files: Callable[[int], Mapping[str, int]]) -> None:
    """Each committed checkpoint needs what the source's did, all of that is there, and every file
    has the source's bytes.
    """
    for number in committed(tree):
        data, place = tree[f"chk-{number}/_metadata"], _NOWHERE / f"chk-{number}" / "_metadata"
        faults = checker.faults_of(data, place, lambda path: _length(tree, path))
        assert not faults, faults
        needs = {
            os.path.relpath(need.path, _NOWHERE): need.extent
            for need in checker.needs_of(data, place)
        }
        assert needs == files(number), f"chk-{number} needs {needs}"
    for path in filter(_is_state, tree):
        assert tree[path] == pattern(path, files(_made_by(path))[path]), (
            f"{path} has other bytes than the source's"
        )


def where_it_died(before: Tree, after: Tree, files: Callable[[int], Mapping[str, int]]) -> str:
    """How far a run came that found the one and left the other."""
    old, new = committed(before), committed(after)
    if old[-1:] == new[-1:]:
        return _where_before_its_commit(before, after, files)
    if old[-1:] and old[-1] in new:
        return "committed"
    if old and any(path in after for path in set(files(old[-1])) - set(files(new[-1]))):
        return "deleting"
    return "ending"


def _where_before_its_commit(
    before: Tree, after: Tree, files: Callable[[int], Mapping[str, int]]
) -> str:
    grown = [path for path in after if path not in before and not path.startswith(".cpreplicate/")]
    begun = {_made_by(path) for path in after if path.startswith("chk-")} - set(committed(after))
    if grown and any(set(files(number)) <= set(after) for number in begun):
        return "committing"
    if grown:
        return "copying"
    own = [
        path
        for path in after
        if path.startswith(".cpreplicate/") and after[path] != before.get(path)
    ]
    return "planning" if own else "starting"


def _length(tree: Tree, path: str) -> int | None:
    data = tree.get(path.removeprefix(f"{_NOWHERE}/"))
    return None if data is None else len(data)


def _is_state(path: str) -> bool:
    directory, _, name = path.rpartition("/")
    return directory != ".cpreplicate" and name != "_metadata" and not name.startswith(TEMPORARY)


def _made_by(path: str) -> int:
    """The checkpoint that a file of `Shape` came with."""
    return int(
        path.removeprefix("shared/").removeprefix("chk-").partition("-")[0].partition("/")[0]
    )
