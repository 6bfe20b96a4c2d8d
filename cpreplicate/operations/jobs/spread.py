"""Whole syncs by executors of Spark: `--spread jobs`.

The driver finds what is to be replicated. A small sync is then made by a task, as `sync` is made by
any process: it takes the lease, copies by threads, commits and deletes. A large one is made by the
driver, which spreads its files.
"""

from __future__ import annotations

import os
import pickle
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from queue import SimpleQueue
from typing import Literal, NamedTuple, Protocol

from cpreplicate.core import uri
from cpreplicate.core.log_context import begin_job
from cpreplicate.core.notify import Notify
from cpreplicate.errors import CpreplicateError, TargetGone, UsageError, described
from cpreplicate.operations.sync.report import Report
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.sync.sync import sync
from cpreplicate.protocol.lease import SECONDS
from cpreplicate.runners import (
    ExecutionOptions,
    InlineRunner,
    NeedsSpark,
    Outcome,
    Runner,
    RunnerStopped,
    SharedRunner,
    Task,
)
from cpreplicate.runners.base import Done
from cpreplicate.runners.choose import is_small
from cpreplicate.runners.copy_rows import sizes_of
from cpreplicate.storage import Side, Sides
from cpreplicate.storage.waiting.admission import admitted
from cpreplicate.storage.waiting.side_call import in_thread

Spread = Literal["files", "jobs"]
"""What tasks of Spark are made of: the files of all jobs, or whole small syncs."""

_GATHER = 0.1  # seconds for which syncs of a service are gathered, to share a job of Spark
_NAMES = 8  # of a directory, by which it is known
# A task that begins again may find the lease of its own former attempt, whose host nobody sees.
_LOCK_WAIT_AGAIN = SECONDS + 10.0


class Seen(NamedTuple):
    """A directory as the driver sees it: its inode, and names in it with theirs.

    The root of a filesystem has the same inode on each host, whatever it holds.
    """

    path: str
    inode: int
    inside: tuple[tuple[str, int], ...] = ()


class SyncOrder(NamedTuple):
    """A sync that an executor makes. Its request is without sides.

    `seen` is the directory in which a replica on `file:` is, as the driver sees it.
    """

    label: str
    request: SyncRequest
    seen: Seen | None = None


class Made(NamedTuple):
    """What a sync returned or raised, and what it narrated."""

    report: Report | None = None
    error: Exception | None = None
    lines: tuple[str, ...] = ()


class SpreadRunner(Runner, Protocol):
    """A runner that calls a function on other machines; see `SparkRunner.spread`."""

    def spread(
        self,
        function: Callable[[SyncOrder, bool], Made],
        items: Sequence[SyncOrder],
        done: Callable[[int, Made], None],
        failed: Callable[[int, Exception], None],
        places: Sequence[str] = (),
        level: int = 0,
        expected: Sequence[tuple[int, int]] = (),
    ) -> None: ...


def refuse_without_spark(spread: Spread, execution: ExecutionOptions) -> None:
    """Raise `UsageError` if whole jobs are to be spread, and nothing is there to spread them to."""
    if spread == "jobs" and execution.runner != "spark":
        raise UsageError(
            "--spread jobs needs --runner spark: whole syncs are tasks of its executors. Give"
            " --runner spark, with the --master of a cluster, or leave out --spread"
        )


def is_whole(request: SyncRequest, files: int = 0, size: int = 0) -> bool:
    """Return whether a sync of so much is made by a task, and not by the driver.

    The file of `kafka_source_conf` is at the driver, and so is the way to that Kafka.
    """
    return request.kafka_source is None and is_small(files, size)


