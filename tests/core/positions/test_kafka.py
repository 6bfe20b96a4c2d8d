"""Positions and transactions of Kafka's connectors 3.x to 5.x, and what is taken for them."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpreplicate.core.positions.kafka import READERS, KafkaPositions
from cpreplicate.core.positions.kafka_rewrite import Changes, rewritten
from cpreplicate.core.positions.model import (
    PendingTransaction,
    Position,
    Positions,
    SourceState,
    Unreadable,
)
from cpreplicate.core.positions.sinks.committables import COMMITTER
from tests.support import kafka_states as written
from tests.support import sink_states
from tests.support.kafka_states import Split, Transaction

OPERATOR = "f362c87ffabe89c8a91fa7d0a523ba6c"
DECODER = KafkaPositions()
ORDERS = [Split("orders.v1", 0, 2037), Split("orders.v1", 1, 1700), Split("payments", 0, 1633)]


def source(splits, coordinator):
    elements = tuple(split.element for split in splits)
    return SourceState(OPERATOR, {READERS: elements}, coordinator)


def sink(*elements):
    return SourceState(OPERATOR, {COMMITTER: elements}, None)


def decoded(state):
    found = DECODER.decode(state)
    assert found is not None
    return found


@pytest.mark.parametrize("version", [2, 3])
def test_positions_are_those_of_the_readers(version):
    started = [Split(each.topic, each.partition, 0) for each in ORDERS]
    found = decoded(source(ORDERS, written.coordinator(version, started)))
    assert [(each.topic, each.partition, each.offset) for each in found.positions] == [
        ("orders.v1", 0, 2037),
        ("orders.v1", 1, 1700),
        ("payments", 0, 1633),
    ]
    assert found.pending == found.unread == ()


@pytest.mark.parametrize(("start", "marker"), [(-1, "latest"), (-2, "earliest"), (-3, "committed")])
def test_a_marker_is_no_offset(start, marker):
    splits = [Split("orders", 0, start)]
    (position,) = decoded(source(splits, written.coordinator(3, splits))).positions
    assert (position.offset, position.marker) == (None, marker)


@pytest.mark.parametrize(
    ("stop", "shown"),
    [(written.NO_STOP, (None, None)), (700, (700, None)), (-1, (None, "latest"))],
)
def test_a_bounded_source_shows_where_it_ends(stop, shown):
    splits = [Split("orders", 0, 5, stop)]
    (position,) = decoded(source(splits, written.coordinator(3, splits))).positions
    assert (position.stop, position.stop_marker) == shown


def test_a_partition_that_no_reader_holds_has_its_position_in_the_coordinator():
    waiting = Split("orders", 1, 400, status=1)
    held = Split("orders", 0, 9)
    found = decoded(source([held], written.coordinator(3, [held, waiting])))
    assert [(each.partition, each.offset) for each in found.positions] == [(0, 9), (1, 400)]


def test_version_2_of_the_coordinator_has_no_offset_of_such_a_partition():
    waiting = Split("orders", 1, 400, status=1)
    found = decoded(source([ORDERS[0]], written.coordinator(2, [ORDERS[0], waiting])))
    assert [(each.topic, each.offset, each.marker) for each in found.positions] == [
        ("orders", None, None),
        ("orders.v1", 2037, None),
    ]


@pytest.mark.parametrize("version", [2, 3])
def test_finished_splits_stay_in_the_coordinator_and_are_no_positions(version):
    assert decoded(source([], written.coordinator(version, ORDERS))) == Positions()


@pytest.mark.parametrize("version", [2, 3])
def test_empty_lists_prove_nothing(version):
    assert DECODER.decode(source([], written.coordinator(version, [], is_done=False))) is None


def test_the_coordinator_of_a_number_sequence_is_not_kafkas():
    number_sequence = written.i32(1) + written.versioned(1, written.i32(0))
    assert DECODER.decode(source([], number_sequence)) is None


@pytest.mark.parametrize("version", [1, 2])
def test_a_dynamic_source_names_cluster_and_servers(version):
    splits = [Split("orders", 0, 7, cluster="a"), Split("orders", 0, 8, cluster="b")]
    servers = {"a": "kafka-a:9092", "b": "kafka-b:9092"}
    state = source(splits, written.dynamic_coordinator(version, splits, servers))
    assert [(each.cluster, each.servers, each.offset) for each in decoded(state).positions] == [
        ("a", "kafka-a:9092", 7),
        ("b", "kafka-b:9092", 8),
    ]


@pytest.mark.parametrize(
    "element",
    [
        written.versioned(2, Split("orders", 0, 1).plain),  # a version of the future
        written.versioned(0, Split("orders", 0, 1).plain + b"x"),
        written.versioned(0, Split("not/a/topic", 0, 1).plain),
        written.versioned(0, Split("", 0, 1).plain),
        written.versioned(0, Split("o" * 250, 0, 1).plain),
        written.versioned(0, Split("orders", -1, 1).plain),
        written.versioned(0, Split("orders", 0, -4).plain),
        written.versioned(0, Split("orders", 0, 1, -2).plain),
        written.versioned(0, b""),
    ],
)
def test_a_split_that_is_not_just_so_is_not_kafkas(element):
    state = SourceState(OPERATOR, {READERS: (element,)}, written.coordinator(3, []))
    assert DECODER.decode(state) is None


def test_a_coordinator_of_a_version_that_is_not_known_is_named():
    state = source(ORDERS, written.i32(1) + written.versioned(9, b"future"))
    with pytest.raises(Unreadable, match="version 9"):
        DECODER.decode(state)


@pytest.mark.parametrize("subtask_version", [1, 2])
def test_transactions_are_pending_until_they_are_committed(subtask_version):
    element = written.committables(
        4,
        [
            Transaction("tx-received", 7),
            Transaction("tx-retried", 8, epoch=2, state=1),
            Transaction("tx-failed", 9, state=2),
            Transaction("tx-committed", 10, state=3),
        ],
        subtask_version,
    )
    assert decoded(sink(element)).pending == (
        PendingTransaction(OPERATOR, "tx-received", 7, 0, 4),
        PendingTransaction(OPERATOR, "tx-retried", 8, 2, 4),
    )


def test_a_sink_without_committables_is_not_taken_for_kafkas():
    assert DECODER.decode(sink(written.NO_COMMITTABLES)) is None
    assert DECODER.decode(sink()) is None


@pytest.mark.parametrize("release", ["1.14", "1.17", "1.20", "2.3"])
def test_transactions_are_read_and_left_out_as_each_flink_collects_committables(release):
    committable = (1).to_bytes(2, "big") + written.i64(7) + written.utf("tx-0-4")
    element = sink_states.collected(release, 4, [committable], version=1)
    checkpoint = None if release == "1.14" else 4
    assert decoded(sink(element)).pending == (
        PendingTransaction(OPERATOR, "tx-0-4", 7, 1, checkpoint),
    )
    (new,) = rewritten(sink(element), Changes(drops_pending=True)).elements[COMMITTER]
    assert DECODER.decode(sink(new)) is None
    assert new[:4] == element[:4]


def test_committables_of_another_sink_are_not_kafkas():
    file_sink = written.versioned(3, b"a file that is in progress") + written.i32(0, 0)
    subtask = written.i32(0) + written.listed(0, [file_sink]) + written.i32(0, 0)
    manager = written.i64(4) + written.i32(1) + written.listed(2, [subtask])
    magic = bytes.fromhex("b91f252c")
    element = written.versioned(2, magic + written.listed(1, [manager]))
    assert DECODER.decode(sink(element)) is None


def test_committables_of_a_version_that_is_not_known_are_named():
    with pytest.raises(Unreadable, match="version 3"):
        DECODER.decode(sink(written.versioned(3, b"")))


TOPICS = st.text("abcXYZ019._-", min_size=1, max_size=30).filter(lambda name: name.strip("."))
OFFSETS = st.integers(0, (1 << 63) - 1) | st.sampled_from([-1, -2, -3])
STOPS = st.integers(0, (1 << 63) - 1) | st.sampled_from([-1, -3, written.NO_STOP])
SPLITS = st.lists(
    st.builds(Split, TOPICS, st.integers(0, (1 << 31) - 1), OFFSETS, STOPS), min_size=1, max_size=9
)


@given(SPLITS, st.sampled_from([2, 3]))
def test_every_split_is_read_as_it_was_written(splits, version):
    found = decoded(source(splits, written.coordinator(version, splits)))
    markers = {-1: "latest", -2: "earliest", -3: "committed"}
    wanted = [
        Position(
            OPERATOR,
            each.topic,
            each.partition,
            each.start if each.start >= 0 else None,
            markers.get(each.start),
            each.stop if each.stop >= 0 else None,
            markers.get(each.stop),
        )
        for each in sorted(splits, key=lambda each: (each.topic, each.partition))
    ]
    assert sorted(found.positions, key=str) == sorted(wanted, key=str)


def mutated(data, draw):
    """Flip, cut, double or replace some bytes."""
    changed = bytearray(data)
    for _ in range(draw.randint(1, 3)):
        at = draw.randrange(len(changed) + 1)
        kind = draw.randrange(4)
        if kind == 0 and at < len(changed):
            changed[at] ^= 1 << draw.randrange(8)
        elif kind == 1:
            del changed[at : at + draw.randint(1, 8)]
        elif kind == 2:
            changed[at:at] = draw.randbytes(draw.randint(1, 4))
        else:
            changed[at : at + 4] = draw.choice([b"\x7f\xff\xff\xff", b"\xff" * 4, bytes(4)])
    return bytes(changed)


DYNAMIC = [Split("orders", 0, 7, cluster="a"), Split("orders", 1, 8, cluster="b")]
SERVERS = {"a": "kafka-a:9092", "b": "kafka-b:9092"}
SEEDS = [
    *((source(ORDERS, written.coordinator(version, ORDERS))) for version in (2, 3)),
    *(
        source(DYNAMIC, written.dynamic_coordinator(version, DYNAMIC, SERVERS))
        for version in (1, 2)
    ),
    *(sink(written.committables(4, [Transaction("tx", 7)], version)) for version in (1, 2)),
]


@pytest.mark.slow
def test_100_000_mutated_states_give_a_result_or_an_error_of_ours():
    draw = random.Random(24)
    read = refused = others = 0
    for _ in range(100_000):
        state = draw.choice(SEEDS)
        elements = {
            name: tuple(mutated(each, draw) if draw.random() < 0.5 else each for each in values)
            for name, values in state.elements.items()
        }
        coordinator = state.coordinator
        if coordinator is not None and draw.random() < 0.5:
            coordinator = mutated(coordinator, draw)
        try:
            found = DECODER.decode(SourceState(OPERATOR, elements, coordinator))
        except Unreadable:
            refused += 1
        else:
            read += found is not None
            others += found is None
    assert min(read, refused, others) > 1000
