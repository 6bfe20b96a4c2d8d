"""Runs beside each other on one simulated disk: one step of one run at a time, in an order that is
drawn.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import TypeAlias

from tests.support.simulated import Moment, SimulatedDisk

_PATIENCE = 20.0  # real seconds; a run that takes no step for so long hangs

_BLOCKED = 0.005  # real seconds; a run that takes no step for so long waits for a lock


Step: TypeAlias = "tuple[str, str]"
Pick: TypeAlias = Callable[[Mapping[int, Step]], int]


class Interleaving:
    """Lets runs, each a call, take their steps on a disk in turns. `pick` chooses who is next among
    those who wait.

    A run's own threads belong to it: one of them moves at a time, as with `parallelism=1`.
    """

    def __init__(
        self, disk: SimulatedDisk, runs: Sequence[Callable[[], object]], pick: Pick
    ) -> None:
        self.outcomes: dict[int, object] = {}
        self.steps: list[tuple[int, str, str]] = []
        self._disk, self._pick = disk, pick
        self._condition = threading.Condition()
        self._waiting: dict[int, Step] = {}
        self._granted: int | None = None
        self._blocked: set[int] = set()
        self._threads = [
            threading.Thread(target=self._live, args=(number, run))
            for number, run in enumerate(runs)
        ]
        self._turns = [threading.Semaphore(0) for _ in runs]

    def play(self) -> None:
        """Run all to their ends; `outcomes` has what each gave or raised."""
        self._disk.hook = self._at_a_step
        with _children_belong_to_their_parents():
            for number, thread in enumerate(self._threads):
                thread.run_number = number  # type: ignore[attr-defined]
                thread.start()
            while self._turn():
                pass
            for thread in self._threads:
                thread.join(_PATIENCE)
        self._disk.hook = lambda *_: None

    def _turn(self) -> bool:
        """Wait until nobody moves, then let one move; False when all have ended."""
        with self._condition:
            until = time.monotonic() + _PATIENCE
            while not self._condition.wait_for(self._nobody_moves, _BLOCKED):
                assert time.monotonic() < until, f"a run hangs: {self.steps[-3:]}"
                if self._disk.is_locked and self._granted is not None:
                    # until the one that takes over a lease is done
                    self._blocked.add(self._granted)
                    self._granted = None
            if not self._waiting:
                return False
            chosen = self._pick(self._waiting)
            self.steps.append((chosen, *self._waiting.pop(chosen)))
            self._granted = chosen
        self._turns[chosen].release()
        return True

    def _nobody_moves(self) -> bool:
        if self._granted is not None:
            return False
        blocked = len(self._blocked) if self._disk.is_locked and self._waiting else 0
        return len(self._waiting) + len(self.outcomes) + blocked == len(self._threads)

    def _at_a_step(self, moment: Moment, verb: str, uri: str) -> None:
        number = getattr(threading.current_thread(), "run_number", None)
        if moment != "before" or number is None:
            return
        with self._condition:
            self._settle(number)
            self._waiting[number] = (verb, uri)
            self._condition.notify()
        assert self._turns[number].acquire(timeout=_PATIENCE), "never chosen"

    def _settle(self, number: int) -> None:
        self._blocked.discard(number)
        if self._granted == number:
            self._granted = None

    def _live(self, number: int, run: Callable[[], object]) -> None:
        try:
            outcome = run()
        except Exception as error:  # noqa: BLE001  # whatever it raises is what came of it
            outcome = error
        with self._condition:
            self._settle(number)
            self.outcomes[number] = outcome
            self._condition.notify()


class _children_belong_to_their_parents:  # noqa: N801  # used like a function
    def __enter__(self) -> None:
        self._start = start = threading.Thread.start

        def inherit(thread: threading.Thread) -> None:
            number = getattr(threading.current_thread(), "run_number", None)
            if number is not None:
                thread.run_number = number  # type: ignore[attr-defined]
            start(thread)

        threading.Thread.start = inherit  # type: ignore  # a method is replaced on purpose

    def __exit__(self, *_: object) -> None:
        threading.Thread.start = self._start  # type: ignore[method-assign]


def any_of(draw: Random) -> Pick:
    """Whoever.

    In some schedules mostly the one who moved last, so that stretches of one run meet single steps
    of others.
    """
    stays, last = draw.choice([0.0, 0.5, 0.9, 0.97]), -1

    def pick(waiting: Mapping[int, Step]) -> int:
        nonlocal last
        if last not in waiting or draw.random() >= stays:
            last = draw.choice(sorted(waiting))
        return last

    return pick
