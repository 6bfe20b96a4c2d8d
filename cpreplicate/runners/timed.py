"""A runner that measures how long copies and deletes take."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from cpreplicate.runners.base import Done, Runner
from cpreplicate.runners.tasks import Copy, Delete, Outcome, Task
from cpreplicate.runners.wrapper import RunnerWrapper


class TimedRunner(RunnerWrapper):
    """A runner around another one.

    `copies` and `deletes` are the seconds spent in calls so far. They include the start of a runner
    that starts with its first call.
    """

    def __init__(self, runner: Runner, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(runner)
        self.copies = self.deletes = 0.0
        self._clock = clock

    def run(
        self, actions: Sequence[Task], level: int = 0, done: Done | None = None
    ) -> list[Outcome]:
        """See `Runner`."""
        started = self._clock()
        try:
            return super().run(actions, level, done)
        finally:
            spent = self._clock() - started
            if actions and isinstance(actions[0], Copy):
                self.copies += spent
            elif actions and isinstance(actions[0], Delete):
                self.deletes += spent

    def __enter__(self) -> TimedRunner:
        super().__enter__()
        return self
