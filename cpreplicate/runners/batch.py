"""Executing a batch: its files in pools of threads, its packs by readers and writers."""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from contextvars import Context
from typing import NamedTuple

from cpreplicate.core.packs import writers_for
from cpreplicate.errors import CpreplicateError
from cpreplicate.protocol.lease import LeaseToken
from cpreplicate.runners.packs import PackPool, write_packs
from cpreplicate.runners.tasks import (
    SMALL,
    Copy,
    CopyRange,
    Delete,
    Dropped,
    Late,
    Outcome,
    Part,
    Read,
    Task,
    Watcher,
    failed,
    size_of,
)
from cpreplicate.storage import (
    Range,
    Side,
    Sides,
    Storage,
    checksum,
    checksums_of_parts,
    copy_file,
    copy_growing,
    copy_range,
    copy_within,
    read_part,
)
from cpreplicate.storage.transfer import copying
from cpreplicate.storage.waiting.cancellation import cancellable
from cpreplicate.storage.waiting.work_slots import working

# over 40 ms and 2 Gbit/s faster than four or sixteen, without a line somewhat slower:
# docs/lab/executors.md
_LARGE_STREAMS = 8
# The number of tasks whose work one process does: small files wait more than they compute.
SLOTS = min(4, os.cpu_count() or 1)
_FEW = 4  # files: to begin and end a thread takes longer than to copy a small one on this host
Unit = Sequence[int]
"""Tasks that run one after the other, by their index in the batch."""


class _Queue(NamedTuple):
    """The units of one pool of threads, of which `streams` work at once.

    `closers` are threads beside them: so many may wait for the close of their file.
    """

    units: list[Unit]
    streams: int
    closers: int


def perform(
    batch: Sequence[Task],
    sides: Sides,
    streams: int | None = None,
    slots: int = 1,
    watcher: Watcher | None = None,
    pack_writers: int = 1,
) -> list[Outcome]:
    """Execute a batch, `streams` files at once; the default follows from its storages and `slots`.

    Of large packs, at most `pack_writers` are written at once.

    Each failure becomes the outcome of its file; outcomes are in the order of the batch.
    """
    if not batch:
        return []
    watcher = watcher or Watcher()
    outcomes: dict[int, Outcome] = {}

    storages = _storages(batch[0], sides)
    many = slots * max(storage.streams for storage in storages)
    closers = slots * max(storage.closers for storage in storages)

    def run(unit: Unit, permits: threading.Semaphore) -> None:
        watcher.moved(0)
        beside = copying(watcher.around)
        with cancellable(lambda: watcher.moved(0)), working(permits), beside:
            results = _attempt_unit([batch[index] for index in unit], sides, _moved(unit, watcher))
        for index, outcome in zip(unit, results, strict=True):
            outcomes[index] = outcome
            watcher.done(index, outcome)

    members, units = _units(batch)
    if _is_soon_done(batch, units, sides):
        _run_here(run, units, watcher.stop)
    else:
        _run_in_pools(run, _queues(batch, units, streams, many, closers), watcher.stop)
    outcomes.update(_pack(members, sides, watcher, streams or many, pack_writers))
    return [outcomes[index] for index in range(len(batch))]


def _units(batch: Sequence[Task]) -> tuple[dict[int, Copy], list[Unit]]:
    """Split a batch into the copies to be packed, by their index, and the units of other tasks.

    The reads of one pack are a unit, so that it is opened once.
    """
    members: dict[int, Copy] = {}
    units: list[Unit] = []
    reads_of_pack: dict[str, list[int]] = {}
    for index, task in enumerate(batch):
        if isinstance(task, Copy) and task.pack is not None:
            members[index] = task
        elif isinstance(task, Read) and task.pack is not None:
            reads_of_pack.setdefault(task.pack, []).append(index)
        else:
            units.append([index])
    return members, [*units, *reads_of_pack.values()]


def _moved(unit: Unit, watcher: Watcher) -> Callable[[int], None]:
    """Return what counts the bytes of a unit. Raises `Dropped` if none of it is wanted any more."""

    def moved(count: int) -> None:
        watcher.moved(count)
        if len(unit) == 1:  # else they are reads, which are not dropped
            watcher.refuse_unwanted(unit[0])

    return moved


def _pack(
    members: Mapping[int, Copy], sides: Sides, watcher: Watcher, readers: int, most: int
) -> dict[int, Outcome]:
    total = sum(map(size_of, members.values()))
    pool = PackPool(readers, writers_for(total, most))
    return write_packs(members, sides, watcher.moved, watcher.done, pool, watcher.refuse_unwanted)


def _queues(
    batch: Sequence[Task], units: Sequence[Unit], streams: int | None, many: int, closers: int
) -> list[_Queue]:
    """Split the units into those of large and of small files; one pool if `streams` is given."""

    def size(unit: Unit) -> int:
        return sum(size_of(batch[index]) for index in unit)

    if streams:  # so many were asked for, and no more
        return [_Queue(sorted(units, key=size, reverse=True), streams, 0)]
    large = [unit for unit in units if size(unit) > SMALL]
    small = [unit for unit in units if size(unit) <= SMALL]
    return [
        _Queue(large, min(many, _LARGE_STREAMS), 0),  # more cost memory, and gained no time
        _Queue(small, many, closers),
    ]


def _is_soon_done(batch: Sequence[Task], units: Sequence[Unit], sides: Sides) -> bool:
    """Return whether units take less time than threads for them: few small files of this host."""
    if len(units) > _FEW or sum(size_of(batch[index]) for unit in units for index in unit) > SMALL:
        return False
    tasks = (batch[index] for unit in units for index in unit)
    return not any(storage.answers_ahead for task in tasks for storage in _storages(task, sides))


