"""What runners execute: copies, reads and deletes, packed into batches, a batch being the unit of parallel work."""

from __future__ import annotations

import functools
import heapq
import math
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import NamedTuple, TypeAlias

from cpreplicate.errors import CpreplicateError
from cpreplicate.lease import Held
from cpreplicate.storage import Sites, SourceMissing, Storage, checksum, copy_file

_SMALL = 4 << 20  # bytes; what a smaller file costs is waiting, so a task has many in flight, and few of the others
_LARGE_STREAMS = 4
BATCHES_A_SLOT = 4  # so that a slow batch leaves others to the faster slots
_FILE_COST = 4 << 20  # bytes; a small file costs round trips, about what so many bytes cost
_BATCH_FILES = 2000


class Copy(NamedTuple):
    """Copy `source` to `target`; it must have at least `extent` bytes, and has about `size` if that is more.

    `held` is told of a merged file, which grows: a run that lost its lease must not replace a longer copy of it.
    """

    source: str
    target: str
    extent: int
    size: int = 0
    held: Held | None = None


class Read(NamedTuple):
    """Read `target` to its end for its CRC32C; `extent` is its length."""

    target: str
    extent: int


class Delete(NamedTuple):
    """Delete `target`, or move it `to` another place; it is no failure if it is gone already.

    Not begun after `until`, seconds since the epoch: then another run may hold the lease. The clocks of executors are taken
    to differ from the driver's by seconds at most.
    """

    target: str
    until: float = math.inf
    to: str | None = None


Action: TypeAlias = Copy | Read | Delete


class _Late(CpreplicateError):
    """What was to be done came too late."""


class Outcome(NamedTuple):
    """What came of one action. `missing`: the file to be copied is not at the source. `late`: not begun in time."""

    target: str
    bytes: int
    crc32c: int | None
    seconds: float
    error: str | None = None
    missing: bool = False
    late: bool = False

    @property
    def is_worth_a_try(self) -> bool:
        """Whether another try may end better."""
        return self.error is not None and not (self.missing or self.late)


def batches(actions: Sequence[Action], slots: int) -> list[tuple[Action, ...]]:
    """The actions in batches of about equal cost, the most expensive first; a huge file is a batch of its own."""
    if not actions:
        return []
    count = min(len(actions), max(slots * BATCHES_A_SLOT, math.ceil(len(actions) / _BATCH_FILES)))
    bins: list[list[Action]] = [[] for _ in range(count)]
    loads = [(0, index) for index in range(count)]
    for action in sorted(actions, key=cost, reverse=True):
        load, index = heapq.heappop(loads)
        bins[index].append(action)
        heapq.heappush(loads, (load + cost(action), index))
    packed = sorted(bins, key=lambda batch: sum(map(cost, batch)), reverse=True)
    return [tuple(batch) for batch in packed if batch]


def cost(action: Action) -> int:
    """What an action costs, in bytes moved in the same time."""
    if isinstance(action, Copy):
        return _FILE_COST + max(action.extent, action.size)
    return _FILE_COST + (action.extent if isinstance(action, Read) else 0)


def perform(
    batch: Sequence[Action], sites: Sites, streams: int | None = None, again: bool = False, slots: int = 1
) -> list[Outcome]:
    """Execute a batch, `streams` files at once, by default as many as its storages like for so many slots.

    Each failure becomes the outcome of its file.

    `again` tells that an earlier try may have done part of it: a file that is there whole is then read back for its CRC32C
    instead of being copied again.
    """
    if not batch:
        return []
    large = [action for action in batch if cost(action) - _FILE_COST > _SMALL]
    small = [action for action in batch if cost(action) - _FILE_COST <= _SMALL]
    many = slots * max(storage.streams for storage in _storages(batch[0], sites))
    run = functools.partial(attempt, sites=sites, again=again)
    if streams:  # so many were asked for, and no more
        with ThreadPoolExecutor(streams, "copy") as pool:
            return list(pool.map(run, batch))
    few = min(many, _LARGE_STREAMS)
    with ThreadPoolExecutor(few, "copy-large") as large_pool, ThreadPoolExecutor(many, "copy-small") as small_pool:
        return [*chain(large_pool.map(run, large), small_pool.map(run, small))]


def _storages(action: Action, sites: Sites) -> list[Storage]:
    places = [sites.target.storage(action.target)]
    return [*places, sites.source.storage(action.source)] if isinstance(action, Copy) else places


def attempt(action: Action, sites: Sites, again: bool = False) -> Outcome:
    """Execute one action; failures that belong to the file or its storage are told, any other is raised."""
    started = time.monotonic()
    try:
        length, crc32c = _do(action, sites, again)
    except (OSError, CpreplicateError) as error:
        text = " ".join(f"{type(error).__name__}: {error}".split())
        missing, late = isinstance(error, SourceMissing), isinstance(error, _Late)
        return Outcome(action.target, 0, None, time.monotonic() - started, text, missing, late)
    return Outcome(action.target, length, crc32c, time.monotonic() - started)


def _do(action: Action, sites: Sites, again: bool) -> tuple[int, int | None]:
    if isinstance(action, Delete):
        _remove(action, sites.target.storage(action.target))
        return 0, None
    if isinstance(action, Read) or (again and _is_done(action, sites)):
        return checksum(action.target, sites.target)
    check = functools.partial(action.held.check, sites.target) if action.held is not None else None
    return copy_file(action.source, action.target, action.extent, sites, check)


def _remove(action: Delete, storage: Storage) -> None:
    if time.time() > action.until:
        raise _Late("not deleted: the lease was to be renewed before")
    if action.to is None:
        storage.delete(action.target)
    else:
        storage.move(action.target, action.to)


def _is_done(action: Copy, sites: Sites) -> bool:
    """Present with the source's length: files appear under their names only when whole."""
    copied = sites.target.storage(action.target).stat(action.target)
    source = sites.source.storage(action.source).stat(action.source)
    return copied is not None and source is not None and copied.length == source.length >= action.extent
