"""The result of `fleet`."""

from __future__ import annotations

from typing import Any, get_args

from cpreplicate.core.plan import Withdrawal
from cpreplicate.core.sizes import size
from cpreplicate.operations.jobs.fleet import FleetReport, JobResult, ResultStatus
from cpreplicate.operations.sync.report import named
from cpreplicate.output.json import document, timestamp
from cpreplicate.output.parts import warning_lines
from cpreplicate.output.results import Forms
from cpreplicate.output.results.report import fields, withdrawals
from cpreplicate.output.text import columns, lines, table

_STATUSES: tuple[ResultStatus, ...] = get_args(ResultStatus)
_LISTED: tuple[ResultStatus, ...] = ("replicated", "planned")
_HEAD = ("job", "priority", "checkpoint", "files", "bytes", "status")


def _text(report: FleetReport) -> str:
    """Return what was replicated and what failed, without the jobs that had nothing to do."""
    counts = _counts(report)
    facts = [(status, f"{count} jobs") for status, count in counts.items() if count]
    facts.append(("took", f"{report.seconds:.1f} s ({report.runner})"))
    listed = [job for job in report.jobs if job.status in _LISTED]
    with_gone = any(map(withdrawn, listed))
    rows = [(*_row(job), *([named(withdrawn(job))] if with_gone else [])) for job in listed]
    head = (*_HEAD, "withdraws") if with_gone else _HEAD
    failures = [
        f"{job.name}: exit {job.exit_code}: {job.error}"
        for job in report.jobs
        if job.status == "failed"
    ]
    parts = [
        columns(facts),
        table(head, rows) if rows else "",
        lines(warning_lines(_warnings(report))),
        lines(failures),
    ]
    return "\n\n".join(filter(None, parts))


def withdrawn(job: JobResult) -> tuple[Withdrawal, ...]:
    """Return the checkpoints that the plan of a job withdraws."""
    if job.report is not None:
        return job.report.plan.withdrawals
    return () if job.check is None else job.check.withdrawals


def _when_quiet(report: FleetReport) -> list[str] | None:
    is_shown = report.count("failed") or report.count("planned")
    return None if is_shown else _warnings(report)


def _json(report: FleetReport) -> str:
    """Return the result of `fleet --output json`."""
    result = {
        **_counts(report),
        "runner": report.runner,
        "seconds": round(report.seconds, 3),
        "jobs": [_object(job) for job in report.jobs],
    }
    return document(result, report.seconds)


def _ndjson(report: FleetReport) -> str:
    """Return the result of `fleet --output ndjson`: an object per job."""
    return "\n".join(document(_object(job), report.seconds) for job in report.jobs)


def _counts(report: FleetReport) -> dict[str, int]:
    return {status: report.count(status) for status in _STATUSES}


def _warnings(report: FleetReport) -> list[str]:
    results = [(job.name, job.report or job.check) for job in report.jobs]
    return [
        f"{name}: {warning}"
        for name, result in results
        if result is not None
        for warning in result.warnings
    ]


def _row(job: JobResult) -> tuple[str, ...]:
    check = job.check
    seen = ("",) * 3 if check is None else (check.checkpoint, str(check.files), size(check.bytes))
    return (job.name, str(job.priority), *seen, job.status)


def _object(job: JobResult) -> dict[str, Any]:
    result: dict[str, Any] = {
        "name": job.name,
        "source": job.source,
        "target_root": job.target_root,
        "priority": job.priority,
        "status": job.status,
        "exit_code": job.exit_code,
        "error": job.error,
    }
    if job.report is not None:
        result["report"] = fields(job.report)
    elif job.check is not None:
        looked = job.check._asdict()
        completed = timestamp(looked.pop("completed"))
        gone = withdrawals(looked.pop("withdrawals"))
        result["looked"] = {**looked, "checkpoint_completed": completed, "withdraw": gone}
    return result


FORMS = Forms(_text, _json, _ndjson, when_quiet=_when_quiet)
