"""The page of `diff` and `sync`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from cpreplicate.core import uri
from cpreplicate.core.plan import Action, Plan, total
from cpreplicate.core.sizes import size
from cpreplicate.operations.inspect.overview import Overview
from cpreplicate.operations.kafka import part_files
from cpreplicate.operations.replicas.points import Points
from cpreplicate.operations.sync.report import Report, named
from cpreplicate.output.json import timestamp
from cpreplicate.output.report.model import Chart, Column, DataTable, Page, Series, Tone
from cpreplicate.output.report.pages import history, operators
from cpreplicate.output.report.pages.operators import OperatorState, operator_states
from cpreplicate.output.report.pages.rows import largest
from cpreplicate.output.report.pages.words import counted, label, of_bytes, sentence, took
from cpreplicate.protocol.retention_record import described

_SHOWN = 12  # directories in a chart
_WORTH_A_RATE = 5.0  # seconds: a rate of less is that of the start
_VERBS = ("copy", "repack", "keep", "delete")
_HUES = {"copy": 1, "repack": 4, "keep": 5, "delete": 2}


def page(report: Report, overview: Overview) -> Page:
    """Return the page of a plan, or of a sync."""
    plan = report.plan
    is_there = plan.empty or report.runner is not None
    can_restore = report.refusal is None and bool(report.restore.command)
    answer = _answer(report)
    if can_restore:
        answer += "; restore with" if is_there else "; once synced, restore with"
    states = [] if overview.handles is None else operator_states(overview.handles)
    return Page(
        title=f"{'sync' if report.runner else 'plan of a sync'}: {plan.checkpoint}",
        answer=f"{answer[:1].upper()}{answer[1:]}" if can_restore else sentence(answer),
        restore=report.restore.command if can_restore else None,
        tone=_tone(report),
        facts=tuple(_facts(report)),
        notes=(*_notes(report), *overview.problems),
        charts=tuple(_charts(plan, states, overview)),
        tables=tuple(_tables(plan, states, overview)),
    )


def _answer(report: Report) -> str:
    plan, is_done = report.plan, report.runner is not None
    if report.refusal is not None:
        return f"nothing was done, because a sync is refused: {report.refusal}"
    if plan.empty:
        kept = f"{counted(len(plan.keeps), 'file')}, {size(total(plan.keeps))}"
        return f"Nothing to do: the replica holds {plan.checkpoint} already ({kept})"
    copied, needed = len(plan.copies), len(plan.copies) + len(plan.keeps)
    whole = total(plan.copies) + total(plan.keeps)
    were = "were" if is_done else "are"
    withdrawn = plan.withdrawals
    parts = [
        *([f"{'withdrew' if is_done else 'withdraws'} {named(withdrawn)}"] if withdrawn else []),
        f"{copied:,} of {counted(needed, 'file')}, {of_bytes(total(plan.copies), whole)},"
        f" {were} copied",
        f"{len(plan.deletes) - len(report.undeleted):,} deleted",
    ]
    if report.undeleted:
        parts.append(f"{len(report.undeleted):,} left to sweep, or to watch")
    if is_done:
        parts.append(_time(report))
    return "; ".join(parts)


def _time(report: Report) -> str:
    copied, seconds = total(report.plan.copies) - total(report.plan.reused_copies), report.seconds
    is_worth_a_rate = copied and seconds >= _WORTH_A_RATE
    rate = f" at {size(round(copied / seconds))}/s" if is_worth_a_rate else ""
    return f"it took {took(seconds)}{rate}"


def _tone(report: Report) -> Tone:
    if report.refusal is not None:
        return "bad"
    gone = len(report.plan.withdrawals)
    is_routine = gone == 0 or (gone == 1 and report.plan.publish)  # a new one in place of an old
    return "notice" if not is_routine or any(True for _ in _notes(report)) else "good"


def _facts(report: Report) -> Iterator[tuple[str, str]]:
    plan, base = report.plan, report.plan.base_checkpoint_id
    yield "source", plan.source
    held = "no checkpoint" if base is None else f"chk-{base}"
    yield "replica", f"{plan.replica} ({'held' if report.runner else 'holds'} {held})"
    yield "checkpoint", f"{plan.checkpoint}, completed {timestamp(report.completed) or 'unknown'}"
    for verb, actions in _verbs(plan):
        if actions or verb != "repack":
            yield verb, f"{counted(len(actions), 'file')}, {size(total(actions))}"
    if plan.withdrawals:
        yield "withdraw", named(plan.withdrawals)
    policy = plan.policy
    if policy.recorded is not None:
        yield "recorded retention", described(policy.recorded)
    yield "retention", str(policy.retention)
    yield "paths", f"{plan.paths_reported}: {plan.paths_reason}"
    yield "runner", report.runner or "none: this is the plan"


def _notes(report: Report) -> Iterator[str]:
    yield from report.warnings
    yield from part_files.warnings_of(report.positions)
    if not report.restore.command and report.refusal is None:
        yield f"do not restore it: {report.restore.reason}"


def _verbs(plan: Plan) -> tuple[tuple[str, Sequence[Action]], ...]:
    actions = (plan.copies, plan.repacks, plan.keeps, plan.deletes)
    return tuple(zip(_VERBS, actions, strict=True))


def _charts(plan: Plan, states: Sequence[OperatorState], overview: Overview) -> Iterator[Chart]:
    if plan.actions:
        yield _directories(plan)
    yield from operators.charts(states)
    if overview.history is not None:
        yield from history.charts(overview.history, _going(plan, overview.history))


def _directories(plan: Plan) -> Chart:
    """Return the bytes that are copied, kept and deleted, by the directory of the file."""
    sums: dict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(_VERBS, 0))
    for verb, actions in _verbs(plan):
        for action in actions:
            sums[uri.parent(action.target) or "."][verb] += action.bytes
    names = sorted(sums, key=lambda name: -sum(sums[name].values()))
    shown, others = names[:_SHOWN], names[_SHOWN:]
    rows = [sums[name] for name in shown]
    labels = [label(name) for name in shown]
    if others:
        labels.append(counted(len(others), "other directory", "other directories"))
        rows.append({verb: sum(sums[name][verb] for name in others) for verb in _VERBS})
    return Chart(
        "Copy, keep and delete by directory",
        "; ".join(f"{verb} {size(total(actions))}" for verb, actions in _verbs(plan) if actions)
        + ".",
        labels,
        tuple(
            Series(verb, [row[verb] for row in rows], _HUES[verb])
            for verb, actions in _verbs(plan)
            if actions
        ),
    )


def _tables(plan: Plan, states: Sequence[OperatorState], overview: Overview) -> Iterator[DataTable]:
    actions = plan.actions
    if actions:
        yield _reasons(actions)
        yield _actions(plan, actions)
    if states:
        yield operators.table(states)
    if overview.history is not None and any(each.points for each in overview.history.replicas):
        going = _going(plan, overview.history)
        yield history.table(overview.history.replicas, going)


def _going(plan: Plan, held: Points) -> set[str]:
    """Return the checkpoints that are still held, and that the plan withdraws."""
    gone = {(each.checkpoint, each.completed) for each in plan.withdrawals}
    points = (point for replica in held.replicas for point in replica.points)
    return {each.checkpoint for each in points if (each.checkpoint, each.completed) in gone}


def _reasons(actions: Sequence[Action]) -> DataTable:
    sums: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for action in actions:
        of_reason = sums[action.action, action.reason]
        of_reason[0] += 1
        of_reason[1] += action.bytes
    return DataTable(
        "Reasons",
        Column("action", [verb for verb, _ in sums]),
        Column("reason", [reason for _, reason in sums]),
        Column("files", [files for files, _ in sums.values()], "count"),
        Column("bytes", [bytes_ for _, bytes_ in sums.values()], "bytes"),
    )


def _actions(plan: Plan, actions: Sequence[Action]) -> DataTable:
    sizes = [action.bytes for action in actions]
    places = largest(sizes)
    shown = [actions[place] for place in places.tolist()]
    return DataTable(
        "Files",
        Column("action", [action.action for action in shown]),
        Column("bytes", [action.bytes for action in shown], "bytes"),
        Column("file in the replica", [action.target for action in shown]),
        Column("reason", [action.reason for action in shown]),
        Column("read from", [_read_from(plan, action) for action in shown]),
        left_out=len(sizes) - len(places),
    )


def _read_from(plan: Plan, action: Action) -> str | None:
    """Return the directory that a file is copied from, with its name if it has another one.

    With each name twice, the page would be twice as large.
    """
    if action.action != "copy":
        return None
    reused = plan.reused.get(action.target)
    read = action.source if reused is None else uri.join(reused.replica, reused.path)
    assert read is not None, "a copy has a source"
    is_named_so = uri.name(read) == uri.name(action.target)
    return f"{uri.parent(read)}/" if is_named_so else read
