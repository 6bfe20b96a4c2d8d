"""A runner that measures how long copies, deletes and everything else take."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType

from cpreplicate.runners.base import Done, In, Out, Runner
from cpreplicate.runners.tasks import Copy, Delete, Outcome, Task
from cpreplicate.storage import Sides


class TimedRunner:
    """A runner around another one.

    `copies`, `deletes` and `others` are the seconds spent in calls so far. They include the start
    of a runner that starts with its first call.
    """

    def __init__(self, runner: Runner, clock: Callable[[], float] = time.monotonic) -> None:
        self.name, self.reason, self.is_elsewhere = runner.name, runner.reason, runner.is_elsewhere
        self.copies = self.deletes = self.others = 0.0
        self._runner, self._clock = runner, clock

    def run(
        self, actions: Sequence[Task], level: int = 0, done: Done | None = None
    ) -> list[Outcome]:
        """See `Runner`."""
        first = actions[0] if actions else None
        with self._measuring(first):
            return self._runner.run(actions, level, done)

    def map(
        self, function: Callable[[In], Out], items: Sequence[In], places: Sequence[str] = ()
    ) -> list[Out]:
        """See `Runner`."""
        with self._measuring(None):
            return self._runner.map(function, items, places)

    def limited(self, sides: Sides) -> Sides:
        """See `Runner`."""
        return self._runner.limited(sides)

    def cancel(self) -> None:
        """See `Runner`."""
        self._runner.cancel()

    def __enter__(self) -> TimedRunner:
        self._runner.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._runner.__exit__(kind, error, trace)

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
