"""States of `FlinkKafkaConsumer` and `FlinkKafkaProducer`, up to the connector 3.x.

A list of the consumer has a tuple of a `KafkaTopicPartition`, by Kryo, and an offset in each
element: that of the last record that was read. One of the producer has a `State` of
`TwoPhaseCommitSinkFunction`. The order of fields is that of `TupleSerializer`, Kryo 2.24 and
`FlinkKafkaProducer$TransactionStateSerializer`. Their serializers name the connector.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from cpreplicate.core.metadata.mutf8 import utf
from cpreplicate.core.positions.fields import Fields, flag, i32, i64
from cpreplicate.core.positions.model import (
    AnotherConnector,
    Marker,
    PendingTransaction,
    Position,
    Positions,
    SourceState,
    Unreadable,
)
from cpreplicate.core.positions.topics import is_topic

OFFSETS = "topic-partition-offset-states"
TRANSACTIONS = "state"  # a name that other operators give their lists, too
_HINTS = frozenset(("next-transactional-id-hint-v2", "next-transactional-id-hint"))
LISTS = frozenset((OFFSETS, TRANSACTIONS)) | _HINTS
_CLASSES = {
    OFFSETS: b".KafkaTopicPartition",
    TRANSACTIONS: b".FlinkKafkaProducer",
    **dict.fromkeys(_HINTS, b".FlinkKafkaProducer"),
}
# the values of `KafkaTopicPartitionStateSentinel`; of the first, the job's start position decides
_NOT_SET = -915623761776
_MARKERS: dict[int, Marker] = {
    -915623761775: "earliest",
    -915623761774: "latest",
    -915623761773: "committed",
}
_NULL, _BY_NAME, _NOT_NULL = 0, 1, 1  # Kryo's marks of a class, and of an object


class Partition(NamedTuple):
    """A partition as an element of the consumer's list has it: `last` is the last record read.

    `kind` is the number that Kryo gave the class.
    """

    kind: int
    topic: str
    partition: int
    last: int


class Handle(NamedTuple):
    """A transaction, None as its name if it is none, and when it began, in milliseconds."""

    name: str | None
    producer: int
    epoch: int
    began: int


class State(NamedTuple):
    """What a subtask of the producer keeps: its open transaction, pending ones, and its ids."""

    current: Handle | None
    pending: tuple[Handle, ...]
    ids: tuple[str, ...] | None


def own_lists(names: Collection[str]) -> frozenset[str]:
    """Return those lists, of an operator that has these, that may be of these connectors."""
    has_producer = not _HINTS.isdisjoint(names)
    return LISTS.intersection(names) - (frozenset() if has_producer else {TRANSACTIONS})


def refuse_others(name: str, head: bytes) -> None:
    """Raise `AnotherConnector` unless the serializers of a list, in `head`, are of this one."""
    if _CLASSES[name] not in head:
        raise AnotherConnector("its source is not Kafka's")


def decoded(state: SourceState) -> Positions | None:
    """Return what an operator's state holds, None if it is not of a legacy connector."""
    if OFFSETS in state.elements:
        read = map(read_partition, map(Fields, state.elements[OFFSETS]))
        every = sorted(read, key=lambda each: (each.topic, each.partition))
        return Positions(positions=tuple(_position(state.operator, each) for each in every))
    if _HINTS.isdisjoint(state.elements):
        return None
    states = map(read_state, map(Fields, state.elements.get(TRANSACTIONS, ())))
    return Positions(pending=tuple(_pending(state.operator, states)))


def _position(operator: str, of: Partition) -> Position:
    marker = _MARKERS.get(of.last)
    offset = None if marker is not None or of.last == _NOT_SET else of.last + 1
    return Position(operator, of.topic, of.partition, offset, marker)


def _pending(operator: str, states: Iterable[State]) -> Iterator[PendingTransaction]:
    """Yield the transactions that a restored job commits: those without a name are none."""
    for state in states:
        for each in state.pending:
            if each.name is not None:
                yield PendingTransaction(operator, each.name, each.producer, each.epoch, None)


def with_changes(
    element: bytes, topics: Mapping[str, str], offset: Callable[[str, int], int | None]
) -> bytes:
    """Return an element of the consumer's list with its new topic and its new offset.

    `offset` returns the next record to read of a partition by its new name, None if it stays.
    """
    fields = Fields(element)
    found = read_partition(fields)
    fields.end()
    topic = topics.get(found.topic, found.topic)
    new = offset(topic, found.partition)
    return _encoded(found._replace(topic=topic, last=found.last if new is None else new - 1))


