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

from cpreplicate.storage import deadlines

# Closes at once that are worth further calls. Where more files are in flight, waiting costs
# nothing, and the calls would.
_FEW = 4
_PAUSES = (0.02, 0.02, 0.04, 0.08, 0.16)  # seconds between two looks at a file that is being closed


class _Closes:
    """The closes of this process: how many callers wait for one, and threads left alone."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._left: list[threading.Thread] = []

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

    def leave(self, thread: threading.Thread) -> None:
        """Wait no longer for a thread."""
        with self._lock:
            self._left = [other for other in self._left if other.is_alive()] + [thread]

    def left(self) -> list[threading.Thread]:
        """Return the threads that are still at work for nobody."""
        return [thread for thread in self._left if thread.is_alive()]


_closes = _Closes()


class _Close:
    """A close in a thread of its own."""

    def __init__(self, close: Callable[[], None]) -> None:
        self._close = close
        self._error: BaseException | None = None
        self.has_ended = threading.Event()
        self.thread = threading.Thread(target=self._run, name="close", daemon=True)
        self.thread.start()

    def result(self) -> None:
        """Wait for the end of the close; raise what it raised."""
        self.has_ended.wait()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            self._close()
        except BaseException as error:  # noqa: BLE001  # raised by `result`, in the caller's thread
            self._error = error
        finally:
            self.has_ended.set()


def close_promptly(close: Callable[[], None], is_closed: Callable[[], bool]) -> None:
    """Close a file: return when `close` does, or once `is_closed` returns True.

    `is_closed` is called now and then, unless many files are being closed. Raises what `close`
    raises.
    """
    with _closes.one_more() as is_one_of_few:
        if not is_one_of_few:
            close()
            return
        closing = _Close(close)
        for pause in _PAUSES:
            if closing.has_ended.wait(pause):
                break
            if is_closed():
                _closes.leave(closing.thread)
                return
        closing.result()


@atexit.register
def _wait() -> None:
    """Wait for threads left alone: one that returns while Python ends aborts the process."""
    for thread in _closes.left():
        thread.join()


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
