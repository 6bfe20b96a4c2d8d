"""Trying again what may pass by itself: lost connections, dead nodes, servers that are busy or starting."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from cpreplicate.storage.base import Storage, Transient
from cpreplicate.storage.wrapped import Wrapped

T = TypeVar("T")
_TRIES = 8  # that a call gets, however slow: a write to a DataNode that died fails after some 15 seconds
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0  # seconds


class Retrying(Wrapped):
    """Tries a verb again after a `Transient` error, with growing pauses, for `seconds` and at least eight times.

    When nothing at all succeeded on this storage for that long and so often, it is taken to be down and every call fails at
    once: hundreds of thousands of files do not each wait for it.
    """

    def __init__(self, inner: Storage, seconds: float) -> None:
        super().__init__(inner)
        self._seconds = seconds
        self._failing_since: float | None = None
        self._failures = 0  # since the last success
        self._lock = threading.Lock()

    def around(self, verb: str, uri: str, call: Callable[[], T]) -> T:
        """Carry out, again if need be; a `copy` is tried again by the storage that it writes to."""
        once = functools.partial(self._inner.around, verb, uri, call)
        return once() if verb == "copy" else self._again(once)

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

    def _again(self, call: Callable[[], T]) -> T:
        import stamina

        started, tries = time.monotonic(), 0

        def worth_it(error: Exception) -> bool:
            nonlocal tries
            tries += 1
            return isinstance(error, Transient) and not self._is_down() and (tries < _TRIES or self._is_young(started))

        stamina.instrumentation.set_on_retry_hooks([])  # its default logs each try; what counts is told by the error
        for attempt in stamina.retry_context(
            on=worth_it, attempts=None, timeout=None, wait_initial=_FIRST_PAUSE, wait_max=_LONGEST_PAUSE
        ):
            with attempt:
                result = call()
        self._failing_since, self._failures = None, 0
        return result

    def _is_young(self, started: float) -> bool:
        return time.monotonic() - started < self._seconds

    def _is_down(self) -> bool:
        with self._lock:
            self._failing_since = self._failing_since or time.monotonic()
            self._failures += 1
            return self._failures >= _TRIES and not self._is_young(self._failing_since)
