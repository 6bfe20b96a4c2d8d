"""Runners: Spark executors, or threads of this process, execute a plan's copies and deletes."""

from cpreplicate.runners.base import Runner
from cpreplicate.runners.choose import choose_runner, seconds_by_spark
from cpreplicate.runners.copy_rows import Copies, Planned
from cpreplicate.runners.inline import Each, InlineRunner, Waits
from cpreplicate.runners.options import ExecutionOptions
from cpreplicate.runners.progress import ShowProgress, Snapshot
from cpreplicate.runners.shared import SharedRunner
from cpreplicate.runners.tasks import (
    Copy,
    Delete,
    EngineLost,
    JobCancelled,
    Outcome,
    Part,
    Read,
    RunnerStopped,
    Task,
    Wanted,
    dropping,
)
from cpreplicate.runners.timed import TimedRunner
from cpreplicate.runners.warm import NeedsSpark, WarmRunners

__all__ = [
    "Copies",
    "Copy",
    "Delete",
    "Each",
    "EngineLost",
    "ExecutionOptions",
    "InlineRunner",
    "JobCancelled",
    "NeedsSpark",
    "Outcome",
    "Part",
    "Planned",
    "Read",
    "Runner",
    "RunnerStopped",
    "SharedRunner",
    "ShowProgress",
    "Snapshot",
    "Task",
    "TimedRunner",
    "Waits",
    "Wanted",
    "WarmRunners",
    "choose_runner",
    "dropping",
    "seconds_by_spark",
]
