"""`doctor` with a Kafka: what would be in the way there, and that it stops no sync."""

from __future__ import annotations

import errno

import pytest

from cpreplicate.errors import Refused
from cpreplicate.operations import doctor
from cpreplicate.operations.kafka.check import KafkaAsked
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import Transient
from tests.support.jobs import JOB
from tests.support.kafka_jobs import put_kafka_checkpoint
from tests.support.kafka_states import Split, Transaction
from tests.support.standin_kafka import StandInKafka

WHOLE = StandInKafka({("orders", 0): (0, 250)})


@pytest.fixture
def request_(tmp_path) -> SyncRequest:
    splits, transactions = [Split("orders", 0, 100)], [Transaction("tx-0-3", 70)]
    put_kafka_checkpoint(tmp_path / "dcA", 1, splits, transactions)
    (tmp_path / "dcB").mkdir()
    inline = ExecutionOptions(runner="inline")
    return SyncRequest(f"file:{tmp_path}/dcA/{JOB}", f"file:{tmp_path}/dcB", execution=inline)


def found(request_: SyncRequest, kafka, is_same=False):
    asked = KafkaAsked(kafka, is_same=is_same)
    diagnosis = doctor.diagnose(request_, doctor.Configured(), asked)
    assert diagnosis.exit_code == 0
    return next(each for each in diagnosis.findings if each.check == "kafka")


def test_without_a_kafka_there_is_no_such_check(request_):
    findings = doctor.diagnose(request_, doctor.Configured()).findings
    assert "kafka" not in [each.check for each in findings]


def test_positions_that_exist_at_the_kafka_of_the_job_are_ok(request_):
    finding = found(request_, WHOLE, is_same=True)
    assert finding.status == "ok"
    assert finding.message == "1 position exists at kafka-b:9092"


def test_what_is_in_the_way_is_a_warning_with_the_options_of_rebase(request_):
    finding = found(request_, StandInKafka({("A.orders", 0): (0, 50)}))
    assert finding.status == "warning"
    assert "topics are missing (1: orders partition 0)" in finding.message
    assert "transactions are pending (1: tx-0-3)" in finding.message
    assert "--rename-topic orders=A.orders --positions clamp --drop-pending" in finding.remedy


def test_what_no_rebase_solves_is_to_be_created(request_):
    finding = found(request_, StandInKafka())
    assert finding.remedy.startswith("Create what is missing there; derive a checkpoint")


@pytest.mark.parametrize(
    "error",
    [
        Transient(errno.ETIMEDOUT, "Kafka could not be reached within 1 s", "kafka-b:9092"),
        Refused("kafka-b:9092 refuses the connection: check the credentials"),
    ],
)
def test_a_kafka_that_does_not_answer_is_a_warning(request_, error):
    class Silent(StandInKafka):
        def topics(self):
            raise error

    finding = found(request_, Silent())
    assert finding.status == "warning"
    assert "kafka-b:9092" in finding.message
    assert finding.remedy
