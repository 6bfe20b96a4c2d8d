"""How many worker processes a service has, and which jobs are whose."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Generic, TypeVar

_JOBS = 50  # of one process: more are worth another one
_FEWER = 40  # of one process: as few are worth one less, so that a few that come and go move none
_MEMORY = 512 << 20  # bytes of one process: what a service is to be given, too
_CGROUPS = Path("/sys/fs/cgroup")
_V1_CPU = ("cpu.cfs_quota_us", "cpu.cfs_period_us")

K = TypeVar("K", bound=Hashable)


def processes_for(jobs: int, now: int, most: int) -> int:
    """Return how many processes so many jobs are worth, of which there are some `now`."""
    wanted = math.ceil(jobs / _JOBS)
    stay = min(now, math.ceil(jobs / _FEWER))
    return max(1, min(most, max(wanted, stay)))


def most_processes(cgroups: Path = _CGROUPS, own: Path = Path("/proc/self/cgroup")) -> int:
    """Return for how many processes there is room: a core each, and memory.

    Cores are bounded by the affinity of this process, and by the limit of its container or unit,
    memory by that limit only: `cpu.max` and `memory.max` of cgroup v2, or what v1 has for them.
    """
    groups = _groups(cgroups, own)
    quotas = [*_limits(groups, "cpu.max"), *_limits(_groups(cgroups, own, "cpu"), *_V1_CPU)]
    bytes_of = [
        *_limits(groups, "memory.max"),
        *_limits(_groups(cgroups, own, "memory"), "memory.limit_in_bytes"),
    ]
    cores = [math.ceil(quota / period) for quota, period in quotas if quota > 0]
    memory = [limit // _MEMORY for (limit,) in bytes_of]
    return max(1, min([len(os.sched_getaffinity(0)), *cores, *memory]))


def _groups(cgroups: Path, own: Path, controller: str = "") -> list[Path]:
    """Return the control group of this process, and those above it: of v2, or of one of v1.

    A container of v1 has its own group mounted where the host has the one above all.
    """
    try:
        lines = [line.split(":", 2) for line in own.read_text().splitlines()]
    except OSError:
        return []
    top = cgroups / controller
    names = [line[2] for line in lines if len(line) == 3 and controller in line[1].split(",")]
    places = [top / name.strip("/") for name in names[:1]]
    return [
        group for place in places for group in (place, *place.parents) if group.is_relative_to(top)
    ]


def _limits(groups: Sequence[Path], *files: str) -> Iterator[list[int]]:
    """Yield the numbers of files of control groups, of those that limit anything."""
    for group in groups:
        with suppress(OSError, ValueError):  # there is no limit, or no such file
            yield [int(word) for file in files for word in (group / file).read_text().split()]


class Division(Generic[K]):
    """Which jobs are whose: a job stays where it is until it leaves, or the number changes.

    `count` is the number of parts, which are numbered from 0. A job that is new is given to the
    part that has the fewest. If the number changes, no more jobs move than are needed for parts of
    the same size.
    """

    def __init__(self) -> None:
        self.count = 1
        self._parts: dict[K, int] = {}
        self._sizes: Counter[int] = Counter()

    def of(self, key: K) -> int:
        """Return the part of a job."""
        part = self._parts.get(key)
        if part is None:
            part = min(range(self.count), key=lambda each: self._sizes[each])
            self._parts[key] = part
            self._sizes[part] += 1
        return part

    def divide(self, keys: Collection[K], count: int) -> None:
        """Set the jobs, and the number of parts."""
        kept = set(keys)
        most = len(kept) if count == self.count else math.ceil(len(kept) / count)
        self.count = count
        before, self._parts, self._sizes = self._parts, {}, Counter()
        for key, part in before.items():
            if key in kept and part < count and self._sizes[part] < most:
                self._parts[key] = part
                self._sizes[part] += 1
        for key in keys:
            self.of(key)
