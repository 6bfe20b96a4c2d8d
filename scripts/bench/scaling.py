"""The same work by 1, 8 and 16 executors of a real cluster, where a line of each executor's own
is the limit.

The line is emulated, see `emulated.py`: neither disks nor, as long as the machine has CPU left, its
two cores show how it scales, but how the work is dealt out. What a session and its executors cost
to start is not counted.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from cpreplicate.runners import Copy, ExecutionOptions
from cpreplicate.runners.spark.runner import SparkRunner
from cpreplicate.storage import Sides
from scripts.bench import emulated, eventlog, measured, trees
from scripts.bench.emulated import EmulatedSite
from scripts.bench.meter import Meter
from tests.support.standalone import StandaloneCluster

EXECUTORS = (1, 8, 16)
# Bytes a second that a line carries when what is read and what is written share it. Sixteen lines
# of twice as much would need more CPU than two cores have.
COPYING = 10e6
SITE = EmulatedSite(bandwidth=2 * COPYING, latency=0.02)
LEAST_SPEED, MOST_TAIL = 0.9, 1.2  # of linear; see `Row.tail`
_BUSY = 0.9  # of the machine's CPU: what is called its limit
_SMALL, _LEAST_LARGE = 4 << 20, 16 << 20
_ROOT = Path(__file__).resolve().parent.parent.parent


class Work(NamedTuple):
    """How many small files, how many large ones from 16 MiB on, and the bytes of the largest."""

    small: int
    large: int
    largest: int


FULL, QUICK = Work(11_000, 16, 128 << 20), Work(1_600, 5, 32 << 20)


class Row(NamedTuple):
    """What so many executors did.

    `tail`: the end of the executor that ends last, against the mean of all their ends, from the
    stage's submission on. `cpu`, `others`: the shares of the machine's CPU that this cluster with
    its driver had, and everybody else.
    """

    executors: int
    bytes: int
    seconds: float
    tail: float
    cpu: float
    others: float

    @property
    def rate(self) -> float:
        return self.bytes / self.seconds

    @property
    def is_short_of_cpu(self) -> bool:
        """Whether the machine's cores were the limit, rather than the lines."""
        return self.cpu + self.others >= _BUSY


def copies(work: Work) -> list[Copy]:
    """The mix, always the same: small files from 4 KiB on, and a quarter of the bytes in the large
    ones.
    """
    ratio = work.largest / _LEAST_LARGE
    large = [
        int(_LEAST_LARGE * ratio ** (index / max(1, work.large - 1))) for index in range(work.large)
    ]
    sizes = [*trees.mixed(work.small, _SMALL).sizes.values(), *large]
    return [
        Copy(emulated.place("a", index, size), emulated.place("b", index, size), size)
        for index, size in enumerate(sizes)
    ]


def rows(work: Work, numbers: Sequence[int], patience: float) -> Iterator[Row]:
    """Start a cluster, measure each number of its executors, end it."""
    with contextlib.ExitStack() as stack:
        directory = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="cpreplicate-bench-"))
        )
        cluster = stack.enter_context(StandaloneCluster(directory / "spark", max(numbers)))
        stack.enter_context(
            environment({**cluster.environment, "XDG_CACHE_HOME": str(directory / "cache")})
        )
        for executors in numbers:
            events = directory / f"events-{executors}"
            events.mkdir()
            yield _row(cluster.master, executors, copies(work), events, patience)
            cluster.repair()


def _row(master: str, executors: int, wanted: Sequence[Copy], events: Path, patience: float) -> Row:
    execution = ExecutionOptions(
        runner="spark", master=master, conf=settings(executors, events), parallelism=executors
    )
    copied = measured_copies(Sides(SITE, SITE), execution, executors, wanted, patience)
    tail = eventlog.read(events, copied.since).tail(executors)
    return Row(executors, copied.bytes, copied.seconds, tail, copied.cpu, copied.others)


class Copied(NamedTuple):
    """What was copied from the time `since` on, and the shares of the CPU of us and of others."""

    since: float
    bytes: int
    seconds: float
    cpu: float
    others: float


