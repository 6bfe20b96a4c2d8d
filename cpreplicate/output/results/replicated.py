"""What a service of many jobs prints of each checkpoint that it replicated."""

from __future__ import annotations

from cpreplicate.core.plan import total
from cpreplicate.core.sizes import counted, size
from cpreplicate.operations.jobs.attempt import Replicated
from cpreplicate.output.json import document
from cpreplicate.output.results import Forms
from cpreplicate.output.results.report import fields


def _text(replicated: Replicated) -> str:
    """Return one line of what was replicated."""
    report, plan = replicated.report, replicated.report.plan
    copied = f"{counted(len(plan.copies), 'file')}, {size(total(plan.copies))} copied"
    others = f"{len(plan.keeps)} kept, {len(plan.deletes)} deleted, {report.seconds:.1f} s"
    return f"{replicated.label}: {plan.checkpoint} replicated: {copied}, {others}"


def _json(replicated: Replicated) -> str:
    """Return the object of the report, with the name of the job."""
    report = replicated.report
    return document({"job": replicated.job, **fields(report)}, report.seconds)


FORMS = Forms(_text, _json, ndjson=_json, is_narrated=True)
