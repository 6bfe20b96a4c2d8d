"""The page of `inspect`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cpreplicate.core import uri
from cpreplicate.core.sizes import size
from cpreplicate.core.state_sizes import KINDS as STATE_KINDS
from cpreplicate.operations.inspect import Inspection
from cpreplicate.operations.inspect.handle_columns import HandleColumns
from cpreplicate.operations.inspect.overview import Overview
from cpreplicate.operations.kafka import part_files
from cpreplicate.output.json import timestamp
from cpreplicate.output.report.model import Column, DataTable, Page
from cpreplicate.output.report.pages import operators
from cpreplicate.output.report.pages.operators import OperatorState, operator_states
from cpreplicate.output.report.pages.rows import chosen, largest
from cpreplicate.output.report.pages.words import counted, share


def page(handles: HandleColumns, _overview: Overview) -> Page:
    """Return the page of what a checkpoint holds."""
    inspection, states = handles.inspection, operator_states(handles)
    is_skewed = any(state.is_skewed for state in states)
    files = tuple(_part_files(inspection))
    return Page(
        title=f"inspect: {uri.name(inspection.checkpoint)}",
        answer=_answer(inspection, states),
        tone="notice" if is_skewed or files else "good",
        facts=tuple(_facts(inspection)),
        charts=tuple(operators.charts(states)),
        tables=(operators.table(states), *files, _table(handles, states)),
    )


def _answer(inspection: Inspection, states: Sequence[OperatorState]) -> str:
    whole = sum(state.bytes for state in states)
    text = (
        f"{uri.name(inspection.checkpoint)} holds {counted(inspection.files, 'file')},"
        f" {size(inspection.bytes)}, of {counted(len(states), 'operator')}"
    )
    if not whole:
        return f"{text}, and no state of an operator."
    first = states[0]
    text += f"; the largest is {first.title} with {share(first.bytes, whole)} of the state"
    skewed = [state for state in states if state.is_skewed]
    return f"{text}. {operators.skew_finding(skewed)}" if skewed else f"{text}."


def _facts(inspection: Inspection) -> list[tuple[str, str]]:
    facts = [
        ("checkpoint", inspection.checkpoint),
        ("completed", timestamp(inspection.completed) or "unknown"),
        ("metadata", f"version {inspection.version}, {counted(inspection.handles, 'handle')}"),
        ("inline", size(inspection.inline_bytes)),
    ]
    if inspection.packed is not None:
        packed = inspection.packed
        dead = f"{size(packed.live_bytes)} live, {size(packed.dead_bytes)} dead"
        facts.append(
            (
                "packed",
                f"{counted(packed.files, 'file')} in {counted(packed.packs, 'pack')}; {dead}",
            )
        )
    for group, count in inspection.foreign.items():
        facts.append(("foreign", f"{counted(count, 'file')} of {group}"))
    facts += [("outside", text) for text in part_files.warnings_of(inspection.positions)]
    return facts


def _part_files(inspection: Inspection) -> Iterator[DataTable]:
    """Yield a table of the part files outside of the checkpoint, if its state names any."""
    found = inspection.positions
    files = () if found is None else found.found.part_files
    if found is None or not files:
        return
    places = largest([file.length for file in files])
    columns = (
        Column("sink", [found.names.get(file.operator, file.operator) for file in files]),
        Column("part file", [part_files.place_of(file) for file in files]),
        Column("state", [file.kind for file in files]),
        Column("bytes", [file.length for file in files], "bytes"),
        Column("becomes", [file.target for file in files]),
    )
    shown = (chosen(column, places) for column in columns)
    yield DataTable("Part files outside", *shown, left_out=len(files) - len(places))


def _table(handles: HandleColumns, states: Sequence[OperatorState]) -> DataTable:
    """Return a row for each state handle, in the order of the `_metadata`."""
    summaries = handles.inspection.operators
    title_of = {id(state.summary): state.title for state in states}
    names = [*(title_of[id(summary)] for summary in summaries), None]  # the last one is for -1
    sizes = handles.sizes.tolist()
    places = largest(sizes)
    columns = (
        Column("operator", [names[number] for number in handles.operator.tolist()]),
        Column("subtask", _numbers(handles.subtask.tolist()), "count"),
        Column("state", [STATE_KINDS[kind] for kind in handles.state_kind.tolist()]),
        Column("handle", handles.held_as),
        Column("size", sizes, "bytes"),
        Column("position", _numbers(handles.positions.tolist()), "count"),
        Column("path", handles.paths),
    )
    shown = (chosen(column, places) for column in columns)
    return DataTable("State handles", *shown, left_out=len(sizes) - len(places))


def _numbers(values: list[int]) -> list[int | None]:
    return [None if value < 0 else value for value in values]