def measured_copies(
    sides: Sides,
    execution: ExecutionOptions,
    executors: int,
    wanted: Sequence[Copy],
    patience: float,
) -> Copied:
    """Copy all of it by executors that have started, once the machine is quiet."""
    with SparkRunner(sides, execution) as runner:
        runner.run(warm(executors))
        measured.wait_until_quiet(patience)
        meter = Meter()
        outcomes = runner.run(wanted)
        seconds, cpu, others = meter.read()
    failed = [outcome for outcome in outcomes if outcome.error is not None]
    if failed or len(outcomes) != len(wanted):
        raise RuntimeError(f"{len(failed)} of {len(wanted)} copies failed, first {failed[:1]}")
    return Copied(meter.since, sum(each.bytes for each in outcomes), seconds, cpu, others)


def warm(executors: int) -> list[Copy]:
    """Enough for every executor to have started its Python and to have imported what it needs."""
    sizes = [1 << 20] * (20 * executors)
    return [
        Copy(emulated.place("a", index, size), emulated.place("warm", index, size), size)
        for index, size in enumerate(sizes)
    ]


def settings(executors: int, events: Path) -> tuple[tuple[str, str], ...]:
    """So many executors of one core, all of them there before the first task.

    They import what they need from here.
    """
    return (
        ("spark.cpreplicate.driverCopies", "false"),
        ("spark.cores.max", str(executors)),
        ("spark.executor.cores", "1"),
        ("spark.executor.memory", "512m"),
        ("spark.executorEnv.PYTHONPATH", str(_ROOT)),
        ("spark.scheduler.minRegisteredResourcesRatio", "1.0"),
        ("spark.scheduler.maxRegisteredResourcesWaitingTime", "120s"),
        *eventlog.settings(events),
    )


@contextlib.contextmanager
def environment(more: dict[str, str]) -> Iterator[None]:
    """This process's, with some more while the block runs."""
    before = dict(os.environ)
    os.environ.update(more)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def table(work: Work, numbers: Sequence[int], patience: float) -> list[Row]:
    """Measure, and print a line as soon as it is known."""
    sizes = [copy.extent for copy in copies(work)]
    share = sum(size for size in sizes if size > _SMALL) / sum(sizes)
    print(
        f"\nThe same {len(sizes):,} files, {sum(sizes) / 1e6:,.0f} MB,"
        f" for each number of executors; {share:.0%} of the bytes in {work.large} files."
        f" A line copies {COPYING / 1e6:.0f} MB/s, a call takes {SITE.latency * 1000:.0f} ms.\n"
    )
    head = [
        "executors",
        "seconds",
        "MB/s",
        "MB/s an executor",
        "of its line",
        "times one executor",
        "of linear",
        "tail",
        "CPU of both cores",
        "others' CPU",
    ]
    print(f"| {' | '.join(head)} |\n|{' --- |' * len(head)}")
    found: list[Row] = []
    for row in rows(work, numbers, patience):
        found.append(row)
        print(_line(row, found[0]), flush=True)
    return found


def linear(row: Row, one: Row) -> float:
    """The speed, against that of one executor times their number."""
    return row.rate / one.rate / (row.executors / one.executors)


def _line(row: Row, one: Row) -> str:
    each = row.rate / row.executors
    cells = [
        f"{row.executors}",
        f"{row.seconds:.1f}",
        f"{row.rate / 1e6:.1f}",
        f"{each / 1e6:.1f}",
        f"{each / COPYING:.0%}",
        f"{row.rate / one.rate:.2f}",
        f"{linear(row, one):.2f}",
        f"{row.tail:.2f}",
        f"{row.cpu:.0%}{', the limit' if row.is_short_of_cpu else ''}",
        f"{row.others:.0%}",
    ]
    return f"| {' | '.join(cells)} |"


def targets(found: Sequence[Row]) -> Iterator[tuple[str, str, bool]]:
    """What was promised: the promise, what came of it, whether it is met."""
    for row in found:
        limit = " (the machine's CPU is the limit)" if row.is_short_of_cpu else ""
        speed = linear(row, found[0])
        if row is not found[0]:
            yield (
                f"{row.executors} executors: ≥ {LEAST_SPEED} of linear",
                f"{speed:.2f}{limit}",
                speed >= LEAST_SPEED,
            )
            yield (
                f"{row.executors} executors: tail ≤ {MOST_TAIL}",
                f"{row.tail:.2f}{limit}",
                row.tail <= MOST_TAIL,
            )