def _run_here(
    run: Callable[[Unit, threading.Semaphore], None],
    units: Sequence[Unit],
    stop: Callable[[], None],
) -> None:
    """Run units in this thread. They know as little of its context as another thread would."""
    permits = threading.Semaphore()
    try:
        for unit in units:
            Context().run(run, unit, permits)
    except BaseException:
        stop()
        raise


def _run_in_pools(
    run: Callable[[Unit, threading.Semaphore], None],
    queues: Sequence[_Queue],
    stop: Callable[[], None],
) -> None:
    """Run all queues.

    On an exception nothing more is begun; what is under way is stopped and waited for.
    """
    with ExitStack() as pools:
        waiting: list[Future[None]] = []
        try:  # an interrupt may come as soon as the first unit runs
            for units, streams, closers in queues:
                if units:
                    pool = ThreadPoolExecutor(streams + closers, "copy")
                    pools.callback(pool.shutdown, cancel_futures=True)
                    permits = threading.Semaphore(streams)
                    waiting += [pool.submit(run, unit, permits) for unit in units]
            for future in waiting:
                future.result()
        except BaseException:
            stop()
            raise


def _storages(action: Task, sides: Sides) -> list[Storage]:
    storages = [sides.target.storage(action.target)]
    if isinstance(action, (Read, Delete)) or (isinstance(action, Copy) and action.part is not None):
        return storages
    return [*storages, sides.source.storage(action.source)]


def _attempt_unit(
    tasks: Sequence[Task], sides: Sides, moved: Callable[[int], None]
) -> list[Outcome]:
    first = tasks[0]
    if isinstance(first, Read) and first.pack is not None:
        members = [task for task in tasks if isinstance(task, Read)]
        return _attempt_reads(first.pack, members, sides, moved)
    return [attempt(task, sides, moved) for task in tasks]


def _attempt_reads(
    pack: str, members: Sequence[Read], sides: Sides, moved: Callable[[int], None]
) -> list[Outcome]:
    """Read members of a pack through one stream."""
    started = time.monotonic()
    in_order = sorted(members, key=lambda member: member.offset)
    parts = [(member.offset, member.extent) for member in in_order]
    try:
        results = checksums_of_parts(pack, parts, sides.target, moved)
    except (OSError, CpreplicateError) as error:
        return [failed(member, error, time.monotonic() - started) for member in members]
    seconds = (time.monotonic() - started) / len(members)
    outcomes = {
        member.target: Outcome(member.target, *result, seconds)
        for member, result in zip(in_order, results, strict=True)
    }
    return [outcomes[member.target] for member in members]


def attempt(action: Task, sides: Sides, moved: Callable[[int], None]) -> Outcome:
    """Execute one action.

    Failures of the file or its storage become its outcome. Any other exception is raised.
    """
    started = time.monotonic()
    try:
        moved(0)
        if isinstance(action, Copy) and action.token is not None:
            return _copy_growing(action, action.token, sides, moved)
        if isinstance(action, CopyRange):
            return _copy_range(action, sides, moved)
        length, crc32c = _do(action, sides, moved)
    except (OSError, CpreplicateError, Dropped) as error:
        return failed(action, error, time.monotonic() - started)
    return Outcome(action.target, length, crc32c, time.monotonic() - started)


def _copy_growing(
    action: Copy, token: LeaseToken, sides: Sides, moved: Callable[[int], None]
) -> Outcome:
    started = time.monotonic()
    check = functools.partial(token.check, sides.target)
    source, target, extent = action[:3]
    whole, prefix = copy_growing(source, target, extent, sides, check, moved, action.inside)
    seconds = time.monotonic() - started
    return Outcome(target, *whole, seconds, prefix=prefix.bytes, prefix_crc32c=prefix.crc32c)


def _copy_range(action: CopyRange, sides: Sides, moved: Callable[[int], None]) -> Outcome:
    started = time.monotonic()
    wanted = Range(action.offset, action.extent, action.is_last)
    places = (action.source, action.file, action.joint)
    (length, crc32c), receipt = copy_range(*places, wanted, sides, moved, action.inside)
    seconds = time.monotonic() - started
    return Outcome(action.target, length, crc32c, seconds, receipt=receipt)


def _do(
    action: Copy | Read | Delete, sides: Sides, moved: Callable[[int], None]
) -> tuple[int, int | None]:
    if isinstance(action, Delete):
        _remove(action, sides.target.storage(action.target))
        return 0, None
    if isinstance(action, Read):
        return checksum(action.target, sides.target, moved)
    if action.part is not None:
        return _copy_part(action, action.part, sides.target, moved)
    places = (action.source, action.target)
    return copy_file(*places, action.extent, sides, None, moved, action.inside)


def _copy_part(
    action: Copy, part: Part, side: Side, moved: Callable[[int], None]
) -> tuple[int, int]:
    """Write a file of the target, or a member of a pack, as another file there."""
    length, crc32c = action.extent, part.crc32c
    if part.offset is None:
        places = (action.source, action.target)
        return copy_within(*places, length, crc32c, side, moved, action.inside)
    whole = read_part(action.source, part.offset, length, crc32c, side, moved)
    storage = side.storage(action.target, action.inside)
    storage.put(action.target, lambda: [whole.data], lambda _length: moved(0))
    return len(whole.data), whole.crc32c


def _remove(action: Delete, storage: Storage) -> None:
    if time.time() > action.until:
        raise Late("not deleted: the lease was to be renewed before")
    if action.to is None:
        storage.delete(action.target)
    else:
        storage.move(action.target, action.to)
