"""Sources and sinks of other connectors, as their states name them. What they hold is not read."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from cpreplicate.core.positions.fields import Fields
from cpreplicate.core.positions.list_states import datum
from cpreplicate.core.positions.model import Unreadable
from cpreplicate.core.positions.sinks.committables import committables

# list states of sources from before `SourceReaderState`
LISTS = {
    "Kinesis-Stream-Shard-State": "a FlinkKinesisConsumer",
    "history-records-states": "a source of Debezium",
}
# list states of sinks that keep the files of a table which are not committed yet
SINKS = {
    "iceberg-files-committer-state": "a sink of Iceberg",
    "iceberg-flink-job-id": "a sink of Iceberg",
    "commit_user_state": "a sink of Paimon",
    "paimon_store_sink_write_state": "a sink of Paimon",
}
_ID = re.compile(r"[0-9a-f]{32}")  # of a job, and of an operator
_CDC = (1, 2)  # marks of a snapshot and of a stream
_STREAMS = ("binlog-split", "stream-split")


def of_lists(names: Collection[str]) -> str | None:
    """Return which source has lists with these names, None if it is not known."""
    return next((LISTS[name] for name in LISTS if name in names), None)


def of_sinks(names: Collection[str]) -> str | None:
    """Return which sink of tables has lists with these names, None if it is not known."""
    return next((SINKS[name] for name in SINKS if name in names), None)


def of_committables(elements: Iterable[bytes]) -> str | None:
    """Return which sink has these committables, None if there are none that are pending.

    Those of `IcebergSink` begin with the ids of the job and of the operator.
    """
    try:
        every = [each for one in elements for each in committables(one) if each.is_pending]
    except Unreadable:
        return "a sink that is not known"
    if not every:
        return None
    is_iceberg = all(_is_iceberg(Fields(each.data)) for each in every)
    return "a sink of Iceberg" if is_iceberg else "a sink that is not known"


def _is_iceberg(fields: Fields) -> bool:
    try:
        return all(_ID.fullmatch(fields.utf()) for _ in ("job", "operator"))
    except Unreadable:
        return False


def of_splits(elements: Iterable[bytes]) -> str | None:
    """Return which source has these splits, None if it is not known, or may be Kafka's."""
    try:
        kinds = {_of_split(datum(element)[1]) for element in elements}
    except Unreadable:
        return None
    return kinds.pop() if len(kinds) == 1 else None


def _of_split(content: bytes) -> str | None:
    """Return which source has a split that begins so: no name of a topic has a colon."""
    try:
        first = Fields(content).utf()
    except Unreadable:
        first = ""
    if first.startswith("arn:"):
        return "a source of Kinesis"
    if first.startswith(("persistent://", "non-persistent://")):
        return "a source of Pulsar"
    return "a source of Flink CDC" if _is_cdc(Fields(content)) else None


def _is_cdc(fields: Fields) -> bool:
    try:
        mark, name = fields.i32(), fields.utf()
    except Unreadable:
        return False
    return mark in _CDC and (":" in name or name in _STREAMS)
