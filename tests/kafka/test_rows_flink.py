"""What happened to jobs at another Kafka before there was a check, and what happens now, by stock
Flink: what `promote --kafka` refuses, the `rebase` that it prints, and the sums of records.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.commandline import Ended, run
from tests.support.kafka import Kafka
from tests.support.kafka_flink import Ended as JobEnded
from tests.support.kafka_flink import KafkaJob, write_numbers

pytestmark = [pytest.mark.xdist_group("kafka"), pytest.mark.rest]

TOPICS = {"orders.v1": 4, "payments": 2}
RECORDS = 600
CONNECTORS = os.environ.get("TESTS_CONNECTORS", "5").split(",")  # make nightly: all of them


@pytest.fixture(scope="module")
def other_kafka() -> Iterator[Kafka]:
    """The Kafka at B, which knows nothing of the transactions at A."""
    with Kafka() as started:
        yield started


@pytest.fixture(scope="module", params=CONNECTORS)
def job(request) -> KafkaJob:
    return KafkaJob(request.param)


class Sites:
    """A job at A whose topics have names of their own, and the Kafka at which it goes on."""

    def __init__(self, job: KafkaJob, a: Kafka, b: Kafka, directory: Path, dynamic: str | None):
        self.job, self.a, self.b, self.directory = job, a, b, directory
        # the directory of a test that passed is removed, so another connector's has its name again
        self.prefix, self.dynamic = f"{job.connector}-{directory.name}.", dynamic
        self.replica = self._replica()
        self.positions = self._positions()

    def _run(self, kafka: Kafka, **arguments: object) -> JobEnded:
        return self.job.run(
            brokers=kafka.servers,
            topics=",".join(f"{self.prefix}{topic}" for topic in TOPICS),
            out=f"{self.prefix}out",
            transactions=self.prefix,
            dynamic=self.dynamic,
            names=sum(TOPICS.values()),
            **arguments,
        )

    def _replica(self) -> Path:
        """The replica of the job, which has read some hundred records and died."""
        self.create(self.a, TOPICS)
        self.fill(self.a, range(RECORDS))
        place = f"file:{self.directory}/dcA"
        pace = {"interval": "200ms", "perCheckpoint": 60}
        ended = self._run(self.a, checkpoints=place, until=RECORDS, haltAfter=200, **pace)
        (source,) = (self.directory / "dcA").iterdir()
        start, target = f"{source}/chk-{ended.checkpoint}", self.directory / "dcB"
        assert run("sync", start, target, "--runner", "inline", "-q").code == 0
        return target / source.name

    def _positions(self) -> dict[tuple[str, int], int]:
        shown = run("inspect", self.replica, "--positions", "--output", "json").json()
        return {
            (each["topic"].removeprefix(self.prefix), each["partition"]): each["offset"]
            for each in shown["positions"]
        }

    def create(self, kafka: Kafka, topics: Mapping[str, int]) -> None:
        for topic, partitions in topics.items():
            kafka.create(f"{self.prefix}{topic}", partitions=partitions)
        kafka.create(f"{self.prefix}out", partitions=2)

    def fill(self, kafka: Kafka, numbers: range, topics: Mapping[str, int] = TOPICS) -> None:
        for topic, partitions in topics.items():
            write_numbers(kafka.servers, f"{self.prefix}{topic}", range(partitions), numbers, topic)

    def promote(self, kafka: Kafka, *words: str) -> Ended:
        return run("promote", self.replica, "--kafka", kafka.servers, "--output", "json", *words)

    def refused(self) -> tuple[set[str], str | None]:
        """What is in the way of a start at B, and the command that solves it."""
        ended = self.promote(self.b)
        assert ended.code == 6, ended
        (checked,) = json.loads(ended.out)["kafka"]["checked"]
        return {each["problem"] for each in checked["problems"]}, checked["rebase"]

    def follow(self, command: str | None) -> dict[str, Any]:
        """Run the command that was printed, and promote what that derives."""
        program, *words = shlex.split(command or "")
        assert program == "cpreplicate"
        report = run(*words, "--output", "json").json()
        assert self.promote(self.b, "--checkpoint", report["derived"]).code == 0
        return report

    def start(self, kafka: Kafka, checkpoint: str) -> JobEnded:
        """Run the job from a checkpoint of the replica, to the last record of each partition."""
        self.fill(kafka, range(RECORDS, RECORDS + 1))
        place, start = f"file:{self.directory}/dcB-flink", f"file:{self.replica}/{checkpoint}"
        return self._run(kafka, checkpoints=place, until=RECORDS + 1, **{"from": start})


@pytest.fixture
def sites(request, job, kafka, other_kafka, tmp_path) -> Sites:
    return Sites(job, kafka, other_kafka, tmp_path, getattr(request, "param", None))


def test_at_the_same_kafka_the_replica_itself_is_the_start(sites):
    promoted = sites.promote(sites.a, "--same-kafka").json()
    ended = sites.start(sites.a, promoted["checkpoint"])
    assert (ended.failure, ended.lost, ended.doubled) == (None, 0, 0)


def test_of_a_whole_mirror_only_the_transactions_are_in_the_way(sites):
    sites.create(sites.b, TOPICS)
    sites.fill(sites.b, range(RECORDS))
    problems, command = sites.refused()
    assert problems == {"pending"}
    report = sites.follow(command)
    ended = sites.start(sites.b, report["derived"])
    assert (ended.failure, ended.lost, ended.doubled) == (None, 0, 0)


def test_records_that_b_has_deleted_are_lost_as_reported(sites):
    sites.create(sites.b, TOPICS)
    sites.fill(sites.b, range(RECORDS))
    begins = {place: min(offset + 50, RECORDS) for place, offset in sites.positions.items()}
    for (topic, partition), begin in begins.items():
        sites.b.delete_before(f"{sites.prefix}{topic}", partition, begin)
    problems, command = sites.refused()
    assert problems == {"pending", "deleted"}
    report = sites.follow(command)
    lost = sum(begins.values()) - sum(sites.positions.values())
    assert (report["lost"], report["doubled"]) == (lost, 0)
    ended = sites.start(sites.b, report["derived"])
    assert (ended.failure, ended.lost, ended.doubled) == (None, lost, 0)


def test_a_topic_that_b_lacks_is_mirrored_first(sites):
    orders, payments = ({topic: TOPICS[topic]} for topic in TOPICS)
    sites.create(sites.b, orders)
    sites.fill(sites.b, range(RECORDS), orders)
    problems, _ = sites.refused()
    assert problems == {"pending", "no-topic"}
    sites.b.create(f"{sites.prefix}payments", partitions=payments["payments"])
    sites.fill(sites.b, range(RECORDS), payments)
    problems, command = sites.refused()
    assert problems == {"pending"}
    ended = sites.start(sites.b, sites.follow(command)["derived"])
    assert (ended.failure, ended.lost, ended.doubled) == (None, 0, 0)


def test_partitions_that_b_lacks_are_mirrored_first(sites):
    sites.create(sites.b, {**TOPICS, "orders.v1": 3})
    sites.fill(sites.b, range(RECORDS), {**TOPICS, "orders.v1": 3})
    problems, _ = sites.refused()
    assert problems == {"pending", "no-partition"}
    sites.b.widen(f"{sites.prefix}orders.v1", 4)
    write_numbers(sites.b.servers, f"{sites.prefix}orders.v1", [3], range(RECORDS), "orders.v1")
    problems, command = sites.refused()
    assert problems == {"pending"}
    ended = sites.start(sites.b, sites.follow(command)["derived"])
    assert (ended.failure, ended.lost, ended.doubled) == (None, 0, 0)


@pytest.mark.parametrize("sites", ["main"], indirect=True)
def test_a_dynamic_source_reads_from_b_as_soon_as_its_servers_are_those_of_b(sites):
    sites.create(sites.b, TOPICS)
    trails = min(sites.positions.values())
    sites.fill(sites.b, range(trails))
    problems, command = sites.refused()
    assert problems >= {"pending", "other-servers"}
    report = sites.follow(command)
    assert report["doubled"] == sum(each - trails for each in sites.positions.values())
    sites.fill(sites.b, range(trails, RECORDS))
    ended = sites.start(sites.b, report["derived"])
    assert (ended.failure, ended.lost, ended.doubled) == (None, 0, report["doubled"])
