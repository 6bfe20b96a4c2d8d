"""`promote` with a Kafka takes the newest checkpoint that exists there, or prints what to do."""

from __future__ import annotations

import errno
import json
import os
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from cpreplicate.core.retention import Retention
from cpreplicate.errors import NotAtKafka
from cpreplicate.operations.handover.promote import PromoteRequest, Promotion, promote
from cpreplicate.operations.kafka.check import KafkaAsked, KafkaCheck, check
from cpreplicate.operations.kafka.rebase import RebaseRequest, rebase
from cpreplicate.operations.sync import sync
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.output.results import forms_of
from cpreplicate.protocol.replica import Replica
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import DamagedFile, Side
from tests.support import kafka_states as written
from tests.support.encoder import Tree, encode
from tests.support.faults import Faulty
from tests.support.jobs import JOB
from tests.support.kafka_jobs import (
    SOURCE,
    inline,
    put_kafka_checkpoint,
    put_with_files,
    source_operator,
    subtask,
)
from tests.support.kafka_states import Split, Transaction
from tests.support.registry import serving
from tests.support.standin_kafka import StandInKafka

ORDERS = Split("orders", 0, 100)
TRANSACTION = Transaction("tx-0-3", 70)


def quiet(_line: str) -> None:
    """Report nothing."""


class Site:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.replica = f"file:{directory}/dcB/{JOB}"

    def sync(self) -> None:
        request = SyncRequest(
            f"file:{self.directory}/dcA/{JOB}",
            f"file:{self.directory}/dcB",
            keep=Retention(last=9),
            execution=ExecutionOptions(runner="inline"),
        )
        sync.sync(request, quiet)

    def checkpoint(self, number: int, *splits: Split, transactions=()) -> None:
        put_kafka_checkpoint(self.directory / "dcA", number, splits, transactions)
        self.sync()

    def put(self, number: int, metadata: bytes) -> None:
        directory = self.directory / "dcA" / JOB / f"chk-{number}"
        directory.mkdir(parents=True)
        (directory / "_metadata").write_bytes(metadata)
        self.sync()

    def promote(
        self, kafka: StandInKafka, is_same=False, conf=None, not_read=frozenset(), **options
    ) -> Promotion:
        asked = KafkaAsked(kafka, conf, is_same, not_read)
        return promote(PromoteRequest(self.replica, kafka=asked, **options), quiet)

    def refused(self, kafka: StandInKafka, **options) -> KafkaCheck:
        with pytest.raises(NotAtKafka, match="Nothing was changed") as caught:
            self.promote(kafka, **options)
        assert not (self.directory / "dcB" / JOB / ".cpreplicate" / "sealed").exists()
        report = caught.value.report
        assert isinstance(report, KafkaCheck)
        return report


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_all_kept_checkpoints_are_looked_up_in_one_listing(site):
    for number in range(1, 5):
        site.checkpoint(number, Split("orders", 0, 100 * number))
    kafka = StandInKafka({("orders", 0): (0, 250)})
    promotion = site.promote(kafka)
    assert (promotion.checkpoint, kafka.listings) == ("chk-2", 1)
    checked = promotion.kafka.checked
    assert [(each.checkpoint, len(each.problems)) for each in checked] == [
        ("chk-4", 1),
        ("chk-3", 1),
        ("chk-2", 0),
    ]


def test_an_old_checkpoint_that_cannot_be_read_keeps_no_job_from_a_newer_one(site):
    site.checkpoint(1, ORDERS)
    site.checkpoint(2, ORDERS)

    def lost(verb: str, uri: str) -> OSError | None:
        is_lost = verb != "list" and uri.endswith("chk-1/_metadata") and "dcB" in uri
        return DamagedFile(errno.EIO, "no DataNode has the block", uri) if is_lost else None

    with serving("file", Faulty(Side().storage("file:/"), lost)):
        assert site.promote(StandInKafka({("orders", 0): (0, 250)})).checkpoint == "chk-2"


@pytest.mark.parametrize("is_same", [False, True])
def test_only_of_another_kafka_it_is_not_known_whether_offsets_mean_the_same_records(site, is_same):
    site.checkpoint(1, ORDERS)
    promotion = site.promote(StandInKafka({("orders", 0): (0, 250)}), is_same=is_same)
    assert ("means the same record" in str(promotion.kafka.warnings)) is not is_same


