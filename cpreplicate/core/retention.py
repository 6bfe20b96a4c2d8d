"""Retention: which checkpoints of a replica are kept as points in time.

The words and their meaning are restic's: `--keep-last` (here `--keep`), `--keep-within`,
`--keep-hourly` and `--keep-daily`. A point is kept if any of them keeps it. Time is counted from
the newest checkpoint, not from now, so an idle job keeps its points. Hours and days are those of
UTC.

The policy belongs to the replica, which records the last one that was stated: `policy_of` returns
which one holds for a run. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

_HOUR, _DAY = 3600, 24 * 3600
_LAST = "last"
_UNITS = {"d": _DAY, "h": _HOUR, "m": 60, "s": 1}


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

    def is_less_than(self, other: Retention) -> bool:
        """Return whether any rule keeps less than the same rule of another retention.

        Two that each have a rule that keeps less are less than each other.
        """
        return any(mine < its for mine, its in zip(self._amounts(), other._amounts(), strict=True))

    def is_as_much_as(self, other: Retention) -> bool:
        """Return whether every rule keeps as much as the same rule of another retention."""
        return self._amounts() == other._amounts()

    def _amounts(self) -> tuple[float, ...]:
        return max(self.last, 1), self.within, self.hourly, self.daily

    def __str__(self) -> str:
        """Return the options of the command line that state it."""
        rules = self._rules()
        options = (f"--keep-{rule} {amount}" for rule, amount in rules.items() if rule != _LAST)
        return " ".join([*([f"--keep {rules[_LAST]}"] if _LAST in rules else []), *options])

    @property
    def short(self) -> str:
        """The same in few words, such as `last 3, daily 30`."""
        return ", ".join(f"{rule} {amount}" for rule, amount in self._rules().items())

    def _rules(self) -> dict[str, str]:
        """Return the rules that keep more than the newest; that it is kept if there are none."""
        rules = {
            _LAST: str(self.last) if self.last > 1 else "",
            "within": _time(self.within) if self.within > 0 else "",
            "hourly": str(self.hourly or ""),
            "daily": str(self.daily or ""),
        }
        return {rule: amount for rule, amount in rules.items() if amount} or {_LAST: "1"}

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


class StatedBy(NamedTuple):
    """What stated a policy: the file `path` of a fleet or of options, else a command.

    `command` is such as `cpreplicate sync`. `user` ran it on `host`. Of a file, it is the command
    whose options the file has: a file of options has a table for each command.
    """

    command: str
    user: str
    host: str
    path: str | None = None

    def is_same_table(self, other: StatedBy) -> bool:
        """Return whether both are the same file, for the same command, on the same host."""
        return self.path is not None and self._replace(user="") == other._replace(user="")

    def __str__(self) -> str:
        """Return it as messages name it."""
        if self.path is not None:
            return f"{self.path}, read by `{self.command}` on {self.host}"
        return f"`{self.command}` of {self.user}@{self.host}"


class Stated(NamedTuple):
    """A policy that was stated, by what, and when, in seconds since the epoch.

    `time` is None if that is not known.
    """

    retention: Retention
    by: StatedBy
    time: float | None = None


@dataclass(frozen=True)
class Policy:
    """The `retention` that holds for a run.

    `recorded` is the one that the replica recorded, None if none was stated before. `stated` is
    the one of this run, None if it states none.
    """

    retention: Retention = Retention()  # it is immutable
    recorded: Stated | None = None
    stated: Stated | None = None

    @property
    def is_less(self) -> bool:
        """Whether this run states to keep less than another place did.

        The options of another command are another place, also if they are in the same file.
        """
        if self.stated is None or self.recorded is None:
            return False
        is_of_another = not self.stated.by.is_same_table(self.recorded.by)
        return is_of_another and self.stated.retention.is_less_than(self.recorded.retention)

    @property
    def is_to_be_recorded(self) -> bool:
        """Whether the run states what is not recorded.

        A file takes over what a command stated: from then on, the file alone may state less.
        """
        stated, recorded = self.stated, self.recorded
        if stated is None or recorded is None:
            return stated is not None
        is_taken_over = stated.by.path is not None and recorded.by.path is None
        return is_taken_over or not stated.retention.is_as_much_as(recorded.retention)


def _time(seconds: float) -> str:
    """Return a time as an option takes it, such as `36h`."""
    whole = (unit for unit, length in _UNITS.items() if seconds % length == 0)
    unit = next(whole, None)
    return f"{seconds!r}s" if unit is None else f"{int(seconds // _UNITS[unit])}{unit}"


def policy_of(stated: Stated | None, recorded: Stated | None) -> Policy:
    """Return the policy of a run: the stated one, else the recorded one, else the newest only."""
    held = stated or recorded
    return Policy(Retention() if held is None else held.retention, recorded, stated)


def _within(seconds: float, completed: Sequence[float | None], now: float) -> Iterator[int]:
    """Yield the positions of the points that are less than so many seconds older than the newest.

    A time that is not known is taken to be that of the next newer point: it is not later. Without
    a time nothing is kept, not even a point that a wrong clock dated later than the newest.
    """
    if seconds <= 0:
        return
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
