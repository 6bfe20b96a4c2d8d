"""Results of `sweep`, `relocate` and `promote`, for people and for programs."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from cpreplicate.core.plan import total
from cpreplicate.core.start import yaml
from cpreplicate.operations.upkeep.promote import Promotion
from cpreplicate.operations.upkeep.relocate import Relocation
from cpreplicate.operations.upkeep.sweep import Sweep
from cpreplicate.operations.upkeep.unpack import Unpacked
from cpreplicate.output import text
from cpreplicate.output.json import document, timestamp, verification_object
from cpreplicate.output.streams import printable


def sweep_text(sweep: Sweep, every: bool) -> str:
    """Return what a sweep removes, or removed; with `every`, every file."""
    left = Counter(sweep.found.left.values())
    facts = [
        ("replica", f"{sweep.replica} (holds {', '.join(sweep.found.checkpoints)})"),
        ("files", f"{sweep.found.files} in all"),
        ("delete", f"{len(sweep.deletes)} files, {text.size(sweep.bytes)}"),
        *((f"left ({count})", reason) for reason, count in left.items()),
        ("result", _sweep_result(sweep)),
    ]
    parts = [text.columns(facts)]
    if every or not sweep.done:
        parts.append(text.actions((("delete", sweep.deletes),), every))
    parts += [printable(f"warning: {warning}") for warning in sweep.warnings]
    return "\n\n".join(filter(None, parts))


def _sweep_result(sweep: Sweep) -> str:
    if not sweep.deletes:
        return f"nothing to do ({sweep.seconds:.1f} s)"
    if not sweep.done:
        return "nothing done; these are the orphans"
    outcome = f"moved to {sweep.trash}" if sweep.trash else "deleted"
    return f"{outcome} ({sweep.runner}, {sweep.seconds:.1f} s)"


def sweep_json(sweep: Sweep, every: bool) -> str:
    """Return the result of `sweep --output json`; with `every`, every file."""
    result: dict[str, Any] = {
        "replica": sweep.replica,
        "checkpoints": list(sweep.found.checkpoints),
        "files": sweep.found.files,
        "delete": {"files": len(sweep.deletes), "bytes": total(sweep.deletes)},
        "left": dict(Counter(sweep.found.left.values())),
        "done": sweep.done,
        "trash": sweep.trash,
        "runner": sweep.runner,
        "seconds": round(sweep.seconds, 3),
        "warnings": list(sweep.warnings),
    }
    if every:
        result["actions"] = [action._asdict() for action in sweep.deletes]
    return document(result, sweep.seconds)


def relocation_text(relocation: Relocation) -> str:
    """Return what was done with each checkpoint, and how to restore the newest."""
    facts = [
        ("replica", relocation.replica),
        *(("moved from", location) for location in relocation.moved_from),
    ]
    if relocation.root != relocation.replica:
        facts.append(("for Flink at", relocation.root))
    if relocation.unpacked.files or relocation.unpacked.packs:
        facts.append(("unpacked", _unpacked(relocation.unpacked)))
    for checkpoint in relocation.checkpoints:
        outcome = "rewritten" if checkpoint.rewritten else "left as it is"
        facts.append((checkpoint.checkpoint, f"{outcome}; {checkpoint.paths}: {checkpoint.reason}"))
    newest = relocation.checkpoints[0]
    restore = newest.restore
    if restore.command:
        how = text.lines(
            [f"restore {newest.checkpoint} with ({restore.reason}):", f"    {restore.command}"]
        )
    else:
        how = f"do not restore it: {restore.reason}"
    warnings = (printable(f"warning: {warning}") for warning in relocation.warnings)
    return "\n\n".join([text.columns(facts), *warnings, how])


def _unpacked(unpacked: Unpacked) -> str:
    return f"{unpacked.files} files, {text.size(unpacked.bytes)}; {unpacked.packs} packs deleted"


def relocation_json(relocation: Relocation) -> str:
    """Return the result of `relocate --output json`."""
    checkpoints = [
        {
            "checkpoint": checkpoint.checkpoint,
            "checkpoint_completed": timestamp(checkpoint.completed),
            "rewritten": checkpoint.rewritten,
            "paths": checkpoint.paths,
            "restore": {
                "claim_mode": checkpoint.restore.claim_mode,
                "command": checkpoint.restore.command,
            },
        }
        for checkpoint in relocation.checkpoints
    ]
    return document(
        {
            "replica": relocation.replica,
            "root": relocation.root,
            "moved_from": list(relocation.moved_from),
            "checkpoints": checkpoints,
            "unpacked": {
                "files": relocation.unpacked.files,
                "bytes": relocation.unpacked.bytes,
                "packs": relocation.unpacked.packs,
            },
            "warnings": list(relocation.warnings),
        }
    )


def promotion_text(promotion: Promotion) -> str:
    """Return how to start the job, or what is wrong with the replica."""
    verification = text.verification(promotion.verification)
    start = promotion.starting
    warnings = [printable(f"warning: {warning}") for warning in promotion.warnings]
    if start is None:
        unchanged = "not promoted: the replica was left unchanged"
        return "\n\n".join([verification, *warnings, unchanged])
    how = text.lines(
        [
            f"sealed {promotion.sealed}; start the job from it in one of these ways",
            f"({start.restore.reason}):",
            f"    {start.restore.command}",
            f"    POST /jars/<jar>/run {json.dumps(start.rest)}",
            "    FlinkDeployment (Kubernetes operator):",
            *(f"        {line}" for line in yaml(start.deployment).splitlines()),
        ]
    )
    return "\n\n".join([verification, *warnings, how])


def promotion_json(promotion: Promotion) -> str:
    """Return the result of `promote --output json`."""
    start = promotion.starting
    restore = None
    if start is not None:
        restore = {
            "claim_mode": start.restore.claim_mode,
            "arguments": start.restore.arguments,
            "command": start.restore.command,
            "rest": start.rest,
            "configuration": start.configuration,
            "deployment": start.deployment,
            "snapshot": start.snapshot,
        }
    return document(
        {
            "replica": promotion.verification.replica,
            "checkpoint": promotion.checkpoint,
            "checkpoint_completed": timestamp(promotion.verification.completed),
            "promoted": start is not None,
            "sealed": promotion.sealed,
            "restore": restore,
            "warnings": list(promotion.warnings),
            "verification": verification_object(promotion.verification),
        }
    )
