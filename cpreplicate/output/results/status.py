"""The result of `status`."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from cpreplicate.core.placement import JOB_ID
from cpreplicate.core.sizes import counted, plural, size
from cpreplicate.operations.change.change import some
from cpreplicate.operations.change.job_result import cause, grouped
from cpreplicate.operations.replicas.replica_status import FleetStatus, ReplicaStatus, bytes_of
from cpreplicate.operations.replicas.status import StatusReading
from cpreplicate.output.json import document, timestamp
from cpreplicate.output.parts import retention_fields, which_of_one_cause
from cpreplicate.output.positions import fields, parts_of
from cpreplicate.output.results import Forms, Written
from cpreplicate.output.streams import is_terminal
from cpreplicate.output.text import GrowingTable, duration, fitted, lines

_HEAD = (
    *("job", "checkpoint", "age", "source", "lag", "ready", "files", "size", "packs"),
    *("verified", "state"),
)
_DISPENSABLE = (  # the first to be left out on a narrow terminal
    *("packs", "files", "source", "stored", "orphans", "size", "verified", "keeps", "age"),
)
_SHORT_ID = 8  # letters
PATIENCE = 1.0  # seconds for which rows are waited for, which then decide how wide columns are
_UNKNOWN = "?"


def _text(status: FleetStatus | StatusReading) -> Written:
    """Return a row for each replica, then what is wrong with some of them.

    What is known within a second is one table as wide as its texts. Where more is read, its rows
    are printed as they become known, and what all of them are needed for is in lines at the end.
    """
    return _whole(status) if isinstance(status, FleetStatus) else _as_known(status)


def _as_known(reading: StatusReading) -> Iterator[str]:
    rows, first, until = reading.or_late(), list[ReplicaStatus](), time.monotonic() + PATIENCE
    for row in () if reading.kafka is not None else rows:
        first += [] if row is None else [row]
        if 0 < len(first) < len(reading.jobs) and time.monotonic() >= until:
            yield from _growing(reading, first, (each for each in rows if each is not None))
            return
    yield _whole(reading.complete)


def _whole(status: FleetStatus) -> str:
    """Return the table of all replicas, and what is behind it."""
    letters = _letters([row.job for row in status.replicas])
    table = fitted(_columns(status, letters, list(_more_columns(status))), _DISPENSABLE)
    return "\n\n".join(filter(None, [table, *_ends(status)]))


def _growing(
    reading: StatusReading, first: Sequence[ReplicaStatus], rest: Iterator[ReplicaStatus]
) -> Iterator[str]:
    """Yield the table of replicas that are still read, and what is behind it."""
    letters = _letters(reading.jobs)
    more = [*_orphan_columns(first), _KEEPS]

    def columns(rows: Sequence[ReplicaStatus]) -> dict[str, list[str]]:
        seen = FleetStatus(tuple(rows), time.time(), reading.max_lag)
        return _columns(seen, letters, more)

    table = GrowingTable(columns(first), _DISPENSABLE)
    yield table.begin()
    for row in rest:
        yield table.rows(columns([row]))
    yield table.end()
    parts = [*_ends(reading.complete), _totals(reading.complete)]
    yield "\n" + "\n\n".join(parts)


def _ends(status: FleetStatus) -> Iterator[str]:
    """Yield what is behind the table: positions, what is wrong, and what all rows give."""
    yield from (part for row in status.replicas for part in _positions(row))
    ends = [*_more_lines(status), *filter(None, [_summary(status)])]
    yield from filter(None, [lines(_problem_lines(status)), lines(ends)])


def _problem_lines(status: FleetStatus) -> Iterator[str]:
    """Yield what is wrong with replicas: what has one cause stands once, with their names."""
    found = [(row, text) for row in status.replicas for text in problems_of(row, status)]
    for same in grouped(found, lambda each: cause(each[1], _own(each[0]))):
        replicas = {row.observed.replica: title_of(row) for row, _ in same}
        titles = list(replicas.values())
        yield from which_of_one_cause(titles, "replica")
        yield f"{titles[0]}: {same[0][1]}"


def _own(row: ReplicaStatus) -> tuple[str, ...]:
    """Return the names and places of a replica, in which two problems of one cause differ."""
    recorded = "" if row.recorded is None else row.recorded.name
    return row.job, row.name or "", recorded, row.observed.replica, row.observed.source


def _totals(status: FleetStatus) -> str:
    """Return how many replicas there are, and how many could be promoted."""
    ready = sum(row.unready is None for row in status.replicas)
    whole = size(bytes_of(status.replicas))
    return f"{counted(len(status.replicas), 'replica')}, {ready} ready, {whole}"


def _columns(
    status: FleetStatus, letters: int, more: Sequence[_MoreColumn]
) -> dict[str, list[str]]:
    """Return the cells of each column, under its head; `letters` of an id are shown."""
    rows = [_cells(row, status) for row in status.replicas]
    columns = {head: [row[number] for row in rows] for number, head in enumerate(_HEAD)}
    if is_terminal(sys.stdout):  # programs that read a pipe get whole ids
        columns["job"] = [_short_title(row, letters) for row in status.replicas]
        columns["packs"] = [each if each != "0" else "" for each in columns["packs"]]
    for head, cell in more:
        columns[head] = list(map(cell, status.replicas))
    return columns


def _letters(ids: Sequence[str]) -> int:
    """Return how many letters at the beginning of an id are its own.

    A command with --job takes such a beginning, too.
    """
    letters = _SHORT_ID
    while len({each[:letters] for each in ids}) < len(set(ids)):
        letters += 1
    return letters


def _short_title(row: ReplicaStatus, letters: int) -> str:
    title = title_of(row)
    return title.replace(row.job, row.job[:letters]) if JOB_ID.match(row.job) else title


_MoreColumn = tuple[str, Callable[[ReplicaStatus], str]]
"""A column that is not always there: its name, and what returns the cell of a row."""
_KEEPS: _MoreColumn = (
    "keeps",
    lambda row: "" if row.retention is None else row.retention.retention.short,
)


def _orphan_columns(rows: Sequence[ReplicaStatus]) -> Iterator[_MoreColumn]:
    if any(row.orphans is not None for row in rows):
        yield "orphans", _orphans
        yield "stored", lambda row: _UNKNOWN if row.stored is None else size(row.stored)


def _more_columns(status: FleetStatus) -> Iterator[_MoreColumn]:
    yield from _orphan_columns(status.replicas)
    if any(row.retention is not None for row in status.replicas):
        yield _KEEPS
    if status.kafka is not None:
        yield (
            "kafka behind",
            lambda row: _UNKNOWN if row.kafka_behind is None else str(row.kafka_behind),
        )


def _positions(row: ReplicaStatus) -> list[str]:
    parts = parts_of(row.positions)
    return [f"{lines([title_of(row)])}: {row.checkpoint}\n{parts[0]}", *parts[1:]] if parts else []


def _more_lines(status: FleetStatus) -> Iterator[str]:
    """Yield what the replicas of earlier lives take together, and how many are in other shards."""
    if status.elsewhere:
        yield (
            f"shard {status.shard}: {counted(status.elsewhere, 'replica is', 'replicas are')} of"
            " jobs in other shards"
        )
    if rows := status.of_earlier_lives:
        are = plural(
            len(rows), "is of an earlier life of its job", "are of earlier lives of their jobs"
        )
        which = f"{len(rows)} of {counted(len(status.replicas), 'replica')}"
        names = some([title_of(row) for row in rows])
        yield f"{which} {are}, {size(bytes_of(rows))}: see cpreplicate forget. {names}"


def _json(found: FleetStatus | StatusReading) -> str:
    """Return the result of `status --output json`."""
    status = _complete(found)
    return document(
        {
            "max_lag_seconds": status.max_lag,
            "lagging": len(status.lagging),
            "shard": str(status.shard),
            "in_other_shards": status.elsewhere,
            "earlier_lives": {
                "replicas": len(status.of_earlier_lives),
                "bytes": bytes_of(status.of_earlier_lives),
            },
            "replicas": [_object(row, status) for row in status.replicas],
        }
    )


def _ndjson(found: FleetStatus | StatusReading) -> str:
    """Return the result of `status --output ndjson`: a document for each replica.

    Each has the later life of its job, which all replicas are needed for.
    """
    status = _complete(found)
    return "\n".join(document(_object(row, status)) for row in status.replicas)


def _complete(found: FleetStatus | StatusReading) -> FleetStatus:
    return found if isinstance(found, FleetStatus) else found.complete


def _cells(row: ReplicaStatus, status: FleetStatus) -> tuple[str, ...]:
    totals, age = row.totals, row.age(status.now)
    return (
        title_of(row),
        row.checkpoint or "none",
        "" if age is None else duration(age),
        _source(row),
        _lag(row, status),
        "yes" if row.unready is None else "no",
        "" if totals is None else str(totals.files),
        "" if totals is None else size(totals.bytes),
        "" if totals is None else str(totals.packs),
        _verified(row, status),
        state_of(row),
    )


def title_of(row: ReplicaStatus) -> str:
    """Return the name of a job with its id: several replicas of a restarted job have one name."""
    recorded = row.recorded.name if row.recorded is not None else None
    return row.name or (row.job if recorded is None else f"{recorded} ({row.job})")


def _source(row: ReplicaStatus) -> str:
    newest = row.observed.source_newest
    if newest is None:
        return "none" if row.is_source_known else _UNKNOWN
    return f"chk-{newest.checkpoint_id}"


def _lag(row: ReplicaStatus, status: FleetStatus) -> str:
    lag = row.lag(status.now)
    if lag is None:
        return _UNKNOWN
    if math.isinf(lag):
        return "no replica"
    return f"{duration(lag)} ({row.observed.behind()})" if row.observed.behind() else "0 s"


def _verified(row: ReplicaStatus, status: FleetStatus) -> str:
    verified = row.verified
    if verified is None:
        return ""
    age = duration(max(0.0, status.now - verified.time))
    if not verified.is_restorable:
        failed = f"failed {age} ago"
        is_newest = verified.checkpoint == row.checkpoint
        return failed if is_newest else f"{verified.checkpoint}, {failed}"
    return f"{age} ago" if row.is_verified else f"{verified.checkpoint}, {age} ago"


def state_of(row: ReplicaStatus) -> str:
    """Return whether a replica is sealed or held, what it keeps for others, and what hinders it."""
    states = ["sealed"] if row.sealed else []
    if row.holder is not None:
        states.append("lease is stale" if row.holder.is_stale else f"held by {row.holder.host}")
    if row.unfinished is not None and (row.holder is None or row.holder.is_stale):
        states.append("unfinished run")
    if row.later_life is not None:
        states.append("earlier life")
    if row.savepoint is not None:
        states.append("savepoint")
    if row.derived:
        states.append(f"{len(row.derived)} derived")
    if row.warnings:
        states.append("links or mounts" if row.has_links else "checkpoints of others")
    return ", ".join(states)


def _orphans(row: ReplicaStatus) -> str:
    if row.orphans is None:
        return _UNKNOWN
    return f"{row.orphans.files} ({size(row.orphans.bytes)})"


def _not_at_kafka(row: ReplicaStatus, status: FleetStatus) -> Iterator[str]:
    """Yield which topics lack partitions at the Kafka, and which may not be described."""
    denied = [topic for topic in row.kafka_missing if topic in status.kafka_denied]
    missing = [topic for topic in row.kafka_missing if topic not in status.kafka_denied]
    if missing:
        yield f"{', '.join(missing)}: partitions missing at {status.kafka}"
    if denied:
        yield f"{', '.join(denied)}: the user may not describe them at {status.kafka}"


def problems_of(row: ReplicaStatus, status: FleetStatus) -> list[str]:
    """Return what is wrong with a replica, one sentence each."""
    problems = [text for text in (row.observed.last_error, row.source_error) if text is not None]
    warnings = [f"warning: {warning}" for warning in (*row.warnings, *_unknown_retention(row))]
    warnings += _not_at_kafka(row, status)
    if row.unready in (None, *problems, *row.warnings):
        return [*problems, *warnings]
    return [*problems, *warnings, f"promote would not succeed: {row.unready}"]


def _unknown_retention(row: ReplicaStatus) -> list[str]:
    return [] if row.retention_error is None else [row.retention_error]


def _summary(status: FleetStatus) -> str:
    if status.max_lag is None:
        return ""
    limit, count = duration(status.max_lag), len(status.replicas)
    names = ", ".join(title_of(row) for row in status.lagging)
    if not names:
        return f"none of {counted(count, 'replica')} lags more than {limit}"
    lag = plural(len(status.lagging), "lags", "lag")
    which = f"{len(status.lagging)} of {counted(count, 'replica')}"
    return lines([f"{which} {lag} more than {limit}: {names}"])


def _object(row: ReplicaStatus, status: FleetStatus) -> dict[str, Any]:
    observed, totals, now = row.observed, row.totals, status.now
    replica, source, lag = observed.replica_newest, observed.source_newest, row.lag(now)
    age = row.age(now)
    return {
        "job": row.job,
        "name": row.name or (None if row.recorded is None else row.recorded.name),
        "ready": row.unready is None,
        "not_ready_because": row.unready,
        "replica": observed.replica,
        "source": observed.source or None,
        "checkpoint": row.checkpoint,
        "savepoint": row.savepoint,
        "checkpoint_id": None if replica is None else replica.checkpoint_id,
        "checkpoint_completed": None if replica is None else timestamp(replica.completed),
        "age_seconds": None if age is None else round(age, 3),
        "source_checkpoint_id": None if source is None else source.checkpoint_id,
        "source_checkpoint_completed": None if source is None else timestamp(source.completed),
        "source_error": row.source_error,
        "lag_seconds": None if lag is None or math.isinf(lag) else round(lag, 3),
        "checkpoints_behind": None if lag is None else observed.behind(),
        "is_lagging": None if status.max_lag is None else row.is_lagging(status.max_lag, now),
        "derived": list(row.derived),
        "files": None if totals is None else totals.files,
        "bytes": None if totals is None else totals.bytes,
        "packs": None if totals is None else totals.packs,
        "orphans": None if row.orphans is None else row.orphans._asdict(),
        "stored_bytes": row.stored,
        "later_life": row.later_life and row.later_life.named.job,
        "sealed": row.sealed,
        "verified": _verified_object(row),
        "lease": _lease_object(row),
        "unfinished_since": timestamp(row.unfinished),
        "error": observed.last_error,
        "warnings": list(row.warnings),
        **fields(row.positions),
        "retention": retention_fields(row.retention),
        "retention_error": row.retention_error,
        "kafka_behind": row.kafka_behind,
        "kafka_missing": list(row.kafka_missing),
    }


def _verified_object(row: ReplicaStatus) -> dict[str, Any] | None:
    verified = row.verified
    if verified is None:
        return None
    return {
        "checkpoint": verified.checkpoint,
        "time": timestamp(verified.time),
        "restorable": verified.is_restorable,
        "content_share": verified.share,
        "is_current": row.is_verified,
    }


def _lease_object(row: ReplicaStatus) -> dict[str, Any] | None:
    if row.holder is None:
        return None
    return {**row.holder._asdict(), "since": timestamp(row.holder.since)}


FORMS = Forms(_text, _json, _ndjson)
