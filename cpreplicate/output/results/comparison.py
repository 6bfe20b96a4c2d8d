"""The result of `inspect A B`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from cpreplicate.core.sizes import counted, size
from cpreplicate.operations.inspect.comparison import (
    Amount,
    ComparedCheckpoint,
    Comparison,
    OperatorGrowth,
)
from cpreplicate.output.json import document, timestamp
from cpreplicate.output.results import Forms
from cpreplicate.output.text import columns, table

_HEAD = ("operator", "before", "after", "growth", "added", "removed", "rewritten")


def _text(result: Comparison) -> str:
    """Return what changed: totals, and a row for each operator."""
    before, after = result.before, result.after
    facts = [
        ("from", _checkpoint(before)),
        ("to", _checkpoint(after)),
        ("growth", _growth(before.bytes, after.bytes)),
        ("added", _amount(result.added)),
        ("removed", _amount(result.removed)),
        ("kept", _kept(result)),
        ("compaction", f"about {size(result.rewritten_bytes)} rewritten"),
    ]
    rows = [_row(operator) for operator in result.operators]
    return "\n\n".join([columns(facts), table(_HEAD, rows)])


def _checkpoint(of: ComparedCheckpoint) -> str:
    return f"{of.checkpoint} ({counted(of.files, 'file')}, {size(of.bytes)})"


def _amount(amount: Amount) -> str:
    return f"{counted(amount.files, 'file')}, {size(amount.bytes)}"


def _kept(result: Comparison) -> str:
    grown = f", {size(result.grown_bytes)} of them appended" if result.grown_bytes else ""
    return f"{_amount(result.kept)}{grown}"


def _growth(before: int, after: int) -> str:
    """Return a difference with its sign, and its share."""
    sign = "-" if after < before else "+"
    share = f" ({100 * (after - before) / before:+.1f} %)" if before else ""
    return f"{sign}{size(abs(after - before))}{share}"


def _row(of: OperatorGrowth) -> tuple[str, ...]:
    return (
        of.name or of.uid or of.id or "(several)",
        size(of.bytes_before),
        size(of.bytes_after),
        _growth(of.bytes_before, of.bytes_after),
        _amount(of.added),
        _amount(of.removed),
        size(of.rewritten_bytes),
    )


def _json(result: Comparison) -> str:
    """Return the result of `inspect A B --output json`."""
    fields: dict[str, Any] = {
        "before": _of_checkpoint(result.before),
        "after": _of_checkpoint(result.after),
        "added": result.added._asdict(),
        "removed": result.removed._asdict(),
        "kept": result.kept._asdict(),
        "grown_bytes": result.grown_bytes,
        "rewritten_bytes": result.rewritten_bytes,
        "operators": [_of_operator(each) for each in result.operators],
    }
    return document(fields)


def _of_checkpoint(of: ComparedCheckpoint) -> dict[str, Any]:
    fields = of._asdict()
    completed = timestamp(fields.pop("completed"))
    return {**fields, "checkpoint_completed": completed}


def _of_operator(of: OperatorGrowth) -> dict[str, Any]:
    fields = asdict(of)
    return {**fields, "added": of.added._asdict(), "removed": of.removed._asdict()}


FORMS = Forms(_text, _json, ndjson=_json)
