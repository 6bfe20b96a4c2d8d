"""A runner that several jobs of a fleet use at the same time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType

from cpreplicate.runners.base import Done, In, Out, Runner
from cpreplicate.runners.tasks import Outcome, Task
from cpreplicate.storage import Sides


class SharedRunner:
    """A job's share of a runner, at its level of importance. The creator of the runner ends it."""

    def __init__(self, runner: Runner, level: int) -> None:
        self.name, self.reason, self.is_elsewhere = runner.name, runner.reason, runner.is_elsewhere
        self._runner, self._level = runner, level

    def run(
        self,
        actions: Sequence[Task],
        level: int = 0,  # noqa: ARG002  # it has its own
        done: Done | None = None,
    ) -> list[Outcome]:
        """See `Runner`."""
        return self._runner.run(actions, self._level, done)

    def map(
        self, function: Callable[[In], Out], items: Sequence[In], places: Sequence[str] = ()
    ) -> list[Out]:
        """See `Runner`."""
        return self._runner.map(function, items, places)

    def limited(self, sides: Sides) -> Sides:
        """See `Runner`."""
        return self._runner.limited(sides)

    def cancel(self) -> None:
        """See `Runner`."""
        self._runner.cancel()

    def __enter__(self) -> SharedRunner:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Do nothing: other jobs still use the runner."""
