"""The result of `diff` and `sync`, and of `watch` of one job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from cpreplicate.core.plan import Action, Plan, total
from cpreplicate.core.sizes import size
from cpreplicate.operations.sync.estimate import Estimate, Estimates
from cpreplicate.operations.sync.report import Report
from cpreplicate.output import positions
from cpreplicate.output.json import document, rows, timestamp
from cpreplicate.output.parts import (
    action_table,
    restore_fields,
    restore_text,
    totals,
    warning_lines,
)
from cpreplicate.output.results import Forms
from cpreplicate.output.text import columns, duration

_NOTED = 1.2  # times the time or the calls: a difference that is noted


def _text(result: Report, actions: bool = False) -> str:
    """Return a plan, or the result of a sync, with the restore command."""
    plan = result.plan
    facts = [*_plan_facts(plan), *_estimate_facts(result.estimates), ("result", _result(result))]
    parts = [columns(facts)]
    listed = action_table(_verbs(plan), actions)
    if listed and (actions or result.runner is None):
        parts.append(listed)
    parts += [*positions.parts_of(result.positions), *warning_lines(result.warnings)]
    if result.refusal is not None:  # nothing is, or will be, there to be restored
        return "\n\n".join(parts)
    is_there = result.committed or plan.empty
    when = "restore it with" if is_there else "once synced, restore it with"
    return "\n\n".join([*parts, restore_text(result.restore, when)])


def _plan_facts(plan: Plan) -> list[tuple[str, str]]:
    base = (
        "no replicated checkpoint so far"
        if plan.base_checkpoint_id is None
        else f"holds chk-{plan.base_checkpoint_id}"
    )
    return [
        ("source", plan.source),
        ("replica", f"{plan.replica} ({base})"),
        ("checkpoint", plan.checkpoint),
        *((name, _amount(plan, name, actions)) for name, actions in _verbs(plan)),
        ("paths", f"{plan.paths_reported}: {plan.paths_reason}"),
    ]


def _verbs(plan: Plan) -> tuple[tuple[str, Sequence[Action]], ...]:
    repacks = (("repack", plan.repacks),) if plan.repacks else ()
    return (
        ("copy", plan.copies),
        *repacks,
        ("keep", plan.keeps),
        ("delete", plan.deletes),
    )


def _amount(plan: Plan, verb: str, actions: Sequence[Action]) -> str:
    amount = f"{len(actions)} files, {size(total(actions))}"
    if verb != "copy":
        return amount
    packed, within = sum(action.target in plan.packed for action in actions), plan.reused_copies
    if packed:
        amount += f", {packed} of the files into packs"
    if within:
        amount += f", {len(within)} of the files ({size(total(within))}) within the target"
    return amount


def _estimate_facts(estimates: Estimates | None) -> Iterator[tuple[str, str]]:
    """Yield what the run will take, and what it would take with packs or without them."""
    if estimates is None:
        return
    planned, other = estimates.planned, estimates.alternative
    yield "estimate", f"{_time(planned)} ({estimates.runner}), {_origin(estimates)}"
    if calls := _calls(planned):
        yield "NameNodes", calls
    if other is not None and _is_other(other, planned):
        name = "--pack off" if estimates.is_packed else "--pack on"
        yield name, ", ".join(filter(None, [_time(other), _calls(other)]))


def _time(estimate: Estimate) -> str:
    """Return the seconds: where they follow from default rates, the range."""
    if estimate.is_learned:
        return f"about {duration(max(estimate.seconds, 1))}"
    return f"{duration(max(estimate.low, 1))} to {duration(max(estimate.high, 2))}"


def _calls(estimate: Estimate) -> str:
    """Return the calls to each NameNode, an empty text if there is none."""
    sides = (("source", estimate.source_calls), ("target", estimate.target_calls))
    counts = [f"{count:,} calls at the {side}" for side, count in sides if count is not None]
    return ", ".join(counts)


def _origin(estimates: Estimates) -> str:
    if not estimates.runs:
        return "by default rates: no earlier run between these sites"
    runs = "1 earlier run" if estimates.runs == 1 else f"{estimates.runs} earlier runs"
    if estimates.planned.is_learned:
        return f"from {runs} between these sites"
    return f"by default rates where {runs} between these sites showed none"


def _is_other(estimate: Estimate, planned: Estimate) -> bool:
    """Return whether an alternative is worth a line: it takes 1.2 times as long, or as many calls,
    or the other way round.
    """
    pairs = [(estimate.seconds, planned.seconds)]
    if estimate.target_calls is not None and planned.target_calls is not None:
        pairs.append((estimate.target_calls, planned.target_calls))
    return any(max(pair) > _NOTED * min(pair) for pair in pairs)


def _result(result: Report) -> str:
    checkpoint, took = result.plan.checkpoint, f"{result.seconds:.1f} s"
    if result.refusal is not None:
        return "nothing done; a sync would be refused"
    if result.plan.empty:
        return f"nothing to do, the replica holds {checkpoint} ({took})"
    if result.runner is None:
        return "nothing done; this is the plan"
    if result.committed:
        outcome = f"committed {checkpoint}"
    else:
        outcome = "cleaned up; the checkpoint was committed before"
    left = len(result.undeleted)
    note = f"; {left} files are left to sweep, or to watch" if left else ""
    return f"{outcome} ({result.runner}, {took}){note}"


def _json(report: Report, actions: bool = False) -> str:
    """Return the result of `diff` or `sync --output json`; with `actions`, every file."""
    return document(fields(report, actions), report.seconds)


def fields(report: Report, actions: bool = False) -> dict[str, Any]:
    """Return the fields of a report in JSON; with `actions`, every file."""
    plan = report.plan
    result: dict[str, Any] = {
        "source": plan.source,
        "replica": plan.replica,
        "checkpoint": plan.checkpoint,
        "checkpoint_id": plan.checkpoint_id,
        "checkpoint_completed": timestamp(report.completed),
        "base_checkpoint_id": plan.base_checkpoint_id,
        "copy": totals(plan.copies),
        "packed": totals(tuple(action for action in plan.copies if action.target in plan.packed)),
        "copied_within_target": totals(plan.reused_copies),
        "repack": totals(plan.repacks),
        "keep": totals(plan.keeps),
        "delete": totals(plan.deletes),
        "committed": report.committed,
        "undeleted": len(report.undeleted),
        "runner": report.runner,
        "seconds": round(report.seconds, 3),
        "paths": plan.paths_reported,
        "restore": restore_fields(report.restore),
        "warnings": list(report.warnings),
        "refused": None if report.refusal is None else str(report.refusal),
        "estimate": _estimates(report.estimates),
    }
    if report.runner is None:
        result.update(positions.fields(report.positions))
    if actions:
        result["actions"] = [action._asdict() for action in plan.actions]
    return result


def _estimates(estimates: Estimates | None) -> dict[str, Any] | None:
    if estimates is None:
        return None
    return {
        "runner": estimates.runner,
        "earlier_runs": estimates.runs,
        "planned": "packed" if estimates.is_packed else "unpacked",
        "unpacked": _estimate(estimates.unpacked),
        "packed": None if estimates.packed is None else _estimate(estimates.packed),
    }


def _estimate(estimate: Estimate) -> dict[str, Any]:
    return {
        "seconds": round(estimate.seconds, 1),
        "seconds_low": round(estimate.low, 1),
        "seconds_high": round(estimate.high, 1),
        "source_calls": estimate.source_calls,
        "target_calls": estimate.target_calls,
        "learned": estimate.is_learned,
    }


def _ndjson(report: Report) -> str:
    return "\n".join(rows(report.plan.actions))


_WITH_ACTIONS = Forms(partial(_text, actions=True), partial(_json, actions=True), _ndjson)
FORMS = Forms(_text, _json, _ndjson, _WITH_ACTIONS)
