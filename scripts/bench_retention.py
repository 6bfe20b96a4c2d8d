"""What points in time cost: the CPU and the calls of a sync of a replica that keeps 1, 30 and 720
of them, and the bytes of one that keeps 30 days of hourly checkpoints of an incremental job,
divided by those of the union of their files. `make bench-retention`.

The job is a model of one with RocksDB: each checkpoint adds files, and a compaction replaces those
of several checkpoints by one. So a kept point shares most files with its neighbours.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from cpreplicate.core.packs import PackMode, PackOptions
from cpreplicate.core.retention import Retention
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.sync.sync import sync
from cpreplicate.protocol.replica import Replica
from cpreplicate.protocol.replica_state import examine
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import Sides
from cpreplicate.storage.backends.local.local import LocalStorage
from cpreplicate.storage.wrappers.base import StorageWrapper
from scripts.bench.measured import end_tidily
from tests.support.jobs import JOB, write_checkpoint
from tests.support.registry import serving

_FIRST = 1_790_000_000  # when the first checkpoint was completed, in seconds since the epoch
_HOUR = 3600
_NEW = 4  # files that a checkpoint adds
_LEVELS = (4, 24)  # checkpoints after which the files of a level are compacted into the next one
_TAKEN = 0.75  # of the files of a level by a compaction
_SEED = 23
_TARGETS: Mapping[PackMode, float] = {"off": 1.3, "on": 1.8}
_FEW = (1, 30)  # points of the replicas that are compared with the large one
_MEASURED = 9  # syncs, the last ones of a replica
_SETTLES = 2.5  # seconds after which a point is as one of the hour before
_CPU_A_POINT = 0.5  # milliseconds at most


class Cost(NamedTuple):
    """What a sync took with so many points: milliseconds of CPU, the median of some, and calls."""

    points: int
    cpu: float
    calls: int


class Counting(StorageWrapper):
    """A storage that counts its calls by verb."""

    def __init__(self, inner: LocalStorage) -> None:
        super().__init__(inner)
        self.calls = Counter[str]()

    def before(self, verb: str, uri: str) -> None:
        if "/dcB/" in uri:
            self.calls[verb] += 1


def checkpoints(count: int, size: int) -> Iterator[dict[str, int]]:
    """Yield the files of each checkpoint: path below the job to length.

    A compaction takes most files of a level, not all: so members of one pack go at different times.
    """
    chance = random.Random(_SEED)
    levels: list[dict[str, int]] = [{} for _ in (*_LEVELS, None)]
    for number in range(1, count + 1):
        levels[0] |= {f"shared/{number:06d}-{each}": size for each in range(_NEW)}
        for level, interval in enumerate(_LEVELS):
            if number % interval == 0:
                taken = {name for name in levels[level] if chance.random() < _TAKEN}
                merged = sum(levels[level].pop(name) for name in taken)
                # what was overwritten is dropped: the last level does not grow for ever
                kept = {} if level + 1 == len(_LEVELS) else levels[level + 1]
                new = {f"shared/{number:06d}-level-{level + 1}": merged} if merged else {}
                levels[level + 1] = kept | new
        yield {name: length for level in levels for name, length in level.items()}


def replicated(
    place: Path, count: int, expired: int, size: int, pack: PackMode
) -> tuple[dict[str, int], Cost]:
    """Sync each checkpoint, keep the last `count`, and return the union of the files of these.

    The last syncs are measured, each when the points before are settled.
    """
    request = SyncRequest(
        f"file:{place}/dcA/{JOB}",
        f"file:{place}/dcB",
        keep=Retention(hourly=count),
        packing=PackOptions(pack),
        execution=ExecutionOptions(runner="inline"),
        subsumption_wait=0.0,
    )
    union: dict[str, int] = {}
    before: dict[str, int] = {}
    times: list[float] = []
    calls: list[int] = []
    counting = Counting(LocalStorage())
    with serving("file", counting):
        for number, files in enumerate(checkpoints(count + expired, size), 1):
            _complete(place / "dcA", number, files, before)
            is_measured = number > count + expired - _MEASURED
            time.sleep(_SETTLES if is_measured else 0.0)
            counting.calls.clear()
            began = time.process_time()
            sync(request, lambda _line: None)
            if is_measured:
                times.append(1000 * (time.process_time() - began))
                calls.append(counting.calls.total())
            union |= files if number > expired else {}
            before = files
    return union, Cost(count, median(times), int(median(calls)))


def _complete(root: Path, number: int, files: dict[str, int], before: dict[str, int]) -> None:
    """Write a checkpoint at its hour. Flink retains only the last one."""
    checkpoint = write_checkpoint(root, number, files)
    os.utime(checkpoint / "_metadata", (_FIRST + number * _HOUR,) * 2)
    shutil.rmtree(root / JOB / f"chk-{number - 1}", ignore_errors=True)
    for gone in before.keys() - files.keys():
        (root / JOB / gone).unlink()


def bytes_below(directory: Path) -> int:
    """The lengths of all files below a directory."""
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def main() -> None:
    """Measure and print."""
    end_tidily()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=720, help="default: %(default)s, 30 days")
    parser.add_argument("--expired", type=int, default=72, help="earlier ones that are not kept")
    parser.add_argument("--size", type=int, default=64 << 10, help="bytes of a new file")
    parser.add_argument("--directory", help="where to work, such as /dev/shm")
    parser.add_argument("--pack", choices=[*_TARGETS], help="default: one after the other")
    options = parser.parse_args()
    for pack in [options.pack] if options.pack else _TARGETS:
        few = [measured(points, options.size, pack, options.directory) for points in _FEW]
        target = _TARGETS[pack]
        with tempfile.TemporaryDirectory(
            prefix="cpreplicate-bench-", dir=options.directory
        ) as directory:
            place, started = Path(directory), time.monotonic()
            union, cost = replicated(place, options.points, options.expired, options.size, pack)
            root = place / "dcB" / JOB
            points = len(examine(Replica(f"file:{root}", Sides().target)).committed)
            if points != options.points:
                sys.exit(f"{points} points were kept, not {options.points}")
            used, needed = bytes_below(root), sum(union.values())
            print(
                f"--pack {pack}: {points} points, {len(union)} files of {needed / 1e6:.1f} MB;"
                f" {used / 1e6:.1f} MB in the replica, {used / needed:.3f} times (target {target});"
                f" {time.monotonic() - started:.0f} s",
                flush=True,
            )
            report([*few, cost], pack)


def measured(points: int, size: int, pack: PackMode, directory: str | None) -> Cost:
    """Return what a sync takes of a small replica, of which some points have expired."""
    with tempfile.TemporaryDirectory(prefix="cpreplicate-bench-", dir=directory) as place:
        return replicated(Path(place), points, 2 * _MEASURED, size, pack)[1]


def report(costs: list[Cost], pack: str) -> None:
    """Print what syncs took, and how that grows with the points."""
    for cost in costs:
        print(
            f"--pack {pack}: a sync with {cost.points} points: {cost.cpu:.0f} ms of CPU,"
            f" {cost.calls} calls at the target",
            flush=True,
        )
    first, last = costs[0], costs[-1]
    more = (last.cpu - first.cpu) / max(1, last.points - first.points)
    calls = last.calls - first.calls
    verdict = "met" if more <= _CPU_A_POINT and calls < last.points / 10 else "missed"
    print(
        f"--pack {pack}: {more:.2f} ms of CPU a point more (target {_CPU_A_POINT}), {calls} calls"
        f" more in all: {verdict}",
        flush=True,
    )


if __name__ == "__main__":
    main()
