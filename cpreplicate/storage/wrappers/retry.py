"""Retries after failures that may pass: lost connections, dead nodes, busy or starting servers."""

from __future__ import annotations

import functools
import random
import threading
import time
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from cpreplicate.storage.base import DamagedFile, NoAnswer, Storage, Transient, Unreachable
from cpreplicate.storage.waiting import bounds, cancellation, deadlines
from cpreplicate.storage.waiting.retry_reports import RetryReports
from cpreplicate.storage.wrappers.ahead import Answering
from cpreplicate.storage.wrappers.base import READING

T = TypeVar("T")
# Tries of a write, however slow: a write to a DataNode that died fails after some 15 seconds.
_WRITES = 8
_SLICE = 0.5  # seconds between two looks whether the process ends


class Pauses(NamedTuple):
    """The pauses between two tries in seconds: each is twice as long as the one before."""

    first: float
    longest: float

    def before_try(self, number: int) -> float:
        """Return the seconds before a try, spread so that many threads do not call all at once."""
        pause = self.first * 2.0 ** min(number - 1, 10)
        return min(pause * random.uniform(0.5, 1.5), self.longest)


PAUSES = Pauses(first=0.2, longest=5.0)  # where a wrapper is given none


class _Health:
    """How long and how often every call of a kind has failed. A call gets at least `tries`."""

    def __init__(self, tries: int) -> None:
        self._lock = threading.Lock()
        self.tries = tries
        self.succeeded()

    def succeeded(self) -> None:
        """Record a success: the storage is not down."""
        with self._lock:
            self._failing_since: float | None = None
            self._failures = 0

    def is_down_after_a_failure(self, seconds: float, tries: int) -> bool:
        """Record a failure. Return whether nothing has succeeded for that long and many tries.

        They count from the first failure: the call that failed may have made progress for long.
        """
        with self._lock:
            now = time.monotonic()
            self._failing_since = now if self._failing_since is None else self._failing_since
            self._failures += 1
            return self._failures >= tries and now - self._failing_since >= seconds


class Retrying(Answering):
    """A wrapper that tries a call again after a `Transient` error, and then raises `Unreachable`.

    It tries for `seconds` from the first failure on, with growing pauses. A try that makes progress
    may last longer. A call that writes gets at least eight tries,
    because a NameNode goes on naming a DataNode that died, and each try at it is slow. A server
    that is silent gets no more tries than fit into `seconds`. If nothing has succeeded on this
    storage for that long, it is down, and every call fails at once: hundreds of thousands of files
    do not each wait for it. Reading and writing are counted apart: in safe mode, and with DataNodes
    that nobody reaches, a NameNode still answers questions.
    """

    def __init__(self, inner: Storage, seconds: float, pauses: Pauses | None = None) -> None:
        super().__init__(inner)
        self.retries = True
        self._seconds = seconds
        self._pauses = pauses
        self._reading, self._writing = _Health(1), _Health(_WRITES)
        self._reports = RetryReports()

    def carry_out(self, verb: str, uri: str, call: Callable[[], T]) -> T:
        """Carry out a call, several times if needed."""
        once = functools.partial(self._inner.carry_out, verb, uri, call)
        return self._again(once, uri, self._reading if verb in READING else self._writing)

    def create_exclusive(self, uri: str, data: bytes) -> bool:
        return self._surely(uri, data, lambda: super(Retrying, self).create_exclusive(uri, data))

    def take_over(self, uri: str, seen: bytes, data: bytes) -> bool:
        return self._surely(uri, data, lambda: super(Retrying, self).take_over(uri, seen, data))

    def _surely(self, uri: str, data: bytes, call: Callable[[], bool]) -> bool:
        """Return whether a call succeeded; if its answer was lost, by what the file holds now."""
        return call() or self._holds(uri, data)

    def _holds(self, uri: str, data: bytes) -> bool:
        try:
            return self.read(uri, 0, len(data) + 1) == data
        except FileNotFoundError:
            return False

    def _again(self, call: Callable[[], T], uri: str, health: _Health) -> T:
        """Return what a call returns. Try it again after a `Transient` as the class describes."""
        until, tries = float("inf"), 0  # the first try may take long, and makes progress
        cause: Transient | None = None
        try:
            while True:
                cancellation.go_on()
                try:
                    result = self._within(until, call) if tries else call()
                except Unreachable:  # of the other storage of a copy, which has tried for its time
                    raise
                except Transient as error:
                    tries += 1
                    until = min(until, time.monotonic() + self._seconds)
                    left = until - time.monotonic()
                    is_silent = isinstance(error, NoAnswer)
                    # further tries are no better after silence, and each takes long
                    enough = 1 if is_silent else health.tries
                    # a later try had less time for an answer: the earlier error means more
                    cause = cause if cause is not None and is_silent else error
                    is_last = left <= 0 and tries >= enough
                    if health.is_down_after_a_failure(self._seconds, enough) or is_last:
                        raise self._lasting(uri, cause) from error
                    if deadlines.is_ending():
                        raise
                    self._reports.report(error.filename or uri, _reason(error), left)
                    pause = (self._pauses or PAUSES).before_try(tries)
                    _sleep(min(pause, left) if left > 0 else pause)
                else:
                    health.succeeded()
                    return result
        finally:
            del cause  # its traceback refers to this frame: a cycle

    def _within(self, until: float, call: Callable[[], T]) -> T:
        """Try again. What is not answered ends with the time for retries, if some is left."""
        left = until - time.monotonic()
        if left <= 0:
            return call()
        with bounds.bounded(left):
            return call()

    def _lasting(self, uri: str, error: Transient) -> OSError:
        reason = (
            f"{_reason(error)}; this has lasted longer than --retry-for allows"
            f" ({self._seconds:g} s)"
        )
        lasting = error.lasting(reason, uri)
        if isinstance(lasting, DamagedFile):
            self._reports.report_end(lasting)
        return lasting


def _sleep(seconds: float) -> None:
    """Sleep, but not on when the process ends."""
    while seconds > 0 and not deadlines.is_ending():
        time.sleep(min(seconds, _SLICE))
        seconds -= _SLICE


def _reason(error: Transient) -> str:
    return error.strerror or str(error)
