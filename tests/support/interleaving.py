"""Runs beside each other on one simulated disk: one step of one run at a time, in an order that is
drawn.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import NamedTuple, TypeAlias

from tests.support.simulated import Moment, SimulatedDisk
from tests.support.waiting import PATIENCE

_PATIENCE = PATIENCE  # real seconds; a run that takes no step for so long hangs
_LOOK = 0.005  # real seconds between two looks at who moves

Step: TypeAlias = "tuple[str, str]"


class _Waiting(NamedTuple):
    """A step that a thread is about to take, and what it waits for."""

    step: Step
    turn: threading.Semaphore


Pick: TypeAlias = Callable[[Mapping[int, Step]], int]


class Interleaving:
    """Lets runs, each a call, take their steps on a disk in turns. `pick` chooses who is next among
    those who wait.

    A run's own threads belong to it. With `parallelism=1` one of them moves at a time, except while
    it packs: a thread reads and another writes, and their steps wait in a queue.
    """

    def __init__(
        self, disk: SimulatedDisk, runs: Sequence[Callable[[], object]], pick: Pick
    ) -> None:
        self.outcomes: dict[int, object] = {}
        self.steps: list[tuple[int, str, str]] = []
        self._disk, self._pick = disk, pick
        self._condition = threading.Condition()
        self._waiting: dict[int, deque[_Waiting]] = {}
        self._granted: int | None = None
        self._threads = [
            # what raises while it plays must not wait for them
            threading.Thread(target=self._live, args=(number, run), daemon=True)
            for number, run in enumerate(runs)
        ]

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
            while not self._condition.wait_for(self._nobody_moves, _LOOK):
                assert time.monotonic() < until, f"a run hangs: {self.steps[-3:]}"
                if self._granted in self._waiting:
                    self._granted = None  # its step failed, and another thread of the run waits
            if not self._waiting:
                return False
            chosen = self._pick({number: queue[0].step for number, queue in self._waiting.items()})
            first = self._waiting[chosen].popleft()
            if not self._waiting[chosen]:
                del self._waiting[chosen]
            self.steps.append((chosen, *first.step))
            self._granted = chosen
        first.turn.release()
        return True

    def _nobody_moves(self) -> bool:
        if self._granted is not None:
            return False
        still = {*self._waiting, *self.outcomes}
        return len(still) == len(self._threads)

    def _at_a_step(self, moment: Moment, verb: str, uri: str) -> None:
        number = getattr(threading.current_thread(), "run_number", None)
        if number is None or moment == "torn":
            return
        if moment == "after":
            self._end_step(number)
            return
        waiting = _Waiting((verb, uri), threading.Semaphore(0))
        with self._condition:
            self._settle(number)
            self._waiting.setdefault(number, deque()).append(waiting)
            self._condition.notify()
        assert waiting.turn.acquire(timeout=_PATIENCE), "never chosen"

    def _end_step(self, number: int) -> None:
        """Go on without the thread that took a step, if another thread of its run waits."""
        with self._condition:
            if number in self._waiting:
                self._settle(number)
                self._condition.notify()

    def _settle(self, number: int) -> None:
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
