"""Questions to many servers at the same time, where one that does not answer holds up no other."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cpreplicate.core.clock import Clock
from cpreplicate.storage.waiting.cancellation import go_on
from cpreplicate.storage.waiting.side_call import Executor, SideCall, in_thread

_LOOK = 0.1  # seconds between two looks at a cancellation
_MOST = 100  # questions under way at the same time: each costs a thread, perhaps a connection


class Inquiries:
    """Asks questions again and again, each in a thread that does not hold up the process's end.

    `patience`: for so many seconds `ask` waits for the questions that it begins. At most `most`
    are under way at the same time.
    """

    def __init__(
        self, patience: float, clock: Clock, executor: Executor = in_thread, most: int = _MOST
    ) -> None:
        self._patience, self._most = patience, most
        self._executor, self._clock = executor, clock
        self._asked: dict[str, SideCall[None]] = {}
        self._begun: dict[str, int] = {}  # when each was begun last, by a count
        self._count = 0

    @property
    def pending(self) -> int:
        """How many questions have not ended."""
        return sum(not call.has_ended for call in self._asked.values())

    def ask(self, questions: Mapping[str, Callable[[], None]]) -> None:
        """Ask each question whose last time has ended, and wait until these end, but not for long.

        A question that takes longer goes on, and is not asked a second time meanwhile. Those for
        which there is no room or no thread in time are the first ones of the next call.
        """
        self._asked = {key: call for key, call in self._asked.items() if not call.has_ended}
        self._begun = {key: count for key, count in self._begun.items() if key in questions}
        waiting = [key for key in questions if key not in self._asked]
        waiting.sort(key=lambda key: self._begun.get(key, -1), reverse=True)  # the next is the last
        begun: list[SideCall[None]] = []
        until = self._clock.monotonic() + self._patience
        while True:
            begun += self._begin_some(waiting, questions)
            begun = [call for call in begun if not call.has_ended]
            left = until - self._clock.monotonic()
            is_stuck = not waiting or self.pending >= self._most
            if left <= 0 or (is_stuck and not begun):
                return
            go_on()
            if begun:
                begun[0].wait(min(left, _LOOK))

    def _begin_some(
        self, waiting: list[str], questions: Mapping[str, Callable[[], None]]
    ) -> list[SideCall[None]]:
        """Begin the last ones of `waiting` for which there is room, and return them."""
        begun = []
        room = self._most - self.pending
        while waiting and room > 0:
            key = waiting.pop()
            try:
                call = self._executor(questions[key], "ask")
            except RuntimeError:  # the system has no thread left
                waiting.clear()
                break
            self._asked[key], self._begun[key] = call, self._count
            self._count += 1
            room -= 1
            begun.append(call)
        return begun
