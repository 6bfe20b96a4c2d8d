"""Sources of other connectors, as their states name them. Their positions are not read."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from cpreplicate.core.positions.fields import Fields
from cpreplicate.core.positions.list_states import datum
from cpreplicate.core.positions.model import Unreadable

# list states of sources from before `SourceReaderState`
LISTS = {
    "Kinesis-Stream-Shard-State": "a FlinkKinesisConsumer",
    "history-records-states": "a source of Debezium",
}
_CDC = (1, 2)  # marks of a snapshot and of a stream
_STREAMS = ("binlog-split", "stream-split")


def of_lists(names: Collection[str]) -> str | None:
    """Return which source has lists with these names, None if it is not known."""
    return next((LISTS[name] for name in LISTS if name in names), None)


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
