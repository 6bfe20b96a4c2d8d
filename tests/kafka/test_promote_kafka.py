"""`promote --kafka` and `rebase` against a real broker: what an operator at B types and reads."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4

import pytest

import cpreplicate
from cpreplicate.core.retention import Retention
from cpreplicate.errors import NotAtKafka
from cpreplicate.operations.sync import sync
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.runners import ExecutionOptions
from tests.support import parts
from tests.support.commandline import Ended, printed, run
from tests.support.jobs import JOB
from tests.support.kafka import PASSWORD, USER, Kafka
from tests.support.kafka_jobs import put_kafka_checkpoint
from tests.support.kafka_states import Split, Transaction

pytestmark = pytest.mark.xdist_group("kafka")
TRANSACTION = Transaction("tx-0-3", 70)
OLD = 1_700_000_000_000  # milliseconds: before a test makes a checkpoint


@pytest.fixture
def topic() -> str:
    """The name of a topic that no other test has."""
    return f"orders-{uuid4().hex[:8]}"


class Site:
    """A source whose checkpoints are replicated one by one, and all kept."""

    def __init__(self, directory: Path, servers: str) -> None:
        self.directory, self.servers = directory, servers
        self.replica = directory / "dcB" / JOB

    def checkpoint(self, number: int, *splits: Split, pending: bool = False) -> None:
        transactions = [TRANSACTION] if pending else []
        put_kafka_checkpoint(self.directory / "dcA", number, splits, transactions)
        request = SyncRequest(
            f"file:{self.directory}/dcA/{JOB}",
            f"file:{self.directory}/dcB",
            keep=Retention(last=9),
            execution=ExecutionOptions(runner="inline"),
        )
        sync.sync(request, lambda _line: None)

    def promote(self, *words: str) -> Ended:
        return run("promote", self.replica, "--kafka", self.servers, "--output", "json", *words)

    def files(self) -> dict[str, bytes]:
        """Return the content of the replica, but for who held its lease."""
        files = (path for path in self.replica.rglob("*") if path.is_file())
        return {str(path): path.read_bytes() for path in files if path.name != "lease"}


@pytest.fixture
def site(tmp_path, kafka) -> Site:
    return Site(tmp_path, kafka.servers)


def problems(ended: Ended) -> dict[str, list[str]]:
    """Return what is in the way of each checkpoint, of a refusal or of a promotion."""
    checked = json.loads(ended.out)["kafka"]["checked"]
    return {each["checkpoint"]: [one["problem"] for one in each["problems"]] for each in checked}


def follow(site: Site, ended: Ended, checkpoint: str) -> Ended:
    """Run the command that a refusal prints, and promote what that derives."""
    checked = json.loads(ended.out)["kafka"]["checked"]
    command = next(each["rebase"] for each in checked if each["checkpoint"] == checkpoint)
    program, *words = shlex.split(command)
    assert program == "cpreplicate"
    derived = run(*words, "--output", "json").json()["derived"]
    return site.promote("--checkpoint", derived)


def test_the_newest_checkpoint_is_promoted_if_all_its_positions_exist(site, kafka, topic):
    kafka.create(topic, {0: 40, 1: 9}, partitions=2)
    site.checkpoint(1, Split(topic, 0, 10), Split(topic, 1, 3))
    site.checkpoint(2, Split(topic, 0, 40), Split(topic, 1, -2))
    result = site.promote().json()
    assert (result["checkpoint"], result["promoted"]) == ("chk-2", True)
    assert [each["checkpoint"] for each in result["kafka"]["checked"]] == ["chk-2"]
    assert any("the same record" in warning for warning in result["warnings"])


def test_of_a_mirror_that_trails_the_newest_checkpoint_that_it_has_reached_is_taken(
    site, kafka, topic
):
    kafka.create(topic, {0: 25})
    for number, offset in ((1, 10), (2, 25), (3, 26), (4, 90)):
        site.checkpoint(number, Split(topic, 0, offset))
    dry = site.promote("--dry-run").json()
    assert (dry["checkpoint"], dry["promoted"]) == ("chk-2", False)
    assert run("promote", site.replica, "--kafka", site.servers, "--dry-run").out.count("chk-4")
    ended = site.promote()
    assert ended.json()["checkpoint"] == "chk-2"
    assert problems(ended) == {"chk-4": ["beyond-end"], "chk-3": ["beyond-end"], "chk-2": []}


def test_a_program_promotes_with_a_kafka_as_the_command_does(site, kafka, topic, tmp_path):
    kafka.create(topic, {0: 25})
    for number, offset in ((1, 10), (2, 90)):
        site.checkpoint(number, Split(topic, 0, offset))
    conf = tmp_path / "kafka.properties"
    conf.write_text("client.id=a-program\n")
    asked: dict[str, Any] = {"kafka": site.servers, "kafka_conf": conf, "with_positions": True}
    with pytest.raises(NotAtKafka) as refused:
        cpreplicate.promote(site.replica, "chk-2", **asked)
    (checked,) = cpreplicate.to_dict(refused.value.report)["kafka"]["checked"]
    assert [each["problem"] for each in checked["problems"]] == ["beyond-end"]
    tried = cpreplicate.promote(site.replica, dry_run=True, **asked)
    assert (tried.checkpoint, tried.is_promoted) == ("chk-1", False)
    assert tried.kafka is not None
    assert [each.checkpoint for each in tried.kafka.checked] == ["chk-2", "chk-1"]
    assert cpreplicate.promote(site.replica, **asked).is_promoted


def test_a_checkpoint_whose_records_are_deleted_is_refused_before_anything_changes(
    site, kafka, topic
):
    kafka.create(topic, {0: 50})
    kafka.delete_before(topic, 0, 30)
    site.checkpoint(1, Split(topic, 0, 20))
    before = site.files()
    ended = site.promote()
    assert ended.code == 6, ended
    assert "Nothing was changed" in ended.message
    assert problems(ended) == {"chk-1": ["deleted"]}
    assert site.files() == before
    result = json.loads(ended.out)
    assert (result["promoted"], result["checkpoint"]) == (False, None)
    (found,) = result["kafka"]["checked"][0]["problems"]
    assert (found["offset"], found["begin"], found["end"]) == (20, 30, 50)
    promoted = follow(site, ended, "chk-1").json()
    assert promoted["checkpoint"] == "rebased/chk-1-1"


def test_the_text_of_a_refusal_names_each_obstacle_and_the_command(site, kafka, topic):
    kafka.create(f"A.{topic}", {0: 5}, partitions=1)
    kafka.create(topic, {0: 7})
    site.checkpoint(1, Split(topic, 0, 8), pending=True)
    ended = run("promote", site.replica, "--kafka", site.servers)
    assert ended.code == 6
    assert "position beyond the end" in ended.out
    assert f"{topic}  partition 0 (8, ends at 7)" in ended.out
    assert "transaction pending" in ended.out
    assert "tx-0-3" in ended.out
    command = (
        f"cpreplicate rebase file:{site.replica} --checkpoint chk-1 --drop-pending"
        f" --positions clamp --kafka {site.servers}"
    )
    assert command in ended.out
    assert "the same record" in ended.out


def test_a_topic_that_has_another_name_at_b_is_renamed_and_clamped(site, kafka, topic):
    kafka.create(f"A.{topic}", {0: 5, 1: 50}, partitions=2)
    site.checkpoint(1, Split(topic, 0, 8), Split(topic, 1, 44))
    ended = site.promote()
    assert problems(ended) == {"chk-1": ["no-topic", "no-topic"]}
    result = follow(site, ended, "chk-1").json()
    assert result["promoted"] is True
    (summary,) = result["topics"]
    assert (summary["topic"], summary["smallest"], summary["largest"]) == (f"A.{topic}", 5, 44)


def test_a_topic_that_is_missing_needs_to_be_created(site, kafka, topic):
    site.checkpoint(1, Split(topic, 0, 8))
    ended = site.promote()
    assert (ended.code, problems(ended)) == (6, {"chk-1": ["no-topic"]})
    (checked,) = json.loads(ended.out)["kafka"]["checked"]
    assert (checked["rebase"], checked["rebase_suffices"]) == (None, False)
    kafka.create(topic, {0: 8})
    assert site.promote().json()["promoted"] is True


def test_a_partition_that_is_missing_is_one_that_rebase_refuses_to_clamp(site, kafka, topic):
    kafka.create(topic, {0: 8})
    site.checkpoint(1, Split(topic, 0, 9), Split(topic, 1, 3))
    ended = site.promote()
    assert problems(ended) == {"chk-1": ["beyond-end", "no-partition"]}
    assert json.loads(ended.out)["kafka"]["checked"][0]["rebase"] is None
    kafka.widen(topic, 2)
    kafka.write(topic, 1, 1)
    assert follow(site, site.promote(), "chk-1").json()["promoted"] is True


def test_a_pending_transaction_is_known_only_at_the_former_kafka(site, kafka, topic):
    kafka.create(topic, {0: 8})
    site.checkpoint(1, Split(topic, 0, 3))
    site.checkpoint(2, Split(topic, 0, 8), pending=True)
    elsewhere = site.promote("--dry-run")
    assert elsewhere.json()["checkpoint"] == "chk-1"
    assert problems(elsewhere) == {"chk-2": ["pending"], "chk-1": []}
    named = site.promote("--dry-run", "--checkpoint", "chk-2")
    assert (named.code, problems(named)) == (6, {"chk-2": ["pending"]})
    same = site.promote("--same-kafka").json()
    assert (same["checkpoint"], same["kafka"]["same_kafka"]) == ("chk-2", True)


def test_a_replica_that_is_sealed_is_checked_for_its_checkpoint_only(site, kafka, topic):
    kafka.create(topic, {0: 3})
    site.checkpoint(1, Split(topic, 0, 3))
    site.checkpoint(2, Split(topic, 0, 8))
    assert run("promote", site.replica, "--output", "json").json()["checkpoint"] == "chk-2"
    again = site.promote()
    assert (again.code, problems(again)) == (6, {"chk-2": ["beyond-end"]})
    kafka.write(topic, 0, 5, OLD)
    assert site.promote().json()["checkpoint"] == "chk-2"


def test_records_that_producers_wrote_at_b_meanwhile_are_counted(site, kafka, topic):
    kafka.create(topic)
    kafka.write(topic, 0, 90, OLD)
    site.checkpoint(1, Split(topic, 0, 100))
    kafka.write(topic, 0, 40)
    ended = site.promote()
    assert (ended.code, problems(ended)) == (6, {"chk-1": ["skipped"]})
    (checked,) = json.loads(ended.out)["kafka"]["checked"]
    assert [(each["later"], each["skipped"]) for each in checked["problems"]] == [(90, 10)]
    kafka.write(topic, 0, 40)
    clamp = ("--positions", "clamp", "--kafka", site.servers)
    refused = run("rebase", site.replica, *clamp)
    assert (refused.code, "10 records from 90 on" in refused.message) == (6, True)


def test_a_topic_that_the_user_may_not_describe_needs_a_right(site, kafka, topic):
    kafka.create(topic, {0: 8})
    kafka.hide(topic)
    site.checkpoint(1, Split(topic, 0, 3))
    assert problems(site.promote()) == {"chk-1": ["no-rights"]}


def test_rebase_takes_the_offsets_of_a_group_and_clamps(site, kafka, topic):
    kafka.create(topic, {0: 50, 1: 20}, partitions=2)
    kafka.delete_before(topic, 0, 30)
    site.checkpoint(1, Split(topic, 0, 20), Split(topic, 1, 25))
    kafka.commit(f"group-{topic}", {(topic, 0): 41, (topic, 1): 19})
    kafka.commit(f"part-{topic}", {(topic, 0): 41})
    words = ("rebase", site.replica, "--kafka", site.servers, "--output", "json")
    clamped = run(*words, "--positions", "clamp").json()
    assert [each["new_offset"] for each in clamped["positions"]] == [30, 20]
    assert (clamped["lost"], clamped["doubled"]) == (10, 5)
    grouped = run(*words, "--positions", f"group:group-{topic}").json()
    assert [each["new_offset"] for each in grouped["positions"]] == [41, 19]
    part = run(*words, "--positions", f"group:part-{topic}")
    assert (part.code, "no offset of 1 of 2 partitions" in part.message) == (6, True)
    assert run(*words, "--positions", "group:nobody").code == 10


def test_a_secured_kafka_is_asked_with_the_properties_of_a_file(site, kafka, topic, tmp_path):
    kafka.create(topic, {0: 8})
    site.checkpoint(1, Split(topic, 0, 9))
    conf = tmp_path / "client.properties"
    conf.write_text("".join(f"{name}={value}\n" for name, value in kafka.properties.items()))
    site.servers = kafka.secured
    ended = site.promote("--kafka-conf", str(conf))
    assert ended.code == 6
    assert shlex.quote(str(conf)) in json.loads(ended.out)["kafka"]["checked"][0]["rebase"]
    conf.write_text(conf.read_text().replace(PASSWORD, "sesame-close"))
    wrong = site.promote("--kafka-conf", str(conf))
    assert (wrong.code, wrong.out) == (6, "")
    for text in (ended.out, ended.message, wrong.message):
        assert not any(secret in text for secret in (PASSWORD, "sesame-close", USER))


def test_a_kafka_that_does_not_answer_ends_with_7_and_changes_nothing(site, topic):
    site.checkpoint(1, Split(topic, 0, 9))
    before = site.files()
    ended = printed("promote", site.replica, "--kafka", "127.0.0.1:1", "--retry-for", "1s")
    assert (ended.returncode, ended.stdout) == (7, "")
    assert "Kafka could not be reached within 1 s" in ended.stderr
    assert site.files() == before


def test_status_shows_by_how_many_records_b_trails_each_replica(site, kafka, topic):
    kafka.create(topic, {0: 25, 1: 5}, partitions=2)
    site.checkpoint(1, Split(topic, 0, 40), Split(topic, 1, 3))
    root = site.directory / "dcB"
    (row,) = run("status", root, "--kafka", site.servers, "--output", "json").json()["replicas"]
    assert (row["kafka_behind"], row["kafka_missing"], row["positions"]) == (15, [], None)
    assert "kafka behind" in run("status", root, "--kafka", site.servers).out


def test_doctor_finds_what_would_be_in_the_way_at_b(site, kafka, topic):
    kafka.create(topic, {0: 25})
    site.checkpoint(1, Split(topic, 0, 40), pending=True)
    ended = run(
        *("doctor", f"{site.directory}/dcA/{JOB}", site.directory / "dcB"),
        *("--kafka", site.servers, "--output", "json"),
    )
    found = next(each for each in ended.json()["checks"] if each["check"] == "kafka")
    assert found["status"] == "warning"
    assert f"positions are beyond the end (1: {topic} partition 0)" in found["message"]
    assert "--positions clamp --drop-pending" in found["remedy"]


class Mirror:
    """Three topics at a broker as a mirror may have them: trailing, truncated or not at all."""

    def __init__(self, kafka: Kafka, prefix: str, chance: Random) -> None:
        self.kafka, self.prefix, self.chance = kafka, prefix, chance
        self.held: dict[tuple[str, int], range] = {}
        for number in range(3):
            if chance.random() < 0.95:
                self._create(f"{prefix}-{number}")

    def _create(self, topic: str) -> None:
        partitions = 2 if self.chance.random() < 0.95 else 1
        ends = {partition: self.chance.randint(24, 40) for partition in range(partitions)}
        self.kafka.create(topic, ends, partitions=partitions)
        for partition, end in ends.items():
            begin = self.chance.choice([0, 0, self.chance.randint(1, 15)])
            if begin:
                self.kafka.delete_before(topic, partition, begin)
            self.held[topic, partition] = range(begin, end + 1)

    def splits(self, number: int) -> list[Split]:
        """Positions of a checkpoint, which are larger in a later one; some are markers."""
        places = [
            (f"{self.prefix}-{topic}", partition) for topic in range(3) for partition in (0, 1)
        ]
        positions = [self.chance.randint(8, 12) + 6 * number for _ in places]
        starts = [-2 if self.chance.random() < 0.1 else each for each in positions]
        return [Split(*place, start) for place, start in zip(places, starts, strict=True)]

    def has(self, split: Split) -> bool:
        """Whether a job can begin to read there."""
        offsets = self.held.get((split.topic, split.partition))
        return offsets is not None and (split.start < 0 or split.start in offsets)


@pytest.mark.parametrize("seed", parts.cases(range(10), main=range(3)))
def test_at_a_mirror_the_newest_checkpoint_that_exists_there_is_taken_and_no_other(
    site, kafka, topic, seed
):
    mirror = Mirror(kafka, topic, Random(seed))
    all_splits = {number: mirror.splits(number) for number in range(1, 5)}
    for number, splits in all_splits.items():
        site.checkpoint(number, *splits)
    there = [n for n, splits in all_splits.items() if all(mirror.has(each) for each in splits)]
    ended = site.promote("--dry-run")
    if there:
        assert ended.json()["checkpoint"] == f"chk-{max(there)}"
    else:
        assert (ended.code, len(problems(ended))) == (6, 4)
