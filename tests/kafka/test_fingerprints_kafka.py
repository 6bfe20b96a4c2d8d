"""Fingerprints with real brokers, from `sync --kafka-source` to `promote --kafka` and `rebase`."""

from __future__ import annotations

import errno
import json
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Producer

from cpreplicate.core.positions.fingerprints import digest_of
from cpreplicate.core.positions.ranges import Span
from cpreplicate.kafka.cluster import KafkaCluster
from cpreplicate.operations.sync import fingerprints
from cpreplicate.storage import Side, Transient
from tests.support.commandline import Ended, run
from tests.support.copying import copy
from tests.support.faults import Faulty
from tests.support.jobs import JOB
from tests.support.kafka import PASSWORD, Kafka
from tests.support.kafka_jobs import put_kafka_checkpoint
from tests.support.kafka_states import Split
from tests.support.registry import serving
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.xdist_group("kafka")
# milliseconds: before a test makes a checkpoint, and younger than what a broker deletes
OLD = (round(time.time()) - 86_400) * 1000


@pytest.fixture(scope="module")
def other_kafka() -> Iterator[Kafka]:
    """The Kafka at B."""
    with Kafka() as started:
        yield started


@pytest.fixture
def topic(kafka, other_kafka) -> str:
    """A topic with two partitions at both Kafkas, which no other test has."""
    name = f"orders-{uuid4().hex[:8]}"
    for each in (kafka, other_kafka):
        each.create(name, partitions=2)
    return name


class Site:
    """A job at A, its replica at B, and a Kafka at each."""

    def __init__(self, directory: Path, source: Kafka, target: Kafka) -> None:
        self.directory, self.source, self.target = directory, source, target
        self.replica = directory / "dcB" / JOB

    def sync(self, number: int, *splits: Split, servers: str | None = None) -> dict[str, Any]:
        put_kafka_checkpoint(self.directory / "dcA", number, splits, [])
        return self.sync_again("--kafka-source", servers or self.source.servers)

    def sync_again(self, *words: str) -> dict[str, Any]:
        places = f"file:{self.directory}/dcA/{JOB}", f"file:{self.directory}/dcB"
        result: dict[str, Any] = run(
            "sync", *places, *words, "--runner", "inline", "--output", "json"
        ).json()
        return result

    def promote(self, *words: str) -> Ended:
        servers = self.target.servers
        return run("promote", self.replica, "--kafka", servers, "--output", "json", *words)

    def rebase(self, *words: str) -> Ended:
        by = ("--positions", "fingerprint", "--kafka", self.target.servers)
        return run("rebase", self.replica, *by, "--output", "json", *words)


@pytest.fixture
def site(tmp_path, kafka, other_kafka) -> Site:
    return Site(tmp_path, kafka, other_kafka)


def write(kafka: Kafka, topic: str, partition: int, count: int) -> None:
    """Append records, ten of which have the same time."""
    producer = Producer({"bootstrap.servers": kafka.servers, "log_level": 0, "linger.ms": 0})
    for number in range(count):
        producer.produce(
            topic,
            f"value {number}",
            key=f"{number % 7}",
            partition=partition,
            timestamp=OLD + number // 10,
            headers=[("number", str(number).encode())],
        )
    assert producer.flush(PATIENCE) == 0


def verdicts(ended: Ended) -> list[tuple[str, int | None]]:
    """Return what a check found of each position, of its first checkpoint."""
    checked = json.loads(ended.out)["kafka"]["checked"][0]
    return [(each["verdict"], each["offset_there"]) for each in checked["fingerprints"]]


def problems(ended: Ended) -> list[str]:
    checked = json.loads(ended.out)["kafka"]["checked"][0]
    return [each["problem"] for each in checked["problems"]]


@pytest.mark.rest
def test_at_a_mirror_that_keeps_offsets_each_position_is_proven(site, kafka, other_kafka, topic):
    for partition in (0, 1):
        write(kafka, topic, partition, 300)
    result = site.sync(1, Split(topic, 0, 217), Split(topic, 1, 300))
    assert result["fingerprints"] == {"kept": 2, "lacking": 0, "reasons": {}, "error": None}
    copy(kafka, other_kafka, topic, {0: 0, 1: 0}, {0: 300, 1: 300})
    ended = site.promote("--dry-run")
    assert (ended.code, verdicts(ended)) == (0, [("proven", 217), ("proven", 300)])
    assert not [each for each in ended.json()["warnings"] if "same record" in each]
    text = run("promote", site.replica, "--kafka", other_kafka.servers, "--dry-run").out
    assert "proven  translated  not proven" in text
    nothing = site.rebase()
    assert (nothing.code, "holds nothing that would change" in nothing.message) == (6, True)


