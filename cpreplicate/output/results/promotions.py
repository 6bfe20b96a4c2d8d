"""The result of `promote --all`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

from cpreplicate.core.sizes import counted
from cpreplicate.operations.handover.promote_all import (
    JobPromotion,
    PromotionOfAll,
    PromotionOutcome,
)
from cpreplicate.output.json import document, timestamp
from cpreplicate.output.parts import cause_fields, ending, failure_lines, job_lines
from cpreplicate.output.results import Forms, kafka_check, promotion
from cpreplicate.output.text import duration, lines, table

_OUTCOMES: tuple[PromotionOutcome, ...] = get_args(PromotionOutcome)
_UNSEEN = "Whether its job ran on is not known: its source was not seen"
_HEAD = ("job", "checkpoint", "completed", "lag", "outcome")


def _text(report: PromotionOfAll) -> str:
    """Return a table, those that failed or lag first, and how each job is started."""
    counts = [f"{count} {outcome}" for outcome, count in report.counts(_OUTCOMES).items() if count]
    jobs = len(report.jobs) - report.count("not taken")
    total = f"{counted(jobs, 'job')}: {', '.join(counts)} ({report.seconds:.1f} s)"
    parts = [
        table(_HEAD, [_row(job) for job in report.jobs]),
        total,
        lines(failure_lines(report)),
        lines(_not_taken(report)),
        lines(_rebases(report)),
        lines(_commands(report)),
    ]
    return "\n\n".join(filter(None, parts))


def _row(job: JobPromotion) -> tuple[str, ...]:
    promoted = job.promotion
    completed = None if promoted is None else promoted.verification.completed
    return (
        job.name,
        "" if promoted is None else promoted.checkpoint,
        timestamp(completed) or "",
        promotion.UNKNOWN if job.lag is None else duration(job.lag),
        f"{job.outcome}, lagging" if job.is_lagging and not job.exit_code else job.outcome,
    )


def _not_taken(report: PromotionOfAll) -> Iterator[str]:
    """Yield a line for each replica of a job of which another one was taken."""
    for job in report.jobs:
        if job.outcome == "not taken":
            is_seen = job.seen is not None and job.seen.look.is_known
            unseen = "" if is_seen else f". {_UNSEEN}"
            yield f"{job.name}: {job.replica} was not taken: {job.why}{unseen}"


def _rebases(report: PromotionOfAll) -> Iterator[str]:
    """Yield what is in the way of each job at a Kafka, and what solves it."""
    for job in report.jobs:
        if job.not_at_kafka is not None:
            yield from (f"{job.name}: {line}" for line in kafka_check.lines_of(job.not_at_kafka))


def _commands(report: PromotionOfAll) -> Iterator[str]:
    for job in report.jobs:
        if job.promotion is not None and job.promotion.starting is not None:
            yield f"{job.name}: {job.promotion.starting.restore.command}"


def _json(report: PromotionOfAll) -> str:
    """Return the result of `promote --all --output json`."""
    counts = {
        outcome.replace(" ", "_"): count for outcome, count in report.counts(_OUTCOMES).items()
    }
    fields = {
        **counts,
        "seconds": round(report.seconds, 3),
        "causes": cause_fields(report),
        "jobs": [_object(job) for job in report.jobs],
    }
    return document(fields, report.seconds)


def _ndjson(report: PromotionOfAll) -> str:
    """Return the result of `promote --all --output ndjson`: an object per job."""
    return job_lines(report, _object, report.seconds)


def _object(job: JobPromotion) -> dict[str, Any]:
    return {
        "name": job.name,
        "replica": job.replica,
        "outcome": job.outcome.replace(" ", "_"),
        **ending(job),
        "lag_seconds": None if job.lag is None else round(job.lag, 3),
        "behind_newest_seconds": None if job.behind_newest is None else round(job.behind_newest, 3),
        "source_error": None if job.seen is None else job.seen.look.error,
        "is_lagging": job.is_lagging,
        "why": job.why,
        "kafka": kafka_check.fields(job.not_at_kafka),
        "promotion": None if job.promotion is None else promotion.fields(job.promotion),
    }


FORMS = Forms(_text, _json, _ndjson)
