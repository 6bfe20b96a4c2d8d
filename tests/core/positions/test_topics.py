"""A rename is taken only whole, and proposed only where a mirror plainly has the topic."""

from __future__ import annotations

import pytest

from cpreplicate.core.positions.model import Position, Positions
from cpreplicate.core.positions.topics import (
    alias_of,
    is_copy,
    is_topic,
    mirror_of,
    mirrored,
    own_topics,
    refuse_mistakes,
    refuse_unknown,
    twins,
)
from cpreplicate.errors import UsageError


def held(*topics: str) -> Positions:
    return Positions(tuple(Position("op", topic, 0, 1) for topic in topics))


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "é", "x" * 250, "a\n"])
def test_kafka_takes_no_such_name(name):
    assert not is_topic(name)
    with pytest.raises(UsageError, match="no name of a topic"):
        refuse_mistakes({"orders": name}, held("orders"))


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"pay": "orders"}, "2 topics of the checkpoint would be orders"),
        ({"pay": "x", "orders": "x"}, "2 topics of the checkpoint would be x"),
        ({"orders": "A.ordres"}, "orders=A.ordres: no topic has the new name"),
    ],
)
def test_a_rename_that_does_not_fit_is_refused(names, message):
    with pytest.raises(UsageError, match=message):
        refuse_mistakes(names, held("orders", "pay"), ["A.orders", "A.pay", "orders", "x"])


def test_a_rename_of_a_topic_that_the_checkpoint_does_not_read_is_refused():
    with pytest.raises(UsageError, match=r"payy=A\.pay: .* It reads: orders, pay"):
        refuse_unknown({"orders": "A.orders", "payy": "A.pay"}, held("orders", "pay"))


def test_names_may_be_exchanged():
    refuse_mistakes({"orders": "pay", "pay": "orders"}, held("orders", "pay"), ["orders", "pay"])


@pytest.mark.parametrize(
    ("known", "there", "names"),
    [
        (["orders"], ["A.orders"], {"orders": "A.orders"}),
        (["orders"], ["orders", "A.orders"], {}),  # it is there
        (["orders"], ["A.orders", "B.orders"], {}),  # which one?
        (["orders", "pay"], ["A.orders", "B.pay"], {}),  # one Kafka has one mirror
        (["orders"], ["Aorders", "orders.A", ".orders"], {}),
        (["orders"], ["A.v1.orders"], {}),  # the mirror of v1.orders
        (["v1.orders"], ["A.v1.orders"], {"v1.orders": "A.v1.orders"}),
        (["orders", "A.orders"], ["A.orders"], {}),  # two topics would become one
        (["orders", "eu.orders"], ["A.eu.orders"], {"eu.orders": "A.eu.orders"}),
        (["orders", "eu"], ["A.orders", "A.eu"], {"orders": "A.orders", "eu": "A.eu"}),
        (["orders"], ["old_orders", "A-orders"], {}),
        (["orders"], ["A_orders", "A_heartbeats"], {"orders": "A_orders"}),
        (["or_ders"], ["A-or_ders", "A-checkpoints-internal"], {"or_ders": "A-or_ders"}),
    ],
)
def test_a_missing_topic_gets_the_name_that_mirrormaker_gives(known, there, names):
    assert mirrored(held(*known), there) == names


def test_a_topic_that_is_there_beside_its_mirror_is_found():
    found = twins(held("orders", "pay", "A.pay"), ["orders", "A.orders", "pay", "A.pay", "A.x"])
    assert found == {"orders": ["A.orders"]}


@pytest.mark.parametrize(
    ("known", "there", "alias"),
    [
        (["orders"], ["A.orders", "A.checkpoints.internal"], "A"),
        (["orders"], ["A.orders", "mm2-offset-syncs.A.internal"], "A"),
        (["orders"], ["A.orders"], None),  # by hand, or by another mirror
        (["orders"], ["A.orders", "B.checkpoints.internal"], None),
        (["orders"], ["A_orders", "mm2-offset-syncs_A_internal", "A_heartbeats"], "A"),
        (["orders"], ["orders", "eu.west.checkpoints.internal"], "eu.west"),  # the name stays
        (["orders"], ["orders", "A.checkpoints.internal", "B.checkpoints.internal"], None),
        (["orders"], ["orders", "A.orders", "A.checkpoints.internal"], None),
        (["orders", "pay"], ["orders", "A.checkpoints.internal"], None),
    ],
)
def test_the_alias_of_a_mirrormaker_is_known_by_its_own_topics(known, there, alias):
    assert alias_of(held(*known), there) == alias


def test_its_topics_are_known_with_each_separator():
    assert own_topics("A", ["mm2-offset-syncs-A-internal", "A.checkpoints.internal"]) == (
        "mm2-offset-syncs-A-internal",
        "A.checkpoints.internal",
    )
    assert own_topics("A", ["mm2-offset-syncs.B.internal", "B.checkpoints.internal"]).are_absent


def test_the_copy_of_a_topic_is_known_by_the_alias():
    there = ["A.orders", "B_orders", "orders"]
    assert [mirror_of("orders", each, there) for each in ("A", "B", "C")] == [
        "A.orders",
        None,
        None,
    ]
    assert mirror_of("orders", "B", [*there, "B_heartbeats"]) == "B_orders"
    assert [is_copy(each, "A", there) for each in ("A.orders", "A_orders", "orders")] == [
        True,
        False,
        False,
    ]