def test_at_a_mirror_that_does_not_keep_offsets_each_position_is_translated_exactly(
    site, kafka, other_kafka, topic
):
    for partition in (0, 1):
        write(kafka, topic, partition, 300)
    site.sync(1, Split(topic, 0, 217), Split(topic, 1, 300))
    firsts, ends = {0: 120, 1: 50}, {0: 300, 1: 300}
    copy(kafka, other_kafka, topic, firsts, ends)
    ended = site.promote()
    assert (ended.code, problems(ended)) == (6, ["beyond-end", "beyond-end"])
    assert verdicts(ended) == [("translated", 97), ("translated", 250)]
    command = json.loads(ended.out)["kafka"]["checked"][0]["rebase"]
    assert "--positions fingerprint" in command
    derived = run(*shlex.split(command)[1:], "--output", "json").json()
    assert [each["new_offset"] for each in derived["positions"]] == [97, 250]
    assert (derived["lost"], derived["doubled"]) == (0, 0)
    at_a = KafkaCluster(kafka.servers, {}, PATIENCE).records({(topic, 0): Span(217, 300)}, PATIENCE)
    there = KafkaCluster(other_kafka.servers, {}, PATIENCE)
    left = there.records({(topic, 0): Span(97, 180)}, PATIENCE)
    assert [each.digest for each in left[topic, 0]] == [each.digest for each in at_a[topic, 0]]
    promoted = site.promote("--checkpoint", derived["derived"])
    assert (promoted.code, verdicts(promoted)) == (0, [("proven", 97), ("proven", 250)])


def test_an_offset_that_exists_and_means_another_record_is_refused(site, kafka, other_kafka, topic):
    write(kafka, topic, 0, 300)
    site.sync(1, Split(topic, 0, 100))
    copy(kafka, other_kafka, topic, {0: 60}, {0: 300})
    ended = site.promote()
    assert (ended.code, problems(ended)) == (6, ["other-record"])
    assert verdicts(ended) == [("translated", 40)]
    text = run("promote", site.replica, "--kafka", other_kafka.servers)
    assert "partition 0 (100, the same record is before 40)" in text.out


def test_a_mirror_that_trails_shows_by_how_much_and_is_waited_for(site, kafka, other_kafka, topic):
    write(kafka, topic, 0, 300)
    site.sync(1, Split(topic, 0, 217))
    copy(kafka, other_kafka, topic, {0: 60}, {0: 180})
    ended = site.promote()
    assert (ended.code, verdicts(ended)) == (6, [("behind", None)])
    (shown,) = json.loads(ended.out)["kafka"]["checked"][0]["fingerprints"]
    assert shown["seconds_behind"] == 0.004
    refused = site.rebase()
    assert (refused.code, "1 of 1 position is not proven" in refused.message) == (6, True)
    copy(kafka, other_kafka, topic, {0: 180}, {0: 300})
    assert [each["new_offset"] for each in site.rebase().json()["positions"]] == [157]


@pytest.mark.rest
def test_topics_with_another_name_are_translated_under_it(site, kafka, other_kafka, topic):
    write(kafka, topic, 0, 300)
    site.sync(1, Split(topic, 0, 217))
    renamed = other_kafka.create(f"A.{topic}.mirror", partitions=2)
    copy(kafka, other_kafka, topic, {0: 20}, {0: 300}, renamed)
    derived = site.rebase("--rename-topic", f"{topic}={renamed}").json()
    (position,) = derived["positions"]
    assert (position["new_topic"], position["new_offset"]) == (renamed, 197)


