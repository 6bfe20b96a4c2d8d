"""Close files whose close sleeps, without waiting for the end of the sleep.

A client may sleep a fixed time until it asks again whether a file is closed. Here it does so in a
thread of its own. Once the file is known to be closed, that thread is left alone.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator

from cpreplicate.storage.waiting import deadlines
from cpreplicate.storage.waiting.side_call import SideCall, in_thread

# Closes at once that are worth further calls. Where more files are in flight, waiting costs
# nothing, and the calls would.
_FEW = 4
_TRIPS = 3  # the last packet, the question whether the file is closed, and some more
_PAUSES = (0.02, 0.02, 0.04, 0.08, 0.16)  # seconds between two looks at a file that is being closed


class _Closes:
    """The closes of this process: how many callers wait for one, and those left alone."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._left: list[SideCall[None]] = []

    @contextlib.contextmanager
    def one_more(self) -> Iterator[bool]:
        """Count a close while the block runs; provides whether there are only a few."""
        with self._lock:
            self._count += 1
            is_one_of_few = self._count <= _FEW
        try:
            yield is_one_of_few
        finally:
            with self._lock:
                self._count -= 1

    def leave(self, close: SideCall[None]) -> None:
        """Wait no longer for a close."""
        with self._lock:
            self._left = [*self.left(), close]

    def left(self) -> list[SideCall[None]]:
        """Return the closes that still go on for nobody."""
        return [close for close in self._left if not close.has_ended]


_closes = _Closes()


def close_promptly(
    close: Callable[[], None], is_closed: Callable[[], bool], round_trip: float = 0.0
) -> None:
    """Close a file: return when `close` does, or once `is_closed` returns True.

    `is_closed` is called now and then, unless many files are being closed, and not before `close`
    can have returned, which takes a few times the `round_trip` in seconds. Raises what `close`
    raises.
    """
    with _closes.one_more() as is_one_of_few:
        if not is_one_of_few:
            close()
            return
        closing = in_thread(close, "close")
        for number, pause in enumerate(_PAUSES):
            if closing.wait(pause if number else max(pause, _TRIPS * round_trip)):
                break
            if is_closed():
                _closes.leave(closing)
                return
        closing.wait()
        closing.result()


@atexit.register
def _wait() -> None:
    """Wait for threads left alone: one that returns while Python ends aborts the process."""
    for close in _closes.left():
        close.wait()


class PromptExit:
    """Ends the process without waiting for threads left alone, once it `is_due` with an exit code.

    They are threads that close files, and those of calls that were not answered.

    Create it before anything else registers what is to be done at the exit: that is done first.
    """

    def __init__(self) -> None:
        self._code: int | None = None
        atexit.register(self._exit)

    def is_due(self, code: int) -> None:
        """Let the process end with this exit code at the end of Python's exit handlers."""
        self._code = code
        atexit.unregister(_wait)

    def _exit(self) -> None:
        if self._code is None or not (_closes.left() or deadlines.left_behind()):
            return
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(self._code)
