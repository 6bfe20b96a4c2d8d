"""What a copy takes: the costs of `planned.Model`, measured between two HDFS clusters on this
machine. All but `task`, which no HDFS has a part in.

A round is a `sync` that copies one file at a time: of no file, of small ones, of large ones. What
the first takes is the start, and is subtracted from the others. CPU is that of the process alone.
hdfs-native alone copies the same large files, and its closes are timed. Each cost is the median of
the rounds.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import NamedTuple
from urllib.parse import urlsplit

from hdfs_native import WriteOptions

from scripts.bench import planned, raw, trees
from scripts.bench.clusters import BenchCluster
from scripts.bench.measured import run, wait_until_quiet
from tests.support.jobs import JOB

_KIB, _MIB = 1 << 10, 1 << 20
_TREES = {
    "nothing": trees.Files("nothing", {}),
    "small": trees.uniform("small", 60, 64 * _KIB),
    "large": trees.uniform("large", 10, 64 * _MIB),
}
_SYNC = str(Path(sys.executable).parent / "cpreplicate")
_SECONDS = 600  # a run that takes longer has failed


class _Spent(NamedTuple):
    """Seconds of a run, and of CPU in its process."""

    seconds: float
    cpu: float

    def __sub__(self, other: _Spent) -> _Spent:
        return _Spent(self.seconds - other.seconds, self.cpu - other.cpu)


class Round(NamedTuple):
    """What one round found: a model, and bytes a second of a core for hdfs-native alone."""

    model: planned.Model
    native: float


def measured(rounds: int, patience: float) -> planned.Model:
    """Measure, print each round and the median, and return it."""
    a, b = BenchCluster(), BenchCluster()
    head = ["file, ms", "close, ms", "CPU of a file, ms", "stream, MB/s", "core, MB/s"]
    head.append("core of hdfs-native alone, MB/s")
    print(f"\n| {' | '.join(['round', *head])} |\n|{' --- |' * (len(head) + 1)}", flush=True)
    found: list[Round] = []
    try:
        BenchCluster.start_many([a, b])
        for tree in _TREES.values():
            trees.write_checkpoint(f"{a.uri}/{tree.name}", 1, tree.sizes)
        _round(a.uri, b.uri, 0)  # lets the servers compile what they need
        for number in range(1, rounds + 1):
            wait_until_quiet(patience)
            found.append(_round(a.uri, b.uri, number))
            print(_row(str(number), found[-1]), flush=True)
    finally:
        a.close()
        b.close()
    result = _median(found)
    print(_row("median", result), flush=True)
    return result.model


def _round(source: str, target: str, number: int) -> Round:
    with tempfile.TemporaryDirectory(prefix="cpreplicate-bench-") as directory:

        def sync(tree: str) -> _Spent:
            words = ["--runner", "inline", "--parallelism", "1", "--output", "json"]
            checkpoint = f"{source}/{tree}/{JOB}/chk-1"
            root = f"{target}/{number}-{tree}"
            return _spent([_SYNC, "sync", checkpoint, root, *words])

        def native(tree: str) -> _Spent:
            names = trees.write_names(Path(directory) / tree, _TREES[tree].sizes)
            places = [f"{source}/{tree}/{JOB}", f"{target}/{number}-native-{tree}"]
            return _spent([sys.executable, raw.__file__, *places, str(names)])

        start = sync("nothing")
        small, large = sync("small") - start, sync("large") - start
        alone = native("large") - native("nothing")
        close = _close(target, number)
    for name in (*_TREES, "native-nothing", "native-large", "closes"):
        trees.remove(f"{target}/{number}-{name}")
    return Round(_model(small, large, close), _TREES["large"].bytes / alone.cpu)


def _model(small: _Spent, large: _Spent, close: float) -> planned.Model:
    """The costs that follow from a run of small files and one of large ones, without the start."""
    files, large_files = len(_TREES["small"].sizes), len(_TREES["large"].sizes)
    file, cpu = small.seconds / files, small.cpu / files
    size = _TREES["large"].bytes
    return planned.Model(
        file=max(0.0, file - close),
        close=min(file, close),
        cpu=cpu,
        task=planned.MODEL.task,
        stream=size / max(large.seconds - large_files * file, size / 1e9),
        core=size / (large.cpu - large_files * cpu),
    )


def _close(target: str, number: int) -> float:
    """The mean seconds of the close of a small file, one after the other."""
    client, root = raw.client(target), f"{urlsplit(target).path}/{number}-closes"
    sizes = _TREES["small"].sizes
    seconds = 0.0
    for name, size in sizes.items():
        writer = client.create(f"{root}/{name}", WriteOptions(create_parent=True))
        writer.write(trees.content(name, size))
        began = time.perf_counter()
        writer.close()
        seconds += time.perf_counter() - began
    return seconds / len(sizes)


def _spent(command: list[str]) -> _Spent:
    before = os.times()
    took = run(command, _SECONDS)
    after = os.times()
    user = after.children_user - before.children_user
    return _Spent(took.seconds, user + after.children_system - before.children_system)


def _median(rounds: list[Round]) -> Round:
    models = zip(*(each.model for each in rounds), strict=True)
    native = median(each.native for each in rounds)
    return Round(planned.Model(*map(median, models)), native)


def _row(name: str, found: Round) -> str:
    model = found.model
    cells = [
        name,
        f"{model.file * 1000:.0f}",
        f"{model.close * 1000:.0f}",
        f"{model.cpu * 1000:.1f}",
        f"{model.stream / 1e6:.0f}",
        f"{model.core / 1e6:.0f}",
        f"{found.native / 1e6:.0f}",
    ]
    return f"| {' | '.join(cells)} |"
