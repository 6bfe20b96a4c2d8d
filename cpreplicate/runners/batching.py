"""Batches: the unit of parallel work and of a retry. Pure."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from itertools import chain
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from cpreplicate.core.packs import PACK_BYTES
from cpreplicate.runners.copy_rows import Copies, Indexes, WithRanges, packed_of, sizes_of, taken
from cpreplicate.runners.tasks import SMALL, Read, Task, size_of

BATCHES_A_SLOT = 4  # so that a slow batch leaves others to the faster slots
FILE_COST = 4 << 20  # bytes; a small file costs round trips, about what so many bytes cost
BATCH_FILES = 2000
BATCH_BYTES = 8 << 30  # where it is not known how many slots there will be, there is work for many
_SMALL_SHARE = 20  # of the mean bin, one part: what is smaller need not be placed one by one
_FILES_IN_FLIGHT = 16  # small files that a task copies in about the time that it takes to start


def batches(
    actions: Sequence[Task],
    slots: int,
    batch_bytes: int | None = None,
    batch_files: int | None = None,
) -> list[Sequence[Task]]:
    """Return the actions in batches of about equal cost, those with most bytes first.

    There are about four a slot, or fewer if there are few small files. None has more than
    `batch_files` files, or more than `batch_bytes` bytes unless it is one file: a huge file is a
    batch of its own, and goes first. The reads of a pack share a batch, so that it is opened once.
    """
    if not actions:
        return []
    if isinstance(actions, WithRanges):
        both = [batches(part, slots, batch_bytes, batch_files) for part in actions.parts]
        return sorted(chain(*both), key=lambda batch: int(sizes_of(batch).sum()), reverse=True)
    caps = Caps(batch_files or BATCH_FILES, batch_bytes or BATCH_BYTES)
    if not isinstance(actions, Copies) and (reads_of := _reads_by_pack(actions)):
        others = [action for action in actions if not _is_of_pack(action)]
        in_packs = _batches_of_reads(list(reads_of.values()), slots, caps)
        return [*in_packs, *batches(others, slots, batch_bytes, batch_files)]
    sizes = sizes_of(actions)
    is_packed = packed_of(actions)
    packs = Caps(caps.files, min(caps.bytes, PACK_BYTES))
    bins = [
        *_bins(np.flatnonzero(~is_packed), sizes, slots * BATCHES_A_SLOT, caps),
        *_bins(np.flatnonzero(is_packed), sizes, slots, packs),
    ]
    # their costs are alike: those with most to move
    bins.sort(key=lambda bin_: int(sizes[bin_].sum()), reverse=True)
    return [taken(actions, bin_) for bin_ in bins]


def _is_of_pack(action: Task) -> bool:
    return isinstance(action, Read) and action.pack is not None


def _reads_by_pack(actions: Sequence[Task]) -> dict[str, list[Read]]:
    """Return the reads of members of packs, by their pack."""
    reads: dict[str, list[Read]] = {}
    for action in actions:
        if isinstance(action, Read) and action.pack is not None:
            reads.setdefault(action.pack, []).append(action)
    return reads


def _batches_of_reads(
    packs: Sequence[Sequence[Read]], slots: int, caps: Caps
) -> list[Sequence[Task]]:
    """Return batches of whole packs, each of which is given by the reads of its members."""
    sizes = np.array([sum(map(size_of, reads)) for reads in packs], np.int64)
    whole = Caps(caps.files, min(caps.bytes, PACK_BYTES))
    bins = _bins(np.arange(len(packs)), sizes, slots * BATCHES_A_SLOT, whole)
    return [[read for index in bin_.tolist() for read in packs[index]] for bin_ in bins]


def _bins(chosen: Indexes, every_size: Indexes, most: int, caps: Caps) -> list[Indexes]:
    """Split the `chosen` actions into at most `most` bins of about equal cost, or more as the caps
    need.
    """
    if not len(chosen):
        return []
    sizes = every_size[chosen]
    order = np.argsort(-sizes, kind="stable")
    small = int((sizes <= SMALL).sum())
    useful = min(most, len(chosen) - small + math.ceil(small / _FILES_IN_FLIGHT))
    count = max(
        useful, math.ceil(len(chosen) / caps.files), math.ceil(int(sizes.sum()) / caps.bytes)
    )
    bins = _packed(order, sizes + FILE_COST, min(count, len(chosen)))
    return [chosen[part] for bin_ in bins for part in _within(caps, bin_, sizes)]


class Caps(NamedTuple):
    """How much a batch may hold."""

    files: int
    bytes: int


def _packed(order: Indexes, costs: Indexes, count: int) -> list[Indexes]:
    """Pack files into `count` bins of about equal cost.

    Large files are packed one by one, the largest first, each into the bin that costs least. Then
    the many small ones fill all bins, run by run, up to a common level.

    A file is small that is at most a twentieth of the mean bin: the level is then met as well as
    one by one.
    """
    mean = costs.sum() / count
    large = (
        int(np.searchsorted(-costs[order], -mean / _SMALL_SHARE, side="left"))
        if len(order) > count
        else len(order)
    )
    bins: list[list[int]] = [[] for _ in range(count)]
    least = [(0, bin_index) for bin_index in range(count)]
    for index in order[:large].tolist():
        load, bin_index = least[0]
        bins[bin_index].append(index)
        heapq.heapreplace(least, (load + int(costs[index]), bin_index))
    spent = np.array([load for load, _ in sorted(least, key=itemgetter(1))])
    small = order[large:]
    # dealt out, so that each run is a sample of all sizes: else one batch would have all the bytes
    if len(small):
        small = np.concatenate([small[first::count] for first in range(count)])
    runs = _levelled(small, costs, spent)
    filled = (
        np.concatenate([np.array(bin_, np.int64), run])
        for bin_, run in zip(bins, runs, strict=True)
    )
    return [bin_ for bin_ in filled if len(bin_)]


def _levelled(order: Indexes, costs: Indexes, spent: Indexes) -> list[Indexes]:
    """Return a run of `order` for each bin that raises its cost to the level common to all."""
    ends = np.cumsum(costs[order])
    total = int(ends[-1]) if len(ends) else 0
    fill = np.sort(spent)
    # were only the cheapest so many bins filled
    levels = (total + np.cumsum(fill)) / np.arange(1, len(fill) + 1)
    level = levels[np.flatnonzero(levels >= fill)[-1]]
    bounds = np.cumsum(np.maximum(level - spent, 0))
    return np.split(order, np.searchsorted(ends, bounds[:-1], side="right"))


def _within(caps: Caps, indexes: Indexes, sizes: Indexes) -> Iterator[Indexes]:
    """Yield a bin as it is, or several parts of it that keep to the caps."""
    if len(indexes) <= caps.files and int(sizes[indexes].sum()) <= caps.bytes:
        yield indexes
        return
    first, filled = 0, 0
    for end, size in enumerate(sizes[indexes].tolist()):
        if end > first and (end - first == caps.files or filled + size > caps.bytes):
            yield indexes[first:end]
            first, filled = end, 0
        filled += size
    yield indexes[first:]
