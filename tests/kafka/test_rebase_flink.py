"""Stock Flink runs at another Kafka from a derived checkpoint: nothing is lost, and doubled is just
what was reported.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cpreplicate.cli.commands.replication import cli
from tests.support import parts
from tests.support.copying import copy
from tests.support.kafka import Kafka
from tests.support.kafka_flink import CONNECTORS, KafkaJob, write_numbers

pytestmark = pytest.mark.xdist_group("kafka")

TOPICS = {"orders.v1": 4, "payments": 2}
NAMES = sum(TOPICS.values())
RECORDS, MIRRORED, SHIFT = 1500, 400, 70
ONE_MORE = range(RECORDS, RECORDS + 1)  # a job counts a partition only when it has read from it


@pytest.fixture(scope="module")
def other_kafka(kafka: Kafka) -> Iterator[Kafka]:
    """The Kafka at B, which knows nothing of the transactions at A.

    Both have the topic that the job writes to.
    """
    with Kafka() as started:
        for each in (kafka, started):
            each.create("out", partitions=2)
        yield started


def create(kafka: Kafka, prefix: str) -> None:
    for topic, partitions in TOPICS.items():
        kafka.create(f"{prefix}{topic}", partitions=partitions)


def fill(kafka: Kafka, prefix: str, numbers: range) -> None:
    """Append these records to each partition: those of A, in a topic with another name."""
    for topic, partitions in TOPICS.items():
        write_numbers(kafka.servers, f"{prefix}{topic}", range(partitions), numbers, topic)


def run(*words: object) -> dict[str, Any]:
    result = CliRunner().invoke(cli, [*map(str, words), "--output", "json"])
    assert result.exit_code == 0, (result.output, result.exception)
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def replica_of(
    job: KafkaJob, kafka: Kafka, directory: Path, prefix: str, *options: str, **words: str
) -> Path:
    """The replica of a job at A that died with transactions pending."""
    halted = job.run(
        brokers=kafka.servers,
        topics=",".join(f"{prefix}{topic}" for topic in TOPICS),
        checkpoints=f"file:{directory}/dcA",
        names=NAMES,
        until=RECORDS,
        haltAfter=2500,  # of a subtask, so that some partition is read beyond MIRRORED
        perCheckpoint=300,
        **words,
    )
    (source,) = (directory / "dcA").iterdir()
    places = f"{source}/chk-{halted.checkpoint}", directory / "dcB"
    run("sync", *places, "--runner", "inline", "-q", *options)
    return directory / "dcB" / source.name


def restored(job: KafkaJob, kafka: Kafka, start: Path, prefix: str, directory: Path, **words: str):
    return job.run(
        brokers=kafka.servers,
        topics=",".join(f"{prefix}{topic}" for topic in TOPICS),
        checkpoints=f"file:{directory}",
        **{"from": f"file:{start}"},
        **words,
        names=NAMES,
        until=RECORDS,
    )


@pytest.mark.parametrize(
    "connector", [parts.rest(each) if each == "5" else parts.nightly(each) for each in CONNECTORS]
)
def test_a_job_that_writes_exactly_once_starts_at_a_mirror_that_trails(
    kafka, other_kafka, connector, tmp_path
):
    job, prefix = KafkaJob(connector), f"trails-{connector}."
    create(kafka, prefix)
    fill(kafka, prefix, range(RECORDS))
    replica = replica_of(job, kafka, tmp_path, prefix)
    create(other_kafka, prefix)
    fill(other_kafka, prefix, range(MIRRORED))
    positions = run("inspect", replica, "--positions")
    assert len(positions["positions"]) == NAMES
    number = positions["checkpoint_id"]
    pending = {(each["transactional_id"], each["checkpoint"]) for each in positions["pending"]}
    assert pending
    assert pending <= {(f"cpreplicate-{subtask}-{number}", number) for subtask in range(2)}

    as_it_is = restored(job, other_kafka, replica / f"chk-{number}", prefix, tmp_path / "in-vain")
    assert "InvalidPidMappingException" in as_it_is.failure

    report = run(
        "rebase", replica, "--positions", "clamp", "--kafka", other_kafka.servers, "--drop-pending"
    )
    assert report["lost"] == 0
    assert report["doubled"] > 0
    assert len(report["dropped"]) == len(pending)
    fill(other_kafka, prefix, range(MIRRORED, RECORDS))  # the mirror goes on
    start = replica / str(report["derived"])
    at_b = restored(job, other_kafka, start, prefix, tmp_path / "dcB-flink")
    assert (at_b.failure, at_b.lost, at_b.doubled) == (None, 0, report["doubled"])
    assert all(next_ == RECORDS for next_, _, _ in at_b.counts.values())

    own = max(
        (tmp_path / "dcB-flink").glob("*/chk-*"), key=lambda place: int(place.name.split("-")[1])
    )
    assert int(own.name.split("-")[1]) > number
    fill(other_kafka, prefix, ONE_MORE)
    again = restored(job, other_kafka, own, prefix, tmp_path / "dcB-again")
    assert (again.failure, again.lost, again.doubled) == (None, 0, report["doubled"])


@pytest.mark.parametrize(
    "connector", [parts.rest(each) if each == "5" else parts.nightly(each) for each in CONNECTORS]
)
def test_renamed_topics_with_other_offsets_lose_and_double_nothing(
    kafka, other_kafka, connector, tmp_path
):
    job, prefix, renamed = KafkaJob(connector), f"moved-{connector}.", f"renamed-{connector}."
    create(kafka, prefix)
    fill(kafka, prefix, range(RECORDS))
    replica = replica_of(job, kafka, tmp_path, prefix)
    create(other_kafka, renamed)
    fill(other_kafka, renamed, range(SHIFT))  # what is not of A: so each offset is another
    fill(other_kafka, renamed, range(RECORDS))
    offsets = tmp_path / "offsets.csv"
    held = run("inspect", replica, "--positions")["positions"]
    offsets.write_text(
        "".join(
            f"{each['topic'].replace(prefix, renamed)},{each['partition']},"
            f"{each['offset'] + SHIFT}\n"
            for each in held
        )
    )
    renames = [
        word for topic in TOPICS for word in ("--rename-topic", f"{prefix}{topic}={renamed}{topic}")
    ]
    report = run("rebase", replica, *renames, "--positions", offsets, "--drop-pending")
    fill(other_kafka, renamed, ONE_MORE)
    start = replica / str(report["derived"])
    at_b = restored(job, other_kafka, start, renamed, tmp_path / "dcB-flink")
    assert (at_b.failure, at_b.lost, at_b.doubled) == (None, 0, 0)


@pytest.mark.rest
def test_a_job_with_the_legacy_connectors_starts_at_a_mirror_that_trails(
    kafka, other_kafka, tmp_path
):
    job, prefix, legacy = KafkaJob("3"), "legacy.", {"legacy": "yes"}
    create(kafka, prefix)
    fill(kafka, prefix, range(RECORDS))
    replica = replica_of(job, kafka, tmp_path, prefix, **legacy)
    create(other_kafka, prefix)
    fill(other_kafka, prefix, range(MIRRORED))
    held = run("inspect", replica, "--positions")
    assert len(held["positions"]) == NAMES
    assert held["pending"]
    assert [each for each in held["positions_unread"] if each["is_obstacle"]] == []
    number = held["checkpoint_id"]
    as_it_is = restored(
        job, other_kafka, replica / f"chk-{number}", prefix, tmp_path / "in-vain", **legacy
    )
    assert "InvalidPidMappingException" in as_it_is.failure

    report = run(
        "rebase", replica, "--positions", "clamp", "--kafka", other_kafka.servers, "--drop-pending"
    )
    assert (report["lost"], len(report["dropped"])) == (0, len(held["pending"]))
    assert report["doubled"] > 0
    fill(other_kafka, prefix, range(MIRRORED, RECORDS))  # the mirror goes on
    start = replica / str(report["derived"])
    at_b = restored(job, other_kafka, start, prefix, tmp_path / "dcB-flink", **legacy)
    assert (at_b.failure, at_b.lost, at_b.doubled) == (None, 0, report["doubled"])
    assert all(next_ == RECORDS for next_, _, _ in at_b.counts.values())


@pytest.mark.parametrize(
    "connector", [parts.rest(each) if each == "5" else parts.nightly(each) for each in CONNECTORS]
)
def test_offsets_that_fingerprints_translate_lose_and_double_nothing(
    kafka, other_kafka, connector, tmp_path
):
    job, prefix = KafkaJob(connector), f"proven-{connector}."
    create(kafka, prefix)
    fill(kafka, prefix, range(RECORDS))
    replica = replica_of(job, kafka, tmp_path, prefix, "--kafka-source", kafka.servers)
    create(other_kafka, prefix)
    fill(other_kafka, prefix, range(SHIFT))  # what is not of A: so each offset is another
    for topic, partitions in TOPICS.items():
        firsts, ends = (
            dict.fromkeys(range(partitions), 0),
            dict.fromkeys(range(partitions), RECORDS),
        )
        copy(kafka, other_kafka, f"{prefix}{topic}", firsts, ends)
    by_proof = ("--positions", "fingerprint", "--kafka", other_kafka.servers)
    report = run("rebase", replica, *by_proof, "--drop-pending")
    moved = [each["new_offset"] - each["offset"] for each in report["positions"]]
    assert moved == [SHIFT] * NAMES
    fill(other_kafka, prefix, ONE_MORE)
    start = replica / str(report["derived"])
    at_b = restored(job, other_kafka, start, prefix, tmp_path / "dcB-flink")
    assert (at_b.failure, at_b.lost, at_b.doubled) == (None, 0, 0)
