"""Workers: daemon threads that call clients, and can be left behind.

A caller waits for its worker. A further thread looks now and then how long the present call of each
worker has lasted. If that is too long, the caller goes on with an exception.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from typing import Any, Protocol

from cpreplicate.storage.base import NoAnswer, Transient
from cpreplicate.storage.waiting import cancellation
from cpreplicate.storage.waiting.side_call import SideCall

# Seconds between two looks at the calls. The callers do not look themselves: hundreds of threads
# that wake up for it would cost as much as the work.
_LOOK = 0.2
# Seconds by which a look is later where this process was paused, or starved of the processor.
_PAUSED = 0.5
# A silent DataNode may keep a thread for as long as the process lives: not more than these of one
# server, or of one kind of servers.
_MOST_LEFT = 512
_HANGS = 2.0  # seconds after which a cancellation does not wait for the end of a call


class LeftBehind(BaseException):
    """The caller waits no longer: the worker ends what it does, and cleans up."""


class Server(Protocol):
    """A server, or one kind of servers, that calls are made to."""

    who: str
    """Its name in messages."""

    def no_answer(self, lasted: float) -> NoAnswer:
        """Return the exception for a call that was not answered for some seconds."""

    def gives_up(self, call: Call) -> None:
        """Record that a call was left behind which lasted too long."""

    def leaves(self, call: Call) -> None:
        """Record that a call was left behind because the caller was cancelled."""


class Call:
    """A call of a client: when it began, its seconds, and the server that it is made to."""

    def __init__(self, seconds: float, server: Server, is_change: bool) -> None:
        self.began = time.monotonic()
        self.seconds, self.server, self.is_change = seconds, server, is_change

    def forgive(self, seconds: float) -> None:
        """Do not count some seconds in which this process was paused."""
        self.began = min(self.began + seconds, time.monotonic())


class Assignment(SideCall[Any]):
    """What a worker does for a caller, in its context."""

    def __init__(self, work: Callable[[], Any], server: Server) -> None:
        context = copy_context()
        super().__init__(partial(context.run, work))
        self.server = server  # which has it done: its calls may be to another one as well
        self._context = context
        self.call: Call | None = None  # the call of the client that it waits for
        self.is_left = self.cleans_up = False

    def break_off(self, error: BaseException) -> None:
        """Let the caller go on with an exception. Called only by the thread that looks at calls."""
        self._error = error
        self.release()

    def raise_if_left(self) -> None:
        """Raise `LeftBehind` before a call, once: what follows cleans up."""
        if self.is_left and not self.cleans_up:
            self.cleans_up = True
            raise LeftBehind

    def raise_if_cancelled(self) -> None:
        """Raise the exception of the caller's check if its work was cancelled."""
        check = self._context.get(cancellation.CHECK)
        if check is not None:
            check()


