"""The result of `fleet`."""

from __future__ import annotations

import json
from typing import Any

from cpreplicate.operations.fleet import FleetReport, JobResult, Status
from cpreplicate.output import json as json_output
from cpreplicate.output.text import columns, lines, size, table

_STATUSES: tuple[Status, ...] = ("replicated", "current", "empty", "skipped", "planned", "failed")


def fleet_text(done: FleetReport) -> str:
    """What was done, and what failed; not what had nothing to do."""
    facts = [(status, f"{count} jobs") for status in _STATUSES if (count := done.count(status))]
    parts = [columns([*facts, ("took", f"{done.seconds:.1f} s ({done.runner})")])]
    told = [job for job in done.jobs if job.status in ("replicated", "planned")]
    if told:
        parts.append(
            table(
                ("job", "priority", "checkpoint", "files", "bytes", "status"),
                [_row(job) for job in told],
            )
        )
    failed = [
        f"{job.name}: exit {job.exit_code}: {job.error}"
        for job in done.jobs
        if job.status == "failed"
    ]
    warnings = [
        f"warning: {job.name}: {text}"
        for job in done.jobs
        if job.report
        for text in job.report.warnings
    ]
    return "\n\n".join(part for part in (*parts, lines(warnings), lines(failed)) if part)


def fleet_json(done: FleetReport) -> str:
    """`fleet --output json`."""
    counts = {status: done.count(status) for status in _STATUSES}
    return json.dumps(
        {
            **counts,
            "runner": done.runner,
            "seconds": round(done.seconds, 3),
            "jobs": [_job(job) for job in done.jobs],
        }
    )


def fleet_ndjson(done: FleetReport) -> str:
    """`fleet --output ndjson`: an object a job."""
    return "\n".join(json.dumps(_job(job)) for job in done.jobs)


def _row(job: JobResult) -> tuple[str, ...]:
    files, bytes_ = (job.check.files, size(job.check.bytes)) if job.check else ("", "")
    return (
        job.name,
        str(job.priority),
        job.check.checkpoint if job.check else "",
        str(files),
        bytes_,
        job.status,
    )


def _job(job: JobResult) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": job.name, "source": job.source, "target_root": job.target_root, "priority": job.priority,
        "status": job.status, "exit_code": job.exit_code, "error": job.error,
    }  # fmt: skip
    if job.report is not None:
        found["report"] = json.loads(json_output.report(job.report, actions=False))
    elif job.check is not None:
        found["looked"] = job.check._asdict()
    return found
