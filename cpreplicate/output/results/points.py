"""The result of `list`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from cpreplicate.core.sizes import counted, size
from cpreplicate.operations.replicas.points import Point, Points, PointsReading, ReplicaPoints
from cpreplicate.output.json import document, timestamp
from cpreplicate.output.parts import retention_fields
from cpreplicate.output.positions import fields, parts_of
from cpreplicate.output.results import Forms, Written
from cpreplicate.output.text import lines, table
from cpreplicate.protocol.retention_record import described

_HEAD = ("checkpoint", "completed", "files", "size", "adds", "verified")


def _text(points: Points | PointsReading) -> Written:
    """Return a table of points for each replica, the newest first, as soon as it is known."""
    if isinstance(points, Points):
        return "\n\n".join(map(_replica, points.replicas))
    return (("\n" if number else "") + _replica(each) for number, each in enumerate(points))


def _replica(replica: ReplicaPoints) -> str:
    rows = [_cells(point) for point in replica.held]
    total = f", {size(replica.bytes)} together" if len(rows) > 1 else ""
    title = lines([f"{replica.job}: {counted_of(replica)}{total}"])
    positions = [part for point in replica.held for part in _positions(point)]
    parts = [title, table(_HEAD, rows) if rows else "", *positions, lines(_remarks(replica))]
    return "\n".join(filter(None, parts))


def counted_of(replica: ReplicaPoints) -> str:
    """Return how many checkpoints a replica holds, and how many derived ones."""
    derived = f" and {len(replica.derived)} derived" if replica.derived else ""
    return f"{counted(len(replica.points), 'checkpoint')}{derived}"


def _cells(point: Point) -> tuple[str, ...]:
    completed = timestamp(point.completed)
    found = "" if point.is_restorable else ": damaged"
    return (
        point.checkpoint,
        "unknown" if completed is None else completed,
        str(point.files),
        size(point.bytes),
        size(point.added_bytes),
        "" if point.verified is None else f"{timestamp(point.verified)}{found}",
    )


def _positions(point: Point) -> list[str]:
    parts = parts_of(point.positions)
    return [f"\n{point.checkpoint}", *parts] if parts else []


def _remarks(replica: ReplicaPoints) -> Iterator[str]:
    for point in replica.points:
        if point.savepoint is not None:
            yield f"{point.checkpoint} is the savepoint {point.savepoint}"
    if replica.retention is not None:
        yield f"keeps by {described(replica.retention)}"
    if replica.sealed is not None:
        yield f"sealed {replica.sealed}"
    if replica.others:
        yield f"warning: not written by cpreplicate: {', '.join(replica.others)}"
    if replica.retention_error is not None:
        yield f"warning: {replica.retention_error}"
    if replica.error is not None:
        yield f"warning: cannot be read: {replica.error}"


def _json(points: Points | PointsReading) -> str:
    """Return the result of `list --output json`."""
    found = points if isinstance(points, Points) else points.complete
    return document({"replicas": [_object(replica) for replica in found.replicas]})


def _ndjson(points: Points | PointsReading) -> Written:
    """Return the result of `list --output ndjson`: an object per replica, once it is known."""
    if isinstance(points, Points):
        return "\n".join(document(_object(replica)) for replica in points.replicas)
    return (document(_object(replica)) for replica in points)


def _object(replica: ReplicaPoints) -> dict[str, Any]:
    return {
        **asdict(replica),
        "points": [_point(point) for point in replica.points],
        "derived": [_point(point) for point in replica.derived],
        "others": list(replica.others),
        "retention": retention_fields(replica.retention),
    }


def _point(point: Point) -> dict[str, Any]:
    return {
        **asdict(point),
        "completed": timestamp(point.completed),
        "verified": timestamp(point.verified),
        **fields(point.positions),
    }


FORMS = Forms(_text, _json, _ndjson)
