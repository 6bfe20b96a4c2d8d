"""Results of `sweep`, `relocate` and `promote`, for people and for machines."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from cpreplicate.core.plan import total
from cpreplicate.operations.promote import Promotion, Starting
from cpreplicate.operations.relocate import Relocation
from cpreplicate.operations.sweep import Sweep
from cpreplicate.output import json as json_output
from cpreplicate.output import text
from cpreplicate.output.streams import printable

_SHOWN_LEFT = 12


def sweep_text(found: Sweep, every: bool) -> str:
    """What a sweep removes, or removed."""
    facts = [
        ("replica", f"{found.replica} (holds {', '.join(found.found.checkpoints)})"),
        ("files", f"{found.found.files} in all"),
        ("delete", f"{len(found.deletes)} files, {text.size(found.bytes)}"),
        *((f"left ({count})", why) for why, count in Counter(found.found.left.values()).items()),
        ("result", _sweep_result(found)),
    ]
    parts = [
        text.columns(facts),
        text.actions((("delete", found.deletes),), every) if every or not found.done else "",
    ]
    return "\n\n".join(
        [*filter(None, parts), *(printable(f"warning: {warning}") for warning in found.warnings)]
    )


def _sweep_result(found: Sweep) -> str:
    if not found.deletes:
        return f"nothing to do ({found.seconds:.1f} s)"
    if not found.done:
        return "nothing done; these are the orphans"
    where = f"moved to {found.trash}" if found.trash else "deleted"
    return f"{where} ({found.runner}, {found.seconds:.1f} s)"


def sweep_json(found: Sweep, every: bool) -> str:
    """`sweep --output json`."""
    result: dict[str, Any] = {
        "replica": found.replica,
        "checkpoints": list(found.found.checkpoints),
        "files": found.found.files,
        "delete": {"files": len(found.deletes), "bytes": total(found.deletes)},
        "left": dict(Counter(found.found.left.values())),
        "done": found.done,
        "trash": found.trash,
        "runner": found.runner,
        "seconds": round(found.seconds, 3),
        "warnings": list(found.warnings),
    }
    if every:
        result["actions"] = [action._asdict() for action in found.deletes]
    return json.dumps(result)


def relocation_text(done: Relocation) -> str:
    """What became of each checkpoint."""
    facts = [("replica", done.replica), *(("moved from", place) for place in done.moved_from)]
    if done.root != done.replica:
        facts.append(("for Flink at", done.root))
    for each in done.checkpoints:
        facts.append(
            (
                each.checkpoint,
                (
                    f"{'rewritten' if each.rewritten else 'left as it is'}; {each.paths}:"
                    f" {each.reason}"
                ),
            )
        )
    newest = done.checkpoints[0].restore
    how = text.lines(
        [
            f"restore {done.checkpoints[0].checkpoint} with ({newest.reason}):",
            f"    {newest.command}",
        ]
    )
    warnings = (printable(f"warning: {warning}") for warning in done.warnings)
    return "\n\n".join(
        [
            text.columns(facts),
            *warnings,
            how if newest.command else f"do not restore it: {newest.reason}",
        ]
    )


def relocation_json(done: Relocation) -> str:
    """`relocate --output json`."""
    return json.dumps({
        "replica": done.replica,
        "root": done.root,
        "moved_from": list(done.moved_from),
        "checkpoints": [
            {"checkpoint": each.checkpoint, "rewritten": each.rewritten, "paths": each.paths,
             "restore": {"claim_mode": each.restore.claim_mode, "command": each.restore.command}}
            for each in done.checkpoints
        ],
        "warnings": list(done.warnings),
    })  # fmt: skip


def promotion_text(done: Promotion) -> str:
    """How to start the job, or what the replica wants."""
    if done.starting is None:
        return (
            text.verification(done.verification)
            + "\n\nnot promoted: the replica was left as it was"
        )
    start = done.starting
    lines = [
        f"sealed {done.sealed}; start the job from it in one of these ways",
        f"({start.restore.reason}):",
        f"    {start.restore.command}",
        f"    POST /jars/<jar>/run {json.dumps(start.rest)}",
        "    FlinkDeployment (Kubernetes operator):",
        *(f"        {line}" for line in _operator(start)),
    ]
    return text.verification(done.verification) + "\n\n" + text.lines(lines)


def _operator(start: Starting) -> list[str]:
    lines = ["spec:", "  job:", f"    initialSavepointPath: {json.dumps(start.checkpoint)}"]
    if start.configuration:
        lines += [
            "  flinkConfiguration:",
            *(f"    {key}: {value}" for key, value in start.configuration.items()),
        ]
    return lines


def promotion_json(done: Promotion) -> str:
    """`promote --output json`."""
    start = done.starting
    return json.dumps({
        "replica": done.verification.replica,
        "checkpoint": done.checkpoint,
        "promoted": start is not None,
        "sealed": done.sealed,
        "restore": start and {"claim_mode": start.restore.claim_mode, "command": start.restore.command,
                              "rest": start.rest, "configuration": start.configuration},
        "verification": json.loads(json_output.verification(done.verification)),
    })  # fmt: skip
