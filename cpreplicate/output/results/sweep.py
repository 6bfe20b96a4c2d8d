"""The result of `sweep`."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

from cpreplicate.core.sizes import counted, size
from cpreplicate.operations.upkeep.sweep import Sweep
from cpreplicate.output.json import document, rows
from cpreplicate.output.parts import action_table, totals, warning_lines
from cpreplicate.output.results import Forms
from cpreplicate.output.text import columns


def _text(sweep: Sweep, actions: bool = False) -> str:
    """Return what a sweep removes, or removed; with `actions`, every file."""
    left = Counter(sweep.found.left.values())
    facts = [
        ("replica", f"{sweep.replica} (holds {', '.join(sweep.found.checkpoints)})"),
        ("files", f"{sweep.found.files} in all"),
        ("delete", f"{counted(len(sweep.deletes), 'file')}, {size(sweep.bytes)}"),
        *((f"left ({count})", reason) for reason, count in left.items()),
        ("result", _result(sweep)),
    ]
    parts = [columns(facts)]
    if actions or not sweep.done:
        parts.append(action_table((("delete", sweep.deletes),), actions))
    parts += warning_lines(sweep.warnings)
    return "\n\n".join(filter(None, parts))


def _result(sweep: Sweep) -> str:
    if not sweep.deletes:
        return f"nothing to do ({sweep.seconds:.1f} s)"
    if not sweep.done:
        return "nothing done; these are the orphans"
    outcome = f"moved to {sweep.trash}" if sweep.trash else "deleted"
    return f"{outcome} ({sweep.runner}, {sweep.seconds:.1f} s)"


def _json(sweep: Sweep, actions: bool = False) -> str:
    """Return the result of `sweep --output json`; with `actions`, every file."""
    result: dict[str, Any] = {
        "replica": sweep.replica,
        "checkpoints": list(sweep.found.checkpoints),
        "files": sweep.found.files,
        "delete": totals(sweep.deletes),
        "left": dict(Counter(sweep.found.left.values())),
        "done": sweep.done,
        "trash": sweep.trash,
        "runner": sweep.runner,
        "seconds": round(sweep.seconds, 3),
        "warnings": list(sweep.warnings),
        "refused": sweep.refused,
    }
    if actions:
        result["actions"] = [action._asdict() for action in sweep.deletes]
    return document(result, sweep.seconds)


def _ndjson(sweep: Sweep) -> str:
    return "\n".join(rows(sweep.deletes))


def _when_quiet(sweep: Sweep) -> tuple[str, ...] | None:
    return sweep.warnings if sweep.done or not sweep.deletes else None


_WITH_ACTIONS = Forms(partial(_text, actions=True), partial(_json, actions=True), _ndjson)
FORMS = Forms(_text, _json, _ndjson, {"actions": _WITH_ACTIONS}, when_quiet=_when_quiet)
