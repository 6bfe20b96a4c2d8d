"""The charts and the table of the kept checkpoints of replicas."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from cpreplicate.core.placement import is_derived
from cpreplicate.core.sizes import size
from cpreplicate.operations.replicas.points import Point, Points, ReplicaPoints
from cpreplicate.output.json import timestamp
from cpreplicate.output.report.model import Chart, Column, DataTable, Series
from cpreplicate.output.report.pages.words import label
from cpreplicate.output.results.points import counted_of

_SHOWN_REPLICAS = 12  # a chart for each
_SHOWN_POINTS = 400  # the newest ones


def charts(points: Points, going: Collection[str] = ()) -> Iterator[Chart]:
    """Yield the history of each of the first replicas that hold several checkpoints, oldest first.

    `going` are the checkpoints that a plan withdraws.
    """
    with_points = [replica for replica in points.replicas if len(replica.held) > 1]
    for replica in with_points[:_SHOWN_REPLICAS]:
        of_job = f" of {label(replica.job)}" if len(points.replicas) > 1 else ""
        yield _chart(replica, of_job, going)


def _chart(replica: ReplicaPoints, of_job: str, going: Collection[str]) -> Chart:
    shown = (*reversed(replica.points[:_SHOWN_POINTS]), *replica.derived)
    finding = f"{counted_of(replica)} take {size(replica.bytes)} together."
    if len(shown) < len(replica.held):
        finding += f" The newest {_SHOWN_POINTS} are shown."
    title = "Kept checkpoints"
    if going:
        title = "Checkpoints held before the sync"
        kept = len(replica.held) - len(going)
        finding += f" {len(going):,} of them are withdrawn, {kept:,} kept."
    return Chart(
        f"{title}{of_job}",
        f"{finding} A checkpoint adds the bytes that no other one references.",
        [_label(point, going) for point in shown],
        (
            Series("size", [point.bytes for point in shown]),
            Series("adds", [point.added_bytes for point in shown]),
        ),
        is_stacked=False,
        is_horizontal=False,
    )


def _label(point: Point, going: Collection[str]) -> str:
    completed = timestamp(point.completed)
    text = point.checkpoint if completed is None else f"{point.checkpoint} {completed[:16]}Z"
    return f"{text} (withdrawn)" if point.checkpoint in going else text


def table(replicas: Sequence[ReplicaPoints], going: Collection[str] = ()) -> DataTable:
    """Return a table with a row for each checkpoint; `going` are those that a plan withdraws."""
    rows = [(replica, point) for replica in replicas for point in replica.held]
    points = [point for _, point in rows]
    fates = ["withdrawn" if point.checkpoint in going else "kept" for point in points]
    return DataTable(
        "Checkpoints held before the sync" if going else "Kept checkpoints",
        Column("job", [replica.job for replica, _ in rows]),
        Column("checkpoint", [point.checkpoint for point in points]),
        Column("kind", ["derived" if is_derived(each.checkpoint) else None for each in points]),
        *((Column("by this plan", fates),) if going else ()),
        Column("completed", [timestamp(point.completed) for point in points], "time"),
        Column("files", [point.files for point in points], "count"),
        Column("size", [point.bytes for point in points], "bytes"),
        Column("adds", [point.added_bytes for point in points], "bytes"),
        Column("verified", [timestamp(point.verified) for point in points], "time"),
        Column("restorable", [_found(point) for point in points]),
    )


def _found(point: Point) -> str | None:
    if point.is_restorable is None:
        return None
    return "yes" if point.is_restorable else "damaged"
