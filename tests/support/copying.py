"""A mirror of a topic: it copies records with their times, as MirrorMaker 2 does.

The target's offsets are its own, unless both begin with 0 and nothing is left out.
"""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.support.kafka import Kafka
from tests.support.waiting import PATIENCE, wait_until


def copy(
    source: Kafka,
    target: Kafka,
    topic: str,
    firsts: Mapping[int, int],
    ends: Mapping[int, int],
    name: str | None = None,
) -> None:
    """Append the records of partitions, from a first one up to an end, to the topic at the target.

    Offsets without a record, such as markers of transactions, are left out.
    """
    own = {"group.id": "copy", "enable.auto.commit": False, "enable.partition.eof": True}
    consumer = Consumer({"bootstrap.servers": source.servers, "log_level": 0, **own})
    producer = Producer({"bootstrap.servers": target.servers, "log_level": 0, "linger.ms": 0})
    left = {partition for partition, first in firsts.items() if first < ends[partition]}

    def copied() -> bool:
        for message in consumer.consume(500, timeout=0.2):
            partition = message.partition()
            if message.error() is not None or message.offset() >= ends[partition]:
                left.discard(partition)
                continue
            _, time = message.timestamp()
            producer.produce(
                name or topic,
                message.value(),
                message.key(),
                partition=partition,
                timestamp=time,
                headers=message.headers(),
            )
        return not left

    try:
        consumer.assign([TopicPartition(topic, each, firsts[each]) for each in left])
        wait_until(copied, f"the copy of {topic}")
        assert producer.flush(PATIENCE) == 0
    finally:
        consumer.close()
