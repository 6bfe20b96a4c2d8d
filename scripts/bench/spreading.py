"""Whole syncs of small jobs by 1 to 8 executors of a real cluster, far from their storages.

Every call of a storage waits for a round trip first, and is then made on a disk in memory. So the
machine's two cores, as long as they have time left, do not show, but how syncs are dealt out. What
a session and its executors cost to start is not counted. Each executor has as many syncs, however
many there are.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from cpreplicate.operations.jobs.spread import Made, make_all
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.runners import ExecutionOptions
from cpreplicate.runners.spark.runner import SparkRunner
from cpreplicate.storage import Side, Sides, Storage
from cpreplicate.storage.wrappers.base import StorageWrapper
from scripts.bench import measured
from scripts.bench.meter import Meter
from scripts.bench.scaling import environment, settings
from tests.support import jobs
from tests.support.standalone import StandaloneCluster

EXECUTORS = (1, 2, 4, 8)
FULL, QUICK = 64, 16  # syncs of an executor
LATENCY = 0.1  # seconds of a call
LEAST_SPEED = 0.9  # of linear
_BUSY = 0.9  # of the machine's CPU: what is called its limit
_MEMORY = Path("/dev/shm")
_FILES = {f"shared/{number}": 4096 for number in range(3)}


@dataclass(frozen=True)
class FarSide(Side):
    """A side whose calls take `latency` seconds more."""

    latency: float = LATENCY

    def storage(self, uri: str, inside: str = "") -> Storage:
        return _Far(super().storage(uri, inside), self.latency)


class _Far(StorageWrapper):
    """A storage that is far away."""

    def __init__(self, inner: Storage, latency: float) -> None:
        super().__init__(inner)
        self._latency = latency

    def before(self, verb: str, uri: str) -> None:  # noqa: ARG002  # each call costs the same
        time.sleep(self._latency)


class Row(NamedTuple):
    """What so many executors did; `cpu` and `others` are shares of the machine's CPU."""

    executors: int
    syncs: int
    seconds: float
    cpu: float
    others: float

    @property
    def rate(self) -> float:
        return self.syncs / self.seconds

    @property
    def is_short_of_cpu(self) -> bool:
        """Whether the machine's cores were the limit."""
        return self.cpu + self.others >= _BUSY


def rows(each: int, numbers: Sequence[int], latency: float, patience: float) -> Iterator[Row]:
    """Start a cluster, measure each number of its executors, end it."""
    with ExitStack() as stack:
        directory = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="cpreplicate-bench-"))
        )
        place = Path(
            stack.enter_context(
                tempfile.TemporaryDirectory(prefix="cpreplicate-bench-", dir=_MEMORY)
            )
        )
        ids = list(_written(place, each * max(numbers)))
        cluster = stack.enter_context(StandaloneCluster(directory / "spark", max(numbers)))
        more = {**cluster.environment, "XDG_CACHE_HOME": str(directory / "cache")}
        stack.enter_context(environment(more))
        for executors in numbers:
            events = directory / f"events-{executors}"
            events.mkdir()
            execution = ExecutionOptions(
                runner="spark",
                master=cluster.master,
                conf=settings(executors, events),
                parallelism=executors,
            )
            yield _row(place, execution, executors, ids[: each * executors], latency, patience)
            cluster.repair()


def _written(place: Path, count: int) -> Iterator[str]:
    """Write a checkpoint of each of so many jobs; yield their ids."""
    before = jobs.JOB
    for number in range(1, count + 1):
        jobs.JOB = f"{number:031x}e"
        jobs.write_checkpoint(place / "dcA", 1, _FILES)
        yield jobs.JOB
    jobs.JOB = before


def _row(
    place: Path,
    execution: ExecutionOptions,
    executors: int,
    ids: Sequence[str],
    latency: float,
    patience: float,
) -> Row:
    side = FarSide(latency=latency)
    sides = Sides(side, side)
    with SparkRunner(sides, execution) as runner:
        _make(runner, place, "warm", ids[: 8 * executors], sides)  # imports, connections
        measured.wait_until_quiet(patience)
        meter = Meter()
        _make(runner, place, "dcB", ids, sides)
        seconds, cpu, others = meter.read()
    for name in ("warm", "dcB"):
        shutil.rmtree(place / name)
    return Row(executors, len(ids), seconds, cpu, others)


def _make(runner: SparkRunner, place: Path, name: str, ids: Sequence[str], sides: Sides) -> None:
    asked = [
        (each, SyncRequest(f"file:{place}/dcA/{each}", f"file:{place}/{name}", sides=sides))
        for each in ids
    ]
    results: dict[int, Made] = {}
    make_all(runner, asked, results.__setitem__)
    failed = [made.error for made in results.values() if made.report is None]
    if failed or len(results) != len(ids):
        raise RuntimeError(f"{len(failed)} of {len(ids)} syncs failed, first {failed[:1]}")


def table(each: int, numbers: Sequence[int], latency: float, patience: float) -> list[Row]:
    """Measure, and print a line as soon as it is known."""
    print(
        f"\n{each} whole syncs of {len(_FILES)} files for each executor, eight at a time in each."
        f" A call of a storage takes {latency * 1000:.0f} ms.\n"
    )
    head = ["executors", "syncs", "seconds", "syncs a second", "of linear"]
    head += ["CPU of both cores", "others' CPU"]
    print(f"| {' | '.join(head)} |\n|{' --- |' * len(head)}")
    found: list[Row] = []
    for row in rows(each, numbers, latency, patience):
        found.append(row)
        cells = [
            f"{row.executors}",
            f"{row.syncs}",
            f"{row.seconds:.1f}",
            f"{row.rate:.2f}",
            f"{linear(row, found[0]):.2f}",
            f"{row.cpu:.0%}{', the limit' if row.is_short_of_cpu else ''}",
            f"{row.others:.0%}",
        ]
        print(f"| {' | '.join(cells)} |", flush=True)
    return found


def linear(row: Row, one: Row) -> float:
    """The rate, against that of one executor times their number."""
    return row.rate / one.rate / (row.executors / one.executors)


def targets(found: Sequence[Row]) -> Iterator[tuple[str, str, bool]]:
    """What was promised: the promise, what came of it, whether it is met."""
    for row in found[1:]:
        limit = " (the machine's CPU is the limit)" if row.is_short_of_cpu else ""
        speed = linear(row, found[0])
        yield (
            f"{row.executors} executors: syncs a second ≥ {LEAST_SPEED} of linear",
            f"{speed:.2f}{limit}",
            speed >= LEAST_SPEED,
        )
