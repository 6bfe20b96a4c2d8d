"""Positions in sources, pending transactions and part files, as parts of other results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cpreplicate.core.positions.model import PartFile, PendingTransaction, Position, Unread
from cpreplicate.core.positions.summary import TopicSummary, by_topic
from cpreplicate.core.sizes import counted, plural
from cpreplicate.operations.kafka.part_files import place_of, warnings_of
from cpreplicate.output.text import lines, table

if TYPE_CHECKING:
    from cpreplicate.operations.kafka.positions import CheckpointPositions

_TOPICS = ("source", "topic", "partitions", "smallest", "largest", "no offset yet")
_EVERY = ("source", "topic", "partition", "position", "ends at")
_PENDING = ("sink", "pending transaction", "producer", "epoch", "checkpoint")
_FILES = ("sink", "part file", "state", "bytes", "becomes")
_SHOWN = 3  # transactions without --positions


def parts_of(of: CheckpointPositions | None, warns: bool = True) -> list[str]:
    """Return the parts of a text that show what a checkpoint holds: none for what is absent.

    `warns`: it is also said what part files mean for a restored job.
    """
    return [part for part in _parts(of, warns) if part] if of is not None else []


def _parts(of: CheckpointPositions, warns: bool) -> Iterator[str]:
    found, names = of.found, of.names
    if found.positions:
        yield table(_TOPICS, [_topic_row(topic, names) for topic in by_topic(found.positions)])
    if found.positions and of.is_listed:
        yield table(_EVERY, [_row(position, names) for position in found.positions])
    if found.pending and of.is_listed:
        yield table(_PENDING, [_pending_row(each, names) for each in found.pending])
    if found.pending:
        yield lines([_of_pending(found.pending, names)])
    if found.part_files and of.is_listed:
        yield table(_FILES, [_file_row(each, names) for each in found.part_files])
    if warns:
        yield lines(warnings_of(of))
    yield lines(unread_line(each, names) for each in found.unread)


def unread_line(of: Unread, names: Mapping[str, str]) -> str:
    """Return that the state of an operator was not read, and why."""
    name = names.get(of.operator, of.operator)
    if of.is_of_files:
        return f"files that the state of {name} may name are not known: {of.reason}"
    return f"positions of {name} are not known: {of.reason}"


def _file_row(of: PartFile, names: Mapping[str, str]) -> tuple[str, ...]:
    place = place_of(of) if of.upload is None else f"{place_of(of)} (upload {of.upload})"
    target = of.target if of.path is not None and of.is_needed else ""
    return (names.get(of.operator, of.operator), place, of.kind, str(of.length), target)


def _topic_row(topic: TopicSummary, names: Mapping[str, str]) -> tuple[str, ...]:
    return (
        names.get(topic.operator, topic.operator),
        _topic(topic),
        str(topic.partitions),
        "" if topic.smallest is None else str(topic.smallest),
        "" if topic.largest is None else str(topic.largest),
        str(topic.without_offset or ""),
    )


def _topic(of: TopicSummary | Position) -> str:
    if of.cluster is None:
        return of.topic
    return f"{of.topic} of {of.cluster} ({of.servers or 'servers not known'})"


def _row(position: Position, names: Mapping[str, str]) -> tuple[str, ...]:
    where = position.detail or position.offset
    return (
        names.get(position.operator, position.operator),
        _topic(position),
        str(position.partition),
        str(where if where is not None else position.marker or "as the initializer says"),
        str(position.stop if position.stop is not None else position.stop_marker or ""),
    )


def _pending_row(each: PendingTransaction, names: Mapping[str, str]) -> tuple[str, ...]:
    sink = names.get(each.operator, each.operator)
    checkpoint = "" if each.checkpoint is None else str(each.checkpoint)
    return (sink, each.transactional_id, str(each.producer_id), str(each.epoch), checkpoint)


def _of_pending(pending: Sequence[PendingTransaction], names: Mapping[str, str]) -> str:
    """Return what pending transactions mean for a restore."""
    sinks = sorted({names.get(each.operator, each.operator) for each in pending})
    some = ", ".join(each.transactional_id for each in pending[:_SHOWN])
    more = f" and {len(pending) - _SHOWN} more" if len(pending) > _SHOWN else ""
    return (
        f"{counted(len(pending), 'transaction')} of {', '.join(sinks)}"
        f" {plural(len(pending), 'is', 'are')} pending: {some}{more}. The restored job commits"
        f" {plural(len(pending), 'it', 'them')} at its Kafka. At another Kafka what is pending is"
        " unknown, and the job does not start:"
        " see docs/kafka.md"
    )


def fields(of: CheckpointPositions | None) -> dict[str, Any]:
    """Return the JSON fields of what a checkpoint holds; `positions` only where all are listed."""
    if of is None:
        names = ("topics", "positions", "pending", "positions_unread", "part_files")
        return dict.fromkeys(names)
    found = of.found
    return {
        "topics": [topic._asdict() for topic in by_topic(found.positions)],
        "positions": [each._asdict() for each in found.positions] if of.is_listed else None,
        "pending": [each._asdict() for each in found.pending],
        "positions_unread": [each._asdict() for each in found.unread],
        "part_files": [each._asdict() for each in found.part_files],
    }