class Workers:
    """The workers of this process: those without work, those at work, and those left behind."""

    def __init__(self) -> None:
        self._idle: deque[_Worker] = deque()
        self._active: set[Assignment] = set()
        self._left: set[Assignment] = set()
        self._lock = threading.Lock()
        self._has_work = threading.Event()
        self._is_watched = False

    def start(self, assignment: Assignment) -> None:
        """Let a worker do an assignment. Raises `Transient` if too many have been left behind."""
        if len(self._left) >= _MOST_LEFT and self.left_of(assignment.server) >= _MOST_LEFT:
            raise Transient(
                errno.EAGAIN,
                f"{_MOST_LEFT} calls to {assignment.server.who} have not been answered",
            )
        try:
            worker = self._idle.pop()
        except IndexError:
            worker = _Worker(self)
        self._active.add(assignment)
        if not self._has_work.is_set():
            self._watch()
        worker.begin(assignment)

    def _watch(self) -> None:
        with self._lock:
            self._has_work.set()
            if not self._is_watched:
                threading.Thread(target=self._look, name="deadlines", daemon=True).start()
                self._is_watched = True

    def _look(self) -> None:
        """Look at the assignments under way, until the process ends."""
        while self._has_work.wait():
            if self._has_been_paused():
                self._has_been_paused()  # answers that arrived meanwhile are taken first
            for assignment in list(self._active):
                self._look_at(assignment)
            self._has_work.clear()
            if self._active:  # also if one was begun before the line above
                self._has_work.set()

    def _has_been_paused(self) -> bool:
        """Sleep until the next look. Return whether this process was paused meanwhile.

        A pause, as by SIGSTOP or of a virtual machine, counts for no call.
        """
        began = time.monotonic()
        time.sleep(_LOOK)
        late = time.monotonic() - began - _LOOK
        if late <= _PAUSED:
            return False
        for call in [assignment.call for assignment in list(self._active)]:
            if call is not None:
                call.forgive(late)
        return True

    def _look_at(self, assignment: Assignment) -> None:
        try:
            raise_if_overdue(assignment)
        except BaseException as error:  # noqa: BLE001  # raised by the caller
            self.leave(assignment)
            self._active.discard(assignment)
            assignment.break_off(error)

    def ends(self, worker: _Worker, assignment: Assignment) -> None:
        """Record that a worker has done an assignment, and may do another one."""
        self._active.discard(assignment)
        if assignment.is_left:
            with self._lock:
                self._left.discard(assignment)
        self._idle.append(worker)  # before the caller goes on: its next assignment finds it here

    def leave(self, assignment: Assignment) -> None:
        """Wait for an assignment no longer."""
        with self._lock:
            assignment.is_left = True
            if not assignment.has_ended:
                self._left.add(assignment)

    def left_of(self, server: Server | None) -> int:
        """Return how many workers were left behind and are not back: of a server, or all."""
        with self._lock:
            self._left = {assignment for assignment in self._left if not assignment.has_ended}
            return sum(server is None or assignment.server is server for assignment in self._left)


class _Worker:
    """A daemon thread that does one assignment after the other.

    The threads of `concurrent.futures` are waited for at the end of the process.
    """

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._assignment: Assignment | None = None
        self._wake = threading.Lock()
        self._wake.acquire()
        threading.Thread(target=self._work, name="storage", daemon=True).start()

    def begin(self, assignment: Assignment) -> None:
        """Do an assignment; there is none under way."""
        self._assignment = assignment
        self._wake.release()

    def _work(self) -> None:
        """Perform each assignment that `begin` wakes the thread for, until the process ends."""
        while True:
            self._wake.acquire()
            assignment, self._assignment = self._assignment, None
            assert assignment is not None
            thread.assignment = assignment
            assignment.perform()
            thread.assignment = None
            self._workers.ends(self, assignment)
            assignment.release()
            del assignment  # its result is the caller's


class _Thread(threading.local):
    assignment: Assignment | None = None


class ProcessEnd:
    """The end of this process: once it was requested, no call may hold it up."""

    def __init__(self) -> None:
        self.requested = threading.Event()
        self._a_call, self._all = 0.0, 0.0

    def begin(self, within: float) -> None:
        """Let no call last longer than some of these seconds, and all end before they are over."""
        self._a_call, self._all = within * 0.4, time.monotonic() + within * 0.8
        self.requested.set()

    def is_over(self, lasted: float, now: float) -> bool:
        """Return whether a call that has lasted so long is broken off."""
        return self.requested.is_set() and (lasted >= self._a_call or now >= self._all)


workers = Workers()
ending = ProcessEnd()
thread = _Thread()


def raise_if_overdue(assignment: Assignment) -> None:
    """Raise `NoAnswer` if the present call of an assignment has lasted too long."""
    call, now = assignment.call, time.monotonic()
    if call is None:
        if assignment.is_left and ending.is_over(0.0, now):
            raise NoAnswer(errno.ETIMEDOUT, "the process ends")
        return
    lasted = now - call.began
    if lasted >= call.seconds:
        call.server.gives_up(call)
        raise call.server.no_answer(lasted)
    if ending.is_over(lasted, now):
        raise call.server.no_answer(lasted)
    if lasted >= _HANGS:
        try:
            assignment.raise_if_cancelled()
        except BaseException:
            call.server.leaves(call)
            raise


def _after_fork() -> None:
    """Begin without workers: threads do not exist in a forked child."""
    global workers
    workers = Workers()
    thread.assignment = None


os.register_at_fork(after_in_child=_after_fork)
