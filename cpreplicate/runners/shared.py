"""A runner that several jobs of a fleet use at the same time."""

from __future__ import annotations

from collections.abc import Sequence

from cpreplicate.runners.base import Done, Runner
from cpreplicate.runners.tasks import Outcome, Task
from cpreplicate.runners.wrapper import RunnerWrapper


class SharedRunner(RunnerWrapper):
    """A job's share of a runner, at its level of importance. The creator of the runner ends it."""

    def __init__(self, runner: Runner, level: int) -> None:
        super().__init__(runner)
        self._level = level

    def run(
        self,
        actions: Sequence[Task],
        level: int = 0,  # noqa: ARG002  # it has its own
        done: Done | None = None,
    ) -> list[Outcome]:
        """See `Runner`."""
        return super().run(actions, self._level, done)

    def __enter__(self) -> SharedRunner:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: other jobs still use the runner."""
