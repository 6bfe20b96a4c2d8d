"""Offsets that an operator gives are read as they are written, or refused with their line."""

import pytest

from cpreplicate.core.positions.model import Position
from cpreplicate.core.positions.offsets import Move, as_given, as_rows, looked_up, parse
from cpreplicate.errors import Refused, UsageError

ORDERS = Position("op", "orders", 0, 307)


def test_lines_with_or_without_a_head_are_read():
    wanted = [("orders", 0, 4711, None), ("A.pay-ments_1", 3, 0, "op")]
    lines = ["orders,0,4711", "", " A.pay-ments_1 , 3 ,0, op "]
    for head in [], ["topic,partition,offset"], ["topic,partition,offset,operator"]:
        assert [row[:4] for row in parse([*head, *lines], "o.csv")] == wanted


@pytest.mark.parametrize(
    "line",
    [
        "orders,0",
        "orders,0,-1",
        "orders,x,1",
        "orders,0,1,op,2",
        "orders,٣,1",
        "a b,0,1",
        "..,0,1",
        "orders,0," + "9" * 6000,
        "x" * 200_000 + ",0,5",
        '"orders,0,5',
        "orders,0,1e3",
        "orders,²,1",
        f"orders,0,{1 << 63}",
        f"orders,{1 << 31},1",
    ],
)
def test_another_line_is_refused_with_its_number(line):
    with pytest.raises(UsageError, match=r"o\.csv, line 2"):
        parse(["orders,7,1", line], "o.csv")


def test_a_partition_that_is_there_twice_is_refused():
    with pytest.raises(UsageError, match="twice"):
        parse(["orders,7,1", "orders,7,2"], "o.csv")


@pytest.mark.parametrize("lines", [[], ["", " "], ["topic,partition,offset"]])
def test_a_file_without_offsets_is_refused(lines):
    with pytest.raises(UsageError, match="no offset"):
        parse(lines, "o.csv")


def test_a_partition_that_two_sources_read_needs_the_operator_in_its_line():
    two = [Move(ORDERS, "orders", name="a"), Move(ORDERS._replace(operator="other"), "orders")]
    with pytest.raises(UsageError, match=r"line 1.* held 2 times.* by op, other\..* fourth column"):
        as_rows(parse(["orders,0,9"], "o.csv"))(two)
    with pytest.raises(UsageError, match=r"line 1.* exactly one operator of this name"):
        as_rows(parse(["orders,0,9,b"], "o.csv"))(two)
    with pytest.raises(UsageError, match=r"line 2.* there twice"):
        as_rows(parse(["orders,0,9,a", "orders,0,9,op"], "o.csv"))(two)
    given = as_rows(parse(["orders,0,9,a", "orders,0,7,other"], "o.csv"))(two)
    assert [move.offset for move in given] == [9, 7]
    with pytest.raises(Refused, match="held 2 times"):  # a group has one offset for both
        looked_up(lambda _partitions: {("orders", 0): 9})(two)


def test_a_line_of_a_partition_that_is_not_in_the_checkpoint_or_not_there_is_named():
    moves = [Move(ORDERS, "orders")]
    with pytest.raises(UsageError, match=r"line 2.* does not hold"):
        as_rows(parse(["orders,0,9", "order,0,9"], "o.csv"))(moves)
    with pytest.raises(UsageError, match=r"line 1.* is not at --kafka"):
        as_rows(parse(["orders,0,9"], "o.csv"), {"orders": [1]})(moves)


def test_offsets_are_of_topics_by_their_new_name():
    move = Move(ORDERS, "A.orders")
    assert as_given({("A.orders", 0): 9})([move]) == [move._replace(offset=9)]
    with pytest.raises(Refused, match="orders partition 0"):
        as_given({("orders", 0): 9})([move])


def test_an_offset_that_is_the_same_changes_nothing():
    move = Move(ORDERS, "orders")
    assert as_given({("orders", 0): 307})([move]) == [move]


def test_a_group_that_lacks_a_partition_is_refused_and_a_marker_needs_none():
    moves = [Move(ORDERS, "orders"), Move(ORDERS._replace(partition=1), "orders")]
    with pytest.raises(Refused, match=r"no offset of 1 of 2 partitions: orders partition 0\."):
        looked_up(lambda _partitions: {("orders", 1): 5})(moves)
    moves[0] = Move(ORDERS._replace(offset=None, marker="earliest"), "orders")
    asked = []

    def lookup(partitions):
        asked.append(partitions)
        return {("orders", 1): 5}

    assert [move.offset for move in looked_up(lookup)(moves)] == [None, 5]
    assert asked == [[("orders", 0), ("orders", 1)]]
