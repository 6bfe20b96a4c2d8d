"""Results for machines: the stable JSON of `docs/json.md`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from cpreplicate.core.plan import Action, total
from cpreplicate.operations.inspect import Inspection, ReferenceRow
from cpreplicate.operations.sync import Report
from cpreplicate.operations.verify import Verification


def inspection(found: Inspection) -> str:
    """`inspect --output json`."""
    return json.dumps(asdict(found))


def rows(found: Iterable[ReferenceRow | Action], form: str) -> str:
    """Named tuples as objects: one a line for ndjson, an array for json."""
    objects = (json.dumps(row._asdict()) for row in found)
    return "\n".join(objects) if form == "ndjson" else f"[{', '.join(objects)}]"


def report(done: Report, actions: bool) -> str:
    """`diff|sync --output json`."""
    plan = done.plan
    result: dict[str, Any] = {
        "source": plan.source,
        "replica": plan.replica,
        "checkpoint": plan.checkpoint,
        "checkpoint_id": plan.checkpoint_id,
        "base_checkpoint_id": plan.base_checkpoint_id,
        "copy": _sum(plan.copies),
        "keep": _sum(plan.keeps),
        "delete": _sum(plan.deletes),
        "committed": done.committed,
        "undeleted": len(done.undeleted),
        "runner": done.runner,
        "seconds": round(done.seconds, 3),
        "paths": plan.paths_reported,
        "restore": {"claim_mode": done.restore.claim_mode, "command": done.restore.command},
        "warnings": list(done.warnings),
    }
    if actions:
        result["actions"] = [action._asdict() for action in plan.actions]
    return json.dumps(result)


def verification(found: Verification) -> str:
    """`verify --output json`."""
    result = asdict(found)
    return json.dumps({"replica": result.pop("replica"), "checkpoint_id": result.pop("checkpoint_id"),
                       "restorable": found.restorable, **result})  # fmt: skip


def _sum(actions: tuple[Action, ...]) -> dict[str, int]:
    return {"files": len(actions), "bytes": total(actions)}
