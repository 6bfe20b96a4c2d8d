"""The page of `forget`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cpreplicate.core.sizes import size
from cpreplicate.operations.inspect.overview import Overview
from cpreplicate.operations.replicas.forget import JobRemoval, RemovalOfAll
from cpreplicate.operations.upkeep.removal import Removal
from cpreplicate.output.report.model import Chart, Column, DataTable, Page, Series, Tone
from cpreplicate.output.report.pages.words import counted, failure_notes, label

_SHOWN = 20  # replicas in a chart


def page(report: RemovalOfAll, _overview: Overview) -> Page:
    """Return the page of replicas that were removed, or would be."""
    return Page(
        title="forget: replicas that are removed",
        answer=_answer(report),
        tone=_tone(report),
        facts=(),
        notes=tuple(failure_notes(report)),
        charts=tuple(_charts(_removed(report))),
        tables=(_table(report),),
    )


def _removed(report: RemovalOfAll) -> list[tuple[JobRemoval, Removal]]:
    return [(job, job.removal) for job in report.jobs if job.removal is not None]


def _answer(report: RemovalOfAll) -> str:
    removed = [removal for _, removal in _removed(report)]
    verb = "would be removed" if report.is_dry_run else "removed"
    amount = size(sum(each.bytes for each in removed))
    failed = sum(bool(job.exit_code) for job in report.jobs)
    more = f"; {failed:,} failed" if failed else ""
    return f"{len(removed):,} of {counted(len(report.jobs), 'replica')} {verb}, {amount}{more}."


def _tone(report: RemovalOfAll) -> Tone:
    if any(job.exit_code for job in report.jobs):
        return "bad"
    return "notice" if report.is_dry_run else "good"


def _charts(removed: Sequence[tuple[JobRemoval, Removal]]) -> Iterator[Chart]:
    if len(removed) > 1:
        largest = sorted(removed, key=lambda pair: -pair[1].bytes)
        job, removal = largest[0]
        more = f" The largest {_SHOWN} are shown." if len(largest) > _SHOWN else ""
        shown = largest[:_SHOWN]
        yield Chart(
            "Bytes by replica",
            f"The largest is {job.name} with {size(removal.bytes)}.{more}",
            [label(each.name) for each, _ in shown],
            (Series("bytes", [each.bytes for _, each in shown]),),
        )


def _table(report: RemovalOfAll) -> DataTable:
    jobs, found = report.jobs, [job.removal for job in report.jobs]
    return DataTable(
        "Replicas",
        Column("replica", [job.name for job in jobs]),
        Column("outcome", [job.outcome for job in jobs]),
        Column("files", [each.files if each else None for each in found], "count"),
        Column("bytes", [each.bytes if each else None for each in found], "bytes"),
        Column("reason", [job.why for job in jobs]),
        Column("place", [job.replica for job in jobs]),
    )
