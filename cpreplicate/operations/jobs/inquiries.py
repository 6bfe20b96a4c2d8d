"""Questions to many servers at the same time, where one that does not answer holds up no other."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cpreplicate.core.clock import Clock
from cpreplicate.storage.waiting.cancellation import go_on
from cpreplicate.storage.waiting.side_call import Executor, SideCall, in_thread

_LOOK = 0.1  # seconds between two looks at a cancellation
_MOST = 100  # questions under way at the same time: each costs a thread, perhaps a connection
_SHARE_OF_SLOW = 2  # at most one of so many places is for questions that took too long before
_TIMES = 4  # so many times as many are under way while it is found out which ones are slow


class Inquiries:
    """Asks questions again and again, each in a thread that does not hold up the process's end.

    `patience`: for so many seconds `ask` waits for the questions that it begins. At most `most`
    are under way at the same time that answered in that time before. Those that did not have places
    of their own, half as many: who does not answer holds up no one who does.
    """

    def __init__(
        self, patience: float, clock: Clock, executor: Executor = in_thread, most: int = _MOST
    ) -> None:
        self._patience, self._most = patience, most
        self._executor, self._clock = executor, clock
        self._asked: dict[str, SideCall[None]] = {}
        self._begun: dict[str, int] = {}  # when each was begun last, by a count
        self._count = 0
        self._slow: set[str] = set()

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
        self._slow &= questions.keys()
        # the next is the last
        waiting.sort(key=lambda key: (key in self._slow, self._begun.get(key, -1)), reverse=True)
        begun: list[SideCall[None]] = []
        until = self._clock.monotonic() + self._patience
        while True:
            begun += self._begin_some(waiting, questions)
            begun = [call for call in begun if not call.has_ended]
            left = until - self._clock.monotonic()
            is_stuck = not waiting or not self._has_room(waiting[-1])
            if left <= 0 or (is_stuck and not begun):
                self._note_slow(questions)
                return
            go_on()
            if begun:
                begun[0].wait(min(left, _LOOK))

    def _begin_some(
        self, waiting: list[str], questions: Mapping[str, Callable[[], None]]
    ) -> list[SideCall[None]]:
        """Begin the last ones of `waiting` for which there is room, and return them."""
        begun = []
        fast, slow = self._room()
        while waiting and (slow if waiting[-1] in self._slow else fast) > 0:
            key = waiting.pop()
            try:
                call = self._executor(questions[key], "ask")
            except RuntimeError:  # the system has no thread left
                waiting.clear()
                break
            self._asked[key], self._begun[key] = call, self._count
            self._count += 1
            fast, slow = (fast, slow - 1) if key in self._slow else (fast - 1, slow)
            begun.append(call)
        return begun

    def _has_room(self, key: str) -> bool:
        fast, slow = self._room()
        return (slow if key in self._slow else fast) > 0

    def _room(self) -> tuple[int, int]:
        """Return how many questions can be begun now, and how many of the slow ones."""
        pending, most = self.pending, self._most
        slow = sum(
            other in self._slow and not call.has_ended for other, call in self._asked.items()
        )
        fast = min(most - (pending - slow), most * _TIMES - pending)
        return fast, max(1, most // _SHARE_OF_SLOW) - slow

    def _note_slow(self, questions: Mapping[str, Callable[[], None]]) -> None:
        if not self._patience:
            return
        pending = {key for key, call in self._asked.items() if not call.has_ended}
        ended = {key for key in questions if key in self._asked} - pending
        self._slow = (self._slow - ended) | pending
