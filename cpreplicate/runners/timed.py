"""A runner that measures how long copies, deletes and everything else take."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from cpreplicate.runners.base import Done, In, Out, Runner
from cpreplicate.runners.tasks import Copy, Delete, Outcome, Task
from cpreplicate.runners.wrapper import RunnerWrapper


class TimedRunner(RunnerWrapper):
    """A runner around another one.

    `copies`, `deletes` and `others` are the seconds spent in calls so far. They include the start
    of a runner that starts with its first call.
    """

    def __init__(self, runner: Runner, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(runner)
        self.copies = self.deletes = self.others = 0.0
        self._clock = clock

    def run(
        self, actions: Sequence[Task], level: int = 0, done: Done | None = None
    ) -> list[Outcome]:
        """See `Runner`."""
        first = actions[0] if actions else None
        with self._measuring(first):
            return super().run(actions, level, done)

    def map(
        self, function: Callable[[In], Out], items: Sequence[In], places: Sequence[str] = ()
    ) -> list[Out]:
        """See `Runner`."""
        with self._measuring(None):
            return super().map(function, items, places)

    def __enter__(self) -> TimedRunner:
        super().__enter__()
        return self

    @contextmanager
    def _measuring(self, first: Task | None) -> Iterator[None]:
        started = self._clock()
        try:
            yield
        finally:
            spent = self._clock() - started
            if isinstance(first, Copy):
                self.copies += spent
            elif isinstance(first, Delete):
                self.deletes += spent
            else:
                self.others += spent
