"""The result of `diff` and `sync`, and of `watch` of one job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Any

from cpreplicate.core.plan import Action, Plan, Verb, Withdrawal, replaces, total
from cpreplicate.core.sizes import counted, size
from cpreplicate.operations.sync.plan.groups import Group
from cpreplicate.operations.sync.report import Report, named
from cpreplicate.output import positions
from cpreplicate.output.json import document, rows, timestamp
from cpreplicate.output.log import is_verbose
from cpreplicate.output.parts import (
    action_table,
    restore_fields,
    restore_text,
    retention_amounts,
    retention_fields,
    totals,
    warning_lines,
)
from cpreplicate.output.results import Forms, Listing
from cpreplicate.output.text import columns, lines, table
from cpreplicate.protocol.retention_record import described

_GROUPS = 8  # of each action, without --all
_GROUP_HEAD = ("action", "operator", "files", "bytes", "reason")
_SIGNS: dict[Verb, str] = {"copy": "+", "repack": "=", "keep": "=", "withdraw": "-", "delete": "-"}


def _text(result: Report, listing: Listing = "totals") -> str:
    """Return a plan, or the result of a sync, with the restore command.

    A sync with nothing to do is one line.
    """
    plan = result.plan
    if plan.empty and not result.is_plan and listing == "totals" and not is_verbose():
        return lines([_result(result), *warning_lines(result.warnings)])
    facts = [*_plan_facts(plan), *_fingerprints(result), ("result", _result(result))]
    parts = [*_withdrawn(result), columns(facts), *_listed(result, listing)]
    parts += [*positions.parts_of(result.positions), *warning_lines(result.warnings)]
    if result.refusal is not None:  # nothing is, or will be, there to be restored
        return "\n\n".join(parts)
    is_there = plan.empty or result.runner is not None
    when = "restore it with" if is_there else "once synced, restore it with"
    return "\n\n".join([*parts, restore_text(result.restore, when)])


def _withdrawn(result: Report) -> list[str]:
    """Return the first sentence: the checkpoints that the plan withdraws, if there are any."""
    names = named(result.plan.withdrawals)
    verb = "withdraws" if result.refusal is None else "would withdraw"
    return [lines([f"{verb} {names}"])] if names else []


def _listed(result: Report, listing: Listing) -> list[str]:
    """Return the table of a listing, if there is one: every file, or groups of them."""
    is_refused_alone = result.refusal is not None and not result.is_plan
    if listing == "actions" or is_refused_alone:
        table_of_files = action_table(_verbs(result.plan), every=listing == "actions")
        return [table_of_files] if table_of_files else []
    rows = list(_group_rows(result.groups, _GROUPS if listing == "totals" else None))
    return [table(_GROUP_HEAD, rows)] if rows else []


def _group_rows(groups: Sequence[Group], shown: int | None) -> Iterator[tuple[str, ...]]:
    """Yield a row for each group, and one for those of an action that are not shown."""
    for action, same in groupby(groups, key=lambda group: group.action):
        of_action = list(same)
        for group in of_action[:shown]:
            operator = group.name or group.operator or "-"
            yield action, operator, str(group.files), size(group.bytes), group.reason
        if hidden := of_action[len(of_action[:shown]) :]:
            files, amount = sum(each.files for each in hidden), sum(each.bytes for each in hidden)
            more = f"… {len(hidden)} more"
            yield action, more, str(files), size(amount), "diff --all lists them"


def _combined(result: Report) -> str:
    """Return a line for each file, in the order of the paths: a sign, and the path.

    The `_metadata` of a checkpoint that is withdrawn is one of them.
    """
    rows = [(action.target, _sign(action)) for action in result.plan.actions]
    return lines(f"{sign} {target}" for target, sign in sorted(rows))


def _sign(action: Action) -> str:
    return "*" if replaces(action) else _SIGNS[action.action]


def _when_quiet(result: Report) -> tuple[str, ...] | None:
    is_shown = result.is_plan or result.refusal is not None
    return None if is_shown else result.warnings


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
        *_retention(plan),
        ("paths", _paths(plan)),
    ]


def _fingerprints(result: Report) -> Iterator[tuple[str, str]]:
    """Yield of how many positions fingerprints were kept, and why not of the others."""
    found = result.fingerprints
    if found is None:
        return
    reasons = "; ".join(f"{count}: {reason}" for reason, count in (found.without or {}).items())
    count = f"of {counted(found.kept, 'position')}"
    yield "fingerprints", f"{count}, not of {reasons}" if reasons else count


def _retention(plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield which checkpoints the replica keeps, if somebody stated that."""
    policy = plan.policy
    if policy.stated is not None and policy.is_to_be_recorded:
        yield "retention", f"{policy.retention}, stated by this run"
    elif policy.recorded is not None:
        yield "retention", described(policy.recorded)