def make_all(
    runner: SpreadRunner,
    asked: Sequence[tuple[str, SyncRequest]],
    made: Callable[[int, Made], None],
    level: int = 0,
    expected: Sequence[tuple[int, int]] = (),
    streams: int | None = None,
) -> None:
    """Make syncs by executors, important ones first; each has a label, and copies `streams` files
    at once.

    `made` is called with each result, by any thread. It has the error `NeedsSpark` for one that
    has become large. Raises as `Runner.map` what concerns all of them.
    """
    if not asked:
        return
    sides = runner.limited(asked[0][1].sides)
    seen = {root: _present(root) for root in {request.target_root for _, request in asked}}
    orders = [_order(label, request, seen[request.target_root]) for label, request in asked]

    def done(index: int, result: Made) -> None:
        try:
            result = _seen_here(result, sides.target)
        except Exception as error:  # noqa: BLE001  # it concerns this job only, and would be lost
            result = result._replace(report=None, error=error)
        made(index, result)

    def failed(index: int, error: Exception) -> None:
        made(index, Made(error=error))

    places = [place for _, request in asked for place in (request.source, request.target_root)]
    runner.spread(_Maker(sides, streams), orders, done, failed, places, level, expected)


def _order(label: str, request: SyncRequest, seen: Seen | None) -> SyncOrder:
    return SyncOrder(label, replace(request, sides=Sides(), execution=ExecutionOptions()), seen)


def _present(target_root: str) -> Seen | None:
    """Return the nearest directory of a TARGET_ROOT on `file:` that exists, with a part of it."""
    if not target_root.startswith("file:"):
        return None
    path = Path(uri.local_path(target_root))
    for place in (path, *path.parents):
        with suppress(OSError):  # not there, or not for the driver to see
            return Seen(str(place), place.stat().st_ino, tuple(_part_of(place)))
    return None


def _part_of(place: Path) -> Iterator[tuple[str, int]]:
    """Yield a few names of a directory with their inodes, but for what each filesystem has."""
    with os.scandir(place) as found:
        for entry in islice(found, _NAMES):
            inode = _inode(Path(entry.path))
            if inode is not None and entry.name != "lost+found":
                yield entry.name, inode


def _seen_here(made: Made, side: Side) -> Made:
    """Return what came of a sync, which has failed if the driver does not see what it wrote."""
    report = made.report
    if report is None or not report.committed or not report.plan.replica.startswith("file:"):
        return made
    written = uri.join(uri.join(report.plan.replica, report.plan.checkpoint), "_metadata")
    if side.storage(written).stat(written) is not None:
        return made
    error = _unshared(f"the driver, which does not see {written}. The replica is not there")
    return made._replace(report=None, error=error)


def _unshared(whom: str) -> TargetGone:
    return TargetGone(
        f"the TARGET_ROOT on file: is not the same directory for {whom}. Mount one filesystem at"
        " that path, on the driver and on every executor, or leave out --spread jobs"
    )


class _Maker:
    """Makes a sync on an executor. The limits of its sides are kept by the driver."""

    def __init__(self, sides: Sides, streams: int | None) -> None:
        self._sides, self._execution = sides, ExecutionOptions(streams=streams)

    def __call__(self, order: SyncOrder, is_again: bool) -> Made:
        begin_job(order.label)
        wait = max(order.request.lock_wait, _LOCK_WAIT_AGAIN if is_again else 0.0)
        request = replace(order.request, sides=self._sides, lock_wait=wait)
        lines: list[str] = []
        try:
            _refuse_unshared(order)
            with admitted(), InlineRunner(self._sides, self._execution) as inline:
                report = sync(request, lines.append, _Small(inline))
        except RunnerStopped:
            raise
        except Exception as error:  # noqa: BLE001  # it concerns this job only
            return Made(None, _portable(error), tuple(lines))
        by = "spark" if report.runner is not None else None
        return Made(replace(report, runner=by), None, tuple(lines))


def _refuse_unshared(order: SyncOrder) -> None:
    """Raise `TargetGone` if this host has another directory where the driver has TARGET_ROOT."""
    if order.seen is None:
        return
    if not _is_here(order.seen):
        raise _unshared(f"an executor, whose {order.seen.path} is another one. Nothing was done")


