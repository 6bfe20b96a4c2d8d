"""What points in time cost: the CPU and the calls of a sync of a replica that keeps 1, 30 and 720
of them, and the bytes of one that keeps 30 days of hourly checkpoints of an incremental job,
divided by those of the union of their files. `make bench-retention`, on local disk. With `--on s3`
each replica is made on local disk, then copied to an S3 of the tests, a process of its own, and
measured there, without packs, which have absolute paths.

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
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
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
from cpreplicate.storage import Side
from cpreplicate.storage.backends.local.local import LocalStorage
from cpreplicate.storage.base import Storage
from cpreplicate.storage.wrappers.base import StorageWrapper
from cpreplicate.storage.wrappers.retry import Retrying
from scripts.bench.measured import end_tidily
from tests.support.jobs import JOB, write_checkpoint
from tests.support.registry import serving
from tests.support.s3 import S3Server, side_options

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
_BUCKET, _RETRIES = "bench", 60.0  # seconds
_PREFIX = "cpreplicate-bench-"


class Cost(NamedTuple):
    """What a sync took with so many points: milliseconds of CPU, the median of some, and calls."""

    points: int
    cpu: float
    calls: int


class Counting(StorageWrapper):
    """A storage that counts its calls by verb."""

    def __init__(self, inner: Storage) -> None:
        super().__init__(inner)
        self.calls = Counter[str]()

    def before(self, verb: str, uri: str) -> None:
        if "/dcB/" in uri:
            self.calls[verb] += 1


class Target:
    """Where replicas are, each below another TARGET_ROOT, and the storage that has them."""

    def __init__(self, kind: str, resources: ExitStack) -> None:
        self.is_store, self._names = kind == "s3", 0
        storage: Storage = LocalStorage()
        if self.is_store:
            server = resources.enter_context(S3Server())
            server.make_bucket(_BUCKET)
            # here, as its packages are not those of every installation
            from cpreplicate.storage.backends.objects.objects import ObjectStorage

            storage = ObjectStorage(f"s3://{_BUCKET}", side_options(server.endpoint))
        self.counting = Counting(storage)
        self.storage = Retrying(self.counting, _RETRIES) if self.is_store else self.counting
        resources.enter_context(serving(kind, self.storage))

    def root(self, place: Path) -> str:
        """Return a TARGET_ROOT, into which what was replicated below `place` is copied."""
        local = place / "dcB"
        if not self.is_store:
            return f"file:{local}"
        self._names += 1
        root = f"s3://{_BUCKET}/{self._names}/dcB"

        def copy(path: Path) -> None:
            self.storage.put(f"{root}/{path.relative_to(local)}", lambda: [path.read_bytes()])

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(copy, [path for path in local.rglob("*") if path.is_file()]))
        return root

    def bytes_of(self, directory: str) -> int:
        """The lengths of all files below a directory."""
        children = self.storage.list(directory)
        return sum(
            self.bytes_of(each.uri) if each.is_directory else each.length for each in children
        )


class Replicated(NamedTuple):
    """A replica, the union of the files of its points, and what its last syncs took."""

    place: str
    union: Mapping[str, int]
    cost: Cost


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
    target: Target, place: Path, count: int, expired: int, size: int, pack: PackMode
) -> Replicated:
    """Sync each checkpoint, and keep the last `count`.

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
    costs: list[Cost] = []
    last = count + expired
    for number, files in enumerate(checkpoints(last, size), 1):
        _complete(place / "dcA", number, files, before)
        if number == last - _MEASURED - 1:  # what is copied is read once
            request = replace(request, target_root=target.root(place))
        time.sleep(_SETTLES if number >= last - _MEASURED - 1 else 0.0)
        costs.append(_synced(request, target.counting, count))
        union |= files if number > expired else {}
        before = files
    measured = costs[-_MEASURED:]
    cpu, calls = median(each.cpu for each in measured), median(each.calls for each in measured)
    return Replicated(f"{request.target_root}/{JOB}", union, Cost(count, cpu, int(calls)))


def _synced(request: SyncRequest, counting: Counting, points: int) -> Cost:
    """Sync once, and return what that took."""
    counting.calls.clear()
    began = time.process_time()
    sync(request, lambda _line: None)
    return Cost(points, 1000 * (time.process_time() - began), counting.calls.total())


def _complete(root: Path, number: int, files: dict[str, int], before: dict[str, int]) -> None:
    """Write a checkpoint at its hour. Flink retains only the last one."""
    checkpoint = write_checkpoint(root, number, files)
    os.utime(checkpoint / "_metadata", (_FIRST + number * _HOUR,) * 2)
    shutil.rmtree(root / JOB / f"chk-{number - 1}", ignore_errors=True)
    for gone in before.keys() - files.keys():
        (root / JOB / gone).unlink()


def main() -> None:
    """Measure and print."""
    end_tidily()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=720, help="default: %(default)s, 30 days")
    parser.add_argument("--expired", type=int, default=72, help="earlier ones that are not kept")
    parser.add_argument("--size", type=int, default=64 << 10, help="bytes of a new file")
    parser.add_argument("--directory", help="where to work, such as /dev/shm")
    parser.add_argument("--pack", choices=[*_TARGETS], help="default: one after the other")
    parser.add_argument("--on", choices=["file", "s3"], default="file", help="the target")
    options = parser.parse_args()
    if options.on == "s3" and options.pack == "on":
        parser.error("--on s3 copies what was made on local disk, and packs have absolute paths")
    packs: list[PackMode] = ["off"] if options.on == "s3" else [*_TARGETS]
    with ExitStack() as resources:
        target = Target(options.on, resources)
        for pack in [options.pack] if options.pack else packs:
            few = [small(target, points, options, pack) for points in _FEW]
            report([*few, large(target, options, pack)], pack)


def small(target: Target, points: int, options: argparse.Namespace, pack: PackMode) -> Cost:
    """Return what a sync takes of a small replica, of which some points have expired."""
    with tempfile.TemporaryDirectory(prefix=_PREFIX, dir=options.directory) as place:
        expired = 2 * _MEASURED
        return replicated(target, Path(place), points, expired, options.size, pack).cost


def large(target: Target, options: argparse.Namespace, pack: PackMode) -> Cost:
    """Return what a sync takes of the large replica, and print how large it is."""
    with tempfile.TemporaryDirectory(prefix=_PREFIX, dir=options.directory) as directory:
        place, started, points = Path(directory), time.monotonic(), options.points
        found = replicated(target, place, points, options.expired, options.size, pack)
        kept = len(examine(Replica(found.place, Side())).committed)
        if kept != points:
            sys.exit(f"{kept} points were kept, not {points}")
        used, needed = target.bytes_of(found.place), sum(found.union.values())
        print(
            f"--pack {pack}: {points} points, {len(found.union)} files of {needed / 1e6:.1f} MB;"
            f" {used / 1e6:.1f} MB in the replica, {used / needed:.3f} times"
            f" (target {_TARGETS[pack]}); {time.monotonic() - started:.0f} s",
            flush=True,
        )
        return found.cost


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