def _paths(plan: Plan) -> str:
    return f"{plan.paths_reported}: {plan.paths_reason}" if is_verbose() else plan.paths_reported


def _verbs(plan: Plan) -> tuple[tuple[str, Sequence[Action]], ...]:
    repacks = (("repack", plan.repacks),) if plan.repacks else ()
    withdrawals = tuple(each.action for each in plan.withdrawals)
    return (
        ("copy", plan.copies),
        *repacks,
        ("keep", plan.keeps),
        *((("withdraw", withdrawals),) if withdrawals else ()),
        ("delete", plan.deletes),
    )


def _amount(plan: Plan, verb: str, actions: Sequence[Action]) -> str:
    if verb == "withdraw":
        return counted(len(actions), "checkpoint")
    amount = f"{counted(len(actions), 'file')}, {size(total(actions))}"
    if verb != "copy":
        return amount
    packed, within = sum(action.target in plan.packed for action in actions), plan.reused_copies
    if packed:
        amount += f", {packed} of the files into packs"
    if within:
        amount += f", {len(within)} of the files ({size(total(within))}) within the target"
    return amount


def _result(result: Report) -> str:
    checkpoint, took = result.plan.checkpoint, f"{result.seconds:.1f} s"
    if result.refusal is not None:
        return "nothing done; a sync would be refused"
    if result.plan.empty:
        return f"nothing to do: {result.plan.replica} holds {checkpoint} ({took})"
    if result.runner is None:
        return "nothing done; this is the plan"
    if result.plan.repairs:
        outcome = f"repaired {checkpoint}; no other checkpoint was published or withdrawn"
    elif result.committed:
        outcome = f"committed {checkpoint}"
        if result.turned_from:
            outcome += f"; turned to it from {', '.join(result.turned_from[-3:])}"
    else:
        outcome = "cleaned up; the checkpoint was committed before"
    left = len(result.undeleted)
    note = f"; {counted(left, 'file is', 'files are')} left to sweep, or to watch" if left else ""
    return f"{outcome} ({result.runner}, {took}){note}"


def _json(report: Report, listing: Listing = "totals") -> str:
    """Return the result of `diff` or `sync --output json`."""
    return document(fields(report, listing == "actions"), report.seconds)


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
        "withdraw": withdrawals(plan.withdrawals),
        "retention": {
            **retention_amounts(plan.policy.retention),
            "recorded": retention_fields(plan.policy.recorded),
        },
        "committed": report.committed,
        "turned_from": list(report.turned_from),
        "undeleted": len(report.undeleted),
        "runner": report.runner,
        "seconds": round(report.seconds, 3),
        "paths": plan.paths_reported,
        "restore": restore_fields(report.restore),
        "fingerprints": _fingerprint_fields(report),
        "warnings": list(report.warnings),
        "refused": None if report.refusal is None else str(report.refusal),
    }
    if report.runner is None:
        result.update(positions.fields(report.positions))
    if report.is_plan:
        result["groups"] = [group._asdict() for group in report.groups]
    if actions:
        result["actions"] = [action._asdict() for action in plan.actions]
    return result


def _fingerprint_fields(report: Report) -> dict[str, Any] | None:
    found = report.fingerprints
    if found is None:
        return None
    return {
        "kept": found.kept,
        "lacking": found.lacking,
        "reasons": dict(found.without or {}),
        "error": found.error,
    }


def withdrawals(withdrawn: Sequence[Withdrawal]) -> list[dict[str, Any]]:
    """Return the JSON array of the checkpoints that a plan withdraws."""
    return [
        {"checkpoint": each.checkpoint, "completed": timestamp(each.completed)}
        for each in withdrawn
    ]


def _ndjson(report: Report) -> str:
    return "\n".join(rows(report.plan.actions))


def _listing(listing: Listing) -> Forms[Report]:
    return Forms(partial(_text, listing=listing), partial(_json, listing=listing), _ndjson)


FORMS = Forms(
    _text,
    _json,
    _ndjson,
    others={
        "all": _listing("all"),
        "actions": _listing("actions"),
        "combined": Forms(_combined, _json, _ndjson),
    },
    when_quiet=_when_quiet,
)
