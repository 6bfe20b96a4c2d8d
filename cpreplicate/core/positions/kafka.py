"""Positions and transactions of Flink's Kafka connector, 3.x to 5.x, and of its forerunners.

Nothing in a checkpoint names the connector. A split is one of `KafkaSource` if its version is 0,
its bytes are used up exactly, and its topic has a valid name; one of `DynamicKafkaSource` has
version 1 and the id of a cluster in front. The order of fields is that of
`KafkaPartitionSplitSerializer`, `KafkaSourceEnumStateSerializer`, `DynamicKafkaSource…Serializer`
and `KafkaCommittableSerializer`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from cpreplicate.core.positions import kafka_legacy
from cpreplicate.core.positions.fields import Fields
from cpreplicate.core.positions.list_states import datum
from cpreplicate.core.positions.model import (
    Marker,
    PendingTransaction,
    Position,
    Positions,
    SourceState,
    Unreadable,
)
from cpreplicate.core.positions.sinks.committables import COMMITTER, Committable, committables
from cpreplicate.core.positions.topics import is_topic

READERS = "SourceReaderState"
_MARKERS: dict[int, Marker] = {-1: "latest", -2: "earliest", -3: "committed"}
_STOP_MARKERS: dict[int, Marker] = {-1: "latest", -3: "committed"}
_NO_STOP = -(1 << 63)
KAFKA, DYNAMIC = 0, 1  # versions of a split
ASSIGNED, UNASSIGNED = 0, 1


class Split(NamedTuple):
    """A partition of a topic, from where and to where it is read."""

    topic: str
    partition: int
    start: int | None
    stop: int = _NO_STOP
    cluster: str | None = None


class Coordinator(NamedTuple):
    """What the state of a source's coordinator holds.

    `splits` counts all that were found. `unassigned` are those that no reader holds yet. `servers`
    are those of each cluster of a DynamicKafkaSource.
    """

    splits: int
    unassigned: tuple[Split, ...]
    servers: Mapping[str, str]


class KafkaPositions:
    """The decoder of Kafka's connector; see `model.PositionDecoder`."""

    states = frozenset((READERS, COMMITTER)) | kafka_legacy.LISTS

    def decode(self, state: SourceState) -> Positions | None:
        """Return what an operator's state holds, or None if it is not Kafka's."""
        if READERS in state.elements:
            return _source(state)
        if COMMITTER in state.elements:
            return _committer(state)
        return kafka_legacy.decoded(state)


def _source(state: SourceState) -> Positions | None:
    splits = read_splits(state.elements[READERS])
    if splits is None:
        return None
    is_dynamic = any(split.cluster is not None for split in splits)
    coordinator = _coordinator_of(state, is_dynamic) if splits else _any_coordinator(state)
    if coordinator is None or not (splits or coordinator.splits):
        return None
    every = sorted((*splits, *coordinator.unassigned), key=_by_name)
    servers = coordinator.servers
    return Positions(positions=tuple(_position(state.operator, each, servers) for each in every))


def _by_name(split: Split) -> tuple[str, str, int]:
    return split.cluster or "", split.topic, split.partition


def _position(operator: str, split: Split, servers: Mapping[str, str]) -> Position:
    """Return a position of a split, whose offsets below zero are markers."""
    start, is_bounded = split.start, split.stop != _NO_STOP
    return Position(
        operator=operator,
        topic=split.topic,
        partition=split.partition,
        offset=None if start is None or start < 0 else start,
        marker=None if start is None else _MARKERS.get(start),
        stop=split.stop if is_bounded and split.stop >= 0 else None,
        stop_marker=_STOP_MARKERS.get(split.stop),
        cluster=split.cluster,
        servers=None if split.cluster is None else servers.get(split.cluster),
    )


def are_of_known_versions(elements: Iterable[bytes]) -> bool:
    """Return whether splits have versions that Kafka's connector has, too.

    Those that are not Kafka's then are of another connector, and not of a later one of Kafka's.
    """
    try:
        return all(datum(element)[0] in (KAFKA, DYNAMIC) for element in elements)
    except Unreadable:
        return False


def read_splits(elements: Iterable[bytes]) -> list[Split] | None:
    """Return the splits of a source's readers, or None if one of them is not Kafka's."""
    try:
        return [_versioned_split(element) for element in elements]
    except Unreadable:
        return None


def _versioned_split(element: bytes) -> Split:
    return split_of(*datum(element))


def split_of(version: int, content: bytes) -> Split:
    """Return the split that was serialized in a version. Raises `Unreadable`."""
    if version not in (KAFKA, DYNAMIC):
        raise Unreadable(f"version {version} of a split is not known")
    fields = Fields(content)
    cluster = None
    if version == DYNAMIC:
        cluster = fields.utf()
        fields.expect(KAFKA, "a version of a split")
    split = read_split(fields)._replace(cluster=cluster)
    fields.end()
    return split


def read_split(fields: Fields) -> Split:
    """Read a split of a `KafkaSource`. Raises `Unreadable` for what is none."""
    topic, partition = read_partition(fields)
    start, stop = fields.i64(), fields.i64()
    if start < 0 and start not in _MARKERS:
        raise Unreadable(f"a start offset {start} is not known")
    if stop < 0 and stop != _NO_STOP and stop not in _STOP_MARKERS:
        raise Unreadable(f"a stop offset {stop} is not known")
    return Split(topic, partition, start, stop)


