"""Read from Spark's event log which executor ran which task from when to when."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple


class Task(NamedTuple):
    """One try of a task, in seconds since the epoch."""

    executor: str
    launched: float
    finished: float


class Run(NamedTuple):
    """The stages that began after some instant: when the first of them was submitted, and all of
    their tasks.
    """

    began: float
    tasks: list[Task]

    def ends(self, executors: int) -> list[float]:
        """For each executor, the seconds from the start to the end of its last task.

        0 for one that got none.
        """
        last: dict[str, float] = {}
        for task in self.tasks:
            last[task.executor] = max(last.get(task.executor, 0.0), task.finished - self.began)
        return [*last.values(), *[0.0] * (executors - len(last))]

    def tail(self, executors: int) -> float:
        """The end of the executor that ends last, against the mean of all their ends."""
        ends = self.ends(executors)
        return max(ends) * len(ends) / sum(ends)


def settings(directory: Path) -> tuple[tuple[str, str], ...]:
    """Return properties that make Spark log its events to an existing directory, as JSON lines."""
    return (
        ("spark.eventLog.enabled", "true"),
        ("spark.eventLog.dir", directory.as_uri()),
        ("spark.eventLog.compress", "false"),
        ("spark.eventLog.rolling.enabled", "false"),
    )


def read(directory: Path, since: float) -> Run:
    """What ran in the session that wrote there, from an instant on; the session has stopped."""
    (path,) = directory.iterdir()
    events = [json.loads(line) for line in path.read_text().splitlines()]
    stages = [
        event["Stage Info"] for event in events if event["Event"] == "SparkListenerStageCompleted"
    ]
    submitted = [stage["Submission Time"] / 1000 for stage in stages]
    tasks = [
        _task(event["Task Info"]) for event in events if event["Event"] == "SparkListenerTaskEnd"
    ]
    return Run(
        min(time for time in submitted if time >= since),
        [task for task in tasks if task.launched >= since],
    )


def _task(info: dict[str, Any]) -> Task:
    return Task(info["Executor ID"], info["Launch Time"] / 1000, info["Finish Time"] / 1000)
