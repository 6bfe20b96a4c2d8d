"""What a real broker answers, and what an operator reads if it does not."""

from __future__ import annotations

import socket
import time
from concurrent.futures import Future
from contextlib import suppress

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from cpreplicate.core.positions.ranges import Range, Stamp
from cpreplicate.errors import NotThere, Refused, UsageError
from cpreplicate.kafka.cluster import KafkaCluster
from cpreplicate.storage import Transient
from tests.support.kafka import PASSWORD
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.xdist_group("kafka")
SECRET = "sesame-close"


@pytest.fixture
def cluster(kafka):
    return KafkaCluster(kafka.servers, {}, PATIENCE)


def test_ranges_are_those_of_the_partitions_that_exist(kafka, cluster):
    kafka.create("ranges", {0: 30, 1: 7}, partitions=3)
    kafka.delete_before("ranges", 0, 12)
    asked = [("ranges", partition) for partition in range(5)] + [("no-such-topic", 0)]
    assert cluster.ranges(asked) == {
        ("ranges", 0): Range(12, 30),
        ("ranges", 1): Range(0, 7),
        ("ranges", 2): Range(0, 0),
    }
    assert set(cluster.topics()["ranges"]) == {0, 1, 2}
    assert cluster.ranges([("no-such-topic", 0)]) == {}


def test_a_kafka_that_is_given_no_time_has_a_second(kafka):
    """As with --retry-for 0: the client ends the process, or makes offsets up, if it has none."""
    kafka.create("no-time", {0: 30})
    for _ in range(5):
        at = KafkaCluster(kafka.servers, {}, 0.0)
        with suppress(Transient):  # a second may be too short for a machine that is busy
            assert at.ranges([("no-time", 0)]) == {("no-time", 0): Range(0, 30)}


def test_partitions_that_have_no_leader_yet_are_asked_again(kafka, cluster):
    kafka.create("wide", partitions=200)
    found = cluster.ranges([("wide", partition) for partition in range(200)])
    assert found == {("wide", partition): Range(0, 0) for partition in range(200)}


def test_the_offsets_of_a_group_are_those_that_it_committed(kafka, cluster):
    kafka.create("groups", {0: 30, 1: 7}, partitions=3)
    kafka.commit("readers", {("groups", 0): 21, ("groups", 1): 0})
    asked = [("groups", partition) for partition in range(3)]
    assert cluster.committed("readers", asked) == {("groups", 0): 21, ("groups", 1): 0}
    with pytest.raises(NotThere, match="the consumer group others"):
        cluster.committed("others", asked)


def test_records_since_a_time_are_found_and_whose_time_they_have(kafka, cluster):
    old = 1_700_000_000
    kafka.create("dated", partitions=2)
    kafka.write("dated", 0, 3, old * 1000)
    kafka.write("dated", 0, 2)
    kafka.write("dated", 1, 1, old * 1000)
    kafka.create_dated_by_broker("by-broker")
    kafka.write("by-broker", 0, 1, old * 1000)
    asked = [("dated", 0), ("dated", 1), ("by-broker", 0)]
    assert cluster.since(old + 1, asked) == {("dated", 0): 3, ("by-broker", 0): 0}
    at = {("dated", 0): 2, ("dated", 1): 1, ("by-broker", 0): 0}  # the second one is the end
    found = cluster.stamps(at)
    assert found.pop(("by-broker", 0)).is_of_broker
    assert found == {("dated", 0): Stamp(old, False)}


def test_an_open_transaction_ends_what_is_stable(kafka, cluster):
    kafka.create("open", {0: 4})
    assert cluster.transaction_limit() == 900
    with kafka.open_transaction("open", 0):
        assert cluster.ranges([("open", 0)]) == {("open", 0): Range(0, 5)}
        assert cluster.stable_ends([("open", 0)]) == {("open", 0): 4}


def test_a_topic_that_may_not_be_described_is_known_by_its_name(kafka, cluster):
    kafka.create("hidden")
    kafka.hide("hidden")
    assert cluster.denied(["hidden", "no-such-topic"]) == {"hidden"}


