"""The runners of a service: threads for small plans, and one Spark session that is kept warm."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cpreplicate.runners.base import Done, In, Out, Runner
from cpreplicate.runners.choose import choose_runner, is_cluster, runner_choice
from cpreplicate.runners.copy_rows import sizes_of
from cpreplicate.runners.inline import InlineRunner
from cpreplicate.runners.options import ExecutionOptions, is_submitted
from cpreplicate.runners.progress import EachRun
from cpreplicate.runners.shared import SharedRunner
from cpreplicate.runners.tasks import Outcome, RunnerStopped, Task
from cpreplicate.storage import Sides

if TYPE_CHECKING:
    from cpreplicate.runners.spark.runner import SparkRunner

LEVELS = 8  # of importance, which Spark distinguishes


class NeedsSpark(Exception):
    """A plan is worth Spark, whose session is in another process. Nothing of it was done."""


class WarmRunners:
    """Runs each plan where it is faster, on threads or on a Spark session that others use, too.

    The session starts with the first plan that is worth it. It ends when nothing has used it for
    `session_idle` seconds, or when a plan finds that it has ended. Only those of one job show
    progress: that of many says nothing. Without `has_spark`, another process has the session: runs
    of copies that are worth it raise `NeedsSpark`, and all else is executed by threads.
    """

    def __init__(
        self,
        sides: Sides,
        execution: ExecutionOptions,
        session_idle: float,
        clock: Callable[[], float] = time.monotonic,
        is_for_one: bool = False,
        has_spark: bool = True,
    ) -> None:
        self._has_spark = has_spark
        show = EachRun(execution.show) if is_for_one and execution.show is not None else None
        execution = replace(execution, show=show)
        self._sides, self._execution = sides, execution
        self._session_idle, self._clock = session_idle, clock
        self.inline: Runner = InlineRunner(sides, execution, "small plans of a service")
        self._lock = threading.Lock()
        self._spark: SparkRunner | None = None
        self._users = 0
        self._last_used = 0.0
        self.is_cancelled = False

    @property
    def is_warm(self) -> bool:
        """Whether a Spark session has started, and has not ended since."""
        spark = self._spark
        return spark is not None and spark.has_started and not spark.has_ended()

    @property
    def is_elsewhere(self) -> bool:
        """Whether a run may be on machines that do not notice at once if this process ends."""
        spark, execution = self._spark, self._execution
        if not self._has_spark or execution.runner == "inline":
            return False
        if spark is not None:
            return spark.is_elsewhere
        if execution.runner == "auto":
            return is_submitted() or is_cluster(execution)
        from cpreplicate.runners.spark.session import is_elsewhere

        return is_elsewhere(execution)

    def share(self, level: int = 0) -> SharedRunner:
        """Return a runner for one job, at its level of importance, 0 the most."""
        return _Share(self, min(level, LEVELS - 1))

    @contextmanager
    def chosen(self, files: int, size: int) -> Iterator[Runner]:
        """Yield the runner for a plan of so many files and bytes."""
        bandwidth = self._sides.target.limits.bandwidth
        chosen = runner_choice(self._execution, files, size, bandwidth, is_started=self.is_warm)
        is_of_others = chosen.runner == "spark" and not self._has_spark
        if is_of_others and size:
            raise NeedsSpark
        if chosen.runner == "inline" or is_of_others:
            yield self.inline
            return
        spark = self._begin(files, size, chosen.reason)
        try:
            yield spark
        finally:
            self._leave()

    @contextmanager
    def spark(self) -> Iterator[SparkRunner]:
        """Yield the runner of the session, which starts if it has not."""
        spark = self._begin(0, 0, "asked for")
        try:
            yield spark
        finally:
            self._leave()

    def give_up_idle(self) -> bool:
        """End the session if it has been idle for long enough. Return whether it ended.

        Waits for no other thread. A session that starts, which may take minutes on a full cluster,
        is not ended.
        """
        if not self._lock.acquire(blocking=False):
            return False
        try:
            is_idle = self._clock() - self._last_used >= self._session_idle
            if self._spark is None or self._users or self._spark.is_starting or not is_idle:
                return False
            self._end_session()
        finally:
            self._lock.release()
        return True

    def cancel(self) -> None:
        """Cancel all runs, from another thread: they and later ones raise `RunnerStopped`."""
        self.is_cancelled = True
        self.inline.cancel()
        spark = self._spark
        if spark is not None:
            spark.cancel()

    def raise_if_cancelled(self) -> None:
        """Raise `RunnerStopped` once all runs are cancelled."""
        if self.is_cancelled:
            raise RunnerStopped

    def _leave(self) -> None:
        with self._lock:
            self._users -= 1
            self._last_used = self._clock()

    def _begin(self, files: int, size: int, reason: str) -> SparkRunner:
        with self._lock:
            self.raise_if_cancelled()
            if self._spark is None or self._spark.has_ended():
                self._end_session()
                self._spark = self._new_runner(files, size, reason)
            self._users += 1
            return self._spark

    def _new_runner(self, files: int, size: int, reason: str) -> SparkRunner:
        """Return a runner for Spark. Its first run starts the session."""
        runner = choose_runner(
            replace(self._execution, runner="spark"), files, size, self._sides, LEVELS, reason
        )
        from cpreplicate.runners.spark.runner import SparkRunner

        assert isinstance(runner, SparkRunner)
        return runner

    def _end_session(self) -> None:
        spark, self._spark = self._spark, None
        if spark is not None:
            spark.__exit__(None, None, None)

    def __enter__(self) -> WarmRunners:
        self.inline.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        with self._lock:
            self._end_session()
        self.inline.__exit__(*exception)


class _Share(SharedRunner):
    """A job's share of the runners. It is the runner that was used last.

    Where its next run will be is not known before that has its tasks.
    """

    def __init__(self, runners: WarmRunners, level: int) -> None:
        super().__init__(runners.inline, level)
        self._runners = runners

    @property
    def is_elsewhere(self) -> bool:
        """See `WarmRunners`."""
        return self._runners.is_elsewhere

    def run(
        self,
        actions: Sequence[Task],
        level: int = 0,  # noqa: ARG002  # the job's own
        done: Done | None = None,
    ) -> list[Outcome]:
        size = int(sizes_of(actions).sum())
        with self._runners.chosen(len(actions), size) as runner:
            self._runner = runner
            return runner.run(actions, self._level, done)

    def map(
        self, function: Callable[[In], Out], items: Sequence[In], places: Sequence[str] = ()
    ) -> list[Out]:
        return self._runners.inline.map(function, items, places)

    def limited(self, sides: Sides) -> Sides:
        return self._runners.inline.limited(sides)

    def cancel(self) -> None:
        self._runners.cancel()
