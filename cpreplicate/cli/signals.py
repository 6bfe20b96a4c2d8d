"""Signals end a command like an interrupt: they unwind through every `finally`."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

_SIGNALLED = 128  # plus the number of the signal: 129 after SIGHUP, 143 after SIGTERM
TERMINATED = _SIGNALLED + signal.SIGTERM
"""The exit code after SIGTERM."""
_PAUSES = (0.1, 1.0)  # seconds after a signal at which a wait of the main thread is interrupted


class Stopped(BaseException):
    """SIGTERM or SIGHUP arrived. `code` is the exit code of the process."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.code = _SIGNALLED + number


def stop_on_signals() -> None:
    """Unwind on SIGTERM, and on SIGHUP unless it is ignored, as by nohup."""
    signal.signal(signal.SIGTERM, _raise_stopped)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, _raise_stopped)
    _wake_up_the_main_thread()


def call_on_hangup(function: Callable[[], None]) -> None:
    """Call a function on SIGHUP, instead of ending the process. It must return at once."""
    signal.signal(signal.SIGHUP, lambda _number, _frame: function())


def _raise_stopped(number: int, _frame: FrameType | None) -> NoReturn:
    # a closed terminal may send SIGHUP twice: the shell sends it again
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    raise Stopped(number)


def _wake_up_the_main_thread() -> None:
    """Let a signal interrupt the main thread also if it arrives just before a wait.

    Python runs handlers in the main thread, between two steps. A signal that arrives after the last
    step before a wait, or in another thread, is handled when the wait ends: an interrupt of a copy
    came after the copy. So a thread that hears of each signal interrupts the wait, by a signal that
    does nothing else.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.signal(signal.SIGURG, lambda _number, _frame: None)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    threading.Thread(target=_interrupt_waits, args=[reading], name="signals", daemon=True).start()


def _interrupt_waits(reading: int) -> None:
    main = threading.main_thread().ident
    while numbers := os.read(reading, 64):
        if main is None or not set(numbers) - {signal.SIGURG}:
            continue
        for pause in _PAUSES:
            time.sleep(pause)
            signal.pthread_kill(main, signal.SIGURG)
