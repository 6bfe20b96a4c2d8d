"""The options by which a run chooses and configures its runner."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field

from cpreplicate.errors import UsageError
from cpreplicate.runners.progress import ShowProgress

# local[*] never retries a task; the second number is how often a task may be tried
DEFAULT_MASTER = "local[*,4]"


@dataclass(frozen=True, kw_only=True)
class ExecutionOptions:
    """The options of a runner. Those that are None have measured or the cluster's defaults.

    `runner` is `auto`, `spark` or `inline`. `conf` are properties of Spark; a later one wins.
    `parallelism` is the number of slots to fill with batches, or of files that `inline` copies at
    once. `streams` is the number of files that a task copies at once. `engine_timeout` are the
    seconds for which no executor may answer. `show` is called every second with the progress.
    """

    runner: str = "auto"
    master: str | None = None
    conf: tuple[tuple[str, str], ...] = ()
    parallelism: int | None = None
    batch_bytes: int | None = None
    batch_files: int | None = None
    streams: int | None = None
    engine_timeout: float | None = None
    show: ShowProgress | None = field(default=None, compare=False)

    def property(self, name: str) -> str | None:
        """Return a property of Spark as given, or None."""
        return dict(self.conf).get(name)

    def spark_master(self) -> str | None:
        """Return `--master`, or the master among the properties."""
        return self.master or self.property("spark.master")


Properties = Callable[[str], str | None]
"""What a property of Spark is, by its name; None if it is not given."""

DYNAMIC = "spark.dynamicAllocation.enabled"
MOST_EXECUTORS = "spark.dynamicAllocation.maxExecutors"
EXECUTORS = "spark.executor.instances"
EXECUTOR_CORES = "spark.executor.cores"
TASK_CORES = "spark.task.cpus"


def is_true(word: str | None) -> bool:
    """Return whether a property of Spark is true, in whatever case: `SparkConf` writes `True`."""
    return str(word).lower() == "true"


def whole(conf: Properties, name: str, default: int) -> int:
    """Return a property that is a number. Raises `UsageError` if it is none."""
    word = str(conf(name) or default)
    if not word.isdecimal():
        raise UsageError(f"{name}={word} is no whole number")
    return int(word)


def cores_of_task(conf: Properties) -> int:
    """Return how many cores of an executor a task takes."""
    return max(1, whole(conf, TASK_CORES, 1))


def tasks_of_executor(conf: Properties) -> int:
    """Return how many tasks an executor runs at once; 0 if it has fewer cores than one takes."""
    return whole(conf, EXECUTOR_CORES, 1) // cores_of_task(conf)


COPIES_IN_DRIVER = "spark.cpreplicate.driverCopies"  # while executors start; `true` by default


def copies_in_driver(word: str | None) -> bool:
    """Return whether the driver copies meanwhile. Raises `UsageError` for what is no such value."""
    values = {"": True, "true": True, "false": False}
    try:
        return values[(word or "").lower()]
    except KeyError:
        raise UsageError(f"{COPIES_IN_DRIVER}={word} is neither true nor false") from None


def is_submitted() -> bool:
    """Return whether `spark-submit` started this process. Its options win."""
    return "PYSPARK_GATEWAY_PORT" in os.environ
