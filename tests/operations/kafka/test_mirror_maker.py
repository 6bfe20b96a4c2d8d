"""`rebase` by what MirrorMaker 2 recorded at B, and `promote`, which prints that command."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from cpreplicate.errors import NotAtKafka, NotThere, Refused
from cpreplicate.operations.handover.promote import PromoteRequest, promote
from cpreplicate.operations.kafka.check import Checked, KafkaAsked, KafkaCheck
from cpreplicate.operations.kafka.rebase import Rebase, RebaseRequest, rebase
from cpreplicate.operations.sync import sync
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.runners import ExecutionOptions
from tests.support.jobs import JOB
from tests.support.kafka_jobs import put_kafka_checkpoint
from tests.support.kafka_states import Split
from tests.support.standin_kafka import StandInKafka

NAMES = {"orders": "A.orders"}
SYNCS, CHECKPOINTS = "mm2-offset-syncs.A.internal", "A.checkpoints.internal"
OLD = 1_700_000_000.0


def quiet(_line: str) -> None:
    """Report nothing."""


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def syncs(*pairs: tuple[int, int], topic: str = "orders") -> list[tuple[bytes, bytes, float]]:
    """Records of offset syncs of two partitions, as MirrorMaker writes them."""
    return [
        (text(topic) + struct.pack(">i", partition), struct.pack(">qq", *pair), OLD)
        for pair in pairs
        for partition in range(2)
    ]


def at_b(*names: str, end: int = 500, logs=None) -> StandInKafka:
    """The Kafka at B: topics of two partitions."""
    held = {(name, partition): (0, end) for name in names for partition in range(2)}
    return StandInKafka(held, logs={SYNCS: syncs((100, 0), (300, 200))} if logs is None else logs)


@pytest.fixture
def replica(tmp_path: Path) -> str:
    splits = [Split("orders", 0, 350), Split("orders", 1, 300)]
    put_kafka_checkpoint(tmp_path / "dcA", 1, splits)
    execution = ExecutionOptions(runner="inline")
    sync.sync(
        SyncRequest(f"file:{tmp_path}/dcA/{JOB}", f"file:{tmp_path}/dcB", execution=execution),
        quiet,
    )
    return f"file:{tmp_path}/dcB/{JOB}"


def rebased(replica: str, kafka: StandInKafka, alias: str = "A", **options) -> Rebase:
    options.setdefault("topics", NAMES)
    request = RebaseRequest(replica, kafka=kafka, by="mm2", alias=alias, **options)
    return rebase(request, quiet)


def test_positions_are_those_of_the_copy_and_what_is_doubled_is_counted(replica):
    result = rebased(replica, at_b("A.orders"))
    found = [(each.topic, each.offset, each.lost, each.doubled) for each in result.moves]
    assert found == [("A.orders", 201, 0, 49), ("A.orders", 200, 0, 0)]


def test_where_nothing_is_recorded_the_setting_of_mirrormaker_is_named(replica):
    with pytest.raises(NotThere, match=r"offset-syncs\.topic\.location=target"):
        rebased(replica, at_b("A.orders", logs={}))
    with pytest.raises(Refused, match=r"recorded nothing of it.*offset-syncs\.topic\.location"):
        rebased(replica, at_b("A.orders", logs={CHECKPOINTS: []}))
    with pytest.raises(NotThere, match="with the alias X"):
        rebased(replica, at_b("A.orders"), alias="X")


def test_the_name_of_the_copy_is_asked_for(replica):
    with pytest.raises(Refused, match=r"Add --rename-topic orders=A\.orders"):
        rebased(replica, at_b("orders", "A.orders"), topics={})
    identity = at_b("orders", logs={SYNCS: syncs((100, 0), (300, 200)), CHECKPOINTS: []})
    result = rebased(replica, identity, topics={})
    assert [each.offset for each in result.moves] == [201, 200]


def test_positions_of_the_copy_itself_are_not_translated_again(replica):
    kafka = at_b("A.orders")
    derived = rebased(replica, kafka).name
    with pytest.raises(Refused, match="is the name of MirrorMaker's copy"):
        rebased(replica, kafka, checkpoint=derived, topics={})


def test_records_that_are_not_those_of_mirrormaker_are_refused(replica):
    logs = {SYNCS: [(b"\0\1x", b"", OLD)]}
    with pytest.raises(Refused, match="holds a record that is not MirrorMaker's"):
        rebased(replica, at_b("A.orders", logs=logs))


def test_a_translation_that_would_skip_younger_records_is_refused(replica):
    kafka = at_b("A.orders")
    kafka.first_since = {("A.orders", 0): 190}
    with pytest.raises(Refused, match=r"MirrorMaker's topics would skip .* \(11 records from 190"):
        rebased(replica, kafka)
    assert not Path(replica.removeprefix("file:"), "rebased").exists()


def refused(replica: str, kafka: StandInKafka, **options) -> tuple[Checked, KafkaCheck]:
    with pytest.raises(NotAtKafka) as caught:
        promote(PromoteRequest(replica, kafka=KafkaAsked(kafka, **options)), quiet)
    report = caught.value.report
    assert isinstance(report, KafkaCheck)
    return report.checked[0], report


@pytest.mark.parametrize(
    ("kafka", "renames"),
    [
        (at_b("A.orders"), " --rename-topic orders=A.orders"),
        (at_b("orders", end=210, logs={SYNCS: syncs((300, 200)), CHECKPOINTS: []}), ""),
    ],
)
def test_promote_prints_the_translation_where_it_is_recorded(replica, kafka, renames):
    checked, _ = refused(replica, kafka)
    assert checked.command == (
        f"cpreplicate rebase {replica} --checkpoint chk-1{renames} --positions mm2:A"
        f" --kafka {kafka.servers}"
    )
    assert checked.remedy.unsolved == ()


def test_promote_names_why_a_translation_does_not_help_and_what_else_does(replica):
    kafka = at_b("A.orders", end=320, logs={SYNCS: syncs((400, 0))})
    checked, report = refused(replica, kafka)
    assert checked.command.endswith(f"--positions clamp --kafka {kafka.servers}")
    assert any("mm2:A does not help" in each for each in report.warnings)


def test_the_former_kafka_has_offset_syncs_of_its_own_topics(replica):
    kafka = at_b("orders", end=210, logs={"mm2-offset-syncs.B.internal": syncs((200, 100))})
    checked, _ = refused(replica, kafka, is_same=True)
    assert "mm2" not in checked.command


def promoted(replica: str, kafka: StandInKafka, **options) -> tuple[str, ...]:
    """The warnings of a promotion, which is not made."""
    request = PromoteRequest(replica, kafka=KafkaAsked(kafka), dry_run=True, **options)
    found = promote(request, quiet).kafka
    assert found is not None
    return found.warnings


def test_promote_names_a_mirrormaker_that_copies_under_the_same_name(replica):
    syncs_there = {SYNCS: syncs((300, 200)), CHECKPOINTS: []}
    warnings = promoted(replica, at_b("orders", logs=syncs_there))
    assert any("--positions mm2:A translates" in each for each in warnings)
    kafka = at_b("A.orders")
    derived = rebased(replica, kafka).name
    assert not any("mm2:A" in each for each in promoted(replica, kafka, checkpoint=derived))
    assert not any("mm2:A" in each for each in promoted(replica, at_b("orders", logs={})))
