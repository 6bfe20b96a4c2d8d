"""The base of runners around another one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from cpreplicate.runners.base import Done, In, Out, Runner
from cpreplicate.runners.tasks import Outcome, Task
from cpreplicate.storage import Sides


class RunnerWrapper:
    """A runner that passes every call on to another one."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    @property
    def name(self) -> str:
        """See `Runner`."""
        return self._runner.name

    @property
    def reason(self) -> str:
        """See `Runner`."""
        return self._runner.reason

    @property
    def is_elsewhere(self) -> bool:
        """See `Runner`."""
        return self._runner.is_elsewhere

    def run(
        self, actions: Sequence[Task], level: int = 0, done: Done | None = None
    ) -> list[Outcome]:
        """See `Runner`."""
        return self._runner.run(actions, level, done)

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

    def __enter__(self) -> Runner:
        self._runner.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._runner.__exit__(*exception)
