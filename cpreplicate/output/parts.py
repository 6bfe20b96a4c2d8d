"""What results of several operations have in common: actions, warnings, how to restore."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from cpreplicate.core.plan import Action, total
from cpreplicate.core.restore import Restore
from cpreplicate.core.retention import Retention, Stated
from cpreplicate.core.sizes import counted, size
from cpreplicate.core.start import Starting, yaml
from cpreplicate.operations.change.change import some
from cpreplicate.operations.change.job_result import JobResult, JobResults, Result
from cpreplicate.output.json import document, timestamp
from cpreplicate.output.streams import printable
from cpreplicate.output.text import lines, table

_SHOWN_ACTIONS = 12  # of each verb, without --actions


def action_table(verbs: Iterable[tuple[str, Sequence[Action]]], every: bool) -> str:
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


def failure_lines(results: JobResults[Any]) -> Iterator[str]:
    """Yield what failed: what has one cause stands once, with the names of its jobs."""
    for jobs in results.causes:
        first = jobs[0]
        yield from which_of_one_cause([job.name for job in jobs], "job")
        yield f"{first.name}: exit {first.exit_code}: {first.error}"


def which_of_one_cause(names: Sequence[str], noun: str) -> list[str]:
    """Return the line in front of a cause that several have, with some of their names."""
    return [f"{counted(len(names), noun)}, one cause: {some(names)}"] if len(names) > 1 else []


def cause_fields(results: JobResults[Any]) -> list[dict[str, Any]]:
    """Return the JSON objects of what failed, those of one cause together."""
    return [{**ending(jobs[0]), "jobs": [job.name for job in jobs]} for jobs in results.causes]


def job_lines(
    results: JobResults[Result],
    fields: Callable[[Result], Mapping[str, Any]],
    seconds: float | None = None,
) -> str:
    """Return a JSON document for each job, one per line; `seconds` are as of `document`."""
    return "\n".join(document(fields(job), seconds) for job in results.jobs)


def ending(job: JobResult[Any]) -> dict[str, Any]:
    """Return the fields of how the command for one job would have ended."""
    return {"exit_code": job.exit_code, "error": job.error}


def totals(actions: Sequence[Action]) -> dict[str, int]:
    """Return the JSON object of how many files and bytes actions are about."""
    return {"files": len(actions), "bytes": total(actions)}


def warning_lines(warnings: Iterable[str]) -> list[str]:
    """Return a line for each warning."""
    return [printable(f"warning: {warning}") for warning in warnings]


def retention_fields(stated: Stated | None) -> dict[str, Any] | None:
    """Return the JSON object of a policy, by what it was stated, and when."""
    if stated is None:
        return None
    by, time = str(stated.by), timestamp(stated.time)
    return {**retention_amounts(stated.retention), "stated_by": by, "stated": time}


def retention_amounts(retention: Retention) -> dict[str, Any]:
    """Return the fields of which points a policy keeps."""
    return {
        "options": str(retention),
        "last": max(retention.last, 1),
        "within_seconds": retention.within,
        "hourly": retention.hourly,
        "daily": retention.daily,
    }


def restore_text(restore: Restore, introduction: str) -> str:
    """Return how to restore a checkpoint, or why not to."""
    if not restore.command:
        return f"do not restore it: {restore.reason}"
    return lines([f"{introduction} ({restore.reason}):", f"    {restore.command}"])


def restore_fields(restore: Restore) -> dict[str, str | None]:
    """Return the JSON object of how to restore a checkpoint."""
    return {"claim_mode": restore.claim_mode, "command": restore.command}


def start_lines(start: Starting) -> list[str]:
    """Return the ways to start a job from a checkpoint, as a text has them."""
    return [
        f"    {start.restore.command}",
        f"    POST /jars/<jar>/run {json.dumps(start.rest)}",
        f"    {start.application}",
        "    FlinkDeployment (Kubernetes operator):",
        *(f"        {line}" for line in yaml(start.deployment).splitlines()),
    ]


def starting_fields(start: Starting) -> dict[str, Any]:
    """Return the JSON object of all the ways to start a job from a checkpoint."""
    return {
        "claim_mode": start.restore.claim_mode,
        "arguments": start.restore.arguments,
        "command": start.restore.command,
        "rest": start.rest,
        "configuration": start.configuration,
        "deployment": start.deployment,
        "snapshot": start.snapshot,
    }
