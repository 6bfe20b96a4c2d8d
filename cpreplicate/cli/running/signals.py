"""Signals end a command like an interrupt: they unwind through every `finally`.

Storages that do not answer hold up neither the signal nor the end: calls are broken off, and if
that does not suffice, the process ends without unwinding, as it would by SIGKILL.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
import weakref
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

from cpreplicate.cli.running import failures
from cpreplicate.errors import UsageError
from cpreplicate.storage.waiting import deadlines

_SIGNALLED = 128  # plus the number of the signal: 129 after SIGHUP, 143 after SIGTERM
_PAUSE = 0.5  # seconds between two interruptions of the main thread after a signal
_within = 5.0  # seconds from the first signal to the end of the process
VARIABLE = "CPREPLICATE_STOP_WITHIN"


class Stopped(BaseException):
    """SIGTERM or SIGHUP arrived. `code` is the exit code of the process."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.code = _SIGNALLED + number


class Interrupted(KeyboardInterrupt):
    """SIGINT arrived. Unlike its base, it can be referenced weakly."""


class _Request:
    """The request to stop: the signal, and the exception that was raised for it."""

    def __init__(self) -> None:
        self._raised: weakref.ref[BaseException] | None = None
        self.number = 0
        self.is_over = threading.Event()

    def raise_for(self, number: int) -> NoReturn:
        """Raise the exception for a signal, and keep no reference that would keep it alive."""
        self.number = number
        error = Interrupted() if number == signal.SIGINT else Stopped(number)
        self._raised = weakref.ref(error)
        try:
            raise error
        finally:
            del error

    def raise_again_if_lost(self) -> None:
        """Raise once more if the exception is gone, and the command is not at its end."""
        is_lost = self._raised is not None and self._raised() is None
        if is_lost and not self.is_over.is_set():
            self.raise_for(self.number)


_request = _Request()
_stopping: set[int] = set()  # the signals that end the command


def stop_on_signals() -> None:
    """Unwind on SIGINT and SIGTERM, and on SIGHUP unless it is ignored, as by nohup."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _raise)
            _stopping.add(number)
    _wake_up_the_main_thread()


def stop_within(seconds: float) -> None:
    """Let a signal end the process within so many seconds, instead of a few."""
    global _within
    _within = seconds


def least_to_stop() -> float:
    """Return the seconds that CPREPLICATE_STOP_WITHIN allows, else 0. Raises `UsageError`."""
    text = os.environ.get(VARIABLE, "").strip()
    if not text:
        return 0.0
    from cpreplicate.core.amounts import seconds

    try:
        return seconds(text)
    except UsageError as error:
        raise UsageError(f"{VARIABLE}={error}") from None


def exit_code() -> int:
    """Return the exit code of a process that a signal ends, as 143 after SIGTERM."""
    return _SIGNALLED + _request.number


def stopped() -> None:
    """Record that the command is at its end: the exception of a signal is not raised again."""
    _request.is_over.set()


def call_on_hangup(function: Callable[[], None]) -> None:
    """Call a function on SIGHUP, instead of ending the process. It must return at once."""
    _stopping.discard(signal.SIGHUP)
    signal.signal(signal.SIGHUP, lambda _number, _frame: function())
    # one that came during the start arrives now
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGHUP])


def report_ready() -> None:
    """Report to a service manager that waits for that, as systemd does, that the service runs."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    place = f"\0{address[1:]}" if address.startswith("@") else address
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as to:
        to.setblocking(False)
        to.sendto(b"READY=1", place)


def _raise(number: int, _frame: FrameType | None) -> NoReturn:
    if number != signal.SIGINT:
        # a closed terminal may send SIGHUP twice: the shell sends it again
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    _request.raise_for(number)


def _wake_up_the_main_thread() -> None:
    """Let a signal end the command also if it arrives where Python does not see it, or loses it.

    Python runs handlers in the main thread, between two steps. A signal that arrives after the last
    step before a wait, or in another thread, is handled when the wait ends: an interrupt of a copy
    came after the copy. And an exception that is raised in a finalizer is ignored. So a thread that
    hears of each signal interrupts the main thread by another one, until the command has ended.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.signal(signal.SIGURG, lambda _number, _frame: _request.raise_again_if_lost())
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    threading.Thread(target=_interrupt_waits, args=[reading], name="signals", daemon=True).start()


def _interrupt_waits(reading: int) -> None:
    """Interrupt the main thread after each signal, whose numbers `reading` brings."""
    main = threading.main_thread().ident
    while numbers := os.read(reading, 64):
        if main is None or not set(numbers) - {signal.SIGURG}:
            continue
        signal.pthread_kill(main, signal.SIGURG)
        ending = [number for number in numbers if number in _stopping]
        if not ending:
            continue
        if not deadlines.is_ending():
            within = _seconds_to_stop()
            deadlines.end_calls(within)
            threading.Thread(
                target=_end_at_last, args=[ending[0], within], name="end", daemon=True
            ).start()
        while not _request.is_over.wait(_PAUSE):
            signal.pthread_kill(main, signal.SIGURG)


def _seconds_to_stop() -> float:
    """Return the seconds within which a signal ends the process: as asked for, at least."""
    with contextlib.suppress(UsageError):  # the command has ended with it, or is about to
        return max(_within, least_to_stop())
    return _within


def _end_at_last(number: int, within: float) -> None:
    """End the process if it has not ended by itself: a call may hold it up that nothing ends.

    This thread does not outlive the process.
    """
    time.sleep(within * 0.9)
    words = f"interrupted. What is under way did not end in time. {failures.outlook()}"
    with contextlib.suppress(OSError):
        os.write(2, f"cpreplicate: {words}.\n".encode())  # not by sys.stderr: its lock may be held
    os._exit(_SIGNALLED + number)