def test_a_checkpoint_that_is_named_is_the_only_one_that_is_checked(site):
    site.checkpoint(1, ORDERS)
    site.checkpoint(2, Split("orders", 0, 300))
    kafka = StandInKafka({("orders", 0): (0, 250)})
    assert [each.checkpoint for each in site.refused(kafka, checkpoint="chk-2").checked] == [
        "chk-2"
    ]
    later = site.refused(kafka, as_of=1e12)
    assert [each.checkpoint for each in later.checked] == ["chk-2"]
    assert site.promote(kafka, checkpoint="chk-1").checkpoint == "chk-1"


def test_a_derived_checkpoint_is_checked_if_it_is_named_and_never_chosen(site):
    site.checkpoint(1, ORDERS, transactions=[TRANSACTION])
    rebase(RebaseRequest(site.replica, drops_pending=True), quiet)
    kafka = StandInKafka({("orders", 0): (0, 250)})
    assert [each.checkpoint for each in site.refused(kafka).checked] == ["chk-1"]
    assert site.promote(kafka, checkpoint="rebased/chk-1-1").checkpoint == "rebased/chk-1-1"


def test_a_checkpoint_that_is_named_and_lacks_files_is_reported_as_without_a_kafka(site):
    put_with_files(site.directory / "dcA", 1, [ORDERS])
    site.sync()
    (site.directory / "dcB" / JOB / "chk-1" / "state-0").unlink()
    promotion = site.promote(StandInKafka(), checkpoint="chk-1")
    assert (promotion.verification.restorable, promotion.kafka) == (False, None)
    (problem,) = site.refused(StandInKafka()).checked[0].problems
    assert (problem.trouble, "which is not there" in problem.reason) == ("unread", True)


def commands(report: KafkaCheck) -> list[str | None]:
    return [each.command for each in report.checked]


def test_the_command_has_all_that_is_to_be_changed(site):
    site.checkpoint(1, ORDERS, Split("payments", 0, 7), transactions=[TRANSACTION])
    site.checkpoint(2, ORDERS)
    kafka = StandInKafka({("A.orders", 0): (0, 50), ("payments", 0): (0, 9)})
    report = site.refused(kafka, conf="/etc/kafka b.properties")
    base = f"cpreplicate rebase {site.replica} --checkpoint"
    clamp = "--positions clamp --kafka kafka-b:9092 --kafka-conf '/etc/kafka b.properties'"
    assert commands(report) == [
        f"{base} chk-2 --rename-topic orders=A.orders {clamp}",
        f"{base} chk-1 --rename-topic orders=A.orders --drop-pending {clamp}",
    ]


def test_the_servers_of_a_dynamic_source_are_those_that_the_restored_job_reads(site):
    splits = [Split("orders", 0, 100, cluster="main")]
    states = written.stream({written.READERS: [splits[0].element]})
    coordinator = written.dynamic_coordinator(2, splits, {"main": "kafka-a:9092"})
    operator = source_operator([subtask(0, states, inline(states.data))], coordinator)
    site.put(1, bytes(encode(Tree(6, (operator,), 1)).data))
    kafka = StandInKafka({("orders", 0): (0, 250)})
    report = site.refused(kafka)
    assert [each.trouble for each in report.checked[0].problems] == ["other-servers"]
    (command,) = commands(report)
    assert command is not None
    assert command.endswith("--checkpoint chk-1 --servers main=kafka-b:9092")
    assert "main: kafka-a:9092" in forms_of(report).text(report)
    kafka.servers = "kafka-a:9092"
    assert site.promote(kafka).checkpoint == "chk-1"


def test_a_state_that_is_not_known_is_in_the_way_and_no_rebase_helps(site):
    element = written.versioned(9, b"of another source")
    states = written.stream({written.READERS: [element]})
    coordinator = written.i32(1) + written.versioned(7, b"not known")
    operator = source_operator([subtask(0, states, inline(states.data))], coordinator)
    site.put(1, bytes(encode(Tree(6, (operator,), 1)).data))
    report = site.refused(StandInKafka())
    assert [each.trouble for each in report.checked[0].problems] == ["unread"]
    assert commands(report) == [None]
    text = forms_of(report).text(report)
    assert "no rebase solves this: state not read" in text
    (problem,) = json.loads(forms_of(report).json(report))["kafka"]["checked"][0]["problems"]
    assert (problem["problem"], problem["operator"]) == ("unread", SOURCE.hex())
    assert "not Kafka's" in problem["reason"]


