"""How far a replica is behind its source."""

from __future__ import annotations

import math
from typing import NamedTuple

# Seconds. The REST API of Flink dates a checkpoint by its last acknowledgement, a file system by
# the write of its `_metadata`, which comes later.
_SAME = 1.0


class Newest(NamedTuple):
    """The newest completed checkpoint of a source or a replica.

    `completed` is the time at which it was completed at the source, in seconds since the epoch; 0
    if the storage does not date it. `is_dated`: it is by the clock of the source. Else it is not
    known, or another storage's, and says nothing of which checkpoint is newer.
    """

    checkpoint_id: int
    completed: float
    is_dated: bool = True

    def is_older(self, other: Newest) -> bool:
        """Return whether `other` was completed later. The number decides if one is not dated."""
        if self.completed > 0 and other.completed > 0:
            return self.completed < other.completed
        return self.checkpoint_id < other.checkpoint_id


def is_behind(source: Newest | None, replica: Newest | None) -> bool:
    """Return whether the source has a checkpoint that is newer than the replica's.

    A job that is started from scratch uses a number a second time: then the times differ, if both
    are known. A lower number that was completed before is no newer one: the replica holds a
    savepoint that the job took after its newest checkpoint.
    """
    if source is None:
        return False
    if replica is None or source.checkpoint_id > replica.checkpoint_id:
        return True
    are_dated = source.is_dated and replica.is_dated
    if source.checkpoint_id < replica.checkpoint_id:
        return not (are_dated and 0 < source.completed <= replica.completed)
    return are_dated and 0 < replica.completed < source.completed - _SAME


def lag_seconds(source: Newest | None, replica: Newest | None, now: float) -> float:
    """Return the seconds of work that would be lost if the source were lost now.

    That is the age of the replica's newest checkpoint while the source has a newer one, else 0, as
    postgres_exporter defines the lag of a standby. Infinite without a replica.
    """
    if not is_behind(source, replica):
        return 0.0
    return age_seconds(replica, now)


def checkpoints_behind(source: Newest | None, replica: Newest | None) -> int:
    """Return how many checkpoints the replica is behind, by their numbers; at least 1 if any."""
    if source is None or not is_behind(source, replica):
        return 0
    return max(1, source.checkpoint_id - (replica.checkpoint_id if replica is not None else 0))


def age_seconds(newest: Newest | None, now: float) -> float:
    """Return the age of a replica's newest checkpoint; infinite without one.

    It is the most that the lag can be while nobody knows what the source has.
    """
    return math.inf if newest is None else max(0.0, now - newest.completed)


def is_unseen(looked: float, within: float, now: float) -> bool:
    """Return whether nobody has looked at a source within so many seconds."""
    return now - looked > within
