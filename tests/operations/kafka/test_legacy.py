"""Checkpoints of jobs with FlinkKafkaConsumer and FlinkKafkaProducer, as Flink 1.14 to 1.20 wrote
them, are read, compared and derived from as those of later connectors.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from cpreplicate.core.positions.model import Positions
from cpreplicate.core.positions.offsets import as_given
from cpreplicate.errors import NotAtKafka
from cpreplicate.operations.handover.promote import PromoteRequest, promote
from cpreplicate.operations.kafka.check import KafkaAsked, KafkaCheck
from cpreplicate.operations.kafka.positions import positions_of
from cpreplicate.operations.kafka.rebase import RebaseRequest, rebase
from cpreplicate.operations.sync import sync
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.protocol.source import read_metadata
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import Side
from tests.support import kafka_states as written
from tests.support.encoder import Tree, encode
from tests.support.kafka_jobs import inline, source_operator, subtask
from tests.support.standin_kafka import StandInKafka

ROOT = Path(__file__).parent.parent.parent / "data" / "kafka-legacy"
# the next records, by partition; and the ends of the ids of pending transactions
HELD = {
    "legacy-1.14": ([1110, 1207, 1100], ["-2", "-7"]),
    "legacy-1.16": ([1375, 2428, 1395], ["-2", "-7"]),
    "legacy-new": ([538, 550, 500, 590], ["-4", "-4"]),
    "new-legacy": ([1425, 1450, 1395, 1420], ["-4", "-8"]),
}


def quiet(_line: str) -> None:
    """Report nothing."""


def held(checkpoint: Path) -> Positions:
    found = positions_of(read_metadata(f"file:{checkpoint}", Side()), Side())
    assert found is not None
    return found.found


def offsets(found: Positions) -> list[int | None]:
    return [each.offset for each in found.positions]


@pytest.fixture(params=sorted(HELD))
def line(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def replica(line: str, tmp_path: Path) -> Path:
    (job,) = (ROOT / line).iterdir()
    execution = ExecutionOptions(runner="inline")
    sync.sync(SyncRequest(f"file:{job}", f"file:{tmp_path}", execution=execution), quiet)
    return tmp_path / job.name


def test_they_are_read_compared_and_derived_from(line, replica):
    wanted, endings = HELD[line]
    found = held(replica / "chk-4")
    assert offsets(found) == wanted
    assert sorted(each.transactional_id[-2:] for each in found.pending) == endings
    assert found.unread == ()

    topic = found.positions[0].topic
    kafka = StandInKafka({(f"A.{topic}", each): (0, 9999) for each in range(len(wanted))})
    request = PromoteRequest(f"file:{replica}", kafka=KafkaAsked(kafka))
    with pytest.raises(NotAtKafka) as caught:
        promote(request, quiet)
    assert isinstance(caught.value.report, KafkaCheck)
    (checked,) = caught.value.report.checked
    assert {each.trouble for each in checked.problems} == {"no-topic", "pending"}
    assert checked.remedy.unsolved == ()

    rebase(
        RebaseRequest(
            f"file:{replica}",
            topics={topic: f"A.{topic}"},
            choice=as_given({(f"A.{topic}", 1): 41}),
            drops_pending=True,
        ),
        quiet,
    )
    derived = held(replica / "rebased" / "chk-4-1")
    assert {each.topic for each in derived.positions} == {f"A.{topic}"}
    assert offsets(derived) == [wanted[0], 41, *wanted[2:]]
    assert (derived.pending, derived.unread) == ((), ())
    derived_request = PromoteRequest(
        f"file:{replica}", checkpoint="rebased/chk-4-1", kafka=KafkaAsked(kafka)
    )
    assert promote(derived_request, quiet).checkpoint == "rebased/chk-4-1"


def test_what_is_changed_back_is_the_same_file_but_for_its_paths(replica):
    old = held(replica / "chk-4").positions[0]
    there = as_given({(f"A-longer-{old.topic}", 0): 5})
    changes = RebaseRequest(
        f"file:{replica}", topics={old.topic: f"A-longer-{old.topic}"}, choice=there
    )
    rebase(changes, quiet)
    assert old.offset is not None
    back = RebaseRequest(
        f"file:{replica}",
        checkpoint="rebased/chk-4-1",
        name="back",
        topics={f"A-longer-{old.topic}": old.topic},
        choice=as_given({(old.topic, 0): old.offset}),
    )
    rebase(back, quiet)
    data = (replica / "rebased" / "back" / "_metadata").read_bytes()
    assert data == (replica / "chk-4" / "_metadata").read_bytes()


@pytest.mark.parametrize("name", ["topic-partition-offset-states", "state"])
def test_a_list_of_this_name_of_another_connector_is_named_or_none(tmp_path, name):
    states = written.stream({name: [b"a message id"]})
    operator = source_operator([subtask(0, states, inline(states.data))], b"")
    directory = tmp_path / "chk-1"
    directory.mkdir()
    (directory / "_metadata").write_bytes(encode(Tree(6, (operator,))).data)
    reasons = [(each.reason, each.is_obstacle) for each in held(directory).unread]
    assert reasons == ([] if name == "state" else [("its source is not Kafka's", False)])
