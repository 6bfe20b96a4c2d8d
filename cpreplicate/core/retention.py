"""Retention: which checkpoints of a replica are kept as points in time.

The words and their meaning are restic's: `--keep-last` (here `--keep`), `--keep-within`,
`--keep-hourly` and `--keep-daily`. A point is kept if any of them keeps it. Time is counted from
the newest checkpoint, not from now, so an idle job keeps its points. Hours and days are those of
UTC. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_HOUR, _DAY = 3600, 24 * 3600


@dataclass(frozen=True)
class Retention:
    """Which points are kept beside the newest one, which always is.

    `last` counts points, the newest among them. `within` are seconds before the newest. `hourly`
    and `daily` count hours and days that have a point: the last point of each is kept. While fewer
    hours or days than that have one, the oldest point is kept, too, as restic does: it makes the
    history as long as it can be.
    """

    last: int = 1
    within: float = 0.0
    hourly: int = 0
    daily: int = 0

    @classmethod
    def of(cls, keep: Retention | int) -> Retention:
        """Return a number of points to keep as a retention, which it may be already."""
        return keep if isinstance(keep, Retention) else cls(keep)

    def kept(self, completed: Sequence[float | None], now: float = math.inf) -> frozenset[int]:
        """Return the positions of the points that are kept.

        `completed` are their times in seconds since the epoch, in the order newest first. It is
        None for a point of version 0.2.0 or one whose record was lost. Such a point counts as an
        hour and a day of its own, and is as recent as the next newer one. So it is never dropped
        in favour of a point that may be of another day, and it goes when enough others are newer.
        `within` is not counted from a time later than `now`: one wrong clock would drop all others.
        """
        last = range(min(max(self.last, 1), len(completed)))
        return frozenset(last).union(
            _within(self.within, completed, now),
            _last_of_each(_HOUR, self.hourly, completed),
            _last_of_each(_DAY, self.daily, completed),
        )


def _within(seconds: float, completed: Sequence[float | None], now: float) -> Iterator[int]:
    """Yield the positions of the points that are less than so many seconds older than the newest.

    A time that is not known is taken to be that of the next newer point: it is not later.
    """
    past = (time for time in completed if time is not None and time <= now)
    newest = next(past, now)  # all are later, or unknown
    latest = newest
    for position, time in enumerate(completed):
        latest = latest if time is None else time
        if latest > newest - seconds:
            yield position


def _last_of_each(seconds: int, count: int, completed: Sequence[float | None]) -> frozenset[int]:
    """Return the last point of each period of so many seconds, for the last `count` that have one.

    The oldest point of all is added while there are fewer.
    """
    periods, kept = set[object](), set[int]()
    oldest = len(completed) - 1
    for position, time in enumerate(completed):
        if len(kept) >= count:
            break
        period = ("undated", position) if time is None else time // seconds
        if period not in periods or position == oldest:
            periods.add(period)
            kept.add(position)
    return frozenset(kept)
