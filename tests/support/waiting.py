"""How tests wait: for an event, with a deadline that only a hang meets.

A busy machine is slow, not broken: so a deadline bounds how long a hang takes to be reported, and
proves nothing else. It is shorter than the time limit of a test, so that the message names the
event.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
PATIENCE = 1200.0  # seconds
PAUSE = 0.02


def wait_until(is_so: Callable[[], T], what: str = "it", pause: float = PAUSE) -> T:
    """Return what the condition returns, once it holds; fail if it does not for `PATIENCE` s."""
    until = time.monotonic() + PATIENCE
    while not (found := is_so()):
        assert time.monotonic() < until, f"{what} did not happen in {PATIENCE:.0f} s"
        time.sleep(pause)
    return found
