"""Deadlines of calls, also of a client whose calls cannot be broken off.

hdfs-native waits for as long as a server is silent, and no signal ends the wait. So what is done
with it is done by a worker, a daemon thread, while the caller waits for the worker. A further
thread looks now and then how long the present call of each worker has lasted. If that is longer
than its deadline, the caller goes on with `NoAnswer` and leaves the worker behind. Should the call
return after all, the worker does nothing more but clean up.

Each call has its own deadline, so a long transfer of many calls may take as long as it needs.
"""

from __future__ import annotations

import contextlib
import errno
import time
from collections.abc import Callable
from typing import Any, TypeVar

from cpreplicate.errors import UsageError
from cpreplicate.storage.base import NoAnswer
from cpreplicate.storage.waiting import workers
from cpreplicate.storage.waiting.bounds import answered, limit
from cpreplicate.storage.waiting.side_call import in_thread
from cpreplicate.storage.waiting.workers import Assignment, Call, LeftBehind

T = TypeVar("T")
OPTION = "deadline"
"""The name of the option of a storage."""
DEFAULT = 20.0
"""The seconds that a call may take without the option."""
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


class Deadline:
    """The deadline of the calls to one server, or to one kind of servers.

    `who` names it in messages, and `place` its filesystem. `breaks_off` is called when nothing was
    answered for that long: it may close connections, so that the client makes new ones. It is also
    called when a `change` is left behind, else the client might make that change later, against
    what another run did meanwhile. With it, a server that is silent is asked by one call at a time
    until it answers, and other calls fail at once.
    """

    def __init__(
        self, seconds: float, place: str, who: str, breaks_off: Callable[[], None] | None = None
    ) -> None:
        self.seconds = seconds
        self.who = who
        self._place = place
        self._breaks_off = breaks_off
        self._answered = 0.0  # when the last call was answered
        self._is_silent = False
        self._asking: Assignment | None = None

    def run(self, work: Callable[[], T]) -> T:
        """Do what makes calls, in a worker; raise `NoAnswer` if one of them is not answered."""
        if workers.thread.assignment is not None:
            return work()
        assignment = Assignment(work, self)
        workers.workers.start(assignment)
        try:
            assignment.done.acquire()
        except BaseException:  # a signal: let the worker clean up, if it can
            workers.workers.leave(assignment)
            assignment.done.acquire()
            raise
        result: T = assignment.result()
        return result

    def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """Make one call of a client and return its result."""
        return self._call(False, function, *arguments)

    def change(self, function: Callable[..., T], *arguments: Any) -> T:
        """Make one call that changes what others may see."""
        return self._call(True, function, *arguments)

    def _call(self, is_change: bool, function: Callable[..., T], *arguments: Any) -> T:
        """Make a call in a worker that can be left behind once its deadline is over."""
        assignment = workers.thread.assignment
        if assignment is None:
            return self.run(lambda: self._call(is_change, function, *arguments))
        assignment.raise_if_left()
        if self._is_silent:
            self._begin_asking(assignment)
        call = assignment.call = Call(limit(self.seconds), self, is_change)
        try:
            result = function(*arguments)
            answered()
            return result
        finally:
            assignment.call = None
            if self._asking is assignment:
                self._asking = None
            if assignment.is_left:
                assignment.cleans_up = True
                raise LeftBehind
            self._answered, self._is_silent = call.began, False  # by an error, perhaps

    def progress(self) -> None:
        """Record that the present call goes on: its deadline begins again."""
        assignment = workers.thread.assignment
        if assignment is not None and assignment.call is not None:
            answered()
            assignment.call.began, assignment.call.seconds = time.monotonic(), self.seconds

    def no_answer(self, lasted: float) -> NoAnswer:
        """Return the exception for a call that was not answered for some seconds."""
        text = f"{self.who} has not answered for {lasted:.3g} s"
        return NoAnswer(errno.ETIMEDOUT, text, self._place)

    def gives_up(self, call: Call) -> None:
        """Record that a call was left behind. One that had less time means nothing for others."""
        if call.seconds >= self.seconds and self._answered < call.began:
            self._is_silent = self._breaks_off is not None
            self._break()
        else:
            self.leaves(call)

    def leaves(self, call: Call) -> None:
        """Let no call that was left behind make its change later."""
        if call.is_change:
            self._break()

    def _break(self) -> None:
        if self._breaks_off is None:
            return
        # in a thread of its own: it may ask for the addresses of a host
        with contextlib.suppress(RuntimeError):  # there are too many threads
            in_thread(self._breaks_off, "break")

    def _begin_asking(self, assignment: Assignment) -> None:
        """Let an assignment ask a silent server, unless another one does."""
        asking = self._asking
        if asking is None or asking is assignment or asking.is_left or asking.has_ended:
            self._asking = assignment
            return
        lasted = time.monotonic() - self._answered if self._answered else self.seconds
        raise self.no_answer(lasted)


def deadline_of(text: str | None) -> float:
    """Return the seconds of the option, as in `20`, `20s`, `500ms`. Raises `UsageError`."""
    if text is None:
        return DEFAULT
    number = text.strip().rstrip("mhs")
    unit = text.strip()[len(number) :] or "s"
    try:
        seconds = float(number) * _UNITS[unit]
    except (ValueError, KeyError):
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise UsageError(f"{OPTION} = {text!r}: expected a time such as 20s or 500ms")
    return seconds


def end_calls(within: float) -> None:
    """Break off what calls are under way, so that the process can end within some seconds."""
    workers.ending.begin(within)


def is_ending() -> bool:
    """Return whether `end_calls` was called."""
    return workers.ending.requested.is_set()


def left_behind() -> int:
    """Return how many calls were left behind and have not returned."""
    return workers.workers.left_of(None)
