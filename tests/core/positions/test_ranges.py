"""Positions that do not exist at another Kafka are found, and clamped with what that costs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpreplicate.core.positions.model import PendingTransaction, Position, Positions, Unread
from cpreplicate.core.positions.offsets import Move
from cpreplicate.core.positions.ranges import (
    Problem,
    Range,
    absent,
    behind,
    clamped,
    partitions_of,
    problems,
)
from cpreplicate.errors import Refused

RANGES = {("orders", 0): Range(100, 500)}
TOPICS = {"orders"}
PENDING = PendingTransaction("sink", "tx-0-3", 70, 0, 3)


def held(*positions: Position, pending=()) -> Positions:
    return Positions(positions, tuple(pending))


def at(offset, topic="orders", partition=0, marker=None) -> Position:
    return Position("op", topic, partition, offset, marker)


@pytest.mark.parametrize("offset", [100, 307, 500])
def test_a_position_from_the_begin_to_the_end_is_no_problem(offset):
    assert list(problems(held(at(offset)), RANGES, TOPICS)) == []


@pytest.mark.parametrize(
    ("position", "trouble"),
    [
        (at(501), "beyond-end"),
        (at(99), "deleted"),
        (at(300, partition=1), "no-partition"),
        (at(300, topic="payments"), "no-topic"),
        (at(None, topic="payments", marker="earliest"), "no-topic"),
    ],
)
def test_a_position_that_does_not_exist_is_a_problem(position, trouble):
    (problem,) = problems(held(position), RANGES, TOPICS)
    assert (problem.trouble, problem.position) == (trouble, position)
    assert problem.range == RANGES.get((position.topic, position.partition))


@pytest.mark.parametrize("marker", ["earliest", "latest", "committed", None])
def test_what_has_no_offset_yet_exists_where_its_partition_does(marker):
    assert list(problems(held(at(None, marker=marker)), RANGES, TOPICS)) == []


def test_every_pending_transaction_is_a_problem_but_at_its_own_kafka():
    state = held(at(300), pending=[PENDING])
    assert list(problems(state, RANGES, TOPICS)) == [
        Problem("pending", "sink", transaction=PENDING)
    ]
    assert list(problems(state, RANGES, TOPICS, is_same_kafka=True)) == []


def dynamic(cluster, servers, offset=300) -> Position:
    return Position("op", "orders", 0, offset, cluster=cluster, servers=servers)


@pytest.mark.parametrize("servers", ["b1:9092,b2:9092", "B2:9092, b1:9092"])
def test_a_dynamic_source_with_the_servers_of_the_kafka_is_no_problem(servers):
    state = held(dynamic("one", servers))
    assert list(problems(state, RANGES, TOPICS, servers="b1:9092,b2:9092")) == []


@pytest.mark.parametrize("servers", ["a:9092", "b1:9092", None])
def test_a_dynamic_source_with_other_servers_is_one_problem_and_its_positions_are_others(servers):
    state = held(dynamic("one", servers), dynamic("one", servers, 501))
    found = list(problems(state, RANGES, TOPICS, servers="b1:9092,b2:9092"))
    assert [each.trouble for each in found] == ["other-servers", "beyond-end"]
    same = problems(state, RANGES, TOPICS, is_same_kafka=True, servers="b1:9092")
    assert [each.trouble for each in same] == ["beyond-end"]


def test_of_several_clusters_only_the_positions_of_the_one_that_is_asked_are_compared():
    state = held(dynamic("one", "a:9092", 501), dynamic("two", "b:9092", 502))
    found = list(problems(state, RANGES, TOPICS, servers="b:9092"))
    assert [(each.trouble, each.position.cluster) for each in found] == [
        ("other-servers", "one"),
        ("beyond-end", "two"),
    ]


def test_a_state_that_could_not_be_read_is_a_problem_and_one_without_positions_is_none():
    state = Positions(unread=(Unread("op", "not known"), Unread("op", "no split", False)))
    assert list(problems(state, RANGES, TOPICS)) == [Problem("unread", "op", reason="not known")]


def test_a_position_of_another_service_is_neither_looked_up_nor_compared():
    state = held(Position("op", "a-pulsar-topic", 0, detail="4711:0"))
    assert list(problems(state, RANGES, TOPICS)) == []
    assert (partitions_of(state), absent(state, RANGES)) == ([], [])
    move = Move(state.positions[0], "a-pulsar-topic")
    assert clamped(lambda partitions: dict.fromkeys(partitions, Range(0, 1)))([move]) == [move]


def test_topics_of_which_a_partition_is_missing_are_absent():
    state = held(at(1), at(1, partition=1), at(1, topic="payments"))
    assert absent(state, RANGES) == ["orders", "payments"]
    assert absent(held(at(1)), RANGES) == []


def test_topics_trail_by_the_records_between_their_ends_and_the_positions():
    state = held(at(600), at(10), at(None, marker="latest"), at(900, topic="payments"))
    assert behind(state, RANGES) == 100
    assert partitions_of(state) == [("orders", 0), ("payments", 0)]


def test_a_partition_that_does_not_exist_cannot_be_clamped():
    with pytest.raises(Refused, match="partition 1"):
        clamped(lambda _partitions: RANGES)([Move(at(3, partition=1), "orders")])


NUMBERS = st.integers(0, 1 << 40)


@given(NUMBERS, st.tuples(NUMBERS, NUMBERS).map(sorted))
def test_a_clamped_position_exists_and_is_the_nearest_that_does(offset, bounds):
    begin, end = bounds
    ranges = {("A.orders", 0): Range(begin, end)}
    (move,) = clamped(lambda _partitions: ranges)([Move(at(offset), "A.orders")])
    new = offset if move.offset is None else move.offset
    assert begin <= new <= end
    assert (move.lost, move.doubled) == (max(0, new - offset), max(0, offset - new))
    assert abs(new - offset) == min(abs(each - offset) for each in (begin, end, new))
    assert (move.offset is None) == (begin <= offset <= end)


def test_markers_are_not_clamped():
    move = Move(at(None, marker="earliest"), "orders")
    assert clamped(lambda _partitions: RANGES)([move]) == [move]
