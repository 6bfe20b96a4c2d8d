"""What every runner promises."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Protocol, TypeAlias, TypeVar

from cpreplicate.runners.tasks import Outcome, Task
from cpreplicate.storage import Sides

In = TypeVar("In")
Out = TypeVar("Out")
Done: TypeAlias = Callable[[Outcome], None]


class Runner(Protocol):
    """Executes actions in parallel; a context manager that frees what it started. `reason` tells
    why it was chosen.

    `is_elsewhere`: on machines that do not notice at once when this process ends.
    """

    name: str
    reason: str
    is_elsewhere: bool

    def run(
        self, actions: Sequence[Task], level: int = 0, done: Done | None = None
    ) -> list[Outcome]:
        """Return one outcome for each action, in any order. What failed was tried again before it
        is reported as failed.

        `level` is how important it is among what runs at the same time, 0 the most. `done` is
        called, from any thread, with the outcome of each action once it is known; with that of one
        that succeeded perhaps more than once.
        """

    def map(
        self, function: Callable[[In], Out], items: Sequence[In], places: Sequence[str] = ()
    ) -> list[Out]:
        """What a function returns for each, in their order; it and they may travel to other
        machines.

        `places` are on the filesystems that it reaches.
        """

    def limited(self, sides: Sides) -> Sides:
        """Sides as functions given to `map` are to have them: with the limits of this run."""

    def cancel(self) -> None:
        """Break off what is under way, from another thread: its `run` raises `Stopped`, and so does
        any later one.
        """

    def __enter__(self) -> Runner: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