def _is_here(seen: Seen) -> bool:
    """Return whether this host has the directory: its inode, and one of the names at least.

    Others may have removed the rest of them since.
    """
    place = Path(seen.path)
    try:
        if place.stat().st_ino != seen.inode:
            return False
    except OSError:
        return False
    here = (_inode(place / name) == inode for name, inode in seen.inside)
    return not seen.inside or any(here)


def _inode(path: Path) -> int | None:
    """Return the inode of a file, not of what it links to; None if it is not to be seen."""
    try:
        return path.lstat().st_ino
    except OSError:
        return None


class _Small(SharedRunner):
    """The threads of an executor. They copy what is small, for what has become large: another
    checkpoint may be the newest one by now.
    """

    def __init__(self, runner: Runner) -> None:
        super().__init__(runner, 0)

    def run(
        self,
        actions: Sequence[Task],
        level: int = 0,  # noqa: ARG002  # one process has no levels
        done: Done | None = None,
    ) -> list[Outcome]:
        size = int(sizes_of(actions).sum())
        if size and not is_small(len(actions), size):
            raise NeedsSpark
        return super().run(actions, 0, done)


def _portable(error: Exception) -> Exception:
    """Return an exception that can travel: what a library raises may not."""
    try:
        again = pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001  # pickle raises anything
        return CpreplicateError(described(error))
    return error if type(again) is type(error) else CpreplicateError(described(error))


class _Asked(NamedTuple):
    """A sync of a service, and where its thread waits for what came of it."""

    label: str
    request: SyncRequest
    level: int
    answer: SimpleQueue[Made]


@dataclass
class SpreadSyncs:
    """Makes syncs of a service by executors. Those that are asked for at about the same time, and
    are as important, share a job of Spark.

    `spark` provides the runner of the session that the service keeps. `streams` is as of
    `make_all`.
    """

    spark: Callable[[], AbstractContextManager[SpreadRunner]]
    streams: int | None = None
    _asked: list[_Asked] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def make(self, label: str, request: SyncRequest, notify: Notify, level: int) -> Report:
        """Return the report of a sync, or raise what it raised; `NeedsSpark` if it is large."""
        if not is_whole(request):
            raise NeedsSpark
        asked = _Asked(label, request, level, SimpleQueue())
        with self._lock:
            is_first = not self._asked
            self._asked.append(asked)
        if is_first:
            try:
                in_thread(self._begin, "spread")
            except Exception as error:  # noqa: BLE001  # no thread is left: nobody would answer
                _answer(error, self._taken())
        made = asked.answer.get()  # once it is cancelled, too
        for line in made.lines:
            notify(line)
        if made.error is not None:
            raise made.error
        assert made.report is not None, "it has one of them"
        return made.report

    def _begin(self) -> None:
        """Begin a job of Spark for each level, of what was asked for since a moment."""
        time.sleep(_GATHER)
        asked = self._taken()
        for level in sorted({each.level for each in asked}):
            of_level = [each for each in asked if each.level == level]
            try:
                in_thread(partial(self._make, of_level), "spread")
            except Exception as error:  # noqa: BLE001  # as above
                _answer(error, of_level)

    def _taken(self) -> list[_Asked]:
        """Return what is asked for, once."""
        with self._lock:
            asked, self._asked = self._asked, []
        return asked

    def _make(self, asked: Sequence[_Asked]) -> None:
        answered: set[int] = set()

        def made(index: int, result: Made) -> None:
            answered.add(index)
            asked[index].answer.put(result)

        try:
            with self.spark() as runner:
                pairs = [(each.label, each.request) for each in asked]
                make_all(runner, pairs, made, asked[0].level, streams=self.streams)
        except Exception as error:  # noqa: BLE001  # the threads of the jobs raise it
            _answer(error, (asked[index] for index in set(range(len(asked))) - answered))


def _answer(error: Exception, asked: Iterable[_Asked]) -> None:
    for each in asked:
        each.answer.put(Made(error=error))
