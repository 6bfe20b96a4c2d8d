"""The end of what another program began."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cpreplicate.errors import Cancelled
from cpreplicate.runners import RunnerStopped
from cpreplicate.storage.waiting.cancellation import cancellable


class Cancellation:
    """Ends what runs with it: call `cancel` from any thread. It then raises `Cancelled`.

    A run that is cancelled leaves no partial file visible, releases its lease, and can be resumed.
    """

    def __init__(self) -> None:
        self._is_cancelled = threading.Event()
        self._lock = threading.Lock()
        self._runs: set[Callable[[], None]] = set()

    def cancel(self) -> None:
        """End what runs now, and what begins later."""
        self._is_cancelled.set()
        with self._lock:
            runs = list(self._runs)
        for stop in runs:
            stop()

    @contextmanager
    def ending(self, stop: Callable[[], None] = lambda: None) -> Iterator[None]:
        """While the block runs, a cancellation calls `stop` and ends what waits."""
        with self._lock:
            self._runs.add(stop)
        try:
            with cancellable(self.raise_if_cancelled):
                self.raise_if_cancelled()
                yield
        except RunnerStopped:
            raise Cancelled("cancelled by the caller. Run it again to resume") from None
        finally:
            with self._lock:
                self._runs.discard(stop)

    def raise_if_cancelled(self) -> None:
        """Raise `RunnerStopped` once `cancel` was called: inside of `ending`, it is `Cancelled`."""
        if self._is_cancelled.is_set():
            raise RunnerStopped
