"""The page of `status`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from cpreplicate.core.sizes import size
from cpreplicate.operations.inspect.overview import Overview
from cpreplicate.operations.replicas.replica_status import FleetStatus, ReplicaStatus, bytes_of
from cpreplicate.output.json import timestamp
from cpreplicate.output.report.model import Chart, Column, DataTable, Page, Series, Tone, Value
from cpreplicate.output.report.pages.words import counted, label
from cpreplicate.output.results.status import problems_of, state_of, title_of
from cpreplicate.output.text import duration
from cpreplicate.protocol.retention_record import described

_SHOWN = 20  # replicas in a chart


def page(status: FleetStatus, _overview: Overview) -> Page:
    """Return the page of every replica that was asked for, the broken ones first."""
    status = replace(status, replicas=tuple(sorted(status.replicas, key=_worst_first(status))))
    notes = tuple(
        f"{title_of(row)}: {problem}"
        for row in status.replicas
        for problem in problems_of(row, status)
    )
    if status.kafka_error is not None:
        notes = (*notes, str(status.kafka_error))
    return Page(
        title="status of replicas",
        answer=_answer(status),
        tone=_tone(status, notes),
        facts=tuple(_facts(status)),
        notes=notes,
        charts=tuple(_charts(status)),
        tables=(_table(status),),
    )


def _worst_first(status: FleetStatus) -> Callable[[ReplicaStatus], tuple[bool, bool]]:
    """Return the order of rows: those that cannot be promoted, those that lag, the others."""
    lagging = {row.observed.replica for row in status.lagging}
    return lambda row: (row.unready is None, row.observed.replica not in lagging)


def _answer(status: FleetStatus) -> str:
    rows = status.replicas
    unready = [row for row in rows if row.unready is not None]
    ready = f"{counted(len(rows), 'replica')}: {len(rows) - len(unready):,} ready to be promoted"
    parts = [f"{ready}, {len(unready):,} not" if unready else ready]
    if status.max_lag is not None:
        limit = duration(status.max_lag)
        parts.append(f"{len(status.lagging):,} of them lag more than {limit}")
    parts.append(_longest_lag(status))
    return f"{'; '.join(filter(None, parts))}."


def _longest_lag(status: FleetStatus) -> str:
    lags = [(row.lag(status.now), row) for row in status.replicas]
    known = [(lag, row) for lag, row in lags if lag is not None and not math.isinf(lag)]
    if not known:
        return "no lag is known" if status.replicas else ""
    lag, row = max(known, key=lambda pair: pair[0])
    if not lag:
        return "each replica of which the lag is known has its source's newest checkpoint"
    return f"the longest lag is {duration(lag)} ({title_of(row)})"


def _tone(status: FleetStatus, notes: Sequence[str]) -> Tone:
    if any(row.unready is not None for row in status.replicas) or status.lagging:
        return "bad"
    return "notice" if notes else "good"


def _facts(status: FleetStatus) -> Iterator[tuple[str, str]]:
    yield "at", timestamp(status.now) or ""
    yield "bytes", size(sum(row.totals.bytes for row in status.replicas if row.totals is not None))
    if rows := status.of_earlier_lives:
        yield "of earlier lives", f"{counted(len(rows), 'replica')}, {size(bytes_of(rows))}"
    if any(row.stored is not None for row in status.replicas):
        yield "stored", size(sum(row.stored or 0 for row in status.replicas))
    if status.kafka is not None:
        yield "kafka", status.kafka


def _charts(status: FleetStatus) -> Iterator[Chart]:
    yield from _chart(
        status, "Lag by replica", "lag", "seconds", lambda row: _finite(row.lag(status.now))
    )
    yield from _chart(
        status,
        "Age of the newest checkpoint by replica",
        "age",
        "seconds",
        lambda row: row.age(status.now),
    )
    yield from _chart(
        status,
        "Bytes of the newest checkpoint by replica",
        "bytes",
        "bytes",
        lambda row: None if row.totals is None else row.totals.bytes,
    )


def _chart(
    status: FleetStatus,
    title: str,
    name: str,
    unit: str,
    value_of: Callable[[ReplicaStatus], float | None],
) -> Iterator[Chart]:
    """Yield a chart of the replicas with the highest values, of several of which some is known."""
    values = [(value_of(row), row) for row in status.replicas]
    known = [(value, row) for value, row in values if value]
    if not known or len(values) == 1:  # one bar shows no more than the table
        return
    shown = sorted(known, key=lambda pair: -pair[0])[:_SHOWN]
    highest, row = shown[0]
    text = size(round(highest)) if unit == "bytes" else duration(highest)
    finding = f"The highest is {text}, of {title_of(row)}."
    if len(known) > _SHOWN:
        finding += f" The highest {_SHOWN} of {len(known)} are shown."
    yield Chart(
        title,
        finding,
        [label(title_of(row)) for _, row in shown],
        (Series(name, [value for value, _ in shown]),),
        unit="bytes" if unit == "bytes" else "seconds",
    )


def _finite(seconds: float | None) -> float | None:
    return None if seconds is None or math.isinf(seconds) else seconds


def _table(status: FleetStatus) -> DataTable:
    rows, now = status.replicas, status.now
    columns = [
        Column("job", [title_of(row) for row in rows]),
        Column("ready", ["yes" if row.unready is None else "no" for row in rows]),
        Column("checkpoint", [row.checkpoint for row in rows]),
        Column("age", [row.age(now) for row in rows], "seconds"),
        Column("source", [_source(row) for row in rows]),
        Column("lag", [_finite(row.lag(now)) for row in rows], "seconds"),
        Column("files", [row.totals and row.totals.files for row in rows], "count"),
        Column("bytes", [row.totals and row.totals.bytes for row in rows], "bytes"),
        Column("packs", [row.totals and row.totals.packs for row in rows], "count"),
        *_more_columns(status),
        Column("verified", [_verified(row) for row in rows], "time"),
        Column("found", [_found(row) for row in rows]),
        Column("state", [state_of(row) for row in rows]),
        Column("replica", [row.observed.replica for row in rows]),
    ]
    return DataTable("Replicas", *columns)


def _more_columns(status: FleetStatus) -> Iterator[Column]:
    rows = status.replicas
    if any(row.orphans is not None for row in rows):
        yield Column("orphans", [row.orphans and row.orphans.files for row in rows], "count")
        yield Column("orphan bytes", [row.orphans and row.orphans.bytes for row in rows], "bytes")
        yield Column("stored", [row.stored for row in rows], "bytes")
    if any(row.retention is not None for row in rows):
        yield Column("keeps", [_kept(row) for row in rows])
    if status.kafka is not None:
        yield Column("kafka behind", [row.kafka_behind for row in rows], "count")


def _kept(row: ReplicaStatus) -> str | None:
    return None if row.retention is None else described(row.retention)


def _source(row: ReplicaStatus) -> Value:
    newest = row.observed.source_newest
    if newest is None:
        return "none" if row.is_source_known else "unknown"
    return f"chk-{newest.checkpoint_id}"


def _verified(row: ReplicaStatus) -> str | None:
    return None if row.verified is None else timestamp(row.verified.time)


def _found(row: ReplicaStatus) -> str | None:
    if row.verified is None:
        return None
    found = "restorable" if row.verified.is_restorable else "damaged"
    return f"{row.verified.checkpoint} {found}"
