"""The Spark context that the runs of this process start: they share it, and the last one stops it.

A process has at most one (`SparkContext._active_spark_context`), and several runs may need it at
the same time: threads of a program that call the API, the jobs of a switch.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager
from typing import TypeAlias

from pyspark import SparkContext

from cpreplicate.runners.tasks import RunnerStopped
from cpreplicate.storage.waiting import cancellation

_LOOK = 0.05  # seconds between two looks at what another run does
Wanted: TypeAlias = Hashable
"""The properties of a context, by which runs share it."""
IsLost: TypeAlias = Callable[[], bool]
Start: TypeAlias = Callable[[IsLost], AbstractContextManager[SparkContext]]
"""Provides a new context and stops it: soon, if its executors do not answer by then."""


class _Own:
    """A context that runs of this process start, use and stop."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.users = 0
        self.context: SparkContext | None = None
        self.starter: int | None = None  # the thread that starts it, while that lasts
        self.is_given_up = self.is_ending = self.is_lost = False
        self.starting = threading.Lock()
        self._resources = contextlib.ExitStack()

    def start(self, start: Start) -> SparkContext:
        """Start the context, unless that was given up. The caller holds `starting`."""
        self.is_given_up, self.starter = False, threading.get_ident()
        with contextlib.ExitStack() as resources:
            try:
                context = resources.enter_context(start(lambda: self.is_lost))
            finally:
                self.starter = None
            if self.is_given_up:
                raise RunnerStopped
            self._resources, self.context = resources.pop_all(), context
        return context

    def stop(self) -> None:
        self._resources.close()


_lock = threading.Lock()
_own: _Own | None = None


def existing(wanted: Wanted) -> SparkContext | None:
    """Return the context that a run with such properties would use, if that has started.

    It is the user's, whatever its properties are.
    """
    own = _own
    if own is None:
        return SparkContext._active_spark_context
    return own.context if own.wanted == wanted else None


def of_user() -> SparkContext | None:
    """Return the context that somebody else has started in this process."""
    with _lock:
        return SparkContext._active_spark_context if _own is None else None


@contextlib.contextmanager
def shared(
    wanted: Wanted,
    start: Start,
    is_lost: IsLost,
    is_running: Callable[[SparkContext], bool],
) -> Iterator[tuple[SparkContext, bool]]:
    """Provide the context of runs with the same `wanted` properties, and whether it is new.

    The first of them starts it, and the last stops it: soon, if it `is_lost`. One that has ended by
    itself is left by the first run that notices: the next one starts another. A run with other
    properties waits until the context has ended.
    """
    own = _joined(wanted)
    try:
        with _held(own.starting):
            found = own.context
            context = own.start(start) if found is None else found
        yield context, found is None
    finally:
        own.is_lost = own.is_lost or is_lost()
        _leave(own, is_running)


def give_up(thread: int) -> bool:
    """Let the start of a context by a thread end; return whether it is at one."""
    own = _own
    if own is None or own.starter != thread:
        return False
    own.is_given_up = True
    return True


def go_on() -> None:
    """Raise `RunnerStopped` if the start of the context was given up."""
    own = _own
    if own is not None and own.is_given_up:
        raise RunnerStopped


def _joined(wanted: Wanted) -> _Own:
    global _own
    while True:
        with _lock:
            if _own is None:
                _own = _Own(wanted)
            if _own.wanted == wanted and not _own.is_ending:
                _own.users += 1
                return _own
        cancellation.go_on()
        time.sleep(_LOOK)


def _leave(own: _Own, is_running: Callable[[SparkContext], bool]) -> None:
    """Use a context no longer; stop it if nobody else does, or if it has ended by itself.

    That is asked only where others use it, and where its executors answer.
    """
    global _own
    with _lock:
        own.users -= 1
        is_last = not own.users
    if not is_last and (own.context is None or own.is_lost or is_running(own.context)):
        return
    with _lock:
        is_stopped, own.is_ending = own.is_ending, True
    if is_stopped:  # by another run, which may be at it
        return
    try:
        own.stop()
    finally:
        with _lock:
            _own = None


@contextlib.contextmanager
def _held(lock: threading.Lock) -> Iterator[None]:
    """Hold a lock while the block runs. What ends the work of this thread ends its wait, too."""
    while not lock.acquire(timeout=_LOOK):
        cancellation.go_on()
    try:
        yield
    finally:
        lock.release()
