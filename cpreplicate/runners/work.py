"""What runners execute: copies, reads and deletes, packed into batches, a batch being the unit of parallel work."""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeAlias

from cpreplicate.errors import CpreplicateError
from cpreplicate.storage import SourceMissing, checksum, copy_file, storage_for

STREAMS = 8  # files that a task has in flight at once
BATCHES_A_SLOT = 4  # so that a slow batch leaves others to the faster slots
_FILE_COST = 4 << 20  # bytes; a small file costs round trips, about what so many bytes cost
_BATCH_FILES = 2000


class Copy(NamedTuple):
    """Copy `source` to `target`; it must have at least `extent` bytes, and has about `size` if that is more."""

    source: str
    target: str
    extent: int
    size: int = 0


class Read(NamedTuple):
    """Read `target` to its end for its CRC32C; `extent` is its length."""

    target: str
    extent: int


class Delete(NamedTuple):
    """Delete `target`; it is no failure if it is gone already."""

    target: str


Action: TypeAlias = Copy | Read | Delete


class Outcome(NamedTuple):
    """What came of one action. `missing` tells that the file to be copied is not at the source."""

    target: str
    bytes: int
    crc32c: int | None
    seconds: float
    error: str | None = None
    missing: bool = False


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


def perform(batch: Sequence[Action], streams: int = STREAMS, again: bool = False) -> list[Outcome]:
    """Execute a batch, several files at once; each failure becomes the outcome of its file.

    `again` tells that an earlier try may have done part of it: a file that is there whole is then read back for its CRC32C
    instead of being copied again.
    """
    with ThreadPoolExecutor(min(streams, max(1, len(batch))), thread_name_prefix="copy") as pool:
        return list(pool.map(lambda action: attempt(action, again), batch))


def attempt(action: Action, again: bool = False) -> Outcome:
    """Execute one action; failures that belong to the file or its storage are told, any other is raised."""
    started = time.monotonic()
    try:
        length, crc32c = _do(action, again)
    except (OSError, CpreplicateError) as error:
        text = " ".join(f"{type(error).__name__}: {error}".split())
        missing = isinstance(error, SourceMissing)
        return Outcome(action.target, 0, None, time.monotonic() - started, text, missing)
    return Outcome(action.target, length, crc32c, time.monotonic() - started)


def _do(action: Action, again: bool) -> tuple[int, int | None]:
    if isinstance(action, Delete):
        storage_for(action.target).delete(action.target)
        return 0, None
    if isinstance(action, Read) or (again and _is_done(action)):
        return checksum(action.target)
    return copy_file(action.source, action.target, action.extent)


def _is_done(action: Copy) -> bool:
    """Present with the source's length: files appear under their names only when whole."""
    copied, source = storage_for(action.target).stat(action.target), storage_for(action.source).stat(action.source)
    return copied is not None and source is not None and copied.length == source.length >= action.extent
