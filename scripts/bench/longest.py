"""One large file among many small ones, on executors with a line of their own each.

The file has most of the bytes. Copied as one stream, it is the end of the run by far: see
`docs/adr/0019-ranges-of-large-files.md`. The lines are those of `scaling.py`.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from cpreplicate.runners import Copy, ExecutionOptions
from cpreplicate.storage import Sides
from scripts.bench import emulated, scaling, trees
from scripts.bench.emulated import EmulatedSite
from scripts.bench.scaling import COPYING, SITE
from tests.support.standalone import StandaloneCluster

EXECUTORS = 8
MOST = 1.3  # of the seconds that the lines alone would take


class Work(NamedTuple):
    """How many small files, and the bytes of the large one."""

    small: int
    large: int


FULL, QUICK = Work(2_000, 8 << 30), Work(500, 2 << 30)


class Row(NamedTuple):
    """What was copied, in which time; `others` is the share of the CPU that other programs had."""

    is_split: bool
    bytes: int
    seconds: float
    cpu: float
    others: float

    @property
    def ratio(self) -> float:
        """The seconds, against those that the lines alone would take."""
        return self.seconds / (self.bytes / (EXECUTORS * COPYING))


def copies(work: Work) -> list[Copy]:
    """The small files from 4 KiB to 4 MiB on, and the large one."""
    sizes = [*trees.mixed(work.small, 4 << 20).sizes.values(), work.large]
    return [
        Copy(emulated.place("a", index, size), emulated.place("b", index, size), size)
        for index, size in enumerate(sizes)
    ]


def rows(work: Work, patience: float, both: bool) -> Iterator[Row]:
    """Start a cluster, measure with ranges, and without if `both`, end it."""
    with contextlib.ExitStack() as stack:
        directory = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="cpreplicate-bench-"))
        )
        cluster = stack.enter_context(StandaloneCluster(directory / "spark", EXECUTORS))
        cache = {"XDG_CACHE_HOME": str(directory / "cache")}
        stack.enter_context(scaling.environment({**cluster.environment, **cache}))
        for is_split in (True, False) if both else (True,):
            events = directory / f"events-{is_split}"
            events.mkdir()
            execution = ExecutionOptions(
                runner="spark",
                master=cluster.master,
                conf=scaling.settings(EXECUTORS, events),
                parallelism=EXECUTORS,
            )
            yield _row(execution, copies(work), is_split, patience)
            cluster.repair()


def _row(execution: ExecutionOptions, wanted: list[Copy], is_split: bool, patience: float) -> Row:
    site = EmulatedSite(bandwidth=SITE.bandwidth, latency=SITE.latency, joins=is_split)
    sides = Sides(site, site)
    copied = scaling.measured_copies(sides, execution, EXECUTORS, wanted, patience)
    return Row(is_split, copied.bytes, copied.seconds, copied.cpu, copied.others)


def table(work: Work, patience: float, both: bool) -> list[Row]:
    """Measure, and print a line as soon as it is known."""
    print(
        f"\nOne file of {work.large / 2**30:.0f} GiB among {work.small:,} small ones, on"
        f" {EXECUTORS} executors. A line copies {COPYING / 1e6:.0f} MB/s, a call takes"
        f" {SITE.latency * 1000:.0f} ms.\n"
    )
    head = ["the large file", "seconds", "MB/s", "of ideal", "CPU of both cores", "others' CPU"]
    print(f"| {' | '.join(head)} |\n|{' --- |' * len(head)}")
    found: list[Row] = []
    for row in rows(work, patience, both):
        found.append(row)
        cells = [
            "in ranges" if row.is_split else "one stream",
            f"{row.seconds:.1f}",
            f"{row.bytes / row.seconds / 1e6:.1f}",
            f"{row.ratio:.2f}",
            f"{row.cpu:.0%}",
            f"{row.others:.0%}",
        ]
        print(f"| {' | '.join(cells)} |", flush=True)
    return found


def targets(found: list[Row]) -> Iterator[tuple[str, str, bool]]:
    """What was promised: the promise, what came of it, whether it is met."""
    for row in found:
        if row.is_split:
            ratio = row.ratio
            yield f"one large file: ≤ {MOST} of ideal", f"{ratio:.2f}", ratio <= MOST
