"""A Kafka that holds what a test says, and counts how often it is asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from cpreplicate.core.positions.fingerprints import Seen
from cpreplicate.core.positions.offsets import Partition
from cpreplicate.core.positions.ranges import Range, Ranges, Span, Stamp
from cpreplicate.core.positions.topics import Topics


@dataclass
class StandInKafka:
    """The begin and the end of each partition.

    `first_since` is the first record younger than any checkpoint, `by_broker` are partitions whose
    records have the time of the broker. `logs` are topics of which each record is known.
    """

    held: Mapping[Partition, tuple[int, int]] = field(default_factory=dict)
    servers: str = "kafka-b:9092"
    first_since: Mapping[Partition, int] = field(default_factory=dict)
    by_broker: frozenset[Partition] = frozenset()
    stable: Mapping[Partition, int] = field(default_factory=dict)
    hidden: frozenset[str] = frozenset()
    limit: float | None = 900.0
    logs: Mapping[str, Sequence[tuple[bytes, bytes, float]]] = field(default_factory=dict)
    listings: int = 0
    topic_listings: int = 0

    def topics(self) -> Topics:
        self.topic_listings += 1
        found: dict[str, set[int]] = {}
        for topic, partition in (*self.held, *((each, 0) for each in self.logs)):
            found.setdefault(topic, set()).add(partition)
        return found

    def ranges(self, partitions: Sequence[Partition], topics: Topics | None = None) -> Ranges:
        assert topics is None or topics.keys() == {*self.logs, *(topic for topic, _ in self.held)}
        self.listings += 1
        return {each: Range(*self.held[each]) for each in partitions if each in self.held}

    def denied(self, topics: Sequence[str]) -> frozenset[str]:
        return self.hidden.intersection(topics)

    def since(self, time: float, partitions: Sequence[Partition]) -> Mapping[Partition, int]:
        assert time > 0
        return {each: self.first_since[each] for each in partitions if each in self.first_since}

    def stamps(self, offsets: Mapping[Partition, int]) -> Mapping[Partition, Stamp]:
        """Return times by which a record is written each second, all long ago."""
        return {
            each: Stamp(1_700_000_000.0 + offset, each in self.by_broker)
            for each, offset in offsets.items()
        }

    def first_at(self, times: Mapping[Partition, int]) -> Mapping[Partition, int]:
        return {each: 0 for each in times if each not in self.held}

    def records(
        self, spans: Mapping[Partition, Span], within: float
    ) -> Mapping[Partition, Sequence[Seen]]:
        assert within > 0
        return {each: () for each in spans if each not in self.held}

    def log(self, topic: str) -> Iterator[tuple[bytes, bytes, float]]:
        return iter(self.logs[topic])

    def stable_ends(self, partitions: Sequence[Partition]) -> Mapping[Partition, int]:
        return {each: self.stable.get(each, self.held[each][1]) for each in partitions}

    def transaction_limit(self) -> float | None:
        return self.limit