@pytest.mark.parametrize("word", [SOURCE.hex(), "Source: orders"])
def test_a_state_that_is_not_known_is_taken_as_it_is_with_a_word_for_its_operator(site, word):
    states = written.stream({written.READERS: [written.versioned(9, b"of another source")]})
    operator = source_operator([subtask(0, states, inline(states.data))], b"")
    site.put(1, bytes(encode(Tree(6, (operator,), 1)).data))
    site.refused(StandInKafka(), not_read=frozenset(["another"]))
    promotion = site.promote(StandInKafka(), not_read=frozenset([word]))
    assert any("--not-read takes it as it is" in each for each in promotion.warnings)


@pytest.mark.parametrize(
    ("name", "element", "source"),
    [
        (written.READERS, written.versioned(5, written.i32(1) + written.utf("db.t:0")), "CDC"),
        (
            written.READERS,
            written.versioned(4, written.i32(2) + written.utf("binlog-split")),
            "CDC",
        ),
        (written.READERS, written.versioned(2, written.utf("arn:aws:kinesis:eu:1:s")), "Kinesis"),
        (written.READERS, written.versioned(1, written.utf("persistent://a/b/c")), "Pulsar"),
        ("Kinesis-Stream-Shard-State", b"of Kryo", "FlinkKinesisConsumer"),
        ("history-records-states", b"of Kryo", "Debezium"),
    ],
)
def test_a_source_of_another_connector_is_named_and_not_in_the_way(site, name, element, source):
    states = written.stream({name: [element]})
    operator = source_operator([subtask(0, states, inline(states.data))], b"")
    site.put(1, bytes(encode(Tree(6, (operator,), 1)).data))
    warnings = site.promote(StandInKafka()).warnings
    assert any(f"{source}, whose positions are not read" in each for each in warnings)


def test_what_needs_no_offset_there_is_a_warning(site):
    site.checkpoint(1, Split("orders", 0, -3), Split("orders", 1, -2))
    kafka = StandInKafka({("orders", 0): (0, 0), ("orders", 1): (0, 0)})
    warnings = site.promote(kafka).warnings
    assert any("the group needs offsets at kafka-b:9092" in each for each in warnings)
    assert any("means the same record" in each for each in warnings)


def test_a_checkpoint_without_kafka_passes_with_a_warning(site):
    site.put(1, bytes(encode(Tree(6, (), 1)).data))
    warnings = site.promote(StandInKafka()).warnings
    assert any("nothing was checked" in each for each in warnings)


def test_readers_without_a_split_are_a_warning(site):
    states = written.stream({written.READERS: []})
    operator = source_operator(
        [subtask(0, states, inline(states.data))], written.coordinator(3, [])
    )
    site.put(1, bytes(encode(Tree(6, (operator,), 1)).data))
    warnings = site.promote(StandInKafka()).warnings
    assert any("its readers hold no split" in each for each in warnings)


def test_many_partitions_are_one_row_that_names_the_first(site):
    site.checkpoint(1, *(Split("orders", partition, 9) for partition in range(12)))
    kafka = StandInKafka({("orders", partition): (0, 5) for partition in range(12)})
    report = site.refused(kafka)
    text = forms_of(report).text(report)
    assert text.count("position beyond the end") == 1
    assert "partition 0 (9, ends at 5), partition 1 (9, ends at 5), partition 2" in text
    assert "and 9 more" in text
    document = json.loads(forms_of(report).json(report))
    assert len(document["kafka"]["checked"][0]["problems"]) == 12


def test_the_text_of_a_promotion_says_why_newer_checkpoints_were_not_taken(site):
    site.checkpoint(1, ORDERS)
    site.checkpoint(2, Split("orders", 0, 300))
    promotion = site.promote(StandInKafka({("orders", 0): (0, 250)}), dry_run=True)
    text = forms_of(promotion).text(promotion)
    assert "chk-1 was chosen: a job can go on from it at kafka-b:9092" in text
    assert "partition 0 (300, ends at 250)" in text
    document = json.loads(forms_of(promotion).json(promotion))
    assert document["kafka"]["chosen"] == document["checkpoint"] == "chk-1"


