"""A real MirrorMaker 2 between two brokers: its own topics translate the positions of a job.

No record that it copied is skipped, and those that are doubled are as many as were reported.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, TopicPartition

from cpreplicate.kafka.cluster import KafkaCluster
from tests.support.commandline import Ended, run
from tests.support.jobs import JOB
from tests.support.kafka import Kafka
from tests.support.kafka_flink import write_numbers
from tests.support.kafka_jobs import put_kafka_checkpoint
from tests.support.kafka_states import Split
from tests.support.mirror_maker import MirrorMaker, ends_of
from tests.support.waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.xdist_group("kafka"), pytest.mark.rest]
PARTITIONS = range(3)
LAG = 50  # records of a partition between two syncs
UNRECORDED = {"offset.flush.interval.ms": 3_600_000}  # it records nowhere up to where it copied


@pytest.fixture(scope="module")
def other_kafka() -> Iterator[Kafka]:
    """The Kafka at B."""
    with Kafka() as started:
        yield started


class Flow:
    """A topic of its own at A, its copy at B, and a job at A whose checkpoint is at B, too."""

    def __init__(self, a: Kafka, b: Kafka, directory: Path) -> None:
        self.a, self.b, self.directory = a, b, directory
        self.alias = f"A{uuid4().hex[:8]}"
        self.topic = a.create(f"orders-{self.alias}", partitions=len(PARTITIONS))
        self.copy = f"{self.alias}.{self.topic}"
        self.first = dict.fromkeys(PARTITIONS, 0)

    def write(self, numbers: range) -> None:
        """Append records to all partitions of A."""
        write_numbers(self.a.servers, self.topic, PARTITIONS, numbers, self.topic)

    def mirror(self, workers: Mapping[str, object] | None = None, **flow: object) -> MirrorMaker:
        properties = {"offset.lag.max": LAG, **{n.replace("_", "."): v for n, v in flow.items()}}
        return MirrorMaker(
            self.a, self.b, self.directory, self.alias, self.topic, properties, workers
        )

    def copied(self, count: int) -> dict[tuple[str, int], int]:
        """Return the ends of partitions at B with so many records."""
        return {(self.copy, each): count for each in PARTITIONS}

    def copy_slowly(
        self, mirror: MirrorMaker, numbers: range, begins: Mapping[int, int] | None = None
    ) -> None:
        """Append records and have them copied, so slowly that each offset sync is recorded."""
        for first in range(numbers.start, numbers.stop + 1, LAG // 2):
            ends = {(self.copy, n): first - (begins or {}).get(n, 0) for n in PARTITIONS}
            mirror.wait_for(ends)
            self.wait_for_syncs()
            self.write(range(first, min(first + LAG // 2, numbers.stop)))

    def checkpoint(self, *offsets: int) -> Path:
        """Return the replica of a job at these offsets of A, with fingerprints."""
        splits = [Split(self.topic, *place) for place in enumerate(offsets)]
        put_kafka_checkpoint(self.directory / "dcA", 1, splits)
        places = self.directory / "dcA" / JOB, self.directory / "dcB"
        synced = run("sync", *places, "--runner", "inline", "--kafka-source", self.a.servers)
        assert synced.code == 0, synced
        return self.directory / "dcB" / JOB

    def rebase(self, replica: Path, *words: str, by: str | None = None) -> Ended:
        words = words or ("--rename-topic", f"{self.topic}={self.copy}")
        asked = ("--positions", by or f"mm2:{self.alias}", "--kafka", self.b.servers)
        return run("rebase", replica, *asked, *words, "--output", "json")

    def wait_for_syncs(self) -> None:
        """Wait until the last record of each partition at B is within reach of a sync."""
        topic = f"mm2-offset-syncs.{self.alias}.internal"
        ends = ends_of(self.b, list(self.copied(0)))

        def are_there() -> bool:
            newest: dict[int, int] = {}
            for key, value, _ in KafkaCluster(self.b.servers, {}, PATIENCE).log(topic):
                newest[struct.unpack(">i", key[-4:])[0]] = struct.unpack(">q", value[8:])[0]
            return all(newest.get(each, -1) >= end - LAG - 2 for (_, each), end in ends.items())

        wait_until(are_there, "the offset syncs", pause=0.5)

    def behind(self, position: dict[str, Any]) -> list[int]:
        """Return the numbers of the records at B that a job reads from a derived position on."""
        start = position["offset" if position["new_offset"] is None else "new_offset"]
        place = self.copy, position["partition"]
        end = ends_of(self.b, [place])[place]
        return numbers_of(self.b, place, start, end)


def numbers_of(kafka: Kafka, place: tuple[str, int], start: int, end: int) -> list[int]:
    """Return the numbers of the records of a partition."""
    settings = {"bootstrap.servers": kafka.servers, "group.id": "reader", "log_level": 0}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    found: list[int] = []
    try:
        consumer.assign([TopicPartition(*place, start)])
        while len(found) < end - start:
            messages = consumer.consume(end - start - len(found), timeout=PATIENCE)
            found += [int(each.value().split(b"|")[2]) for each in messages]
    finally:
        consumer.close()
    return found


def refuse_lost(flow: Flow, report: dict[str, Any]) -> int:
    """Return how many records are read again; fail if one is skipped."""
    doubled = 0
    for each in report["positions"]:
        behind, wanted = flow.behind(each), each["offset"]
        numbers = numbers_of(flow.a, (flow.topic, each["partition"]), wanted, wanted + 1)
        assert set(range(numbers[0], max(behind) + 1)) <= set(behind), each
        doubled += sum(number < numbers[0] for number in behind)
    return doubled


@pytest.fixture
def flow(kafka, other_kafka, tmp_path) -> Flow:
    return Flow(kafka, other_kafka, tmp_path)


def test_positions_in_a_young_and_in_an_old_topic_are_translated_by_offset_syncs(flow):
    flow.write(range(220))
    flow.a.delete_before(flow.topic, 1, 200)  # A's retention: B begins later
    flow.a.delete_before(flow.topic, 2, 205)
    with flow.mirror() as mirror:
        flow.copy_slowly(mirror, range(220, 500), {1: 200, 2: 205})
    replica = flow.checkpoint(0, 471, 207)
    report = flow.rebase(replica).json()
    assert report["lost"] == 0
    assert 0 < report["doubled"] < LAG
    assert refuse_lost(flow, report) == report["doubled"]
    assert [each["new_topic"] for each in report["positions"]] == [flow.copy] * 3
    proven = flow.rebase(replica, by="fingerprint").json()
    assert refuse_lost(flow, proven) == 0
    promoted = run("promote", replica, "--kafka", flow.b.servers, "--checkpoint", report["derived"])
    assert promoted.code == 0, promoted


def test_a_name_that_is_not_that_of_the_copy_is_refused_and_the_right_one_printed(flow):
    flow.write(range(10))
    replica = flow.checkpoint(1, 2, 3)
    with flow.mirror() as mirror:
        mirror.wait_for(flow.copied(10))
    flow.b.create(flow.topic, partitions=3)
    refused = flow.rebase(replica, "--dry-run")
    assert (refused.code, f"--rename-topic {flow.topic}={flow.copy}" in refused.message) == (
        6,
        True,
    )


@pytest.mark.parametrize("ended", ["stopped", "killed"])
@pytest.mark.parametrize("is_before", [True, False], ids=["before", "after"])
def test_a_mirror_that_is_restarted_skips_nothing(flow, ended, is_before):
    flow.write(range(60))  # two offset syncs of each partition: of more at once, some are left out
    mirror = flow.mirror(UNRECORDED if ended == "killed" else None)
    with mirror:
        mirror.wait_for(flow.copied(60))
        flow.wait_for_syncs()
        replica = flow.checkpoint(12, 59, 44) if is_before else None
        mirror.stop() if ended == "stopped" else mirror.kill()
        flow.write(range(60, 80))
        mirror.start()
        mirror.wait_for(flow.copied(80 if ended == "stopped" else 140))
        flow.wait_for_syncs()
    report = flow.rebase(replica or flow.checkpoint(12, 59, 44)).json()
    assert report["lost"] == 0
    assert refuse_lost(flow, report) == report["doubled"]
    if ended == "stopped":
        assert report["doubled"] < LAG * len(PARTITIONS)
    elif is_before:
        assert any("a second time" in warning for warning in report["warnings"])


def test_by_default_the_checkpoints_of_groups_translate_and_the_setting_is_named(flow):
    flow.write(range(60))
    replica = flow.checkpoint(30, 59, 55)
    with flow.mirror(**{"offset-syncs_topic_location": "source"}) as mirror:
        mirror.wait_for(flow.copied(60))
        refused = flow.rebase(replica)  # no group has committed yet
        assert "offset-syncs.topic.location=target" in refused.message
        flow.a.commit(f"job-{flow.alias}", {(flow.topic, n): 20 + 15 * n for n in PARTITIONS})
        place = f"{flow.alias}.checkpoints.internal", 0
        wait_until(lambda: ends_of(flow.b, [place]).get(place, 0) >= 3, "the group's offsets at B")
    report = flow.rebase(replica).json()
    assert (report["lost"], report["doubled"]) == (0, None)
    assert any("consumer groups" in warning for warning in report["warnings"])
    assert refuse_lost(flow, report) > 0


def test_a_job_may_read_where_the_mirror_has_no_record_yet(flow):
    flow.write(range(60))
    with flow.mirror() as mirror:
        mirror.wait_for(flow.copied(60))
        flow.wait_for_syncs()
        mirror.stop()
        flow.write(range(60, 300))
        report = flow.rebase(flow.checkpoint(60, 250, 299)).json()
        mirror.start()
        mirror.wait_for(flow.copied(300))
    assert report["lost"] == 0
    assert refuse_lost(flow, report) == report["doubled"]


def test_a_position_from_before_the_mirror_began_is_an_obstacle(flow):
    flow.write(range(300))
    flow.a.delete_before(flow.topic, 0, 200)
    with flow.mirror() as mirror:
        mirror.wait_for({(flow.copy, 0): 100, (flow.copy, 1): 300})
        flow.wait_for_syncs()
    refused = flow.rebase(flow.checkpoint(100, 100, 100))
    assert refused.code == 6
    assert f"{flow.copy} partition 0 (100: no record below it" in refused.message
    assert not (flow.directory / "dcB" / JOB / "rebased").exists()