@pytest.mark.rest
def test_a_topic_that_a_mirror_has_by_its_rule_is_renamed_and_translated(
    site, kafka, other_kafka, topic
):
    own = kafka.create(f"own-{topic}", partitions=1)
    write(kafka, own, 0, 300)
    site.sync(1, Split(own, 0, 217))
    renamed = other_kafka.create(f"A.{own}", partitions=1)
    copy(kafka, other_kafka, own, {0: 200}, {0: 300}, renamed)
    ended = site.promote()
    assert problems(ended) == ["no-topic"]
    checked = json.loads(ended.out)["kafka"]["checked"][0]
    assert checked["rebase_suffices"] is True
    derived = run(*shlex.split(checked["rebase"])[1:], "--output", "json").json()
    assert [each["new_offset"] for each in derived["positions"]] == [17]


@pytest.mark.rest
def test_where_the_broker_dates_records_nothing_is_proven_and_another_record_is_named(
    site, kafka, other_kafka, topic
):
    own = kafka.create(f"dated-{topic}", partitions=1)
    write(kafka, own, 0, 300)
    other_kafka.create_dated_by_broker(own)
    site.sync(1, Split(own, 0, 217))
    copy(kafka, other_kafka, own, {0: 0}, {0: 300})
    ended = site.promote("--dry-run")
    assert (ended.code, verdicts(ended)) == (0, [("unproven", None)])
    (shown,) = ended.json()["kafka"]["checked"][0]["fingerprints"]
    assert "LogAppendTime" in shown["reason"]
    assert "the record at the same offset has the same content" in shown["reason"]
    shifted = other_kafka.create_dated_by_broker(f"shifted-{own}")
    copy(kafka, other_kafka, own, {0: 60}, {0: 300}, shifted)
    text = "1 of 1 position is not proven"
    refused = site.rebase("--rename-topic", f"{own}={shifted}")
    assert (refused.code, text in refused.message) == (6, True)


@pytest.mark.rest
def test_records_of_transactions_and_deleted_ones_have_their_rule(site, kafka, other_kafka, topic):
    producer = Producer(
        {"bootstrap.servers": kafka.servers, "log_level": 0, "transactional.id": f"tx-{topic}"}
    )
    producer.init_transactions(PATIENCE)
    for number in range(3):
        producer.begin_transaction()
        producer.produce(topic, f"{number}", partition=0, timestamp=OLD + number)
        producer.commit_transaction(PATIENCE)
    write(kafka, topic, 1, 30)
    kafka.delete_before(topic, 1, 20)
    result = site.sync(1, Split(topic, 0, 6), Split(topic, 1, 15))
    assert result["fingerprints"]["kept"] == 1
    assert result["fingerprints"]["reasons"] == {"the records before it are deleted": 1}
    assert not result["warnings"]
    copy(kafka, other_kafka, topic, {0: 0}, {0: 6})
    write(other_kafka, topic, 1, 30)
    assert verdicts(site.promote("--dry-run")) == [("translated", 3)]


@pytest.mark.parametrize("servers", ["127.0.0.1:1"])
def test_a_kafka_that_does_not_answer_is_a_warning_and_the_checkpoint_is_committed(
    site, topic, servers, monkeypatch
):
    monkeypatch.setattr(fingerprints, "LIMIT", 1.0)
    result = site.sync(1, Split(topic, 0, 0), servers=servers)
    assert result["committed"] is True
    assert (result["fingerprints"]["kept"], result["fingerprints"]["lacking"]) == (0, None)
    assert any("no fingerprint was kept" in each for each in result["warnings"])
    assert not list(site.replica.glob(".cpreplicate/*.fingerprints"))


def test_a_write_that_fails_is_no_reason_not_to_ask_the_kafka_again(site, kafka, topic):
    write(kafka, topic, 0, 30)

    def refused(verb: str, uri: str) -> OSError | None:
        is_write = verb == "put" and uri.endswith(".fingerprints")
        return Transient(errno.ETIMEDOUT, "no answer", uri) if is_write else None

    put_kafka_checkpoint(site.directory / "dcA", 1, [Split(topic, 0, 17)], [])
    with serving("file", Faulty(Side().storage("file:/"), refused)):
        done = site.sync_again("--kafka-source", kafka.servers, "--retry-for", "0s")
    assert any("no answer" in each for each in done["warnings"])
    assert site.sync(2, Split(topic, 0, 30))["fingerprints"]["kept"] == 1


