"""What a remedy changes leaves no problem but those that it names as unsolved."""

from __future__ import annotations

import random
from collections.abc import Mapping

from cpreplicate.core.positions.model import PendingTransaction, Position, Positions, Unread
from cpreplicate.core.positions.offsets import Move, Partition
from cpreplicate.core.positions.ranges import Range, clamped, problems
from cpreplicate.core.positions.remedies import Remedy, remedy, renamed

SERVERS = "b:9092"
PENDING = PendingTransaction("sink", "tx-0-3", 70, 0, 3)


def at(offset, topic="orders", partition=0, **others) -> Position:
    return Position("op", topic, partition, offset, **others)


def held(*positions: Position, pending=(), unread=()) -> Positions:
    return Positions(positions, tuple(pending), tuple(unread))


def made(state: Positions, ranges) -> Remedy:
    topics = {topic for topic, _ in ranges}
    found = list(problems(state, ranges, topics, servers=SERVERS))
    return remedy(state, found, ranges, topics, SERVERS)


def test_nothing_is_changed_where_nothing_is_in_the_way():
    assert made(held(at(3)), {("orders", 0): Range(0, 5)}).is_empty


def test_positions_are_clamped_under_their_new_name():
    ranges = {("A.orders", 0): Range(10, 50), ("A.orders", 1): Range(0, 9)}
    state = held(at(3), at(4, partition=1), pending=[PENDING])
    assert made(state, ranges) == Remedy({"orders": "A.orders"}, (), True, True)


def test_what_mirrormaker_recorded_goes_before_a_clamp():
    ranges = {("A.orders", 0): Range(10, 50), ("A.checkpoints.internal", 0): Range(0, 0)}
    state, topics = held(at(3)), {topic for topic, _ in ranges}
    found = list(problems(state, ranges, topics, servers=SERVERS))
    asked = []

    def translates(alias, names):
        asked.append((alias, dict(names)))
        return len(asked) == 1

    translated = remedy(state, found, ranges, topics, SERVERS, translates=translates)
    assert translated == Remedy({"orders": "A.orders"}, alias="A")
    clamped_ = remedy(state, found, ranges, topics, SERVERS, translates=translates)
    assert clamped_ == Remedy({"orders": "A.orders"}, is_clamped=True)
    assert asked == [("A", {"orders": "A.orders"})] * 2


def test_nothing_is_clamped_where_a_partition_is_missing():
    ranges = {("orders", 0): Range(0, 5)}
    found = made(held(at(9), at(3, partition=1)), ranges)
    assert found.is_empty
    assert [each.trouble for each in found.unsolved] == ["beyond-end", "no-partition"]


def test_two_sources_may_read_one_partition_from_different_offsets():
    two = Position("other", "orders", 0, 9)
    found = made(held(at(3), two), {("orders", 0): Range(0, 5)})
    assert (found.is_clamped, found.unsolved) == (True, ())


def test_the_servers_of_one_cluster_are_replaced_and_those_of_several_are_not():
    ranges = {("orders", 0): Range(0, 5)}
    one = made(held(at(3, cluster="x", servers="a:9092")), ranges)
    assert (one.clusters, one.unsolved) == (("x",), ())
    positions = [at(3, cluster="x", servers="a:9092"), at(9, cluster="y", servers=SERVERS)]
    several = made(held(*positions), ranges)
    assert several.is_empty
    assert [each.trouble for each in several.unsolved] == ["other-servers", "beyond-end"]


def test_a_state_that_could_not_be_read_stays_unsolved():
    found = made(held(pending=[PENDING], unread=[Unread("op", "not known")]), {})
    assert found.drops_pending
    assert [each.trouble for each in found.unsolved] == ["unread"]


def drawn(seed: int) -> tuple[Positions, dict[tuple[str, int], Range]]:
    """A checkpoint, and a Kafka: whole, trailing, truncated, or with other partitions."""
    draw = random.Random(seed)
    kind = draw.choice(["whole", "trailing", "truncated", "other"])
    positions, ranges = [], {}
    for topic in draw.sample(["orders", "payments"], draw.randint(1, 2)):
        name = draw.choice([topic, f"A.{topic}", "others"]) if kind == "other" else topic
        for partition in range(draw.randint(1, 4)):
            offset = draw.choice([None, draw.randint(0, 100)])
            marker = "earliest" if offset is None else None
            positions.append(at(offset, topic, partition, marker=marker))
            begin = draw.randint(0, 100 if kind in ("truncated", "other") else offset or 0)
            end = draw.randint(begin, 120)
            if kind != "other" or draw.random() < 0.8:
                whole = max(end, offset or 0)
                ranges[name, partition] = Range(begin, whole if kind == "whole" else end)
    return held(*positions), ranges


def is_there(position: Position, ranges: Mapping[Partition, Range]) -> bool:
    begin, end = ranges.get((position.topic, position.partition), Range(1, 0))
    return begin <= (begin if position.offset is None else position.offset) <= end


def test_no_start_is_outside_of_what_exists_and_none_is_refused_where_all_does():
    for seed in range(500):
        state, ranges = drawn(seed)
        topics = {topic for topic, _ in ranges}
        found = list(problems(state, ranges, topics, servers=SERVERS))
        assert bool(found) != all(is_there(each, ranges) for each in state.positions), seed
        change = remedy(state, found, ranges, topics, SERVERS)
        after = renamed(state, change.topics)
        if change.is_clamped:
            after = Positions(tuple(nearest(each, ranges) for each in after.positions))
        left = list(problems(after, ranges, topics, servers=SERVERS))
        assert len(left) == len(change.unsolved), seed


def nearest(position: Position, ranges) -> Position:
    (move,) = clamped(lambda _partitions: ranges)([Move(position, position.topic)])
    return position if move.offset is None else position._replace(offset=move.offset)
