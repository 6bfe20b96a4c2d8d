"""The result of `fleet`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

from cpreplicate.core.plan import Withdrawal
from cpreplicate.core.sizes import counted, size
from cpreplicate.operations.jobs.fleet import FleetReport, JobReplication, ReplicationOutcome
from cpreplicate.operations.sync.report import named
from cpreplicate.output.json import document, timestamp
from cpreplicate.output.parts import (
    cause_fields,
    ending,
    failure_lines,
    job_lines,
    warning_lines,
)
from cpreplicate.output.results import Forms
from cpreplicate.output.results.report import fields, withdrawals
from cpreplicate.output.text import columns, duration, lines, table

_OUTCOMES: tuple[ReplicationOutcome, ...] = get_args(ReplicationOutcome)
_LISTED: tuple[ReplicationOutcome, ...] = ("replicated", "planned")
_HEAD = ("job", "priority", "checkpoint", "files", "bytes", "status")


def _text(report: FleetReport) -> str:
    """Return what was replicated and what failed, without the jobs that had nothing to do."""
    counts = report.counts(_OUTCOMES)
    facts = [(outcome, counted(count, "job")) for outcome, count in counts.items() if count]
    if report.elsewhere:
        facts.append(
            (
                "shard",
                f"{report.shard}: {counted(report.elsewhere, 'job is', 'jobs are')} in other"
                " shards",
            )
        )
    facts += _amounts(report)
    facts.append(("took", f"{report.seconds:.1f} s ({report.runner})"))
    listed = [job for job in report.jobs if job.outcome in _LISTED]
    with_gone = any(map(withdrawn, listed))
    rows = [(*_row(job), *([named(withdrawn(job))] if with_gone else [])) for job in listed]
    head = (*_HEAD, "withdraws") if with_gone else _HEAD
    parts = [
        columns(facts),
        table(head, rows) if rows else "",
        lines(warning_lines(_warnings(report))),
        lines(failure_lines(report)),
    ]
    return "\n\n".join(filter(None, parts))


def _amounts(report: FleetReport) -> Iterator[tuple[str, str]]:
    """Yield what was copied and deleted of all jobs, or is to be, and how long that may take."""
    for name, (count, sum_of_bytes) in (("copy", report.copies), ("delete", report.deletes)):
        if count or report.expected is not None:
            yield name, f"{counted(count, 'file')}, {size(sum_of_bytes)}"
    if report.expected is not None and (report.copies.files or report.deletes.files):
        yield (
            "expected",
            f"about {duration(max(1.0, report.expected.seconds))} ({report.expected.runner})",
        )


def withdrawn(job: JobReplication) -> tuple[Withdrawal, ...]:
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
        **report.counts(_OUTCOMES),
        "shard": str(report.shard),
        "in_other_shards": report.elsewhere,
        "runner": report.runner,
        "seconds": round(report.seconds, 3),
        "copy": report.copies._asdict(),
        "delete": report.deletes._asdict(),
        "expected": _expected(report),
        "causes": cause_fields(report),
        "jobs": [_object(job) for job in report.jobs],
    }
    return document(result, report.seconds)


def _expected(report: FleetReport) -> dict[str, Any] | None:
    expected = report.expected
    if expected is None:
        return None
    return {"runner": expected.runner, "seconds": round(expected.seconds, 3)}


def _ndjson(report: FleetReport) -> str:
    """Return the result of `fleet --output ndjson`: an object per job."""
    return job_lines(report, _object, report.seconds)


def _warnings(report: FleetReport) -> list[str]:
    results = [(job.name, job.report or job.check) for job in report.jobs]
    return [
        f"{name}: {warning}"
        for name, result in results
        if result is not None
        for warning in result.warnings
    ]


def _row(job: JobReplication) -> tuple[str, ...]:
    check = job.check
    seen = ("",) * 3 if check is None else (check.checkpoint, str(check.files), size(check.bytes))
    return (job.name, str(job.priority), *seen, job.outcome)


def _object(job: JobReplication) -> dict[str, Any]:
    result: dict[str, Any] = {
        "name": job.name,
        "source": job.source,
        "target_root": job.target_root,
        "replica": job.replica,
        "priority": job.priority,
        "status": job.outcome,
        **ending(job),
    }
    if job.report is not None:
        result["report"] = fields(job.report)
    elif job.check is not None:
        looked = job.check._asdict()
        del looked["replica"]
        completed = timestamp(looked.pop("completed"))
        gone = withdrawals(looked.pop("withdrawals"))
        result["looked"] = {**looked, "checkpoint_completed": completed, "withdraw": gone}
    return result


FORMS = Forms(_text, _json, _ndjson, when_quiet=_when_quiet)
