"""The page of `switch`, and of its preview."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from cpreplicate.core.sizes import size
from cpreplicate.operations.handover.switch.request import JobSwitch, SwitchOutcome
from cpreplicate.operations.handover.switch.switch_all import SwitchOfAll
from cpreplicate.operations.inspect.overview import Overview
from cpreplicate.output.report.model import Chart, Column, DataTable, Page, Series
from cpreplicate.output.report.pages.words import (
    counted,
    failure_notes,
    joined,
    label,
    sentence,
    took,
)
from cpreplicate.output.results.switch import OUTCOMES, facts_of

_SHOWN = 20  # jobs in a chart
_WORDS: dict[SwitchOutcome, str] = {
    "switched": "was switched",
    "switched before": "was switched before",
    "can be switched": "can be switched",
    "promoted": "has ended, and its replica is promoted: you start it",
    "taken back": "runs where it ran",
    "failed": "is not switched",
}


def page(report: SwitchOfAll, _overview: Overview) -> Page:
    """Return the page of a switch of one job, or of many."""
    is_plan = all(job.preview is not None for job in report.jobs)
    notes = tuple(_notes(report))
    one = report.jobs[0] if len(report.jobs) == 1 else None
    return Page(
        title="switch: preview" if is_plan else "switch",
        answer=_answer(report),
        tone="bad" if report.exit_code else "notice" if notes else "good",
        facts=() if one is None else tuple(_facts(one)),
        notes=notes,
        charts=tuple(_charts(report)),
        tables=tuple(_tables(report)),
    )


def _answer(report: SwitchOfAll) -> str:
    if len(report.jobs) == 1:
        job = report.jobs[0]
        reason = "" if job.error is None else f": {job.error}"
        return sentence(f"job {job.name} {_WORDS[job.outcome]}{reason}{_stood_still(job)}")
    counts = report.counts(OUTCOMES)
    text = joined([f"{count:,} {outcome}" for outcome, count in counts.items() if count])
    return sentence(
        f"of {counted(len(report.jobs), 'job')}, {text}; it took {took(report.seconds)}"
    )


def _stood_still(job: JobSwitch) -> str:
    return "" if job.standstill is None else f"; it stood still for {took(job.standstill)}"


def _facts(job: JobSwitch) -> Iterator[tuple[str, str]]:
    if job.preview is not None:
        yield from facts_of(job, job.preview)
    for name, seconds in job.phases.items():
        yield name.replace("_", " "), f"{took(seconds)} after the end was asked for"


def _notes(report: SwitchOfAll) -> Iterator[str]:
    for job in report.jobs:
        refusals = () if job.preview is None else job.preview.refusals
        yield from (f"{job.name}: in the way: {each}" for each in refusals)
        yield from (f"{job.name}: {each}" for each in job.warnings)
    # what refuses a switch is above
    failed = [job for job in report.jobs if job.preview is None or not job.preview.refusals]
    yield from failure_notes(replace(report, jobs=tuple(failed)))


def _charts(report: SwitchOfAll) -> Iterator[Chart]:
    longest = sorted(report.jobs, key=lambda job: -(job.standstill or 0.0))[:_SHOWN]
    stood = [(job.name, job.standstill) for job in longest if job.standstill]
    if stood:
        yield Chart(
            "Standstill by job",
            f"The longest is {took(stood[0][1])}, of {stood[0][0]}.",
            [label(name) for name, _ in stood],
            (Series("standstill", [seconds for _, seconds in stood]),),
            unit="seconds",
        )
    largest = sorted(report.jobs, key=lambda job: -_behind(job))[:_SHOWN]
    lacking = [(job.name, _behind(job)) for job in largest if _behind(job)]
    if lacking:
        yield Chart(
            "Bytes to copy by job",
            f"The largest is {size(lacking[0][1])}, of {lacking[0][0]}.",
            [label(name) for name, _ in lacking],
            (Series("copy", [each for _, each in lacking]),),
        )


def _behind(job: JobSwitch) -> int:
    return 0 if job.preview is None else job.preview.behind.bytes


def _tables(report: SwitchOfAll) -> Iterator[DataTable]:
    yield _jobs(report)
    rounds = [(job.name, each) for job in report.jobs for each in job.rounds]
    if rounds:
        yield DataTable(
            "Rounds of copies",
            Column("job", [name for name, _ in rounds]),
            Column("checkpoint", [each.checkpoint for _, each in rounds]),
            Column("files", [each.files for _, each in rounds], "count"),
            Column("bytes", [each.bytes for _, each in rounds], "bytes"),
            Column("took", [each.seconds for _, each in rounds], "seconds"),
        )


def _jobs(report: SwitchOfAll) -> DataTable:
    jobs = report.jobs
    return DataTable(
        "Jobs",
        Column("job", [job.name for job in jobs]),
        Column("result", [job.outcome for job in jobs]),
        Column("checkpoint", [job.checkpoint for job in jobs]),
        Column("to copy", [_behind(job) or None for job in jobs], "bytes"),
        Column(
            "bytes", [None if job.preview is None else job.preview.bytes for job in jobs], "bytes"
        ),
        Column("standstill", [job.standstill for job in jobs], "seconds"),
        Column("expected standstill", [job.expected for job in jobs], "seconds"),
        Column("standstill at least", [job.least for job in jobs], "seconds"),
        Column("processed again", [job.repeated for job in jobs], "seconds"),
        Column("id before", [job.job_id for job in jobs]),
        Column("id now", [job.new_job for job in jobs]),
        Column("exit code", [job.exit_code for job in jobs], "count"),
        Column("error", [job.error for job in jobs]),
        Column("replica", [job.replica for job in jobs]),
    )
