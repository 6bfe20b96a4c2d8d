"""What many jobs need: hosts, memory, bandwidth, waves. The table of docs/rollout.md.

It is computed from rates of docs/lab/, for jobs of one size. Give the size of yours.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from typing import NamedTuple

MB = 1e6
GBIT = 125 * MB  # bytes a second of a link of 1 Gbit/s
MIB = 2**20


class Measured(NamedTuple):
    """A number of docs/lab/: the section, and the text there from which it is read."""

    value: float
    section: str
    text: str


_SERVICE = "A service that follows 1,000 jobs"
_LINK = "HDFS to HDFS over a long-distance link"
_ROUND = "A round of a standby"
_HDFS = "After that, on a quiet machine"
CHECKPOINTS = Measured(31, _SERVICE, "| 1, `--slots 3` | 31 |")  # a second, of one service
BYTES = Measured(32 * 64 * MIB / 15.2, _LINK, "15.2 s (57 %)")  # a second, 32 files of 64 MiB
FILES = Measured(4000 / 38.6, _LINK, "4,000 files of 64 KiB | 11.5 (91 %) | 38.6 (27 %)")
CARRIED = Measured(0.88, _LINK, "9.8 (88 %)")  # of a link, by eight plain connections
MEMORY = Measured(160 * MIB, "Fleets", "at most 160 MiB")  # of a service of ten jobs on HDFS
# of 1,000 jobs
MEMORY_OF_JOBS = Measured(111 * MIB, "Fleets", "| `fleet --runner inline` | 6.8 | 6.8 | 111 |")
SMALL = Measured(405 * MIB, _ROUND, "| 200,000 | 200 | sync | 3.20 | 405 |")
LARGE = Measured(1256 * MIB, _ROUND, "| 1,000,000 | 1,000 | sync | 14.82 | 1256 |")
CALLS = Measured(47, _HDFS, "at most 40 calls at the target | 47")  # a sync of one file
CALLS_OF_FILE = Measured(4.9, _HDFS, "| cpreplicate inline | 6.17 | 1.0 / 4.9 |")
STATUS = Measured(1.8 / 1000, "Status", "| `status TARGET_ROOT` | 1.8 |")  # seconds a replica
PROMOTE = Measured(25 / 1000, "Handing 1,000 jobs over", "| `promote --all` | 25 | 27 |")
MEASURED = (
    CHECKPOINTS,
    BYTES,
    FILES,
    CARRIED,
    MEMORY,
    MEMORY_OF_JOBS,
    SMALL,
    LARGE,
    CALLS,
    CALLS_OF_FILE,
    STATUS,
    PROMOTE,
)

LOAD = 0.5  # of what was measured: the rest is for catching up after an outage
LINKS = (1, 10, 25, 40, 100, 400)  # Gbit/s
SLOTS = 20  # the default of --slots
CORES = 4  # of a host: a service uses one
NIGHT = 8 * 3600.0  # seconds in which a wave is copied
FIRST_WAVE = 10

HEADINGS = (
    "jobs",
    "services",
    "hosts",
    "memory of a service",
    "link",
    "NameNode calls/s",
    "first copy",
    "waves",
    "`status`",
    "`promote --all`",
)


@dataclass(frozen=True)
class Job:
    """The size of each job: the files and bytes of a checkpoint, and seconds between two of them.

    `changed` is the share of its files and bytes that a checkpoint does not share with the last.
    """

    files: int = 100
    bytes: float = 200 * MB
    interval: float = 300.0
    changed: float = 0.05


@dataclass(frozen=True)
class Need:
    """What so many jobs need."""

    jobs: int
    job: Job

    @property
    def bytes_per_second(self) -> float:
        """What the jobs write while they are followed."""
        return self.jobs * self.job.bytes * self.job.changed / self.job.interval

    @property
    def services(self) -> int:
        """The shards that replicate all checkpoints in time."""
        by_number = self.jobs / self.job.interval / CHECKPOINTS.value
        by_bytes = self.bytes_per_second / BYTES.value
        return math.ceil(max(by_number, by_bytes) / LOAD)

    @property
    def hosts(self) -> int:
        """The hosts of four cores, a stand-in for each included."""
        return 2 * math.ceil(self.services / CORES)

    @property
    def memory(self) -> float:
        """The bytes of one service: its own, of the jobs that it follows, and of full slots."""
        followed = MEMORY_OF_JOBS.value * self.jobs / self.services / 1000
        reference = (LARGE.value - SMALL.value) / 800_000
        return MEMORY.value + followed + min(SLOTS, self.jobs) * self.job.files * reference

    @property
    def link(self) -> int:
        """The link in Gbit/s that carries twice what the jobs write. 400 is the largest."""
        needed = self.bytes_per_second / LOAD / CARRIED.value / GBIT
        return next((rate for rate in LINKS if rate >= needed), LINKS[-1])

    @property
    def calls(self) -> float:
        """The calls a second at the NameNode of the target, without packs."""
        files = self.job.files * self.job.changed
        return self.jobs / self.job.interval * (CALLS.value + CALLS_OF_FILE.value * files)

    @property
    def first_copy(self) -> float:
        """The seconds of the first copy of all jobs, while those copied before are followed."""
        free = min(self.services * BYTES.value, CARRIED.value * self.link * GBIT)
        by_bytes = self.jobs * self.job.bytes / max(1.0, free - self.bytes_per_second)
        by_files = self.jobs * self.job.files / (self.services * FILES.value)
        return max(by_bytes, by_files)

    @property
    def waves(self) -> list[int]:
        """The jobs of each wave: ten times as many as before, and no more than a night copies."""
        most = max(1, int(self.jobs * NIGHT / self.first_copy))
        left, size, sizes = self.jobs, FIRST_WAVE, []
        while left:
            sizes.append(min(left, size, most))
            left -= sizes[-1]
            size *= 10
        return sizes

    def cells(self) -> list[str]:
        """Return the texts of its row in the table."""
        return [
            f"{self.jobs:,}",
            str(self.services),
            str(self.hosts),
            f"{_rounded(self.memory / MIB):,.0f} MiB",
            f"{self.link} Gbit/s",
            f"{_rounded(self.calls):,.0f}",
            _time(self.first_copy),
            ", ".join(f"{size:,}" for size in self.waves),
            _time(STATUS.value * self.jobs),
            _time(PROMOTE.value * self.jobs),
        ]


def _rounded(value: float) -> float:
    """Return a number with two digits."""
    return float(f"{value:.2g}")


def _time(seconds: float) -> str:
    if seconds < 60:
        return f"{max(1, math.ceil(seconds))} s"
    if seconds < 3600:
        return f"{math.ceil(seconds / 60)} min"
    return f"{seconds / 3600:.1f} h"


def table(jobs: list[int], job: Job) -> str:
    """Return the table in Markdown, a row for each number of jobs."""
    lines = [list(HEADINGS), ["---:"] * len(HEADINGS)]
    lines += [Need(number, job).cells() for number in jobs]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--jobs", type=int, nargs="+", default=[10, 1000, 50_000])
    parser.add_argument("--files", type=int, default=Job.files, help="of a checkpoint")
    parser.add_argument("--megabytes", type=float, default=Job.bytes / MB, help="of a checkpoint")
    parser.add_argument(
        "--interval", type=float, default=Job.interval, help="seconds between two checkpoints"
    )
    parser.add_argument(
        "--changed", type=float, default=100 * Job.changed, help="percent of it that is new"
    )
    options = parser.parse_args()
    job = Job(options.files, options.megabytes * MB, options.interval, options.changed / 100)
    print(table(options.jobs, job))


if __name__ == "__main__":
    main()
