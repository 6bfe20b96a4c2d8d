"""A bandwidth that changes by the day and the hour. Pure: the caller knows what time it is."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

DAY = 86_400  # seconds
WEEK = 7 * DAY


class Change(NamedTuple):
    """From this second of the week on, so many bytes a second; None: as many as there can be.

    The week begins on Monday at 00:00.
    """

    second: int
    rate: float | None


class Timetable(NamedTuple):
    """The changes of a week, in order; the last one holds until the first of the next week."""

    changes: tuple[Change, ...]

    def at(self, second: int) -> float | None:
        """Return the bytes a second that are allowed at a second of the week, None without limit.

        Before the first change of a week, the last one of the week before holds.
        """
        index = bisect_right([change.second for change in self.changes], second % WEEK)
        return self.changes[index - 1].rate

    @property
    def highest(self) -> float | None:
        """The highest rate that limits anything, None if none does."""
        return max((each.rate for each in self.changes if each.rate is not None), default=None)


def constant(rate: float | None) -> Timetable:
    """Return the timetable of a rate that never changes."""
    return Timetable((Change(0, rate),))


def daily(second: int, rate: float | None) -> Iterable[Change]:
    """Yield a change that happens each day, at a second of the day."""
    return (Change(day * DAY + second, rate) for day in range(7))
