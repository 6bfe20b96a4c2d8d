"""Threads of this process: for plans too small to be worth a JVM."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from types import TracebackType

from cpreplicate.runners.work import Action, Outcome, perform
from cpreplicate.storage import Sites

_TRIES = 3
_SLOTS = min(4, os.cpu_count() or 1)  # it does the work of so many tasks: small files wait more than they compute
_PAUSE = 0.2  # seconds before the second try, doubled before the next


class InlineRunner:
    """Copies `parallelism` files at once, by default as many as the storages like."""

    name = "inline"
    is_elsewhere = False

    def __init__(self, sites: Sites, parallelism: int | None = None, reason: str = "asked for") -> None:
        self.reason = reason
        self._sites = sites
        self._streams = parallelism

    def run(self, actions: Sequence[Action]) -> list[Outcome]:
        """Execute all; what failed is tried again, except a copy whose source is not there."""
        outcomes = {outcome.target: outcome for outcome in perform(actions, self._sites, self._streams, slots=_SLOTS)}
        for again in range(1, _TRIES):
            failed = [action for action in actions if outcomes[action.target].is_worth_a_try]
            if not failed:
                break
            time.sleep(_PAUSE * 2 ** (again - 1))
            outcomes.update(
                (outcome.target, outcome) for outcome in perform(failed, self._sites, self._streams, again=True, slots=_SLOTS)
            )
        return list(outcomes.values())

    def __enter__(self) -> InlineRunner:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Nothing was started that outlives `run`."""
