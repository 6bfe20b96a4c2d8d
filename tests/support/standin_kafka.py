"""A Kafka that holds what a test says, and counts how often it is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cpreplicate.core.positions.offsets import Partition
from cpreplicate.core.positions.ranges import Range, Ranges
from cpreplicate.core.positions.topics import Topics


@dataclass
class StandInKafka:
    """The begin and the end of each partition."""

    held: Mapping[Partition, tuple[int, int]] = field(default_factory=dict)
    servers: str = "kafka-b:9092"
    listings: int = 0
    topic_listings: int = 0

    def topics(self) -> Topics:
        self.topic_listings += 1
        found: dict[str, set[int]] = {}
        for topic, partition in self.held:
            found.setdefault(topic, set()).add(partition)
        return found

    def ranges(self, partitions: Sequence[Partition], topics: Topics | None = None) -> Ranges:
        assert topics is None or topics.keys() == {topic for topic, _ in self.held}
        self.listings += 1
        return {each: Range(*self.held[each]) for each in partitions if each in self.held}
