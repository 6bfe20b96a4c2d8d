"""States of Kafka's connector with other offsets, topics and servers, or without transactions.

What is not asked for stays as it was: each state is read and written field by field, in the order
of `kafka`. Topics are renamed first: offsets are asked for by the new name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from cpreplicate.core.metadata.mutf8 import utf
from cpreplicate.core.positions import kafka_legacy
from cpreplicate.core.positions.fields import Fields, block, flag, i32, i64
from cpreplicate.core.positions.kafka import (
    KAFKA,
    READERS,
    UNASSIGNED,
    KafkaPositions,
    Split,
    enumerator,
    read_partition,
    read_split,
    read_status,
    split_of,
)
from cpreplicate.core.positions.list_states import datum
from cpreplicate.core.positions.model import Position, Positions, SourceState, Unreadable
from cpreplicate.core.positions.sinks.committables import COMMITTER, emptied


@dataclass(frozen=True)
class Changes:
    """What is to be changed in the states of Kafka's connector.

    `topics` maps old names to new ones. `offset` returns the new start offset of a split, which has
    its new topic, or None if it stays. `servers` are the new ones of clusters of a
    DynamicKafkaSource, by their id. `drops_pending`: pending transactions are left out, and part
    files of sinks.
    """

    topics: Mapping[str, str] = field(default_factory=dict)
    offset: Callable[[Split], int | None] = lambda _split: None
    servers: Mapping[str, str] = field(default_factory=dict)
    drops_pending: bool = False


class Rewritten(NamedTuple):
    """The states of one operator as they are to be written; what is absent stays as it was.

    The lists in `emptied` have no element any more.
    """

    elements: Mapping[str, tuple[bytes, ...]]
    coordinator: bytes | None
    emptied: frozenset[str] = frozenset()


def rewritten(state: SourceState, changes: Changes) -> Rewritten:
    """Return the states of an operator with these changes.

    An operator that is not Kafka's stays as it was. Raises `Unreadable` as `KafkaPositions.decode`,
    and if the new states do not read as they were meant.
    """
    found = KafkaPositions().decode(state)
    if found is None:
        return Rewritten({}, None)
    new = _made(state, found, changes)
    _compare(state, found, new, changes)
    return new


def _made(state: SourceState, found: Positions, changes: Changes) -> Rewritten:
    if READERS in state.elements:
        return _source(state, changes)
    if COMMITTER in state.elements:
        return _committer(state, found, changes)
    return _legacy(state, found, changes)


def _legacy(state: SourceState, found: Positions, changes: Changes) -> Rewritten:
    name, new = kafka_legacy.TRANSACTIONS, state.elements.get(kafka_legacy.TRANSACTIONS, ())
    if kafka_legacy.OFFSETS in state.elements:
        name, old = kafka_legacy.OFFSETS, state.elements[kafka_legacy.OFFSETS]
        new = tuple(kafka_legacy.with_changes(each, changes.topics, _by(changes)) for each in old)
    elif found.pending and changes.drops_pending:
        new = tuple(map(kafka_legacy.without_pending, new))
    return Rewritten({} if new == state.elements.get(name, ()) else {name: new}, None)


def _by(changes: Changes) -> Callable[[str, int], int | None]:
    return lambda topic, partition: changes.offset(Split(topic, partition, None))


def _compare(state: SourceState, found: Positions, new: Rewritten, changes: Changes) -> None:
    """Raise `Unreadable` unless the new states read as the positions that are meant."""
    coordinator = state.coordinator if new.coordinator is None else new.coordinator
    after = SourceState(state.operator, {**state.elements, **new.elements}, coordinator)
    read = KafkaPositions().decode(after) or Positions()
    meant = (_meant(position, changes) for position in found.positions)
    pending = () if changes.drops_pending else found.pending
    if (sorted(read.positions, key=_place), read.pending) != (sorted(meant, key=_place), pending):
        raise Unreadable("what was to be written does not read as it was meant")


def _place(position: Position) -> tuple[str, str, int]:
    return position.cluster or "", position.topic, position.partition


def _meant(position: Position, changes: Changes) -> Position:
    """Return what becomes of a position."""
    topic = changes.topics.get(position.topic, position.topic)
    servers = changes.servers.get(position.cluster or "", position.servers or "") or None
    moved = position._replace(topic=topic, servers=servers)
    split = Split(topic, position.partition, position.offset, cluster=position.cluster)
    offset = changes.offset(split)
    return moved if offset is None else moved._replace(offset=offset, marker=None)


def _committer(state: SourceState, found: Positions, changes: Changes) -> Rewritten:
    if not (found.pending and changes.drops_pending):
        return Rewritten({}, None)
    return Rewritten({COMMITTER: tuple(map(emptied, state.elements[COMMITTER]))}, None)


def _source(state: SourceState, changes: Changes) -> Rewritten:
    splits = tuple(_element(element, changes) for element in state.elements[READERS])
    coordinator = state.coordinator
    if coordinator is not None:
        coordinator = _coordinator(coordinator, changes)
    elements = {} if splits == state.elements[READERS] else {READERS: splits}
    return Rewritten(elements, None if coordinator == state.coordinator else coordinator)


def _element(element: bytes, changes: Changes) -> bytes:
    version, content = datum(element)
    split = split_of(version, content)
    body = _encoded(changed(split, changes))
    if split.cluster is not None:
        body = utf(split.cluster) + i32(KAFKA) + body
    return i32(version) + block(body)


def changed(split: Split, changes: Changes) -> Split:
    """Return a split with its new topic and its new start offset."""
    split = split._replace(topic=changes.topics.get(split.topic, split.topic))
    offset = changes.offset(split)
    return split if offset is None else split._replace(start=offset)


def _encoded(split: Split) -> bytes:
    assert split.start is not None, "a split of a reader has an offset or a marker"
    return utf(split.topic) + i32(split.partition) + i64(split.start, split.stop)


def _coordinator(state: bytes, changes: Changes) -> bytes:
    version, body = enumerator(state)
    for write in (_kafka_body, _dynamic_body):
        fields = Fields(body)
        try:
            new = write(version, fields, changes, None)
            fields.end()
        except Unreadable:
            continue
        return i32(1, version) + block(new)
    raise Unreadable(f"the state of the coordinator (version {version}) is not known")


def _kafka_body(version: int, fields: Fields, changes: Changes, cluster: str | None) -> bytes:
    """Write the state of the enumerator of a Kafka source: its partitions."""
    if version == 2:
        out = _entries(fields, changes)
    elif version == 3:
        out = _entries_with_offsets(fields, changes, cluster)
    else:
        raise Unreadable("it is not known")
    return out + flag(fields.flag())


def _entries(fields: Fields, changes: Changes) -> bytes:
    count = fields.count(10)
    out = i32(count)
    for _ in range(count):
        topic, partition = read_partition(fields)
        out += utf(changes.topics.get(topic, topic)) + i32(partition, read_status(fields))
    return out


def _entries_with_offsets(fields: Fields, changes: Changes, cluster: str | None) -> bytes:
    """Write the entries of version 3.

    The offset of a split that a reader holds is a start value, which is never read again: only its
    topic changes. That of one that no reader holds is its position.
    """
    count = fields.count(8)
    fields.expect(KAFKA, "a version of a split")
    out = i32(count, KAFKA)
    for _ in range(count):
        inner = Fields(fields.block())
        split = read_split(inner)._replace(cluster=cluster)
        inner.end()
        status = read_status(fields)
        moves = changed(split, changes)
        if status != UNASSIGNED:
            moves = moves._replace(start=split.start)
        out += block(_encoded(moves)) + i32(status)
    return out


def _dynamic_body(version: int, fields: Fields, changes: Changes, _cluster: str | None) -> bytes:
    """Write the state of the enumerator of a dynamic source: streams, and a body per cluster."""
    if version not in (1, 2):
        raise Unreadable("it is not known")
    streams = fields.count(6)
    out = i32(streams)
    for _ in range(streams):
        out += utf(fields.utf())
        clusters = fields.count(8)
        out += i32(clusters)
        for _ in range(clusters):
            out += _described(version, fields, changes)
    inner = fields.i32()
    bodies = fields.count(6)
    out += i32(inner, bodies)
    for _ in range(bodies):
        cluster = fields.utf()
        part = Fields(fields.block())
        body = _kafka_body(inner, part, changes, cluster)
        part.end()
        out += utf(cluster) + block(body)
    return out


def _described(version: int, fields: Fields, changes: Changes) -> bytes:
    """Write a cluster's description: its id, topics and servers, and two initializers."""
    cluster = fields.utf()
    count = fields.count(2)
    topics = [fields.utf() for _ in range(count)]
    out = utf(cluster) + i32(count)
    out += b"".join(utf(changes.topics.get(topic, topic)) for topic in topics)
    servers = fields.utf()
    out += utf(changes.servers.get(cluster, servers))
    for _ in range(2 if version == 2 else 0):
        is_set = fields.flag()
        out += flag(is_set) + (block(fields.block()) if is_set else b"")
    return out
