"""Calls of Spark's JVM in threads of their own, which can be left behind.

Such a call cannot be broken off. It may last without end once a cluster is lost.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar, cast

T = TypeVar("T")
_PAUSE = 0.5  # seconds between two cancellations


class Aside(Generic[T]):
    """A call in a daemon thread, which holds up neither its caller nor the end of the process."""

    def __init__(self, call: Callable[[], T], name: str = "spark") -> None:
        self._call = call
        self._result: T | None = None
        self._error: BaseException | None = None
        self._ended = threading.Event()
        threading.Thread(target=self._perform, name=name, daemon=True).start()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for the end of the call, at most for some seconds; return whether it has ended."""
        return self._ended.wait(seconds)

    def result(self) -> T:
        """Return what an ended call returned, or raise what it raised."""
        if self._error is not None:
            raise self._error
        return cast(T, self._result)

    def end(self, cancel: Callable[[], None], seconds: float | None = None) -> None:
        """Cancel the call until it has ended; after some seconds, leave it behind.

        Once may not be enough: Spark forgets the cancellation of a job that it does not know yet.
        The cancellation may be a call that does not end, too.
        """
        end = math.inf if seconds is None else time.monotonic() + seconds
        while not self.wait(0) and time.monotonic() < end:
            cancelling = Aside(cancel)
            cancelling.wait(seconds)
            if cancelling.wait(0):
                cancelling.result()
            self.wait(_PAUSE)

    def _perform(self) -> None:
        try:
            self._result = self._call()
        except BaseException as error:  # noqa: BLE001  # raised by `result`, in the caller's thread
            self._error = error
        self._ended.set()
