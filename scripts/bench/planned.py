"""How long the batches of a great plan would take on clusters that are not here: 10 TB in 400,000
files, simulated.

The batches are those that a run would make. What a copy takes is a model, see `Model`; slots take
the batches in their order.
"""

from __future__ import annotations

import heapq
import random
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from cpreplicate.runners import Copy
from cpreplicate.runners.batching import batches
from cpreplicate.runners.tasks import Task, size_of
from scripts.bench import raw

FILES, BYTES = 400_000, 10e12
CLUSTERS = (10, 50, 200)
SLOTS = 4  # of an executor
CARD = 10e9 / 8  # bytes a second of an executor's network card, each way
# of the logarithm of the sizes: half of the files are of 8 MB or less, and have a tenth of the
# bytes
_SKEW = 1.5
_SEED = 7


# Files that a task copies at once, and those that may wait for their close beside them, as in
# `runners/batch.py`.
SMALL_CLOSERS, LARGE_CLOSERS = 64, 8


class Model(NamedTuple):
    """What copying takes: seconds of a file besides its bytes and its close, of its close, and of a
    task besides its files; bytes a second of a stream.

    Of these `cpu` seconds of a file are a core's; `core` is the bytes a second that one core
    copies. A slot has a core; an executor's network card is shared out evenly among its slots.
    """

    file: float
    close: float
    cpu: float
    task: float
    stream: float
    core: float

    def seconds(self, batch: Sequence[Task]) -> float:
        """Of a batch: small files in many streams, large ones in few, all of them through the
        slot's share of the line.
        """
        sizes = [action.extent for action in batch if isinstance(action, Copy)]
        large = [size for size in sizes if size > raw.SMALL]
        small = [size for size in sizes if size <= raw.SMALL]
        streamed = max(
            self._streamed(large, raw.LARGE_STREAMS, LARGE_CLOSERS),
            self._streamed(small, raw.SMALL_STREAMS, SMALL_CLOSERS),
        )
        core = len(sizes) * self.cpu + sum(sizes) / self.core
        return self.task + max(streamed, core, sum(sizes) / (CARD / SLOTS))

    def _streamed(self, sizes: Iterable[int], streams: int, closers: int) -> float:
        """The end of the last of the files, taken in their order by so many streams.

        A file that waits for its close holds a thread, and no stream.
        """
        free_streams, free_threads = [0.0] * streams, [0.0] * (streams + closers)
        for size in sizes:
            begin = max(free_streams[0], free_threads[0])
            copied = begin + self.file + size / self.stream
            heapq.heapreplace(free_streams, copied)
            heapq.heapreplace(free_threads, copied + self.close)
        return max(free_threads)


# Measured by `costs.py`, the median of three rounds beside other work, 2026-11-22. `task`: one of
# 100 tasks of one empty file each, in the storage of `scaling.py` without latency, 2026-11-21. Most
# of `close` is the half second that hdfs-native sleeps when the NameNode has not yet heard of the
# last block.
MODEL = Model(file=0.058, close=0.397, cpu=0.0035, task=0.07, stream=537e6, core=421e6)


class Planned(NamedTuple):
    """What came of a cluster of so many executors.

    `wire` is the least that its network cards allow.
    """

    executors: int
    batches: int
    planning: float
    seconds: float
    wire: float
    tail: float


def plan(files: int = FILES) -> list[Copy]:
    """Copies of a log-normal distribution of sizes, always the same.

    Fewer files have as much fewer bytes.
    """
    draw = random.Random(_SEED)
    sizes = [draw.lognormvariate(0.0, _SKEW) for _ in range(files)]
    scale = BYTES * files / FILES / sum(sizes)
    return [
        Copy(f"hdfs://a/job/shared/{n}", f"hdfs://b/job/shared/{n}", int(size * scale))
        for n, size in enumerate(sizes)
    ]


def simulated(copies: Sequence[Copy], executors: int, model: Model) -> Planned:
    """Make the batches, and let the slots take them."""
    started = time.process_time()
    packed = batches(copies, executors * SLOTS)
    planning = time.process_time() - started
    ends = taken(map(model.seconds, packed), executors)
    wire = sum(copy.extent for copy in copies) / (executors * CARD)
    return Planned(
        executors, len(packed), planning, max(ends), wire, max(ends) * len(ends) / sum(ends)
    )


def taken(seconds: Iterable[float], executors: int) -> list[float]:
    """For each executor the end of its last batch: whichever slot is free takes the next."""
    ends = [0.0] * executors
    free = [(0.0, slot) for slot in range(executors * SLOTS)]
    for each in seconds:
        end, slot = free[0][0] + each, free[0][1]
        heapq.heapreplace(free, (end, slot))
        ends[slot % executors] = max(ends[slot % executors], end)
    return ends


def table(copies: Sequence[Copy], model: Model) -> list[Planned]:
    """Simulate each cluster, and print it."""
    sizes = sorted(copy.extent for copy in copies)
    median = sizes[len(sizes) // 2]
    largest_seconds = model.seconds([max(copies, key=size_of)])
    print(
        f"\n{len(sizes):,} files, {sum(sizes) / 1e12:.1f} TB; median {median / 1e6:.1f} MB,"
        f" largest {sizes[-1] / 1e9:.1f} GB, which alone takes {largest_seconds:.0f} s."
        f" A file takes {model.file * 1000:.0f} ms besides its bytes, and"
        f" {model.close * 1000:.0f} ms for its close,"
        f" {model.cpu * 1000:.0f} ms of them CPU, a task {model.task * 1000:.0f} ms;"
        f" a stream carries {model.stream / 1e6:.0f} MB/s,"
        f" a slot's core {model.core / 1e6:.0f} MB/s.\n"
    )
    head = [
        "executors",
        "slots",
        "batches",
        "seconds",
        "seconds of the wire alone",
        "of the wire",
        "tail",
        "batching, CPU s",
    ]
    print(f"| {' | '.join(head)} |\n|{' --- |' * len(head)}")
    found = []
    for executors in CLUSTERS:
        found.append(simulated(copies, executors, model))
        print(_row(found[-1]), flush=True)
    return found


def _row(row: Planned) -> str:
    cells = [
        f"{row.executors}",
        f"{row.executors * SLOTS}",
        f"{row.batches:,}",
        f"{row.seconds:.0f}",
        f"{row.wire:.0f}",
        f"{row.wire / row.seconds:.0%}",
        f"{row.tail:.2f}",
        f"{row.planning:.1f}",
    ]
    return f"| {' | '.join(cells)} |"
