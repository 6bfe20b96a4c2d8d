"""What runners execute: copies, reads and deletes, many files at once."""

from __future__ import annotations

import functools
import math
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import NamedTuple, TypeAlias

from cpreplicate.errors import CpreplicateError
from cpreplicate.protocol.lease import LeaseToken
from cpreplicate.storage import ShortSource, Sides, SourceMissing, Storage, checksum, copy_file
from cpreplicate.storage.cancellation import cancellable

# bytes; what a smaller file costs is waiting, so a task has many in flight, and few of the others
SMALL = 4 << 20
# over 40 ms and 2 Gbit/s faster than four or sixteen, without a line somewhat slower:
# docs/performance.md
_LARGE_STREAMS = 8


class Copy(NamedTuple):
    """A copy of `source` to `target`, of at least `extent` bytes, or about `size` if that is more.

    `token` is set for a merged file, which grows: a run that lost its lease must not replace a
    longer copy of it.
    """

    source: str
    target: str
    extent: int
    size: int = 0
    token: LeaseToken | None = None


class Read(NamedTuple):
    """A read of `target` to its end for its CRC32C; `extent` is its length."""

    target: str
    extent: int


class Delete(NamedTuple):
    """A delete of `target`, or a move `to` another URI. It is no failure if the file is gone.

    Not begun after `until`, seconds since the epoch: then another run may hold the lease. The
    clocks of executors are taken to differ from the driver's by seconds at most.
    """

    target: str
    until: float = math.inf
    to: str | None = None


Task: TypeAlias = Copy | Read | Delete


class _Late(CpreplicateError):
    """Raised for an action that comes too late."""


class Outcome(NamedTuple):
    """The result of one action.

    `missing`: the file to be copied is not at the source. `short`: it is there, and shorter than
    its extent. `late`: the action was not begun in time. No other try ends better than one of
    these.
    """

    target: str
    bytes: int
    crc32c: int | None
    seconds: float
    error: str | None = None
    missing: bool = False
    late: bool = False
    short: bool = False

    @property
    def is_worth_a_try(self) -> bool:
        """Whether another try may succeed."""
        return self.error is not None and not (self.missing or self.short or self.late)


def size_of(action: Task) -> int:
    """Return the bytes that an action moves."""
    if isinstance(action, Copy):
        return max(action.extent, action.size)
    return action.extent if isinstance(action, Read) else 0


class Watcher:
    """An observer of a batch, called from any thread, which can cancel the batch."""

    def __init__(self) -> None:
        self._stopped = threading.Event()

    def moved(self, count: int) -> None:  # noqa: ARG002  # subclasses use it
        """Record `count` more bytes moved. Raises `Stopped` once the batch is cancelled."""
        if self._stopped.is_set():
            raise Stopped

    def done(self, index: int, outcome: Outcome) -> None:
        """Record the outcome of an action, by its index in the batch."""

    def stop(self) -> None:
        """Cancel the batch."""
        self._stopped.set()


class Stopped(Exception):
    """Raised at the next piece of a file after a cancellation."""


def perform(
    batch: Sequence[Task],
    sides: Sides,
    streams: int | None = None,
    slots: int = 1,
    watcher: Watcher | None = None,
) -> list[Outcome]:
    """Execute a batch, `streams` files at once; the default follows from its storages and `slots`.

    Each failure becomes the outcome of its file; outcomes are in the order of the batch.
    """
    if not batch:
        return []
    watcher = watcher or Watcher()

    def run(index: int) -> Outcome:
        watcher.moved(0)
        with cancellable(lambda: watcher.moved(0)):
            outcome = attempt(batch[index], sides, watcher.moved)
        watcher.done(index, outcome)
        return outcome

    queues = _queues(
        batch, streams, slots * max(storage.streams for storage in _storages(batch[0], sides))
    )
    return _in_pools(run, queues, watcher.stop)


def _queues(batch: Sequence[Task], streams: int | None, many: int) -> list[tuple[list[int], int]]:
    """Return the actions of each pool, by index, and its number of threads."""
    if streams:  # so many were asked for, and no more
        return [
            (
                sorted(range(len(batch)), key=lambda index: size_of(batch[index]), reverse=True),
                streams,
            )
        ]
    large = [index for index, action in enumerate(batch) if size_of(action) > SMALL]
    small = [index for index, action in enumerate(batch) if size_of(action) <= SMALL]
    return [(large, min(many, _LARGE_STREAMS)), (small, many)]


def _in_pools(
    run: Callable[[int], Outcome], queues: Sequence[tuple[list[int], int]], stop: Callable[[], None]
) -> list[Outcome]:
    """Run all queues and return the outcomes in the order of their indexes.

    On an exception nothing more is begun; what is under way is stopped and waited for.
    """
    with ExitStack() as pools:
        waiting: dict[int, Future[Outcome]] = {}
        for indexes, threads in queues:
            pool = ThreadPoolExecutor(threads, "copy")
            pools.callback(pool.shutdown, cancel_futures=True)
            waiting.update((index, pool.submit(run, index)) for index in indexes)
        try:
            return [waiting[index].result() for index in range(len(waiting))]
        except BaseException:
            stop()
            raise


def _storages(action: Task, sides: Sides) -> list[Storage]:
    places = [sides.target.storage(action.target)]
    return [*places, sides.source.storage(action.source)] if isinstance(action, Copy) else places


def attempt(action: Task, sides: Sides, moved: Callable[[int], None]) -> Outcome:
    """Execute one action.

    Failures of the file or its storage become its outcome. Any other exception is raised.
    """
    started = time.monotonic()
    try:
        length, crc32c = _do(action, sides, moved)
    except (OSError, CpreplicateError) as error:
        text = " ".join(f"{type(error).__name__}: {error}".split())
        kinds = (isinstance(error, kind) for kind in (SourceMissing, _Late, ShortSource))
        return Outcome(action.target, 0, None, time.monotonic() - started, text, *kinds)
    return Outcome(action.target, length, crc32c, time.monotonic() - started)


def _do(action: Task, sides: Sides, moved: Callable[[int], None]) -> tuple[int, int | None]:
    if isinstance(action, Delete):
        _remove(action, sides.target.storage(action.target))
        return 0, None
    if isinstance(action, Read):
        return checksum(action.target, sides.target, moved)
    check = (
        functools.partial(action.token.check, sides.target) if action.token is not None else None
    )
    return copy_file(action.source, action.target, action.extent, sides, check, moved)


def _remove(action: Delete, storage: Storage) -> None:
    if time.time() > action.until:
        raise _Late("not deleted: the lease was to be renewed before")
    if action.to is None:
        storage.delete(action.target)
    else:
        storage.move(action.target, action.to)
