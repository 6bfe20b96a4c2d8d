"""How far a replica is behind its source."""

from __future__ import annotations

import math
from typing import NamedTuple

_SAME = 1.0  # seconds: some calls of a storage return whole seconds of the same time
_SHOWN_LATE = 5.0  # seconds after which Flink's REST API shows a checkpoint at the latest
UNNUMBERED = 0  # the number of a savepoint, whose name has none; Flink counts checkpoints from 1


class Newest(NamedTuple):
    """The newest completed checkpoint of a source or a replica.

    `completed` is the time at which it was completed at the source, in seconds since the epoch; 0
    if the storage does not date it. `is_dated`: it is by the clock of the source's storage. Else it
    is not known, or by another clock, and says nothing of which checkpoint is newer. `acknowledged`
    is the time by Flink's clock, if Flink reported it.
    """

    checkpoint_id: int
    completed: float
    is_dated: bool = True
    acknowledged: float | None = None

    def is_older(self, other: Newest) -> bool:
        """Return whether `other` has a higher number."""
        return self.checkpoint_id < other.checkpoint_id

    def is_same(self, other: Newest) -> bool:
        """Return whether it is certainly the same: by its number, and a clock that dated both."""
        if self == other:
            return True
        return self.checkpoint_id == other.checkpoint_id and _later(self, other) == 0

    @property
    def clocks_apart(self) -> float | None:
        """The seconds by which Flink dates it later than the storage, if both do."""
        if self.acknowledged is None or not self.is_dated or self.completed <= 0:
            return None
        return self.acknowledged - self.completed


def reported(checkpoint_id: int, acknowledged: float) -> Newest:
    """Return a checkpoint as Flink reports it, which knows nothing of the storage's clock."""
    return Newest(checkpoint_id, acknowledged, is_dated=False, acknowledged=acknowledged)


def is_behind(source: Newest | None, replica: Newest | None) -> bool:
    """Return whether the source has a checkpoint that is newer than the replica's.

    A job that is started from scratch uses a number a second time: then the times differ, if one
    clock dated both. Times of two clocks are not compared. A lower number that was completed before
    is no newer one: the replica holds a savepoint that the job took after its newest checkpoint.
    """
    if source is None:
        return False
    if replica is None or source.checkpoint_id > replica.checkpoint_id:
        return True
    later = _later(source, replica)
    if source.checkpoint_id < replica.checkpoint_id:
        return later is None or later > 0
    return later is not None and later > _SAME


def _later(one: Newest, other: Newest) -> float | None:
    """Return by how many seconds `one` is later, by a clock that dated both; None if none did."""
    if one.acknowledged is not None and other.acknowledged is not None:
        return one.acknowledged - other.acknowledged
    is_dated = one.is_dated and other.is_dated and one.completed > 0 and other.completed > 0
    return one.completed - other.completed if is_dated else None


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


def clock_ahead(known: float, completed: float, after: float, by: float) -> float:
    """Return by how many seconds the clock that dated a checkpoint `completed` is ahead of another.

    By the other one, it was not there at `after`, and was at `by`. What was `known` of the clocks
    stays as far as it agrees with that.
    """
    return max(min(known, completed - after + _SHOWN_LATE), completed - by)


def is_unseen(looked: float, within: float, now: float) -> bool:
    """Return whether nobody has looked at a source within so many seconds."""
    return now - looked > within
