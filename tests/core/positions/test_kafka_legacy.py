"""What FlinkKafkaConsumer and FlinkKafkaProducer keep is read as it is written."""

from __future__ import annotations

import struct

import pytest

from cpreplicate.core.positions import kafka_legacy as legacy
from cpreplicate.core.positions.fields import Fields
from cpreplicate.core.positions.kafka import KafkaPositions
from cpreplicate.core.positions.kafka_rewrite import Changes, rewritten
from cpreplicate.core.positions.model import AnotherConnector, SourceState, Unreadable

HINT = "next-transactional-id-hint-v2"
# of a checkpoint of Flink 1.14: partition 2 of `old1146llde6e.in`, whose record 1099 was read last
REAL = bytes.fromhex("5701efcaecfc0e04016f6c64313134366c6c646536652e69ee") + struct.pack(">q", 1206)


def handle(name: str | None, producer: int = 70) -> bytes:
    text = b"\0" if name is None else b"\1" + struct.pack(">H", len(name)) + name.encode()
    return text + struct.pack(">qhq", producer, 1, 1_700_000_000_000)


def state(*pending: bytes, ids: tuple[str, ...] = ("tx-1", "tx-2")) -> bytes:
    listed = b"".join(struct.pack(">H", len(each)) + each.encode() for each in ids)
    head = b"\1" + handle("tx-9") + struct.pack(">i", len(pending))
    return head + b"".join(pending) + b"\1" + struct.pack(">i", len(ids)) + listed


def test_a_partition_is_read_on_behind_the_last_record_that_was_read():
    found = KafkaPositions().decode(SourceState("op", {legacy.OFFSETS: (REAL,)}))
    assert found is not None
    assert [(each.topic, each.partition, each.offset) for each in found.positions] == [
        ("old1146llde6e.in", 2, 1207)
    ]


@pytest.mark.parametrize(
    ("last", "offset", "marker"),
    [
        (-1, 0, None),
        (-915623761776, None, None),
        (-915623761775, None, "earliest"),
        (-915623761774, None, "latest"),
        (-915623761773, None, "committed"),
    ],
)
def test_what_stands_for_an_offset_is_a_marker(last, offset, marker):
    element = REAL[:-8] + struct.pack(">q", last)
    found = KafkaPositions().decode(SourceState("op", {legacy.OFFSETS: (element,)}))
    assert found is not None
    assert [(each.offset, each.marker) for each in found.positions] == [(offset, marker)]


@pytest.mark.parametrize("topic", ["o", "or", "o" * 62, "o" * 63, "o" * 64, "o" * 127, "o" * 249])
def test_a_topic_of_any_length_is_written_as_kryo_reads_it(topic):
    new = legacy.with_changes(REAL, {"old1146llde6e.in": topic}, lambda _topic, _partition: 7)
    assert legacy.read_partition(Fields(new)) == legacy.Partition(0x57, topic, 2, 6)
    back = legacy.with_changes(new, {topic: "old1146llde6e.in"}, lambda _topic, _partition: 1207)
    assert back == REAL


@pytest.mark.parametrize(
    ("topic", "written"),
    [
        ("o", b"\x82o"),
        ("or", b"o\xf2"),
        ("o" * 63, b"o" * 62 + b"\xef"),
        ("o" * 64, b"\xc1\x01" + b"o" * 64),
        ("o" * 249, b"\xfa\x03" + b"o" * 249),
    ],
)
def test_a_topic_is_written_as_output_write_string_of_kryo_does(topic, written):
    new = legacy.with_changes(REAL, {"old1146llde6e.in": topic}, lambda _topic, _partition: 7)
    assert new[:-8].endswith(b"\x01" + written)


@pytest.mark.parametrize(
    "damage",
    [
        b"\0",
        b"\1" + REAL[1:],
        REAL[:2] + b"\0" + REAL[3:],  # another hash
        REAL[:-8] + struct.pack(">q", -2),
        REAL[:-9],
        b"\xff" * 20,
    ],
)
def test_what_kryo_would_not_write_is_not_read(damage):
    with pytest.raises(Unreadable):
        KafkaPositions().decode(SourceState("op", {legacy.OFFSETS: (damage,)}))


def test_pending_transactions_are_those_with_a_name_and_are_dropped_alone():
    elements = {HINT: (), legacy.TRANSACTIONS: (state(handle("tx-3"), handle(None)), state())}
    found = KafkaPositions().decode(SourceState("op", elements))
    assert found is not None
    assert [(*each,) for each in found.pending] == [("op", "tx-3", 70, 1, None)]
    kept = rewritten(SourceState("op", elements), Changes())
    assert (kept.elements, kept.coordinator) == ({}, None)
    dropped = rewritten(SourceState("op", elements), Changes(drops_pending=True))
    assert dropped.elements == {legacy.TRANSACTIONS: (state(), state())}


def test_a_list_called_state_is_not_of_a_producer_without_its_other_list():
    assert legacy.own_lists(["state", "others"]) == frozenset()
    assert legacy.own_lists(["state", HINT]) == {"state", HINT}
    with pytest.raises(AnotherConnector):
        legacy.refuse_others(legacy.OFFSETS, b"of org.apache.pulsar.TopicSubscription")
