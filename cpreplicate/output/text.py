"""Results for people: rich tables on a terminal, plain aligned columns otherwise."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from cpreplicate.core.plan import Action, Plan, total
from cpreplicate.operations.inspect import Inspection, ReferenceRow
from cpreplicate.operations.sync import Report
from cpreplicate.operations.verify import Verification
from cpreplicate.output.streams import is_terminal, printable

_SHOWN_ACTIONS = 12  # of each verb, unless all are asked for
_SHOWN_WANTS = 20  # of each kind
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def size(number: int) -> str:
    """Bytes as people read them: `3.4 MiB`."""
    value, unit = float(number), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{number} B" if unit == 0 else f"{value:.1f} {_UNITS[unit]}"


def inspection(found: Inspection) -> str:
    """What a checkpoint holds."""
    facts = [
        ("checkpoint", found.checkpoint),
        ("id", f"{found.checkpoint_id}, metadata v{found.version}"),
        (
            "state",
            (
                f"{found.files} files, {size(found.bytes)}; {size(found.inline_bytes)} inline;"
                f" {found.handles} handles"
            ),
        ),
        *(("foreign", f"{count} files of {group}") for group, count in found.foreign.items()),
    ]
    rows = [
        (each.id, each.name or each.uid or "", f"{each.subtasks} / {each.max_parallelism}", str(each.files),
         size(each.bytes), _skew(each.largest_subtask_bytes, each.bytes, each.subtasks))
        for each in found.operators
    ]  # fmt: skip
    head = ("operator", "name", "subtasks / max", "files", "bytes", "largest subtask")
    return columns(facts) + "\n\n" + table(head, rows)


def references(found: Sequence[ReferenceRow]) -> str:
    """Every state handle."""
    rows = [
        (row.operator or "", "" if row.subtask is None else str(row.subtask), row.state, row.handle,
         str(row.size), "" if row.position is None else str(row.position), row.path or "")
        for row in found
    ]  # fmt: skip
    return table(("operator", "subtask", "state", "handle", "size", "position", "path"), rows)


def report(done: Report, every_action: bool) -> str:
    """A plan, or what came of it."""
    plan = done.plan
    parts = [columns([*_plan_facts(plan), *_result_facts(done)])]
    listed = actions(_verbs(plan), every_action)
    if listed and (every_action or done.runner is None):
        parts.append(listed)
    parts += [printable(f"warning: {warning}") for warning in done.warnings]
    verb = "restore it with" if done.committed or plan.empty else "once synced, restore it with"
    how = lines([f"{verb} ({done.restore.reason}):", f"    {done.restore.command}"])
    parts.append(how if done.restore.command else f"do not restore it: {done.restore.reason}")
    return "\n\n".join(parts)


def verification(found: Verification) -> str:
    """Whether a replica can be restored, and what it wants if not."""
    content = (
        f", content of {found.compared} files (CRC32C)"
        if found.content
        else "; not the content (--content)"
    )
    facts = [
        ("replica", found.replica),
        ("checkpoint", f"chk-{found.checkpoint_id}, {found.files} files, {size(found.bytes)}"),
        ("checked", f"presence, extents, places{content}"),
        ("restorable", "yes" if found.restorable else "NO"),
    ]
    wants = [
        *_first("missing", found.missing),
        *_first("short", found.short),
        *_first("corrupt", found.corrupt),
        *_first("outside the replica", found.outside),
        *_first("not compared, no CRC32C was recorded", found.uncompared),
    ]
    if found.outside:
        wants.append(
            "if the replica was moved by other means than cpreplicate, `cpreplicate relocate` mends"
            " its paths"
        )
    return columns(facts) + ("\n" + lines(wants) if wants else "")


def _first(what: str, paths: Sequence[str]) -> list[str]:
    more = (
        [f"{what}: … {len(paths) - _SHOWN_WANTS} more, --output json tells all"]
        if len(paths) > _SHOWN_WANTS
        else []
    )
    return [f"{what}: {path}" for path in paths[:_SHOWN_WANTS]] + more


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
        *(
            (name, f"{len(actions)} files, {size(total(actions))}")
            for name, actions in _verbs(plan)
        ),
        ("paths", f"{plan.paths_reported}: {plan.paths_reason}"),
    ]


def _result_facts(done: Report) -> list[tuple[str, str]]:
    if done.plan.empty:
        return [
            (
                "result",
                f"nothing to do, the replica holds {done.plan.checkpoint} ({done.seconds:.1f} s)",
            )
        ]
    if done.runner is None:
        return [("result", "nothing done; this is the plan")]
    what = (
        f"committed {done.plan.checkpoint}"
        if done.committed
        else "cleaned up; the checkpoint was committed before"
    )
    left = f"; {len(done.undeleted)} files are left to sweep, or to watch" if done.undeleted else ""
    return [("result", f"{what} ({done.runner}, {done.seconds:.1f} s){left}")]


def _verbs(plan: Plan) -> tuple[tuple[str, tuple[Action, ...]], ...]:
    return (("copy", plan.copies), ("keep", plan.keeps), ("delete", plan.deletes))


def actions(verbs: Iterable[tuple[str, tuple[Action, ...]]], every: bool) -> str:
    """The first files of each verb, or every one; empty if there are none."""
    rows: list[tuple[str, ...]] = []
    for name, found in verbs:
        shown = found if every else found[:_SHOWN_ACTIONS]
        rows += [
            (action.action, size(action.bytes), action.target, action.reason) for action in shown
        ]
        if len(found) > len(shown):
            hidden = found[len(shown) :]
            rows.append((name, size(total(hidden)), f"… {len(hidden)} more", "--actions shows all"))
    return table(("action", "bytes", "file in the replica", "reason"), rows) if rows else ""


def _skew(largest: int, whole: int, subtasks: int) -> str:
    if not whole or not subtasks:
        return ""
    return f"{size(largest)} ({largest * subtasks / whole:.1f} x mean)"


def columns(facts: Iterable[tuple[str, str]]) -> str:
    """Names and values below each other."""
    return lines(f"{name:<11} {value}" for name, value in facts)


def lines(texts: Iterable[str]) -> str:
    """Texts below each other, each on one line."""
    return "\n".join(map(printable, texts))


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
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
        table.add_column(title, overflow="fold")  # an id or path that is cut short is of no use
    for row in rows:
        table.add_row(*map(Text, row))
    console = Console()
    with console.capture() as captured:
        console.print(table)
    return captured.get().rstrip("\n")
