"""Which runner executes a plan, and why."""

from __future__ import annotations

import functools
import importlib.util
import logging
import math
import os
import re
import sys
from typing import NamedTuple

from cpreplicate.core import sizes
from cpreplicate.errors import UsageError
from cpreplicate.protocol.users import has_passwd_entry
from cpreplicate.runners import startup_times
from cpreplicate.runners.base import Runner
from cpreplicate.runners.inline import InlineRunner
from cpreplicate.runners.options import (
    COPIES_IN_DRIVER,
    DEFAULT_MASTER,
    DYNAMIC,
    EXECUTORS,
    MOST_EXECUTORS,
    ExecutionOptions,
    copies_in_driver,
    cores_of_task,
    is_submitted,
    is_true,
    tasks_of_executor,
    whole,
)
from cpreplicate.storage import Sides

_log = logging.getLogger(__name__)

# Rates of one process on HDFS: docs/lab/hdfs.md
_FILES_A_SECOND = 200
_BYTES_A_SECOND = 200e6
_SMALL_SECONDS = 10.0  # of one process: 2,000 files, or 2 GB
_LOCAL_GAIN = 0.7  # of a further core: its processes share this machine's network
_UNKNOWN_SLOTS = 16  # of a cluster that was not asked yet


class SparkSpeed(NamedTuple):
    """The seconds that Spark takes to start, whether they were measured on this host, and how many
    times as fast as one process it is then.
    """

    start: float
    is_measured: bool
    speedup: float


def spark_speed(execution: ExecutionOptions, is_started: bool = False) -> SparkSpeed:
    """Return what is known of Spark without starting it. `is_started`: it runs already."""
    master = execution.spark_master() or DEFAULT_MASTER
    start, is_measured = (0.0, True) if is_started else startup_times.seconds(master)
    return SparkSpeed(start, is_measured, _speedup(master, execution))


def seconds_by_spark(execution: ExecutionOptions, inline: float) -> float:
    """Return the seconds that Spark, with its start, takes for work of `inline` seconds inline."""
    if not _is_installed() or not _can_start():
        return math.inf
    speed = spark_speed(execution)
    early = speed.start if _works_early(execution) else 0.0
    return speed.start + max(0.0, inline - early) / speed.speedup


def is_small(files: int, size: int) -> bool:
    """Return whether one process executes a plan so soon that its files are not worth spreading."""
    return files / _FILES_A_SECOND + size / _BYTES_A_SECOND <= _SMALL_SECONDS


class RunnerChoice(NamedTuple):
    """The name of the runner that executes a plan, why, and the seconds that it may take.

    `warning` is set if Spark would be faster, and is not installed.
    """

    runner: str
    reason: str
    seconds: float = 0.0
    warning: str = ""


