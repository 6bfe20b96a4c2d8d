"""The positions that are shown are those at which stock Flink begins to read, and the pending
transactions are those that the broker knows.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support import parts
from tests.support.commandline import run
from tests.support.kafka_flink import CONNECTORS, KafkaJob, write_numbers

pytestmark = pytest.mark.xdist_group("kafka")

TOPICS = {"orders.v1": 4, "payments": 2}
RECORDS, CHECKPOINTS = 1000, 10  # of three connectors: thirty


@pytest.mark.parametrize(
    "connector", [parts.rest(each) if each == "5" else parts.nightly(each) for each in CONNECTORS]
)
def test_positions_are_those_of_flink_and_pending_transactions_those_of_the_broker(
    kafka, connector, tmp_path
):
    job, prefix = KafkaJob(connector), f"shown-{connector}."
    for topic, partitions in TOPICS.items():
        kafka.create(f"{prefix}{topic}", partitions=partitions)
        write_numbers(kafka.servers, f"{prefix}{topic}", range(partitions), range(RECORDS), topic)
    kafka.create(f"{prefix}out", partitions=2)
    arguments = {
        "brokers": kafka.servers,
        "topics": ",".join(f"{prefix}{topic}" for topic in TOPICS),
        "out": f"{prefix}out",
        "transactions": prefix,
        "names": sum(TOPICS.values()),
    }
    at_a = {"retained": CHECKPOINTS, "interval": "200ms", "perCheckpoint": 60}
    halted = job.run(
        **arguments,
        **at_a,
        checkpoints=f"file:{tmp_path}/dcA",
        until=RECORDS,
        haltAfter=1,
        haltAt=CHECKPOINTS,
    )
    shown = {each: positions(each) for each in completed(tmp_path / "dcA")}
    assert len(shown) >= CHECKPOINTS
    # another one may be completed before the process has halted
    assert max(each["checkpoint_id"] for each in shown.values()) >= halted.checkpoint

    known = {each["transactional_id"]: each for each in job.transactions(kafka.servers)}
    pending = [each for one in shown.values() for each in one["pending"]]
    assert len(pending) >= CHECKPOINTS
    for each in pending:
        of_broker = known[each["transactional_id"]]
        assert each["producer_id"] == of_broker["producer_id"], (each, of_broker)
        raised = of_broker["epoch"] - each["epoch"]  # by one when it ends, since Kafka 4 (KIP-890)
        assert raised == 0 or (raised == 1 and of_broker["state"] != "Ongoing"), (each, of_broker)

    for topic, partitions in TOPICS.items():  # a job counts a partition when it has read from it
        one_more = range(RECORDS, RECORDS + 1)
        write_numbers(kafka.servers, f"{prefix}{topic}", range(partitions), one_more, topic)
    starts = [f"file:{each}" for each in shown]
    restored = job.restore_each(starts, **arguments, checkpoints=f"file:{tmp_path}/again", until=0)
    for one, ended in zip(shown.values(), restored, strict=True):
        assert ended.failure is None
        assert ended.first == {
            f"{each['topic'].removeprefix(prefix)}|{each['partition']}": first_of(each)
            for each in one["positions"]
        }


def positions(checkpoint: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(
        run("inspect", checkpoint, "--positions", "--output", "json").out
    )
    return result


def completed(directory: Path) -> list[Path]:
    """Return the completed checkpoints of a job, the oldest first."""
    found = [each.parent for each in directory.glob("*/chk-*/_metadata")]
    return sorted(found, key=lambda place: int(place.name.split("-")[1]))


def first_of(position: dict[str, Any]) -> int:
    """Return the number of the first record behind a position: these topics begin at 0."""
    if position["marker"] == "earliest":
        return 0
    offset = position["offset"]
    assert isinstance(offset, int)
    return offset