def test_a_sealed_replica_is_checked_for_the_checkpoint_that_it_is_sealed_for(site):
    site.checkpoint(1, ORDERS)
    site.checkpoint(2, Split("orders", 0, 300))
    promote(PromoteRequest(site.replica, checkpoint="chk-1"), quiet)
    assert site.promote(StandInKafka({("orders", 0): (0, 250)})).checkpoint == "chk-1"
    with pytest.raises(NotAtKafka, match="from chk-1 of"):
        site.promote(StandInKafka({("orders", 0): (0, 99)}))


def test_younger_records_below_a_position_are_counted_and_veto_a_clamp(site):
    site.checkpoint(1, ORDERS, Split("orders", 1, 900))
    held = {("orders", 0): (0, 500), ("orders", 1): (0, 700)}
    kafka = StandInKafka(held, first_since={("orders", 0): 60, ("orders", 1): 650})
    report = site.refused(kafka)
    (checked,) = report.checked
    found = {(each.trouble, each.position.partition): each.skipped for each in checked.problems}
    assert found == {("skipped", 0): 40, ("beyond-end", 1): None, ("skipped", 1): 50}
    assert checked.command is None
    text = forms_of(report).text(report)
    assert "partition 0 (100, 40 from 60 on are younger than the checkpoint)" in text
    (first, *_) = json.loads(forms_of(report).json(report))["kafka"]["checked"][0]["problems"]
    assert (first["problem"], first["later"], first["skipped"]) == ("skipped", 60, 40)
    kafka.held = {("orders", 0): (0, 500), ("orders", 1): (0, 999)}
    assert site.promote(kafka, is_same=True, dry_run=True).checkpoint == "chk-1"


def test_positions_under_the_name_of_a_mirror_are_compared_by_the_clock(site):
    site.checkpoint(1, ORDERS)
    there = ("A.orders", 0)
    (checked,) = site.refused(StandInKafka({there: (0, 500)}, first_since={there: 60})).checked
    assert [each.trouble for each in checked.problems] == ["no-topic"]
    assert [each.trouble for each in checked.remedy.unsolved] == ["skipped"]


@pytest.mark.parametrize(
    "kafka",
    [
        StandInKafka({("orders", 0): (0, 500)}, by_broker=frozenset([("orders", 0)])),
        StandInKafka({("orders", 0): (60, 500)}),  # it holds nothing older
    ],
)
def test_times_that_prove_nothing_are_a_warning(site, kafka):
    site.checkpoint(1, ORDERS)
    kafka.first_since = {("orders", 0): 60}
    warnings = site.promote(kafka).warnings
    assert any("orders at kafka-b:9092" in each and "LogAppendTime" in each for each in warnings)


def test_what_a_restored_job_meets_there_is_a_warning(site):
    site.checkpoint(1, Split("orders", 0, 100, 200), Split("pay", 0, 5))
    held = {("orders", 0): (0, 150), ("A.pay", 0): (0, 9)}
    held |= {("pay", partition): (0, 9) for partition in range(3)}
    kafka = StandInKafka(held, first_since={("pay", 2): 4}, stable={("pay", 0): 7})
    text = "\n".join(site.promote(kafka).warnings)
    assert "orders partition 0 is read up to 200 and ends at 150" in text
    assert "a transaction is open in 1 partition:" in text
    assert "pay partition 0 stops at 7 of 9" in text
    assert "pay is there, and so is A.pay" in text
    assert "pay has 2 partitions at kafka-b:9092 that the checkpoint does not hold" in text
    assert "with 18 records, 13 of them older" in text


def test_positions_are_shown_with_the_times_of_their_records(site):
    directory = put_kafka_checkpoint(site.directory / "dcA", 1, [ORDERS, Split("pay", 0, 9)])
    os.utime(directory / "_metadata", (1_700_000_240, 1_700_000_240))
    site.sync()
    promotion = site.promote(
        StandInKafka({("orders", 0): (0, 250), ("pay", 0): (0, 9)}), dry_run=True
    )
    text = forms_of(promotion).text(promotion)
    assert "orders  1           2023-11-14T22:14:59.000Z, 2.4 min before the checkpoint" in text
    report = site.refused(StandInKafka({("orders", 0): (0, 61), ("pay", 0): (0, 9)}))
    of_end = "(100, ends at 61); the nearest record is of 2023-11-14T22:14:20.000Z, 3.0 min before"
    assert of_end in forms_of(report).text(report)
    (problem,) = json.loads(forms_of(report).json(report))["kafka"]["checked"][0]["problems"]
    assert problem["record_time"] == "2023-11-14T22:14:20.000Z"


