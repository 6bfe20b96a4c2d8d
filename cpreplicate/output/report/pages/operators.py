"""The charts and the table of a checkpoint's operators: bytes by kind of state, and skew."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

import numpy as np

from cpreplicate.core.sizes import plural, size
from cpreplicate.core.state_sizes import KINDS as STATE_KINDS
from cpreplicate.operations.inspect import SKEWED, OperatorSummary
from cpreplicate.operations.inspect.handle_columns import HandleColumns
from cpreplicate.output.report.model import Chart, Column, DataTable, Series
from cpreplicate.output.report.pages.words import counted, label, share

_SHOWN = 12  # operators in a chart
_MOST_PARALLEL = 1 << 15  # of Flink: larger numbers of subtasks are no real ones
_MOST_SUBTASKS = 2000  # in the chart of one operator


@dataclass(frozen=True)
class OperatorState:
    """The state of an operator: its bytes by kind, and those of each subtask."""

    title: str
    summary: OperatorSummary
    of_kinds: Sequence[int]
    subtasks: Sequence[int]

    @property
    def bytes(self) -> int:
        """All bytes, those of the coordinator included."""
        return sum(self.of_kinds)

    @property
    def largest(self) -> int:
        """The bytes of the largest subtask."""
        return max(self.subtasks, default=0)

    @property
    def median(self) -> float:
        """The median of the bytes of the subtasks, also of those without state."""
        return float(median(self.subtasks)) if self.subtasks else 0.0

    @property
    def skew(self) -> float | None:
        """The largest subtask in medians; None if the median is 0."""
        return self.largest / self.median if self.median else None

    @property
    def is_skewed(self) -> bool:
        """Whether the largest subtask has more than `SKEWED` medians."""
        if len(self.subtasks) < 2 or not self.largest:
            return False
        return self.skew is None or self.skew > SKEWED


def operator_states(handles: HandleColumns) -> list[OperatorState]:
    """Return the state of each operator, the largest first."""
    operators = handles.inspection.operators
    sums = np.zeros((len(operators), len(STATE_KINDS)), np.int64)
    has_operator = handles.operator >= 0
    places = (handles.operator[has_operator], handles.state_kind[has_operator])
    np.add.at(sums, places, handles.operator_sizes[has_operator])
    states = [
        OperatorState(title, operator, of_kinds, subtasks)
        for title, operator, of_kinds, subtasks in zip(
            titles(operators), operators, sums.tolist(), _subtasks(handles), strict=True
        )
    ]
    return sorted(states, key=lambda state: -state.bytes)


def titles(operators: Sequence[OperatorSummary]) -> list[str]:
    """Return a title for each operator, all different: its name, its uid, or its id."""
    names = [operator.name or operator.uid or operator.id for operator in operators]
    return [
        name if names.count(name) == 1 else f"{name} ({operator.id})"
        for name, operator in zip(names, operators, strict=True)
    ]


def _subtasks(handles: HandleColumns) -> Iterator[list[int]]:
    """Yield the bytes of the subtasks of each operator, by the number of the subtask."""
    rows = np.flatnonzero((handles.operator >= 0) & (handles.subtask >= 0))
    rows = rows[np.argsort(handles.operator[rows], kind="stable")]
    operators = handles.inspection.operators
    ends = np.searchsorted(handles.operator[rows], np.arange(len(operators)), side="right")
    for operator, (first, end) in zip(operators, pairwise([0, *ends.tolist()]), strict=True):
        within = rows[first:end]
        within = within[handles.subtask[within] < _MOST_PARALLEL]
        numbers = handles.subtask[within]
        count = max(min(operator.subtasks, _MOST_PARALLEL), int(numbers.max(initial=-1)) + 1)
        sums = np.zeros(count, np.int64)
        np.add.at(sums, numbers, handles.subtask_sizes[within])
        yield sums.tolist()


def charts(states: Sequence[OperatorState]) -> Iterator[Chart]:
    """Yield the charts of bytes by operator and kind, and of subtask skew."""
    shown = [state for state in states if state.bytes][:_SHOWN]
    if not shown:
        return
    yield _kinds_chart(shown, sum(state.bytes for state in states), len(states))
    if parallel := [state for state in shown if len(state.subtasks) > 1]:
        yield _skew_chart(parallel)
        worst = max(parallel, key=_skew_order)
        if worst.is_skewed and len(worst.subtasks) <= _MOST_SUBTASKS:
            yield _subtasks_chart(worst)


def _kinds_chart(shown: Sequence[OperatorState], whole: int, count: int) -> Chart:
    first = shown[0]
    finding = f"{first.title} has {size(first.bytes)}, {share(first.bytes, whole)} of the state."
    if count > len(shown):
        finding += f" The {len(shown)} largest of {count} operators are shown."
    series = (
        Series(kind, [state.of_kinds[number] for state in shown], hue=number + 1)
        for number, kind in enumerate(STATE_KINDS)
    )
    return Chart(
        "Bytes by operator and kind of state",
        finding,
        [label(state.title) for state in shown],
        tuple(each for each in series if any(each.values)),
    )


def _skew_chart(shown: Sequence[OperatorState]) -> Chart:
    return Chart(
        "Subtask skew",
        skew_finding(shown),
        [label(state.title) for state in shown],
        (
            Series("largest subtask", [state.largest for state in shown]),
            Series("median subtask", [state.median for state in shown]),
        ),
        is_stacked=False,
    )


def skew_finding(states: Sequence[OperatorState]) -> str:
    """Return a sentence about the operator whose subtasks differ most."""
    skewed = [state for state in states if state.is_skewed]
    if not skewed:
        return f"No largest subtask has more than {SKEWED:.0f} times the median of its operator."
    worst = max(skewed, key=_skew_order)
    others = counted(len(skewed) - 1, "other operator")
    more = f" {plural(len(skewed) - 1, 'So does', 'So do')} {others}." if len(skewed) > 1 else ""
    if worst.skew is None:
        return f"Most subtasks of {worst.title} are empty: one has {size(worst.largest)}.{more}"
    return (
        f"The largest subtask of {worst.title} has {worst.skew:.1f} times the median,"
        f" more than {SKEWED:.0f}.{more}"
    )


def _skew_order(state: OperatorState) -> tuple[bool, float, int]:
    skew = float("inf") if state.skew is None else state.skew
    return state.is_skewed, skew, state.largest


def _subtasks_chart(state: OperatorState) -> Chart:
    number = max(range(len(state.subtasks)), key=state.subtasks.__getitem__)
    return Chart(
        f"Subtasks of {label(state.title)}",
        f"Subtask {number} is the largest with {size(state.largest)}; the median is"
        f" {size(round(state.median))}.",
        [str(each) for each in range(len(state.subtasks))],
        (Series("bytes of the subtask", state.subtasks),),
        is_horizontal=False,
    )


def table(states: Sequence[OperatorState]) -> DataTable:
    """Return the table of operators."""
    summaries = [state.summary for state in states]
    kinds = [
        Column(kind, [state.of_kinds[number] for state in states], "bytes")
        for number, kind in enumerate(STATE_KINDS)
        if any(state.of_kinds[number] for state in states)
    ]
    skews = [None if state.skew is None else round(state.skew, 2) for state in states]
    return DataTable(
        "Operators",
        Column("operator", [state.title for state in states]),
        Column("uid", [each.uid for each in summaries]),
        Column("id", [each.id for each in summaries]),
        Column("subtasks", [each.subtasks for each in summaries], "count"),
        Column("max parallelism", [each.max_parallelism for each in summaries], "count"),
        Column("files", [each.files for each in summaries], "count"),
        Column("bytes", [state.bytes for state in states], "bytes"),
        *kinds,
        Column("largest subtask", [state.largest for state in states], "bytes"),
        Column("median subtask", [round(state.median) for state in states], "bytes"),
        Column("largest / median", skews, "count"),
    )
