"""What every runner promises."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Protocol

from cpreplicate.runners.work import Action, Outcome


class Runner(Protocol):
    """Executes actions in parallel; a context manager that frees what it started. `reason` tells why it was chosen.

    `is_elsewhere`: on machines that do not notice at once when this process ends.
    """

    name: str
    reason: str
    is_elsewhere: bool

    def run(self, actions: Sequence[Action]) -> list[Outcome]:
        """One outcome for each action, in any order. What failed was tried again before it is told as failed."""

    def __enter__(self) -> Runner: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...