def test_partitions_that_a_bounded_source_has_read_are_not_taken_for_new_ones(site):
    site.checkpoint(1, Split("orders", 0, 100, 150))
    kafka = StandInKafka({("orders", partition): (0, 150) for partition in range(3)})
    assert not any("does not hold" in each for each in site.promote(kafka).warnings)


def test_a_topic_that_may_not_be_described_is_there(site):
    site.checkpoint(1, ORDERS)
    kafka = StandInKafka({("A.orders", 0): (0, 500)}, hidden=frozenset(["orders"]))
    report = site.refused(kafka)
    assert [each.trouble for each in report.checked[0].problems] == ["no-rights"]
    assert commands(report) == [None]
    assert "the user may not describe it: grant the right" in forms_of(report).text(report)


@pytest.mark.parametrize(("limit", "is_old"), [(1e9, False), (900.0, True), (None, True)])
def test_pending_transactions_older_than_the_kafka_keeps_them_are_a_warning(site, limit, is_old):
    directory = put_kafka_checkpoint(site.directory / "dcA", 1, [ORDERS], [TRANSACTION])
    os.utime(directory / "_metadata", (1_700_000_000, 1_700_000_000))
    site.sync()
    replica = Replica(site.replica, Side())
    asked = KafkaAsked(StandInKafka({("orders", 0): (0, 500)}, limit=limit), is_same=True)
    warnings = "\n".join(check(replica, ["chk-1"], asked).warnings)
    assert ("1 pending transaction is" in warnings) == is_old
    command = "kafka-transactions.sh --bootstrap-server kafka-b:9092 describe"
    assert (f"{command} --transactional-id tx-0-3" in warnings) == is_old


PARTITIONS = [("orders", 0), ("orders", 1), ("payments", 0)]
HELD = {  # positions of each partition, by checkpoint
    "chk-1": (40, 50, 60),
    "chk-2": (140, 250, 60),
    "chk-3": (540, 250, 360),
    "chk-4": (540, 850, 960),
}
WITH_PENDING = {"chk-2", "chk-4"}


def answers(draw: Random) -> dict[tuple[str, int], tuple[int, int]]:
    """What a Kafka may hold: it trails, or deleted records, or lacks partitions or topics."""
    topics = {topic for topic in ("orders", "payments") if draw.random() < 0.9}
    found = {}
    for partition in PARTITIONS:
        if partition[0] in topics and draw.random() < 0.95:
            begin = draw.choice([0, 0, 0, draw.randrange(1000)])
            found[partition] = (begin, begin + draw.choice([0, 100, 400, 1000, 2000]))
    return found


def exist(checkpoint: str, found: dict[tuple[str, int], tuple[int, int]]) -> bool:
    """Whether every position of a checkpoint exists."""
    return all(
        partition in found and found[partition][0] <= offset <= found[partition][1]
        for partition, offset in zip(PARTITIONS, HELD[checkpoint], strict=True)
    )


def test_of_500_seeded_answers_none_starts_outside_and_none_is_refused_in_vain(site):
    for checkpoint, offsets in HELD.items():
        splits = [Split(*each, at) for each, at in zip(PARTITIONS, offsets, strict=True)]
        pending = [TRANSACTION] if checkpoint in WITH_PENDING else []
        site.checkpoint(int(checkpoint[4:]), *splits, transactions=pending)
    replica, names = Replica(site.replica, Side()), sorted(HELD, reverse=True)
    taken: Counter[str | None] = Counter()
    for seed in range(500):
        draw = Random(f"answers {seed}")
        found, is_same = answers(draw), draw.random() < 0.3
        possible = [
            name for name in names if exist(name, found) and (is_same or name not in WITH_PENDING)
        ]
        chosen = None
        with suppress(NotAtKafka):
            result = check(replica, names, KafkaAsked(StandInKafka(found), None, is_same))
            assert result.chosen is not None
            chosen = result.chosen.checkpoint
        assert chosen == next(iter(possible), None), seed
        taken[chosen] += 1
    assert all(taken[name] > 5 for name in (None, *HELD))
