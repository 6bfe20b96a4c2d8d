"""`status` with a Kafka: by how many records its topics trail each replica."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest

from cpreplicate.operations.replicas.replica_status import FleetStatus
from cpreplicate.operations.replicas.replicas import replicas_below
from cpreplicate.operations.replicas.status import status
from cpreplicate.operations.sync import sync
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.output.results import forms_of
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import Sides, Transient
from tests.support.commandline import printed
from tests.support.jobs import JOB
from tests.support.kafka_jobs import put_kafka_checkpoint
from tests.support.kafka_states import Split
from tests.support.standin_kafka import StandInKafka


def replicate(root: Path, job: str, *splits: Split) -> None:
    put_kafka_checkpoint(root / "dcA", 1, splits)
    (root / "dcA" / JOB).rename(root / "dcA" / job)
    inline = ExecutionOptions(runner="inline")
    sync.sync(SyncRequest(f"file:{root}/dcA/{job}", f"file:{root}/dcB", execution=inline), print)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Replicas of a job that reads two topics, of one that reads another, and of one without."""
    replicate(tmp_path, "a" * 32, Split("orders", 0, 300), Split("clicks", 0, 40))
    replicate(tmp_path, "b" * 32, Split("payments", 3, 7))
    replicate(tmp_path, "c" * 32)
    return tmp_path


def shown(root: Path, kafka, **options) -> FleetStatus:
    replicas = replicas_below(f"file:{root}/dcB", (), Sides())
    return status(replicas, Sides(), kafka=kafka, **options)


def test_all_replicas_are_looked_up_in_one_listing(root):
    kafka = StandInKafka({("orders", 0): (0, 250), ("clicks", 0): (0, 60), ("payments", 0): (0, 9)})
    found = shown(root, kafka)
    assert kafka.listings == 1
    rows = {row.job[0]: row for row in found.replicas}
    assert {job: row.kafka_behind for job, row in rows.items()} == {"a": 50, "b": None, "c": None}
    assert rows["b"].kafka_missing == ("payments",)
    assert all(row.positions is None for row in found.replicas)


def test_the_column_and_the_fields_are_there_only_with_a_kafka(root):
    kafka = StandInKafka({("orders", 0): (0, 250), ("clicks", 0): (0, 60)})
    found = shown(root, kafka)
    text = forms_of(found).text(found)
    assert text.splitlines()[0].endswith("kafka behind")
    cells = {line[0]: line.split()[-1] for line in text.splitlines()[1:4]}
    assert cells == {"a": "50", "b": "?", "c": "?"}
    assert "payments: partitions missing at kafka-b:9092" in text
    kafka.hidden = frozenset(["payments"])
    found = shown(root, kafka)
    text = forms_of(found).text(found)
    assert "payments: the user may not describe them at kafka-b:9092" in text
    assert "partitions missing" not in text
    rows = json.loads(forms_of(found).json(found))["replicas"]
    fields = {row["job"][0]: (row["kafka_behind"], row["kafka_missing"]) for row in rows}
    assert fields == {"a": (50, []), "b": (None, ["payments"]), "c": (None, [])}
    assert "kafka" not in forms_of(found).text(shown(root, None))


def test_positions_are_shown_beside_if_asked_for(root):
    found = shown(root, StandInKafka(), with_positions=True)
    assert all(row.positions is not None for row in found.replicas)


def test_a_kafka_that_does_not_answer_leaves_the_rows(root):
    class Silent(StandInKafka):
        def topics(self):
            raise Transient(errno.ETIMEDOUT, "Kafka could not be reached", self.servers)

    found = shown(root, Silent())
    assert isinstance(found.kafka_error, Transient)
    assert [row.kafka_behind for row in found.replicas] == [None] * 3
    ended = printed("status", root / "dcB", "--kafka", "127.0.0.1:1", "--retry-for", "0s")
    assert ended.returncode == 7
    assert "a" * 32 in ended.stdout
    assert "Kafka could not be reached" in ended.stderr
