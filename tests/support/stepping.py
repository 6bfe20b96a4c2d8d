"""Services step by step: a clock that moves by hand, and calls that are made when a test asks."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextvars import Context

from cpreplicate.core.clock import Clock
from cpreplicate.operations.jobs.service import Service
from cpreplicate.storage.waiting.side_call import SideCall


class ManualClock(Clock):
    """A clock that moves only by hand. It begins now, as the files do that a test writes."""

    def __init__(self, now: float | None = None) -> None:
        self._began = time.time() if now is None else now
        self.passed = 0.0

    def now(self) -> float:
        return self._began + self.passed

    def monotonic(self) -> float:
        return self.passed

    def pass_(self, seconds: float) -> None:
        """Let time pass."""
        self.passed += seconds


class Steps:
    """An executor that makes a call when it is asked to, in the thread of the test."""

    def __init__(self) -> None:
        self._begun: list[tuple[str, SideCall[None]]] = []
        self._held: tuple[str, ...] = ()

    def __call__(self, call: Callable[[], None], name: str) -> SideCall[None]:
        begun = SideCall(call)
        self._begun.append((name, begun))
        return begun

    def hold(self, *names: str) -> None:
        """Make no call from now on whose name begins so, as if a storage did not answer it."""
        self._held = names

    def run(self) -> bool:
        """Make the calls that were begun, in that order; return whether there were any."""
        due = [(name, call) for name, call in self._begun if not name.startswith(self._held)]
        self._begun = [(name, call) for name, call in self._begun if name.startswith(self._held)]
        for _, call in due:
            Context().run(call.run)  # a thread has a context of its own
            call.result()
        return bool(due)


class Stepped:
    """A service whose time passes only by `step`, and which makes its calls only then."""

    def __init__(
        self,
        service: Service,
        clock: ManualClock,
        tries: Steps,
        glances: Steps,
        each_turn: Callable[[], None] = lambda: None,
    ) -> None:
        self.service, self.clock, self.tries, self.glances = service, clock, tries, glances
        self._each_turn = each_turn

    def release(self) -> None:
        """Make the calls again that were held."""
        self.tries.hold()
        self.glances.hold()

    def step(self, seconds: float = 0.0) -> None:
        """Let time pass, then turn until nothing is due."""
        self.clock.pass_(seconds)
        self._turn()
        while self.tries.run() | self.glances.run():
            self._turn()

    def _turn(self) -> None:
        self.service.turn()
        self._each_turn()
