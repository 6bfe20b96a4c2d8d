"""The interface of all runners."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

from cpreplicate.runners.tasks import Outcome, Task
from cpreplicate.storage import Sides

In = TypeVar("In")
Out = TypeVar("Out")
Done: TypeAlias = Callable[[Outcome], None]


class Runner(Protocol):
    """A runner executes actions in parallel. It is a context manager that frees what it started.

    `reason` is why it was chosen. `is_elsewhere`: it runs on machines that do not notice at once
    when this process ends.
    """

    @property
    def name(self) -> str: ...

    @property
    def reason(self) -> str: ...

    @property
    def is_elsewhere(self) -> bool: ...

    def run(
        self, actions: Sequence[Task], level: int = 0, done: Done | None = None
    ) -> list[Outcome]:
        """Return one outcome for each action, in any order.

        What cancels the work of this thread (`storage.cancellation`) ends it. A failure is reported
        after further tries. `level` is how important the actions are among
        those that run at the same time, 0 the most. `done` is called, from any thread, with each
        outcome once it is known, for a success perhaps more than once. What the thread does not
        want any more (`tasks.dropping`) is dropped.
        """

    def map(
        self, function: Callable[[In], Out], items: Sequence[In], places: Sequence[str] = ()
    ) -> list[Out]:
        """Return what a function returns for each item, in order.

        Function and items may travel to other machines. `places` are URIs on the filesystems that
        the function accesses.
        """

    def limited(self, sides: Sides) -> Sides:
        """Return sides with the limits of this run, for functions that are given to `map`."""

    def cancel(self) -> None:
        """Cancel the runs under way, from another thread.

        They and later ones raise `RunnerStopped`.
        """

    def __enter__(self) -> Runner: ...

    def __exit__(self, *exception: Any) -> None: ...