def read_partition(fields: Fields) -> tuple[str, int]:
    """Read a topic, which must have the name of one, and the number of a partition."""
    topic, partition = fields.utf(), fields.i32()
    if not is_topic(topic):
        raise Unreadable("a topic does not have the name of one")
    if partition < 0:
        raise Unreadable(f"a partition {partition} is not known")
    return topic, partition


def _coordinator_of(state: SourceState, is_dynamic: bool) -> Coordinator:
    """Return the state of the coordinator of readers that hold splits of Kafka."""
    if state.coordinator is None:
        raise Unreadable("its readers hold splits of Kafka, and it has no coordinator")
    version, body = enumerator(state.coordinator)
    read = _dynamic_coordinator if is_dynamic else _kafka_coordinator
    try:
        return read(version, body)
    except Unreadable as error:
        raise Unreadable(f"the state of the coordinator (version {version}): {error}") from error


def _any_coordinator(state: SourceState) -> Coordinator | None:
    """Return the state of a coordinator whose readers hold nothing, None if it is not Kafka's."""
    for read in (_kafka_coordinator, _dynamic_coordinator):
        try:
            return read(*enumerator(state.coordinator or b""))
        except Unreadable:
            continue
    return None


def enumerator(coordinator: bytes) -> tuple[int, bytes]:
    """Return version and content of the enumerator's state in that of a `SourceCoordinator`."""
    fields = Fields(coordinator)
    fields.expect(1, "a version of the coordinator's state")
    version, body = fields.i32(), fields.block()
    fields.end()
    return version, body


def _kafka_coordinator(version: int, body: bytes) -> Coordinator:
    fields = Fields(body)
    coordinator = _kafka_body(version, fields)
    fields.end()
    return coordinator


def _kafka_body(version: int, fields: Fields) -> Coordinator:
    if version == 2:
        entries = [_entry(*read_partition(fields), fields) for _ in range(fields.count(10))]
    elif version == 3:
        entries = list(_entries_with_offsets(fields))
    else:
        raise Unreadable("it is not known")
    fields.flag()  # whether the first discovery of partitions is done
    unassigned = tuple(split for split, status in entries if status == UNASSIGNED)
    return Coordinator(len(entries), unassigned, {})


def _entry(topic: str, partition: int, fields: Fields) -> tuple[Split, int]:
    return Split(topic, partition, None), read_status(fields)


def _entries_with_offsets(fields: Fields) -> Iterator[tuple[Split, int]]:
    """Yield the entries of version 3.

    Their offsets are start values and stay as they were: only a split that no reader holds has its
    position here.
    """
    count = fields.count(8)
    fields.expect(KAFKA, "a version of a split")
    for _ in range(count):
        inner = Fields(fields.block())
        split = read_split(inner)
        inner.end()
        yield split, read_status(fields)


def read_status(fields: Fields) -> int:
    """Read whether a reader holds a split, 0, or none does, 1."""
    status = fields.i32()
    if status not in (ASSIGNED, UNASSIGNED):
        raise Unreadable(f"a status {status} of a split is not known")
    return status


def _dynamic_coordinator(version: int, body: bytes) -> Coordinator:
    if version not in (1, 2):
        raise Unreadable("it is not known")
    fields = Fields(body)
    servers: dict[str, str] = {}
    for _ in range(fields.count(6)):
        fields.utf()  # the id of a stream
        for _ in range(fields.count(8)):
            _cluster(version, fields, servers)
    splits, unassigned = _bodies(fields)
    fields.end()
    return Coordinator(splits, unassigned, servers)


def _cluster(version: int, fields: Fields, servers: dict[str, str]) -> None:
    cluster = fields.utf()
    for _ in range(fields.count(2)):
        fields.utf()  # a topic
    servers[cluster] = fields.utf()
    for _ in range(2 if version == 2 else 0):
        if fields.flag():
            fields.block()  # an offsets initializer, as a Java object


def _bodies(fields: Fields) -> tuple[int, tuple[Split, ...]]:
    """Read the state of each cluster's enumerator: its splits, and those that no reader holds."""
    version, splits = fields.i32(), 0
    unassigned: list[Split] = []
    for _ in range(fields.count(6)):
        cluster = fields.utf()
        part = _kafka_coordinator(version, fields.block())
        splits += part.splits
        unassigned += [split._replace(cluster=cluster) for split in part.unassigned]
    return splits, tuple(unassigned)


def _committer(state: SourceState) -> Positions | None:
    """Return the pending transactions of a sink, or None if there is none or it is not Kafka's."""
    pending: list[PendingTransaction] = []
    for element in state.elements[COMMITTER]:
        for each in committables(element):
            try:
                transaction = _transaction(state.operator, each)
            except Unreadable:
                return None  # the committables are those of another connector
            pending += [transaction] if each.is_pending else []
    return Positions(pending=tuple(pending)) if pending else None


def _transaction(operator: str, of: Committable) -> PendingTransaction:
    """Read a committable of the Kafka sink. Raises `Unreadable` if it is of another one."""
    fields = Fields(of.data)
    if of.version != 1:
        raise Unreadable("a version that is not known")
    epoch, producer, name = fields.i16(), fields.i64(), fields.utf()
    fields.end()
    if producer < 0 or epoch < 0 or not name:
        raise Unreadable("a producer that cannot be one")
    return PendingTransaction(operator, name, producer, epoch, of.checkpoint)
