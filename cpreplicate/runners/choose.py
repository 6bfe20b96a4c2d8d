"""Which runner executes a plan, and why."""

from __future__ import annotations

import logging
import math
import os
import re
from typing import NamedTuple

from cpreplicate.protocol.users import has_passwd_entry
from cpreplicate.runners import startup_times
from cpreplicate.runners.base import Runner
from cpreplicate.runners.inline import InlineRunner
from cpreplicate.runners.options import DEFAULT_MASTER, ExecutionOptions
from cpreplicate.storage import Sides

_log = logging.getLogger(__name__)

INLINE_BYTES = 200e6  # a second, of one process: measured HDFS to HDFS, docs/performance.md
INLINE_FILES = 200.0  # small files a second, of one process: measured there
_LOCAL_GAIN = 0.7  # of a further core: its processes share this machine's network
_UNKNOWN_SLOTS = 16  # of a cluster that was not asked yet


class RunnerCost(NamedTuple):
    """The seconds that a plan takes inline and by Spark, and the figures behind the estimate."""

    inline: float
    spark: float
    start: float
    is_measured: bool
    speedup: float

    def __str__(self) -> str:
        source = (
            "as measured at its last start here" if self.is_measured else "not measured here yet"
        )
        return (
            f"inline about {self.inline:.0f} s, Spark about {self.spark:.0f} s: {self.start:.1f} s"
            f" to start ({source}), then {self.speedup:.1f} times as fast"
        )


def estimate(
    execution: ExecutionOptions,
    files: int,
    size: int,
    bandwidth: float | None = None,
    is_started: bool = False,
) -> RunnerCost:
    """Estimate what each runner takes for so many files and bytes.

    `bandwidth` is the limit of the run in bytes a second. `is_started`: Spark runs already.
    """
    master = execution.spark_master() or DEFAULT_MASTER
    start, is_measured = (0.0, True) if is_started else startup_times.seconds(master)
    least = size / bandwidth if bandwidth else 0.0
    inline = files / INLINE_FILES + size / INLINE_BYTES
    speedup = _speedup(master, execution)
    return RunnerCost(
        max(least, inline), start + max(least, inline / speedup), start, is_measured, speedup
    )


def seconds_by_spark(execution: ExecutionOptions, inline: float) -> float:
    """Return the seconds that Spark, with its start, takes for work of `inline` seconds inline."""
    if not _can_start():
        return math.inf
    master = execution.spark_master() or DEFAULT_MASTER
    return startup_times.seconds(master)[0] + inline / _speedup(master, execution)


class Choice(NamedTuple):
    """The name of the runner that executes a plan, and why."""

    runner: str
    reason: str


def choice(
    execution: ExecutionOptions,
    files: int,
    size: int,
    bandwidth: float | None = None,
    reason: str = "asked for",
    is_started: bool = False,
) -> Choice:
    """Return the runner that was asked for, or the faster one. Nothing is created or imported.

    `reason` is returned unless the choice is made here. `is_started`: Spark runs already.
    """
    if execution.runner != "auto":
        return Choice(execution.runner, reason)
    if not _can_start():
        why = "auto, Spark cannot start under a user id without a passwd entry"
        return Choice("inline", why)
    estimated = estimate(execution, files, size, bandwidth, is_started)
    why = f"auto, {files} files of {size} bytes: {estimated}"
    return Choice("inline" if estimated.inline <= estimated.spark else "spark", why)


def startup_seconds(execution: ExecutionOptions) -> float:
    """Return how long Spark takes to start, 0 if it runs already."""
    if _is_submitted():
        return 0.0
    return startup_times.seconds(execution.spark_master() or DEFAULT_MASTER)[0]


def spark_speedup(execution: ExecutionOptions) -> float:
    """Return how many times as fast as one process Spark is expected to be."""
    return _speedup(execution.spark_master() or DEFAULT_MASTER, execution)


def choose_runner(
    execution: ExecutionOptions,
    files: int,
    size: int,
    sides: Sides,
    levels: int = 0,
    reason: str = "asked for",
) -> Runner:
    """Return the runner that was asked for, or the faster one for `files` files of `size` bytes.

    `levels` is the number of levels of importance of its runs. `reason` is logged unless the choice
    is made here. pyspark is imported only if Spark is chosen.
    """
    bandwidth = sides.target.limits.bandwidth
    chosen = choice(execution, files, size, bandwidth, reason)
    _log.debug("runner: %s (%s)", chosen.runner, chosen.reason)
    if chosen.runner == "inline":
        return InlineRunner(sides, execution, chosen.reason)
    from cpreplicate.runners.spark.runner import SparkRunner

    return SparkRunner(sides, execution, chosen.reason, levels)


def _can_start() -> bool:
    """Return whether Spark's JVM can start here, or runs already, because this process is a part of
    `spark-submit`.
    """
    return _is_submitted() or has_passwd_entry()


def _is_submitted() -> bool:
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _speedup(master: str, execution: ExecutionOptions) -> float:
    """Return how many times as fast as one process the slots are."""
    if not master.startswith("local"):
        return float(execution.parallelism or _cluster_slots(execution))
    asked = re.match(r"local\[(\d+)", master)
    cores = int(asked[1]) if asked else os.cpu_count() or 1
    return 1 + _LOCAL_GAIN * (min(cores, os.cpu_count() or 1) - 1)


def _cluster_slots(execution: ExecutionOptions) -> int:
    most = execution.property("spark.cores.max")
    instances, cores = (
        execution.property("spark.executor.instances"),
        execution.property("spark.executor.cores"),
    )
    if most is not None:
        return int(most)
    return int(instances) * int(cores or 1) if instances is not None else _UNKNOWN_SLOTS
