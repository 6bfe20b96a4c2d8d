"""Trying again what may pass by itself: lost connections, dead nodes, servers that are busy or starting."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from cpreplicate.storage import waiting
from cpreplicate.storage.base import Storage, Transient
from cpreplicate.storage.wrapped import READING, Wrapped

T = TypeVar("T")
_TRIES = 8  # that a call gets, however slow: a write to a DataNode that died fails after some 15 seconds
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0  # seconds


class _Health:
    """Since when, and how often, nothing but failures were met."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.succeeded()

    def succeeded(self) -> None:
        """Something went well: it is not down."""
        self._failing_since: float | None = None
        self._failures = 0

    def is_down_after_a_failure(self, seconds: float) -> bool:
        """Count a failure; whether it has been down for longer than so many seconds."""
        with self._lock:
            self._failing_since = self._failing_since or time.monotonic()
            self._failures += 1
            return self._failures >= _TRIES and time.monotonic() - self._failing_since >= seconds


class Retrying(Wrapped):
    """Tries a verb again after a `Transient` error, with growing pauses, for `seconds` and at least eight times.

    When nothing succeeded on this storage for that long and so often, it is taken to be down and every call fails at once:
    hundreds of thousands of files do not each wait for it. Reading and writing are down each by itself: in safe mode, and
    with DataNodes that nobody reaches, a NameNode goes on answering questions.
    """

    def __init__(self, inner: Storage, seconds: float) -> None:
        super().__init__(inner)
        self._seconds = seconds
        self._reading, self._writing = _Health(), _Health()

    def around(self, verb: str, uri: str, call: Callable[[], T]) -> T:
        """Carry out, again if need be; a `copy` is tried again by the storage that it writes to."""
        once = functools.partial(self._inner.around, verb, uri, call)
        return once() if verb == "copy" else self._again(once, self._reading if verb in READING else self._writing)

    def create_exclusive(self, uri: str, data: bytes) -> bool:
        return self._surely(uri, data, lambda: super(Retrying, self).create_exclusive(uri, data))

    def take_over(self, uri: str, seen: bytes, data: bytes) -> bool:
        return self._surely(uri, data, lambda: super(Retrying, self).take_over(uri, seen, data))

    def _surely(self, uri: str, data: bytes, call: Callable[[], bool]) -> bool:
        """An attempt whose answer was lost may have succeeded: then what lies there is ours."""
        return call() or self._holds(uri, data)

    def _holds(self, uri: str, data: bytes) -> bool:
        try:
            with self.open(uri) as stream:
                return stream.read(len(data) + 1) == data
        except FileNotFoundError:
            return False

    def _again(self, call: Callable[[], T], health: _Health) -> T:
        import stamina

        started, tries = time.monotonic(), 0

        def worth_it(error: Exception) -> bool:
            nonlocal tries
            tries += 1
            if not isinstance(error, Transient) or health.is_down_after_a_failure(self._seconds):
                return False
            return tries < _TRIES or time.monotonic() - started < self._seconds

        stamina.instrumentation.set_on_retry_hooks([])  # its default logs each try; what counts is told by the error
        for attempt in stamina.retry_context(
            on=worth_it, attempts=None, timeout=None, wait_initial=_FIRST_PAUSE, wait_max=_LONGEST_PAUSE
        ):
            with attempt:
                waiting.go_on()
                result = call()
        health.succeeded()
        return result
