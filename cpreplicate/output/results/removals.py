"""The result of `forget` of several replicas."""

from __future__ import annotations

from typing import Any

from cpreplicate.core.sizes import counted, size
from cpreplicate.operations.replicas.forget import JobRemoval, RemovalOfAll
from cpreplicate.output.json import document
from cpreplicate.output.parts import cause_fields, ending, failure_lines, job_lines
from cpreplicate.output.results import Forms
from cpreplicate.output.text import lines, table

_HEAD = ("replica", "outcome", "files", "bytes", "reason")


def _text(report: RemovalOfAll) -> str:
    """Return a table, those that failed first, and why they did."""
    rows = [_row(job) for job in report.jobs]
    parts = [table(_HEAD, rows), _total(report), lines(failure_lines(report))]
    return "\n\n".join(filter(None, parts))


def _row(job: JobRemoval) -> tuple[str, ...]:
    found = job.removal
    amounts = (str(found.files), size(found.bytes)) if found is not None else ("", "")
    return (job.name, job.outcome, *amounts, job.why)


def _total(report: RemovalOfAll) -> str:
    removals = [job.removal for job in report.jobs if job.removal is not None]
    verb = "would be removed" if report.is_dry_run else "removed"
    amount = size(sum(each.bytes for each in removals))
    return f"{len(removals)} of {counted(len(report.jobs), 'replica')} {verb}, {amount}"


def _json(report: RemovalOfAll) -> str:
    """Return the result of `forget --all --output json`."""
    fields = {
        "dry_run": report.is_dry_run,
        "refused": report.refused,
        "causes": cause_fields(report),
        "jobs": [_object(job) for job in report.jobs],
    }
    return document(fields)


def _ndjson(report: RemovalOfAll) -> str:
    """Return the result of `forget --all --output ndjson`: an object per replica."""
    return job_lines(report, _object)


def _object(job: JobRemoval) -> dict[str, Any]:
    found = job.removal
    return {
        "name": job.name,
        "replica": job.replica,
        "outcome": job.outcome,
        "why": job.why,
        "checkpoints": None if found is None else list(found.checkpoints),
        "files": None if found is None else found.files,
        "bytes": None if found is None else found.bytes,
        "others": None if found is None else dict(found.others),
        **ending(job),
    }


def _when_quiet(report: RemovalOfAll) -> tuple[str, ...] | None:
    return None if report.is_dry_run or report.exit_code else ()


FORMS = Forms(_text, _json, _ndjson, when_quiet=_when_quiet)
