"""The end of a process with the one that started it."""

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1  # prctl(2)


def end_with(parent: int, number: int) -> None:
    """Let the system send this process a signal when its parent dies, or has died.

    The thread that started this process must live as long as the parent: it is its main thread.
    """
    try:
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, number)
    except (OSError, AttributeError):  # not Linux
        return
    if os.getppid() != parent:
        signal.raise_signal(number)