def without_pending(element: bytes) -> bytes:
    """Return an element of the producer's list without its pending transactions."""
    fields = Fields(element)
    state = read_state(fields)
    fields.end()
    current, ids = state.current, state.ids
    out = flag(current is not None) + (b"" if current is None else _encoded_handle(current))
    out += i32(0) + flag(ids is not None)
    return out if ids is None else out + i32(len(ids)) + b"".join(map(utf, ids))


def read_partition(fields: Fields) -> Partition:
    """Read an element of the consumer's list. Raises `Unreadable`."""
    kind = _varint(fields)
    if kind in (_NULL, _BY_NAME) or fields.u8() != _NOT_NULL:
        raise Unreadable("a partition is not as Kryo writes it")
    hashed, partition = _signed(_varint(fields)), _signed(_varint(fields))
    if fields.u8() != _NOT_NULL:
        raise Unreadable("a topic is not as Kryo writes it")
    topic, last = _text(fields), fields.i64()
    if not is_topic(topic) or partition < 0 or hashed != _hash(topic, partition):
        raise Unreadable("a partition does not have the name and the hash of one")
    if last < -1 and last != _NOT_SET and last not in _MARKERS:
        raise Unreadable(f"an offset {last} is not known")
    return Partition(kind, topic, partition, last)


def _encoded(of: Partition) -> bytes:
    hashed = _hash(of.topic, of.partition)
    return (
        _as_varint(of.kind)
        + bytes([_NOT_NULL])
        + _as_varint(_unsigned(hashed))
        + _as_varint(_unsigned(of.partition))
        + bytes([_NOT_NULL])
        + _as_text(of.topic)
        + i64(of.last)
    )


def _hash(topic: str, partition: int) -> int:
    """Return the hash that `KafkaTopicPartition` keeps: Java's, of 32 bits."""
    hashed = 0
    for letter in topic.encode("ascii"):
        hashed = 31 * hashed + letter & 0xFFFFFFFF
    hashed = 31 * hashed + partition & 0xFFFFFFFF
    return hashed - (1 << 32) if hashed >> 31 else hashed


def _varint(fields: Fields) -> int:
    """Read a number of 32 bits, 7 in a byte, the lowest first."""
    value = 0
    for index in range(5):
        byte = fields.u8()
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value & 0xFFFFFFFF
    raise Unreadable("a number of Kryo is longer than 5 bytes")


def _as_varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _signed(value: int) -> int:
    return value >> 1 ^ -(value & 1)


def _unsigned(value: int) -> int:
    return (value << 1 ^ value >> 31) & 0xFFFFFFFF


def _text(fields: Fields) -> str:
    """Read a text of ASCII: to the byte with its high bit set, or behind its length."""
    first = fields.u8()
    if first & 0x80:
        length = first & 0x3F
        length |= fields.u8() << 6 if first & 0x40 else 0
        return _ascii(fields.take(max(0, length - 1)))
    out = bytearray([first])
    while out[-1] < 0x80:
        out.append(fields.u8())
    return _ascii(bytes([*out[:-1], out[-1] & 0x7F]))


def _ascii(data: bytes) -> str:
    try:
        return data.decode("ascii")
    except UnicodeDecodeError as error:
        raise Unreadable("a topic does not have the name of one") from error


def _as_text(text: str) -> bytes:
    """Return a text of ASCII as Kryo writes it: of 2 to 63 letters without its length."""
    data, length = text.encode("ascii"), len(text) + 1
    if 1 < len(data) < 64:
        return data[:-1] + bytes([data[-1] | 0x80])
    if length < 64:
        return bytes([length | 0x80]) + data
    return bytes([length & 0x3F | 0xC0, length >> 6]) + data


def read_state(fields: Fields) -> State:
    """Read an element of the producer's list. Raises `Unreadable`."""
    current = _handle(fields) if fields.flag() else None
    pending = tuple(_handle(fields) for _ in range(fields.count(19)))
    ids = tuple(fields.utf() for _ in range(fields.count(2))) if fields.flag() else None
    return State(current, pending, ids)


def _handle(fields: Fields) -> Handle:
    name = fields.utf() if fields.flag() else None
    return Handle(name, fields.i64(), fields.i16(), fields.i64())


def _encoded_handle(of: Handle) -> bytes:
    name = b"" if of.name is None else utf(of.name)
    epoch = of.epoch.to_bytes(2, "big", signed=True)
    return flag(of.name is not None) + name + i64(of.producer) + epoch + i64(of.began)
