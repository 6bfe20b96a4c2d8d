"""The result of `inspect`."""

from __future__ import annotations

from dataclasses import asdict

from cpreplicate.core.sizes import size
from cpreplicate.operations.inspect import Inspection, PackSummary
from cpreplicate.output import positions
from cpreplicate.output.json import document, timestamp
from cpreplicate.output.results import Forms
from cpreplicate.output.text import columns, table

_HEAD = ("operator", "name", "subtasks / max", "files", "bytes", "largest subtask")


def _text(result: Inspection) -> str:
    """Return what a checkpoint holds: totals, and a row for each operator."""
    state = (
        f"{result.files} files, {size(result.bytes)}; {size(result.inline_bytes)} inline;"
        f" {result.handles} handles"
    )
    facts = [
        ("checkpoint", result.checkpoint),
        ("id", f"{result.checkpoint_id}, metadata v{result.version}"),
        ("state", state),
        *(("packed", _packed(packed)) for packed in [result.packed] if packed is not None),
        *(("foreign", f"{count} files of {group}") for group, count in result.foreign.items()),
    ]
    rows = [
        (
            operator.id,
            operator.name or operator.uid or "",
            f"{operator.subtasks} / {operator.max_parallelism}",
            str(operator.files),
            size(operator.bytes),
            _skew(operator.largest_subtask_bytes, operator.bytes, operator.subtasks),
        )
        for operator in result.operators
    ]
    return "\n\n".join([columns(facts), table(_HEAD, rows), *positions.parts_of(result.positions)])


def _packed(packed: PackSummary) -> str:
    live, dead = size(packed.live_bytes), size(packed.dead_bytes)
    return f"{packed.files} files in {packed.packs} packs; {live} live, {dead} dead"


def _skew(largest: int, whole: int, subtasks: int) -> str:
    if not whole or not subtasks:
        return ""
    return f"{size(largest)} ({largest * subtasks / whole:.1f} x mean)"


def _json(inspection: Inspection) -> str:
    """Return the result of `inspect --output json`."""
    result = asdict(inspection)
    completed = timestamp(result.pop("completed"))
    result.update(positions.fields(inspection.positions))
    return document({**result, "checkpoint_completed": completed})


FORMS = Forms(_text, _json, ndjson=_json)