def runner_choice(
    execution: ExecutionOptions,
    files: int,
    size: int,
    bandwidth: float | None = None,
    reason: str = "asked for",
    is_started: bool = False,
) -> RunnerChoice:
    """Return the runner that was asked for, or the faster one. Nothing is created or imported.

    `bandwidth` is the limit of the run in bytes a second. `reason` is returned unless the choice is
    made here. `is_started`: Spark runs already.
    """
    by_one = files / _FILES_A_SECOND + size / _BYTES_A_SECOND
    least = size / bandwidth if bandwidth else 0.0  # that the limit of the run leaves
    if execution.runner == "inline":
        return RunnerChoice("inline", reason, max(by_one, least))
    start, is_measured, speedup = spark_speed(execution, is_started)
    early = start if _works_early(execution) else 0.0  # while Spark starts
    by_many = start + max(0.0, by_one - early) / speedup
    inline, spark = max(by_one, least), max(by_many, start - early + least)
    if execution.runner == "spark":
        return RunnerChoice("spark", reason, spark)
    if not _is_installed():
        return RunnerChoice(
            "inline", "auto, pyspark is not installed", inline, _slow(inline, spark)
        )
    if not _can_start():
        why = "auto, Spark cannot start under a user id without a passwd entry"
        return RunnerChoice("inline", why, inline)
    source = "as measured at its last start here" if is_measured else "not measured here yet"
    why = (
        f"auto, {sizes.counted(files, 'file')} of {sizes.size(size)}: inline about {inline:.0f} s,"
        f" Spark about {spark:.0f} s: {start:.1f} s to start ({source}), then {speedup:.1f} times"
        " as fast"
    )
    runner = "inline" if inline <= spark else "spark"
    return RunnerChoice(runner, why, min(inline, spark))


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
    is made here. pyspark is imported only if Spark is chosen. Raises `UsageError` if Spark is asked
    for, and not installed.
    """
    bandwidth = sides.target.limits.bandwidth
    chosen = runner_choice(execution, files, size, bandwidth, reason)
    _log.debug("runner: %s (%s)", chosen.runner, chosen.reason)
    if chosen.warning:
        _log.warning("%s", chosen.warning)
    if chosen.runner == "inline":
        return InlineRunner(sides, execution, chosen.reason)
    refuse_without_pyspark()
    from cpreplicate.runners.spark.runner import SparkRunner

    return SparkRunner(sides, execution, chosen.reason, levels)


def refuse_without_pyspark() -> None:
    """Raise `UsageError` if Spark is not installed: `runners.spark` cannot be imported then."""
    if not _is_installed():
        raise UsageError(
            "--runner spark needs the package pyspark, which is not installed: pip install pyspark,"
            " or use --runner inline"
        )


def _is_installed() -> bool:
    """Return whether pyspark is: an installation that never uses Spark may be without it."""
    if "pyspark" in sys.modules:
        return sys.modules["pyspark"] is not None
    return _is_on_the_path()


@functools.cache  # a service asks for each run
def _is_on_the_path() -> bool:
    return importlib.util.find_spec("pyspark") is not None


def _slow(inline: float, spark: float) -> str:
    """Return the warning that Spark is missing, if it would be faster than threads."""
    if inline <= spark:
        return ""
    return (
        f"pyspark is not installed: threads take about {inline:.0f} s for what Spark would do in"
        f" about {spark:.0f} s. Install it (pip install pyspark), or give --runner inline"
    )


def _can_start() -> bool:
    """Return whether Spark's JVM can start here, or runs already, because this process is a part of
    `spark-submit`.
    """
    return is_submitted() or has_passwd_entry()


def _works_early(execution: ExecutionOptions) -> bool:
    """Return whether this process works, too, while the executors of a cluster start."""
    return copies_in_driver(execution.property(COPIES_IN_DRIVER)) and is_cluster(execution)


def is_cluster(execution: ExecutionOptions) -> bool:
    """Return whether Spark is asked for on a cluster, as far as is known before it starts."""
    return not (execution.spark_master() or DEFAULT_MASTER).startswith("local")


def _speedup(master: str, execution: ExecutionOptions) -> float:
    """Return how many times as fast as one process the slots are."""
    if not master.startswith("local"):
        return float(execution.parallelism or _cluster_slots(execution))
    asked = re.match(r"local\[(\d+)", master)
    cores = int(asked[1]) if asked else os.cpu_count() or 1
    return 1 + _LOCAL_GAIN * (min(cores, os.cpu_count() or 1) - 1)


def _cluster_slots(execution: ExecutionOptions) -> int:
    """Return how many tasks run at once, as far as the properties state it."""
    conf, cores = execution.property, "spark.cores.max"
    if conf(cores) is not None:
        return max(1, whole(conf, cores, 0) // cores_of_task(conf))
    # no executors at first, as with dynamic allocation, are not known
    slots = whole(conf, EXECUTORS, 0) * tasks_of_executor(conf) or _UNKNOWN_SLOTS
    if is_true(conf(DYNAMIC)) and conf(MOST_EXECUTORS) is not None:
        slots = min(slots, whole(conf, MOST_EXECUTORS, 0) * tasks_of_executor(conf))
    return max(1, slots)
