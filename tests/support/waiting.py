"""How tests wait: for an event, with a deadline that only a hang meets.

A busy machine is slow, not broken: so a deadline bounds how long a hang takes to be reported, and
proves nothing else. It is shorter than the time limit of a test, so that the message names the
event.
"""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE = 1200.0  # seconds
PAUSE = 0.02


def wait_until(is_so: Callable[[], object], what: str = "it", pause: float = PAUSE) -> None:
    """Return once the condition holds; fail if it does not for `PATIENCE` seconds."""
    until = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < until, f"{what} did not happen in {PATIENCE:.0f} s"
        time.sleep(pause)
