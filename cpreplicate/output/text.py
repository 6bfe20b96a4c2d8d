"""Results for people: rich tables on a terminal, else plain aligned columns."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence

from cpreplicate.core.plan import Action, Plan, total
from cpreplicate.core.sizes import size as size
from cpreplicate.operations.inspect import Inspection, PackSummary, ReferenceRow
from cpreplicate.operations.sync.estimate import Estimate, Estimates
from cpreplicate.operations.sync.report import Report
from cpreplicate.operations.verify import Verification
from cpreplicate.output.streams import is_terminal, printable

_SHOWN_ACTIONS = 12  # of each verb, without --actions
_SHOWN_FAULTS = 20  # of each kind
_NOTED = 1.2  # times the time or the calls: a difference that is noted


def duration(seconds: float) -> str:
    """Return a time as people read it, such as `2 min 05 s`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"


def inspection(result: Inspection) -> str:
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
    head = ("operator", "name", "subtasks / max", "files", "bytes", "largest subtask")
    return columns(facts) + "\n\n" + table(head, rows)


def _packed(packed: PackSummary) -> str:
    live, dead = size(packed.live_bytes), size(packed.dead_bytes)
    return f"{packed.files} files in {packed.packs} packs; {live} live, {dead} dead"


def references(rows: Sequence[ReferenceRow]) -> str:
    """Return a row for each state handle."""
    cells = [
        (
            row.operator or "",
            "" if row.subtask is None else str(row.subtask),
            row.state,
            row.handle,
            str(row.size),
            "" if row.position is None else str(row.position),
            row.path or "",
        )
        for row in rows
    ]
    return table(("operator", "subtask", "state", "handle", "size", "position", "path"), cells)


def report(result: Report, every_action: bool) -> str:
    """Return a plan, or the result of a sync, with the restore command."""
    plan, restore = result.plan, result.restore
    facts = [*_plan_facts(plan), *_estimate_facts(result.estimates), ("result", _result(result))]
    parts = [columns(facts)]
    listed = actions(_verbs(plan), every_action)
    if listed and (every_action or result.runner is None):
        parts.append(listed)
    parts += [printable(f"warning: {warning}") for warning in result.warnings]
    if result.refusal is not None:  # nothing is, or will be, there to be restored
        return "\n\n".join(parts)
    if restore.command:
        is_there = result.committed or plan.empty
        when = "restore it with" if is_there else "once synced, restore it with"
        parts.append(lines([f"{when} ({restore.reason}):", f"    {restore.command}"]))
    else:
        parts.append(f"do not restore it: {restore.reason}")
    return "\n\n".join(parts)


def replicated(result: Report) -> str:
    """Return one line of what a service replicated."""
    plan = result.plan
    copied = f"{len(plan.copies)} files, {total(plan.copies)} bytes copied"
    others = f"{len(plan.keeps)} kept, {len(plan.deletes)} deleted"
    return f"{plan.checkpoint} replicated: {copied}, {others}, {result.seconds:.1f} s"


def verification(result: Verification) -> str:
    """Return whether a replica can be restored, and what is wrong if not."""
    if result.content:
        content = f", content of {result.compared} files (CRC32C)"
    else:
        content = "; not the content (--content)"
    facts = [
        ("replica", result.replica),
        ("checkpoint", f"chk-{result.checkpoint_id}, {result.files} files, {size(result.bytes)}"),
        ("checked", f"presence, extents, locations{content}"),
        ("restorable", "yes" if result.restorable else "NO"),
    ]
    faults = [
        *_first("missing", result.missing),
        *_first("short", result.short),
        *_first("corrupt", result.corrupt),
        *_first("outside the replica", result.outside),
        *_first("not compared, no CRC32C was recorded", result.uncompared),
    ]
    if result.outside:
        faults.append(
            "If the replica was moved by other means than cpreplicate, repair its paths with"
            " `cpreplicate relocate`"
        )
    if result.repair is not None:
        faults.append(f"Repair the replica with the options of its syncs: {result.repair}")
    if result.refused is not None:
        faults.append(f"warning: promote would refuse the replica: {result.refused}")
    return columns(facts) + ("\n" + lines(faults) if faults else "")


def _first(fault: str, paths: Sequence[str]) -> list[str]:
    shown = [f"{fault}: {path}" for path in paths[:_SHOWN_FAULTS]]
    hidden = len(paths) - len(shown)
    return [*shown, f"{fault}: … {hidden} more, see --output json"] if hidden else shown


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


def _verbs(plan: Plan) -> tuple[tuple[str, Sequence[Action]], ...]:
    repacks = (("repack", plan.repacks),) if plan.repacks else ()
    return (
        ("copy", plan.copies),
        *repacks,
        ("keep", plan.keeps),
        ("delete", plan.deletes),
    )


def actions(verbs: Iterable[tuple[str, Sequence[Action]]], every: bool) -> str:
    """Return a table with the first files of each verb, or with every file.

    The text is empty if there are no files.
    """
    rows: list[tuple[str, ...]] = []
    for name, all_actions in verbs:
        shown = all_actions if every else all_actions[:_SHOWN_ACTIONS]
        hidden = all_actions[len(shown) :]
        rows += [
            (action.action, size(action.bytes), action.target, action.reason) for action in shown
        ]
        if hidden:
            rows.append((name, size(total(hidden)), f"… {len(hidden)} more", "--actions lists all"))
    return table(("action", "bytes", "file in the replica", "reason"), rows) if rows else ""


def _skew(largest: int, whole: int, subtasks: int) -> str:
    if not whole or not subtasks:
        return ""
    return f"{size(largest)} ({largest * subtasks / whole:.1f} x mean)"


def columns(facts: Iterable[tuple[str, str]]) -> str:
    """Return names and values in two columns, one pair per line."""
    return lines(f"{name:<11} {value}" for name, value in facts)


def lines(texts: Iterable[str]) -> str:
    """Return texts one per line, with control characters escaped."""
    return "\n".join(map(printable, texts))


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """Return a table: with rich on a terminal, else in plain aligned columns."""
    rows = [tuple(map(printable, row)) for row in rows]
    return _rich_table(head, rows) if is_terminal(sys.stdout) else _plain_table(head, rows)


def _plain_table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in (head, *rows)
    )
    return "\n".join(line.rstrip() for line in lines)


def _rich_table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in head:
        table.add_column(title, overflow="fold")  # a truncated id or path is useless
    for row in rows:
        table.add_row(*map(Text, row))
    console = Console()
    with console.capture() as captured:
        console.print(table)
    return captured.get().rstrip("\n")
