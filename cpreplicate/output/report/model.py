"""What a report page shows, as data: functions of `pages` make it from results. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Unit = Literal["text", "count", "bytes", "seconds", "time"]
"""How values are shown. A time is ISO 8601 in UTC, which sorts as text."""
Tone = Literal["good", "notice", "bad"]
Value = str | int | float | None


@dataclass(frozen=True)
class Column:
    """A column of a table: texts, or numbers in a unit. None is an empty cell."""

    name: str
    values: Sequence[Value]
    unit: Unit = "text"


class DataTable:
    """A table that a reader sorts and searches. All columns have the same length.

    `left_out` rows are not on the page, because it would be too large for a browser.
    """

    def __init__(self, title: str, *columns: Column, left_out: int = 0) -> None:
        self.title, self.columns, self.left_out = title, columns, left_out

    def __len__(self) -> int:
        return len(self.columns[0].values)


@dataclass(frozen=True)
class Series:
    """A value for each label of a chart.

    `hue` is the number of its colour, so that what has one name has the same colour in each chart.
    0 stands for the place of the series among the others.
    """

    name: str
    values: Sequence[float]
    hue: int = 0


@dataclass(frozen=True)
class Chart:
    """Bars. `finding` states in a sentence what they show, also for those who do not see them."""

    title: str
    finding: str
    labels: Sequence[str]
    series: tuple[Series, ...]
    unit: Unit = "bytes"
    is_stacked: bool = True
    is_horizontal: bool = True


@dataclass(frozen=True)
class Page:
    """A page: the answer in one sentence, then what it follows from.

    If `restore` is set, the sentence ends with this command. `tone` is whether the reader has
    something to do: `bad` if there is no replica to rely on, `notice` if there are warnings.
    """

    title: str
    answer: str
    restore: str | None = None
    tone: Tone = "good"
    facts: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    charts: tuple[Chart, ...] = ()
    tables: tuple[DataTable, ...] = ()