def test_a_group_whose_coordinator_is_starting_is_asked_again(kafka, monkeypatch):
    kafka.create("starting", {0: 3})
    kafka.commit("starters", {("starting", 0): 2})
    answer = AdminClient.list_consumer_group_offsets
    starting: Future[None] = Future()
    starting.set_exception(KafkaException(KafkaError(KafkaError.COORDINATOR_LOAD_IN_PROGRESS)))
    first = [starting, starting]

    def answers(client, requests, **options):
        if first:
            return {requests[0].group_id: first.pop()}
        return answer(client, requests, **options)

    monkeypatch.setattr(AdminClient, "list_consumer_group_offsets", answers)
    cluster = KafkaCluster(kafka.servers, {}, PATIENCE)
    assert cluster.committed("starters", [("starting", 0)]) == {("starting", 0): 2}
    assert first == []


def test_a_client_that_knows_the_password_and_the_certificate_is_answered(kafka):
    kafka.create("secured", {0: 5})
    cluster = KafkaCluster(kafka.secured, kafka.properties, PATIENCE)
    assert cluster.ranges([("secured", 0)]) == {("secured", 0): Range(0, 5)}


def failure(servers, properties, deadline=1.0) -> Exception:
    with pytest.raises((Refused, Transient)) as caught:
        KafkaCluster(servers, properties, deadline).topics()
    assert SECRET not in f"{caught.value!r} {caught.value.__cause__!r} {caught.value.__context__!r}"
    return caught.value


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        ({"sasl.password": SECRET}, "AUTHENTICATION"),
        ({"sasl.username": SECRET}, "AUTHENTICATION"),
        ({"sasl.mechanisms": "SCRAM-SHA-256"}, "AUTHENTICATION"),
        ({"ssl.ca.location": None}, "SSL"),
    ],
    ids=["password", "user", "mechanism", "certificate"],
)
def test_wrong_credentials_are_refused_by_their_name(kafka, wrong, name):
    properties = {**kafka.properties, **wrong}
    given = {key: value for key, value in properties.items() if value}
    error = failure(kafka.secured, given, deadline=PATIENCE)
    assert isinstance(error, Refused)
    assert f"{kafka.secured} refuses the connection or the request ({name})" in str(error)
    assert PASSWORD not in str(error)


def test_a_protocol_that_the_broker_does_not_speak_ends_with_what_to_look_at(kafka):
    in_plain = failure(kafka.secured, {})
    in_tls = failure(kafka.servers, {**kafka.properties, "sasl.password": SECRET})
    for error in (in_plain, in_tls):
        assert "security.protocol" in str(error)


@pytest.mark.parametrize(
    ("servers", "reason"),
    [("127.0.0.1:1", "no connection"), ("no.such.host.invalid:9092", "does not resolve")],
)
def test_a_kafka_that_cannot_be_reached_is_given_up_within_its_time(servers, reason):
    for deadline in (1.0, 10.0, 100.0):  # the client reports why after a time of its own
        started = time.monotonic()
        error = failure(servers, {}, deadline)
        assert isinstance(error, Transient)
        assert f"could not be reached within {deadline:g} s" in str(error)
        assert time.monotonic() - started >= deadline  # it was tried again
        if reason in str(error):
            break
    assert reason in str(error)


def test_a_server_that_is_silent_is_given_up():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        error = failure(f"127.0.0.1:{silent.getsockname()[1]}", {})
    assert isinstance(error, Transient)


def test_one_broker_that_answers_is_enough(kafka):
    kafka.create("one-answers", {0: 2})
    cluster = KafkaCluster(f"127.0.0.1:1,{kafka.servers}", {}, PATIENCE)
    assert cluster.ranges([("one-answers", 0)]) == {("one-answers", 0): Range(0, 2)}


@pytest.mark.parametrize(
    ("properties", "name"),
    [
        ({"no.such.property": SECRET}, "no.such.property"),
        ({"security.protocol": SECRET}, "security.protocol"),
        ({"socket.timeout.ms": SECRET}, "socket.timeout.ms"),
        ({"security.protocol": "ssl", "ssl.ca.location": f"/{SECRET}.pem"}, "ssl.ca.location"),
    ],
)
def test_a_property_that_the_client_does_not_take_is_named_without_its_value(
    properties, name, capfd
):
    with pytest.raises(UsageError, match=f"--kafka-conf: {name} is not taken") as caught:
        KafkaCluster("127.0.0.1:1", properties)
    assert SECRET not in f"{caught.value!r} {''.join(capfd.readouterr())}"
