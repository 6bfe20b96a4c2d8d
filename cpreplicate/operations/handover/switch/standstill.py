"""How long a job will stand still, by what was measured before it is stopped."""

from __future__ import annotations

import time
from collections.abc import Sequence

from cpreplicate.operations.handover.switch.request import Round
from cpreplicate.operations.handover.switch.under_way import Switching
from cpreplicate.protocol.replica import Replica

# Calls to the replica, one after the other, of a last copy with few files and of what follows it.
_CALLS_OF_COPY, _CALLS_OF_PROMOTION = 35, 35
_LOOKS = 3  # at a file, of which the middle one counts


def expected_standstill(run: Switching, rounds: Sequence[Round]) -> float | None:
    """Return how long the job will stand still, by what was measured; None if too little was.

    The last copy takes as long as the last round, and the rest as long as at the last switch.
    """
    former = run.former
    if former is None or former.standstill is None or former.copying is None or not rounds:
        return None
    return former.standstill - former.copying + rounds[-1].seconds


def least_standstill(run: Switching, rounds: Sequence[Round]) -> float | None:
    """Return how long the job will stand still at least, None before a round of this run.

    That is a checkpoint, a copy as the last ones were, and the calls of the promotion. How long it
    takes to start at the target is not known.
    """
    if not rounds:
        return None
    taken = next((each.taken for each in reversed(rounds) if each.taken is not None), 0.0)
    call = seconds_of_call(Replica(run.log.root, run.side))
    return taken + rounds[-1].seconds + _CALLS_OF_PROMOTION * call


def least_of_calls(seconds: float) -> float:
    """Return how long a job will stand still at least where a call takes so many seconds."""
    return (_CALLS_OF_COPY + _CALLS_OF_PROMOTION) * seconds


def seconds_of_call(replica: Replica) -> float:
    """Return how long a call to the storage of a replica takes."""
    times = []
    for _ in range(_LOOKS):
        started = time.monotonic()
        replica.storage.stat(replica.root)
        times.append(time.monotonic() - started)
    return sorted(times)[_LOOKS // 2]
