"""A runner that several jobs of a fleet use at the same time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType

from cpreplicate.runners.base import Done, In, Out, Runner
from cpreplicate.runners.tasks import Action, Outcome
from cpreplicate.storage import Sites


class SharedRunner:
    """One job's part of a runner, at its level of importance. Who made the runner ends it."""

    def __init__(self, runner: Runner, level: int) -> None:
        self.name, self.reason, self.is_elsewhere = runner.name, runner.reason, runner.is_elsewhere
        self._runner, self._level = runner, level

    def run(
        self,
        actions: Sequence[Action],
        level: int = 0,  # it has its own
        done: Done | None = None,
    ) -> list[Outcome]:
        """See `Runner`."""
        return self._runner.run(actions, self._level, done)

    def map(
        self, function: Callable[[In], Out], items: Sequence[In], places: Sequence[str] = ()
    ) -> list[Out]:
        """See `Runner`."""
        return self._runner.map(function, items, places)

    def limited(self, sites: Sites) -> Sites:
        """See `Runner`."""
        return self._runner.limited(sites)

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
        """Others use it still."""
