"""The result of `unseal --all`."""

from __future__ import annotations

from typing import Any

from cpreplicate.operations.handover.unseal_all import JobUnsealing, UnsealingOfAll
from cpreplicate.output.json import document
from cpreplicate.output.parts import cause_fields, ending, failure_lines, job_lines
from cpreplicate.output.results import Forms
from cpreplicate.output.text import lines, table

_HEAD = ("job", "sealed", "outcome")


def _text(report: UnsealingOfAll) -> str:
    """Return a table, those that stay sealed first, and why they do."""
    rows = [(job.name, job.sealed, job.outcome) for job in report.jobs]
    earlier = [
        f"{job.name}: {job.replica} was sealed before, {job.sealed}, and was left"
        for job in report.earlier
    ]
    looked = ["no job was looked at (--no-job-uses-it)"] if rows else []
    parts = [
        table(_HEAD, rows) if rows else "",
        lines([*looked, *earlier]),
        lines(failure_lines(report)),
    ]
    return "\n\n".join(filter(None, parts))


def _json(report: UnsealingOfAll) -> str:
    """Return the result of `unseal --all --output json`."""
    fields = {
        "dry_run": report.is_dry_run,
        "left": len(report.earlier),
        "causes": cause_fields(report),
        "jobs": [_object(job) for job in report.jobs],
    }
    return document(fields)


def _ndjson(report: UnsealingOfAll) -> str:
    """Return the result of `unseal --all --output ndjson`: an object per replica."""
    return job_lines(report, _object)


def _object(job: JobUnsealing) -> dict[str, Any]:
    return {"name": job.name, "replica": job.replica, "sealed": job.sealed, **ending(job)}


def _when_quiet(report: UnsealingOfAll) -> tuple[str, ...] | None:
    return None if report.is_dry_run or report.exit_code else ()


FORMS = Forms(_text, _json, _ndjson, when_quiet=_when_quiet)
