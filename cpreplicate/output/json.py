"""Results for programs: the stable JSON of `docs/json.md`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from cpreplicate.core.plan import Action, total
from cpreplicate.operations.inspect import Inspection, ReferenceRow
from cpreplicate.operations.sync.estimate import Estimate, Estimates
from cpreplicate.operations.sync.report import Report
from cpreplicate.operations.verify import Verification
from cpreplicate.output import run

_SCHEMA = 1  # the version of the documents; it rises when a field is renamed or removed


def document(fields: Mapping[str, Any], seconds: float | None = None) -> str:
    """Return a JSON document with its version, and when it was started and finished.

    It took `seconds`; by default, all the time since the command started.
    """
    finished = time.time()
    started = run.current().started if seconds is None else finished - seconds
    head = {
        "schema": _SCHEMA,
        "started": run.timestamp(started),
        "finished": run.timestamp(finished),
    }
    return json.dumps({**head, **fields})


def timestamp(seconds: float | None) -> str | None:
    """Return seconds since the epoch as ISO 8601 in UTC, with milliseconds; None stays None."""
    return None if seconds is None else run.timestamp(seconds)


def inspection_json(inspection: Inspection) -> str:
    """Return the result of `inspect --output json`."""
    result = asdict(inspection)
    completed = timestamp(result.pop("completed"))
    return document({**result, "checkpoint_completed": completed})


def rows_json(rows: Iterable[ReferenceRow | Action], form: str) -> str:
    """Return rows as JSON objects: one per line for ndjson, an array for json."""
    objects = (json.dumps(row._asdict()) for row in rows)
    return "\n".join(objects) if form == "ndjson" else f"[{', '.join(objects)}]"


def report_json(report: Report, actions: bool) -> str:
    """Return the result of `diff` or `sync --output json`; with `actions`, every file."""
    return document(report_object(report, actions), report.seconds)


def replicated_json(job: str, report: Report) -> str:
    """Return the object that a service prints for a checkpoint that it replicated."""
    return document({"job": job, **report_object(report, actions=False)}, report.seconds)


def report_object(report: Report, actions: bool) -> dict[str, Any]:
    """Return the object that `report_json` prints."""
    plan = report.plan
    result: dict[str, Any] = {
        "source": plan.source,
        "replica": plan.replica,
        "checkpoint": plan.checkpoint,
        "checkpoint_id": plan.checkpoint_id,
        "checkpoint_completed": timestamp(report.completed),
        "base_checkpoint_id": plan.base_checkpoint_id,
        "copy": _totals(plan.copies),
        "packed": _totals(tuple(action for action in plan.copies if action.target in plan.packed)),
        "copied_within_target": _totals(plan.reused_copies),
        "repack": _totals(plan.repacks),
        "keep": _totals(plan.keeps),
        "delete": _totals(plan.deletes),
        "committed": report.committed,
        "undeleted": len(report.undeleted),
        "runner": report.runner,
        "seconds": round(report.seconds, 3),
        "paths": plan.paths_reported,
        "restore": {"claim_mode": report.restore.claim_mode, "command": report.restore.command},
        "warnings": list(report.warnings),
        "refused": None if report.refusal is None else str(report.refusal),
        "estimate": _estimates(report.estimates),
    }
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


def verification_json(verification: Verification) -> str:
    """Return the result of `verify --output json`."""
    return document(verification_object(verification))


def verification_object(verification: Verification) -> dict[str, Any]:
    """Return the object that `verification_json` prints."""
    result = asdict(verification)
    del result["metadata"]
    return {
        "replica": result.pop("replica"),
        "checkpoint_id": result.pop("checkpoint_id"),
        "checkpoint_completed": timestamp(result.pop("completed")),
        "restorable": verification.restorable,
        **result,
    }


def _totals(actions: Sequence[Action]) -> dict[str, int]:
    return {"files": len(actions), "bytes": total(actions)}
