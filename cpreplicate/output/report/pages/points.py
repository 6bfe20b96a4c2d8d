"""The page of `list`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from cpreplicate.core.sizes import size
from cpreplicate.operations.inspect.overview import Overview
from cpreplicate.operations.replicas.points import Points, ReplicaPoints
from cpreplicate.output.json import timestamp
from cpreplicate.output.report.model import Chart, Column, DataTable, Page, Series
from cpreplicate.output.report.pages import history
from cpreplicate.output.report.pages.words import counted, label
from cpreplicate.protocol.retention_record import described

_SHOWN = 20  # replicas in a chart


def page(points: Points, _overview: Overview) -> Page:
    """Return the page of the checkpoints of replicas, those first that cannot be read."""
    points = replace(points, replicas=tuple(sorted(points.replicas, key=_is_readable)))
    notes = tuple(_notes(points))
    return Page(
        title="list: checkpoints of replicas",
        answer=_answer(points),
        tone="bad" if _unread(points) else "notice" if notes else "good",
        facts=tuple(_facts(points)),
        notes=notes,
        charts=tuple(_charts(points)),
        tables=(history.table(points.replicas), _replicas(points)),
    )


def _answer(points: Points) -> str:
    count = sum(len(replica.points) for replica in points.replicas)
    whole = sum(replica.bytes for replica in points.replicas)
    hold = counted(len(points.replicas), "replica holds", "replicas hold")
    derived = sum(len(replica.derived) for replica in points.replicas)
    held = counted(count, "checkpoint") + (f" and {derived} derived" if derived else "")
    text = f"{hold} {held}, {size(whole)} together"
    if unread := _unread(points):
        text += f"; {unread} cannot be read"
    completed = [
        (point.completed, point.checkpoint, replica.job)
        for replica in points.replicas
        for point in replica.points
        if point.completed is not None
    ]
    if not completed:
        return f"{text}."
    time, checkpoint, job = max(completed)
    return f"{text}; the newest is {checkpoint} of {job}, completed {timestamp(time)}."


def _is_readable(replica: ReplicaPoints) -> bool:
    return replica.error is None


def _unread(points: Points) -> int:
    return sum(replica.error is not None for replica in points.replicas)


def _notes(points: Points) -> Iterator[str]:
    for replica in points.replicas:
        if replica.error is not None:
            yield f"{replica.job} cannot be read: {replica.error}"
        if replica.retention_error is not None:
            yield f"{replica.job}: {replica.retention_error}"
        if replica.others:
            yield f"{replica.job}: not written by cpreplicate: {', '.join(replica.others)}"
        for point in replica.held:
            if point.is_restorable is False:
                yield f"{replica.job}: {point.checkpoint} was damaged when it was verified"


def _facts(points: Points) -> Iterator[tuple[str, str]]:
    """Yield which points a replica keeps, if there is one only; the table has it of each."""
    if len(points.replicas) == 1 and (kept := _kept(points.replicas[0])):
        yield "keeps", kept


def _charts(points: Points) -> Iterator[Chart]:
    if len(points.replicas) > 1:
        largest = sorted(points.replicas, key=lambda replica: -replica.bytes)
        shown = largest[:_SHOWN]
        yield Chart(
            "Bytes by replica",
            f"The largest is {largest[0].job} with {size(largest[0].bytes)}."
            + (f" The largest {_SHOWN} are shown." if len(largest) > _SHOWN else ""),
            [label(replica.job) for replica in shown],
            (Series("bytes of all checkpoints", [replica.bytes for replica in shown]),),
        )
    yield from history.charts(points)


def _kept(replica: ReplicaPoints) -> str | None:
    return None if replica.retention is None else described(replica.retention)


def _replicas(points: Points) -> DataTable:
    replicas = points.replicas
    return DataTable(
        "Replicas",
        Column("job", [replica.job for replica in replicas]),
        Column("checkpoints", [len(replica.points) for replica in replicas], "count"),
        Column("derived", [len(replica.derived) for replica in replicas], "count"),
        Column("bytes", [replica.bytes for replica in replicas], "bytes"),
        Column("keeps", [_kept(replica) for replica in replicas]),
        Column("sealed", [replica.sealed for replica in replicas]),
        Column("replica", [replica.replica for replica in replicas]),
    )
