"""The result of `switch`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, get_args

from cpreplicate.core import sizes
from cpreplicate.operations.handover.switch.request import JobSwitch, Preview, Round, SwitchOutcome
from cpreplicate.operations.handover.switch.switch_all import SwitchOfAll
from cpreplicate.output.json import document
from cpreplicate.output.parts import (
    cause_fields,
    failure_lines,
    start_lines,
    starting_fields,
    warning_lines,
)
from cpreplicate.output.results import Forms
from cpreplicate.output.text import columns, lines, table

OUTCOMES: tuple[SwitchOutcome, ...] = get_args(SwitchOutcome)
_SHOWN_SECONDS = 0.1
_HEAD = ("job", "checkpoint", "copied at last", "standstill", "outcome")


def _text(report: SwitchOfAll) -> str:
    """Return a table of the jobs, then what is known of each."""
    counts = [f"{count} {outcome}" for outcome in OUTCOMES if (count := report.count(outcome))]
    parts = [
        table(_HEAD, [_row(job) for job in report.jobs]),
        f"{sizes.counted(len(report.jobs), 'job')}: {', '.join(counts)} ({report.seconds:.1f} s)",
    ]
    for job in report.jobs:
        parts += _of_job(job)
    parts.append(lines(failure_lines(report)))
    return "\n\n".join(filter(None, parts))


def _row(job: JobSwitch) -> tuple[str, ...]:
    last = job.rounds[-1] if job.rounds else None
    return (
        job.name,
        job.checkpoint or "",
        "" if last is None else sizes.size(last.bytes),
        "" if job.standstill is None else f"{job.standstill:.1f} s",
        job.outcome,
    )


def _of_job(job: JobSwitch) -> Iterator[str]:
    if job.preview is not None:
        yield _of_preview(job, job.preview)
    if job.outcome == "switched":
        yield columns([("job", job.name), *_facts(job)])
    if job.outcome == "promoted" and job.starting is not None:
        yield lines(
            [
                f"{job.name} has ended, and its replica is sealed. Start it in one of these ways:",
                *start_lines(job.starting),
            ]
        )
    yield from warning_lines(job.warnings)


def _facts(job: JobSwitch) -> Iterator[tuple[str, str]]:
    yield "runs as", str(job.new_job)
    yield "replica", f"{job.replica}/{job.checkpoint}"
    names = [f"{name.replace('_', ' ')} {seconds:.1f} s" for name, seconds in job.phases.items()]
    yield "since stop", ", ".join(names)
    if job.repeated is not None:
        yield "repeated", f"at most {job.repeated:.1f} s of records are processed again"


def facts_of(job: JobSwitch, seen: Preview) -> list[tuple[str, str]]:
    """Return what a switch would do, each fact with its name."""
    facts = [
        ("job", f"{seen.name}, {seen.job_id}, of Flink {seen.origin_version}"),
        ("directory", seen.directory),
        ("replica", seen.replica),
        ("behind", behind(seen)),
        ("withdraws", ", ".join(seen.withdraws) or "no point"),
        ("space", seen.space or "not known"),
        ("claim mode", str(seen.starting.restore.claim_mode or "Flink's own")),
    ]
    if seen.slots is not None:
        needed, free = seen.slots
        facts.append(("slots", f"{needed} needed, {free} free at Flink {seen.target_version}"))
    facts.append(("jar", seen.jar or "you start it"))
    facts.append(("start", start(seen)))
    facts.append(("way back", seen.way_back or "you start it again"))
    if seen.kafka is not None:
        facts.append(("kafka", seen.kafka))
    facts.append(("standstill", expected(job)))
    return facts


def _of_preview(job: JobSwitch, seen: Preview) -> str:
    """Return what a switch would do, and what is in its way."""
    refusals = [f"in the way: {reason}" for reason in seen.refusals]
    return "\n".join(filter(None, [columns(facts_of(job, seen)), lines(refusals)]))


def behind(seen: Preview) -> str:
    """Return how much of the newest checkpoint a replica lacks."""
    lacks = f"{sizes.counted(seen.behind.files, 'file')}, {sizes.size(seen.behind.bytes)}"
    return (
        f"{lacks} of {seen.newest}, which has {sizes.counted(seen.files, 'file')},"
        f" {sizes.size(seen.bytes)}"
    )


def start(seen: Preview) -> str:
    """Return how the job will be started; which checkpoint is the last is not known yet."""
    if seen.target_version is None:
        command = seen.starting.restore.command or "as `promote` prints"
    else:
        command = f"POST /jars/<jar>/run {json.dumps(seen.starting.rest)}"
    return command.replace(f"{seen.replica}/{seen.newest}", f"{seen.replica}/<the last chk>")


def expected(job: JobSwitch) -> str:
    """Return how long a job is expected to stand still."""
    if job.expected is None:
        is_shown = job.least is not None and job.least >= _SHOWN_SECONDS
        least = f", but at least {job.least:.1f} s" if is_shown else ""
        return (
            f"not known{least}: no switch of this job into this TARGET_ROOT was measured, and only"
            " one shows how long it takes to start at the target"
        )
    return f"about {job.expected:.1f} s, as at its last switch"


def _json(report: SwitchOfAll) -> str:
    """Return the result of `switch --output json`."""
    fields = {
        "seconds": round(report.seconds, 3),
        "causes": cause_fields(report),
        "jobs": [_object(job) for job in report.jobs],
    }
    return document(fields, report.seconds)


def _ndjson(report: SwitchOfAll) -> str:
    """Return the result of `switch --output ndjson`: an object per job."""
    return "\n".join(document(_object(job), report.seconds) for job in report.jobs)


def _object(job: JobSwitch) -> dict[str, Any]:
    return {
        "name": job.name,
        "outcome": job.outcome.replace(" ", "_"),
        "exit_code": job.exit_code,
        "error": job.error,
        "job_id": job.job_id,
        "new_job_id": job.new_job,
        "replica": job.replica,
        "checkpoint": job.checkpoint,
        "rounds": [_round(each) for each in job.rounds],
        "phases": {name: round(seconds, 3) for name, seconds in job.phases.items()},
        "standstill_seconds": None if job.standstill is None else round(job.standstill, 3),
        "repeated_seconds": None if job.repeated is None else round(job.repeated, 3),
        "expected_standstill_seconds": None if job.expected is None else round(job.expected, 3),
        "least_standstill_seconds": None if job.least is None else round(job.least, 3),
        "warnings": list(job.warnings),
        "preview": None if job.preview is None else _preview(job.preview),
        "start": None if job.starting is None else starting_fields(job.starting),
    }


def _round(each: Round) -> dict[str, Any]:
    return {
        "checkpoint": each.checkpoint,
        "files": each.files,
        "bytes": each.bytes,
        "seconds": round(each.seconds, 3),
    }


def _preview(seen: Preview) -> dict[str, Any]:
    return {
        "job_directory": seen.directory,
        "behind": {"files": seen.behind.files, "bytes": seen.behind.bytes},
        "origin_version": seen.origin_version,
        "target_version": seen.target_version,
        "jar": seen.jar,
        "way_back": seen.way_back,
        "slots_needed": None if seen.slots is None else seen.slots[0],
        "slots_free": None if seen.slots is None else seen.slots[1],
        "newest": {"checkpoint": seen.newest, "files": seen.files, "bytes": seen.bytes},
        "withdraws": list(seen.withdraws),
        "space": seen.space,
        "kafka": seen.kafka,
        "refusals": list(seen.refusals),
    }


FORMS = Forms(_text, _json, _ndjson)
