"""Runs without the calls that a clock triggers, however long they take: for counting the others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from cpreplicate.core import clock
from cpreplicate.protocol import journal, json_files, lease
from tests.support.stepping import ManualClock

_NEVER = 1e6  # seconds


def hold_time(patch: pytest.MonkeyPatch) -> ManualClock:
    """Let no time pass that is not passed by hand, and return the clock.

    No heartbeat and no part of the journal is due, a check of the lease counts until its end, as
    do answers that were asked ahead, and the lease does not run out.
    """
    held = ManualClock()
    hold_threads(patch)
    patch.setattr(json_files, "now", held.now)
    patch.setattr(clock, "MACHINE", held)
    return held


def hold_threads(patch: pytest.MonkeyPatch) -> None:
    """Let no heartbeat and no part of the journal be due, whatever clock the others go by."""
    _replace_default(patch, vars(lease.acquire)["__wrapped__"], lease.HEARTBEAT)
    _replace_default(patch, lease.Lease.__init__, lease.HEARTBEAT)
    _replace_default(patch, journal.JournalWriter.__init__, journal.SECONDS)


def hurry_heartbeats(patch: pytest.MonkeyPatch, seconds: float) -> None:
    """Let heartbeats be so many seconds apart."""
    _replace_default(patch, vars(lease.acquire)["__wrapped__"], lease.HEARTBEAT, seconds)


@contextmanager
def untimed() -> Iterator[None]:
    """Hold the time while the block runs."""
    with pytest.MonkeyPatch.context() as patch:
        hold_time(patch)
        yield


def _replace_default(
    patch: pytest.MonkeyPatch, function: Any, seconds: float, by: float = _NEVER
) -> None:
    """Have a function wait for other seconds by default than it does: for ever, or as given."""
    defaults = tuple(by if each == seconds else each for each in function.__defaults__)
    assert by in defaults
    patch.setattr(function, "__defaults__", defaults)
