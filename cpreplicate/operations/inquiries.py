"""Questions to many servers at the same time, where one that does not answer holds up no other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

from cpreplicate.storage.cancellation import go_on

_LOOK = 0.1  # seconds between two looks at a cancellation


class Inquiries:
    """Asks questions again and again, each in a thread that does not hold up the process's end.

    `patience`: for so many seconds `ask` waits for the questions that it begins.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._asked: dict[str, threading.Thread] = {}

    @property
    def pending(self) -> int:
        """How many questions have not ended."""
        return sum(thread.is_alive() for thread in self._asked.values())

    def ask(self, questions: Mapping[str, Callable[[], None]]) -> None:
        """Ask each question whose last time has ended, and wait until these end, but not for long.

        A question that takes longer goes on, and is not asked a second time meanwhile.
        """
        self._asked = {key: thread for key, thread in self._asked.items() if thread.is_alive()}
        begun = {key: _begin(questions[key]) for key in questions.keys() - self._asked.keys()}
        self._asked.update(begun)
        until = time.monotonic() + self._patience
        for thread in begun.values():
            while thread.is_alive() and (left := until - time.monotonic()) > 0:
                go_on()
                thread.join(min(left, _LOOK))


def _begin(question: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=question, name="ask", daemon=True)
    thread.start()
    return thread
