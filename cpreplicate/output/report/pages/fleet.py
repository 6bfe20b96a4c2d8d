"""The page of `fleet`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import get_args

from cpreplicate.core.sizes import size
from cpreplicate.operations.inspect.overview import Overview
from cpreplicate.operations.jobs.fleet import FleetReport, JobReplication, ReplicationOutcome
from cpreplicate.operations.sync.report import named
from cpreplicate.output.json import timestamp
from cpreplicate.output.report.model import Chart, Column, DataTable, Page, Series, Value
from cpreplicate.output.report.pages.words import counted, failure_notes, joined, label, took
from cpreplicate.output.results.fleet import withdrawn
from cpreplicate.output.text import duration

_OUTCOMES: tuple[ReplicationOutcome, ...] = get_args(ReplicationOutcome)
_WORDS = {
    "replicated": "replicated",
    "current": "current",
    "empty": "without a checkpoint",
    "skipped": "skipped",
    "planned": "to be replicated",
    "failed": "failed",
}
_SHOWN = 20  # jobs in a chart


def page(report: FleetReport, _overview: Overview) -> Page:
    """Return the page of a run of a fleet, or of its plan, the jobs that failed first."""
    report = replace(report, jobs=tuple(sorted(report.jobs, key=lambda job: job.exit_code == 0)))
    failed, notes = report.count("failed"), tuple(_notes(report))
    return Page(
        title="fleet: plan" if report.count("planned") else "fleet",
        answer=_answer(report),
        tone="bad" if failed else "notice" if notes else "good",
        facts=tuple(_facts(report)),
        notes=notes,
        charts=tuple(_charts(report)),
        tables=(_jobs(report),),
    )


def _answer(report: FleetReport) -> str:
    counts = [(count, _WORDS[outcome]) for outcome, count in report.counts(_OUTCOMES).items()]
    text = joined([f"{count:,} {word}" for count, word in counts if count])
    whole = sum(_bytes(job) for job in report.jobs)
    is_plan = report.count("planned") and not report.count("replicated")
    moved = f"; {size(whole)} {'are to be' if is_plan else 'were'} copied" if whole else ""
    gone = sum(len(withdrawn(job)) for job in report.jobs)
    moved += f"; {counted(gone, 'checkpoint')} withdrawn" if gone else ""
    of_jobs = f"of {counted(len(report.jobs), 'job')}, " if len(report.jobs) else ""
    answer = f"{of_jobs}{text or 'there is no job'}{moved}; it took {took(report.seconds)}."
    return answer[:1].upper() + answer[1:]


def _bytes(job: JobReplication) -> int:
    """Return what was copied, or is to be."""
    return job.copies.bytes


def _facts(report: FleetReport) -> Iterator[tuple[str, str]]:
    yield "runner", report.runner
    if report.expected is not None:
        for name, (count, whole) in (("copy", report.copies), ("delete", report.deletes)):
            yield name, f"{counted(count, 'file')}, {size(whole)}"
        yield (
            "expected",
            f"about {duration(max(1.0, report.expected.seconds))} ({report.expected.runner})",
        )
    yield "took", took(report.seconds)


def _notes(report: FleetReport) -> Iterator[str]:
    yield from failure_notes(report)
    for job in report.jobs:
        for warning in getattr(job.report or job.check, "warnings", ()):
            yield f"{job.name}: {warning}"


def _charts(report: FleetReport) -> Iterator[Chart]:
    counts = {_WORDS[outcome]: count for outcome, count in report.counts(_OUTCOMES).items()}
    shown = {word: count for word, count in counts.items() if count}
    if shown:
        yield Chart(
            "Jobs by result",
            f"{joined([f'{count:,} {word}' for word, count in shown.items()])}.",
            list(shown),
            (Series("jobs", list(shown.values())),),
            unit="count",
        )
    largest = sorted(report.jobs, key=_bytes, reverse=True)[:_SHOWN]
    copied = [job for job in largest if _bytes(job)]
    if copied:
        yield Chart(
            "Bytes copied by job",
            f"The largest is {copied[0].name} with {size(_bytes(copied[0]))}.",
            [label(job.name) for job in copied],
            (Series("copied", [_bytes(job) for job in copied]),),
        )


def _jobs(report: FleetReport) -> DataTable:
    jobs = report.jobs
    return DataTable(
        "Jobs",
        Column("job", [job.name for job in jobs]),
        Column("result", [_WORDS[job.outcome] for job in jobs]),
        Column("checkpoint", [_checkpoint(job) for job in jobs]),
        Column("completed", [_completed(job) for job in jobs], "time"),
        Column("copied", [_bytes(job) for job in jobs], "bytes"),
        Column("files copied", [job.copies.files or None for job in jobs], "count"),
        Column("files deleted", [job.deletes.files or None for job in jobs], "count"),
        Column("withdraws", [named(withdrawn(job)) or None for job in jobs]),
        Column("seconds", [_seconds(job) for job in jobs], "seconds"),
        Column("priority", [job.priority for job in jobs], "count"),
        Column("exit code", [job.exit_code for job in jobs], "count"),
        Column("error", [job.error for job in jobs]),
        Column("source", [job.source for job in jobs]),
        Column("target", [job.target_root for job in jobs]),
    )


def _checkpoint(job: JobReplication) -> str | None:
    if job.report is not None:
        return job.report.plan.checkpoint
    return None if job.check is None else job.check.checkpoint


def _completed(job: JobReplication) -> str | None:
    known = job.report or job.check
    return None if known is None else timestamp(known.completed)


def _seconds(job: JobReplication) -> Value:
    return None if job.report is None else job.report.seconds