def test_only_digests_are_kept_and_they_go_with_their_checkpoint(site, kafka, topic):
    write(kafka, topic, 0, 300)
    site.sync(1, Split(topic, 0, 217))
    (kept,) = site.replica.glob(".cpreplicate/*.fingerprints")
    assert b"value" not in kept.read_bytes()
    digest = digest_of(b"6", b"value 216", [("number", b"216")])
    assert digest in kept.read_text()
    site.sync(2, Split(topic, 0, 300))
    assert [each.name for each in site.replica.glob(".cpreplicate/*.fingerprints")] == [
        "chk-2.fingerprints"
    ]


@pytest.mark.rest
def test_a_secured_kafka_is_read_with_the_properties_of_a_file(site, kafka, topic, tmp_path):
    write(kafka, topic, 0, 30)
    conf = tmp_path / "client.properties"
    conf.write_text("".join(f"{name}={value}\n" for name, value in kafka.properties.items()))
    put_kafka_checkpoint(site.directory / "dcA", 1, [Split(topic, 0, 17)], [])
    words = ("--kafka-source", kafka.secured, "--kafka-source-conf", str(conf))
    assert site.sync_again(*words)["fingerprints"]["kept"] == 1
    conf.write_text(conf.read_text().replace(PASSWORD, "sesame-close"))
    put_kafka_checkpoint(site.directory / "dcA", 2, [Split(topic, 0, 18)], [])
    refused = site.sync_again(*words)
    assert (refused["committed"], refused["fingerprints"]["kept"]) == (True, 0)
    assert any("--kafka-source-conf" in each for each in refused["warnings"])
    assert "sesame-close" not in str(refused)


def test_doctor_proves_positions_of_a_checkpoint_that_the_replica_holds(
    site, kafka, other_kafka, topic
):
    write(kafka, topic, 0, 30)
    site.sync(1, Split(topic, 0, 17))
    copy(kafka, other_kafka, topic, {0: 0}, {0: 30})
    places = f"{site.directory}/dcA/{JOB}", site.directory / "dcB"
    ended = run("doctor", *places, "--kafka", other_kafka.servers, "--output", "json")
    found = next(each for each in ended.json()["checks"] if each["check"] == "kafka")
    assert (found["status"], "1 position is proven" in found["message"]) == ("ok", True)


@pytest.mark.rest
def test_a_fleet_keeps_fingerprints_and_its_metric_counts_positions_without_one(
    site, kafka, topic, tmp_path
):
    write(kafka, topic, 0, 30)
    put_kafka_checkpoint(site.directory / "dcA", 1, [Split(topic, 0, 17), Split(topic, 1, 0)], [])
    jobs, metrics = tmp_path / "jobs.toml", tmp_path / "fleet.prom"
    jobs.write_text(
        f'[defaults]\nkafka-source = "{kafka.servers}"\n'
        f'[[job]]\nsource = "{site.directory}/dcA/{JOB}"\ntarget = "{site.directory}/dcB"\n'
    )
    run("fleet", jobs, "--runner", "inline", "--metrics-file", metrics)
    assert (site.replica / ".cpreplicate" / "chk-1.fingerprints").exists()
    line = "cpreplicate_positions_without_fingerprint{"
    (found,) = [each for each in metrics.read_text().splitlines() if each.startswith(line)]
    assert found.endswith(" 1.0")


@pytest.mark.parametrize(
    ("content", "words", "message"),
    [
        ("", (), "--kafka-source-conf needs --kafka-source"),
        ("no equals sign", ("--kafka-source", "a:1"), "line 1: expected key=value"),
        ("no.such=1", ("--kafka-source", "a:1"), "--kafka-source-conf: no.such is not taken"),
    ],
)
def test_a_mistake_ends_a_sync_before_it_begins(site, topic, tmp_path, content, words, message):
    put_kafka_checkpoint(site.directory / "dcA", 1, [Split(topic, 0, 17)], [])
    conf = tmp_path / "client.properties"
    conf.write_text(content)
    places = f"{site.directory}/dcA/{JOB}", site.directory / "dcB"
    ended = run("sync", *places, *words, "--kafka-source-conf", conf)
    assert (ended.code, message in ended.message) == (2, True), ended
    assert not site.replica.exists()
