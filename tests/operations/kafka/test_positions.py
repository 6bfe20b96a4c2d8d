"""Positions and transactions are those of the checkpoint, wherever its states are."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from cpreplicate.cli.commands.replication import cli
from cpreplicate.core.packs import PackOptions
from cpreplicate.core.positions.model import Position, Positions, SourceState
from cpreplicate.core.uri import Remap
from cpreplicate.operations.kafka import positions as operation
from cpreplicate.operations.kafka.positions import positions_of
from cpreplicate.operations.sync import sync
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.protocol.source import MetadataFile, read_metadata
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import DamagedFile, Side
from tests.support import corpus
from tests.support import kafka_states as written
from tests.support.encoder import (
    Empty,
    File,
    Nested,
    RelativeFile,
    Segment,
    Tree,
    encode,
)
from tests.support.faults import Faulty
from tests.support.jobs import JOB
from tests.support.kafka_jobs import (
    ROOT,
    inline,
    put_kafka_checkpoint,
    put_with_files,
    source_operator,
    subtask,
)
from tests.support.kafka_states import Split, Transaction
from tests.support.registry import serving

SPLITS = [Split("orders", partition, 100 * partition + 7) for partition in range(5)]
PENDING = [Transaction("tx-0-3", 70), Transaction("tx-1-3", 71)]
OF_SPLITS = {("orders", each.partition): each.start for each in SPLITS}
OPERATOR = "07" * 16


def found_in(checkpoint: Path, remaps=(), is_listed: bool = True) -> Positions:
    file = read_metadata(f"file:{checkpoint}", Side())
    found = positions_of(file, Side(), remaps, is_listed)
    assert found is not None
    return found.found


def offsets(found: Positions) -> dict[tuple[str, int], int | None]:
    return {(each.topic, each.partition): each.offset for each in found.positions}


def expected() -> list[Path]:
    return sorted(ROOT.glob("*/expected.json"))


@pytest.mark.parametrize("file", expected(), ids=lambda file: file.parent.name)
def test_positions_equal_what_flink_read_after_its_own_restore(file):
    wanted = json.loads(file.read_text())
    found = found_in(file.parent / wanted["checkpoint_dir"])
    assert {f"{each.topic}-{each.partition}": each.offset for each in found.positions} == wanted[
        "positions"
    ]
    pending = [[*each[1:]] for each in found.pending]
    assert sorted(pending) == sorted(wanted["pending"])
    assert found.unread == ()


@pytest.mark.parametrize("file", sorted(corpus.ROOT.glob("**/_metadata")), ids=str)
def test_nothing_of_another_source_is_taken_for_kafkas(file):
    folder = file.relative_to(corpus.ROOT).parts[0]
    remap = Remap(f"{corpus.RECORDED}/{folder}", f"file:{corpus.ROOT / folder}")
    found = found_in(file.parent, (remap,))
    assert found.positions == () == found.pending
    assert {(each.reason, each.is_obstacle) for each in found.unread} == {
        ("its source is not Kafka's", False)
    }


def test_the_states_of_all_subtasks_are_read_from_their_files(tmp_path):
    assert offsets(found_in(put_with_files(tmp_path, 1, SPLITS))) == OF_SPLITS


def test_without_the_option_no_file_is_read_and_that_is_said(tmp_path):
    checkpoint = put_with_files(tmp_path, 1, SPLITS)
    for file in checkpoint.glob("state-*"):
        file.unlink()
    found = found_in(checkpoint, is_listed=False)
    assert found.positions == ()
    assert [each.reason for each in found.unread] == [
        "its state is in 5 files, which --positions reads"
    ]


def test_a_file_that_is_not_there_is_named(tmp_path):
    checkpoint = put_with_files(tmp_path, 1, SPLITS)
    (checkpoint / "state-3").unlink()
    (unread,) = found_in(checkpoint).unread
    assert unread.operator == OPERATOR
    assert unread.reason == f"its state is in file:{checkpoint}/state-3, which is not there"


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    checkpoint = put_with_files(tmp_path, 1, SPLITS)

    def lost(verb: str, uri: str) -> OSError | None:
        is_lost = verb == "open" and uri.endswith("/state-3")
        return DamagedFile(errno.EIO, "no DataNode has the block", uri) if is_lost else None

    with serving("file", Faulty(Side().storage("file:/"), lost)):
        (unread,) = found_in(checkpoint).unread
    assert unread.reason.startswith("its state cannot be read: ")
    assert f"{checkpoint}/state-3" in unread.reason


def test_a_file_that_is_too_short_is_named(tmp_path):
    checkpoint = put_with_files(tmp_path, 1, SPLITS)
    (checkpoint / "state-3").write_bytes(b"short")
    (unread,) = found_in(checkpoint).unread
    assert "state-3 ends before its state does" in unread.reason


def checkpoint_of(tmp_path: Path, *subtasks) -> Path:
    """A checkpoint of a Kafka source with these subtasks."""
    tree = Tree(6, (source_operator(subtasks, written.coordinator(3, SPLITS)),))
    directory = tmp_path / "chk-1"
    directory.mkdir()
    (directory / "_metadata").write_bytes(encode(tree).data)
    return directory


def states_of(*splits: Split, is_compressed: bool = False) -> written.Stream:
    lists = {written.READERS: [split.element for split in splits]}
    return written.stream(lists, is_compressed=is_compressed)


def test_merged_segments_are_read_at_their_position(tmp_path):
    states = states_of(*SPLITS)
    (tmp_path / "merged").write_bytes(b"before" + states.data + b"behind")
    segment = Segment(6, len(states.data), 1, f"file:{tmp_path}/merged", "id")
    empty = states_of()
    checkpoint = checkpoint_of(
        tmp_path, subtask(0, states, segment), subtask(1, empty, inline(empty.data))
    )
    assert offsets(found_in(checkpoint)) == OF_SPLITS


def test_compressed_states_are_read(tmp_path):
    states = states_of(*SPLITS, is_compressed=True)
    checkpoint = checkpoint_of(tmp_path, subtask(0, states, inline(states.data)))
    assert offsets(found_in(checkpoint)) == OF_SPLITS


def test_an_empty_segment_has_no_positions(tmp_path):
    states = states_of(*SPLITS)
    checkpoint = checkpoint_of(
        tmp_path,
        subtask(0, states, inline(states.data)),
        subtask(1, written.Stream(b"", {written.READERS: ()}), Empty()),
    )
    assert offsets(found_in(checkpoint)) == OF_SPLITS


def test_readers_without_splits_are_said_to_hold_none(tmp_path):
    states = states_of()
    directory = tmp_path / "chk-1"
    directory.mkdir()
    operator = source_operator([subtask(0, states, inline(states.data))], b"")
    (directory / "_metadata").write_bytes(encode(Tree(6, (operator,))).data)
    (unread,) = found_in(directory).unread
    assert "its readers hold no split" in unread.reason


@pytest.mark.parametrize(
    ("delegate", "reason"),
    [
        (None, "not in one stream"),
        (Nested(0, (0,), inline(b"x")), "not in one stream"),
        (File("file:/t/state", 1 << 40), "longer than that of a source"),
        (File("hdfs://elsewhere/state", 40), "on another filesystem"),
        (RelativeFile("../chk-9/gone", 40), "which is not there"),
    ],
    ids=["none", "nested", "huge", "elsewhere", "gone"],
)
def test_a_state_that_is_not_where_a_source_has_it_is_named(tmp_path, delegate, reason):
    states = states_of(*SPLITS)
    (unread,) = found_in(checkpoint_of(tmp_path, subtask(0, states, delegate))).unread
    assert reason in unread.reason


def test_a_remap_reads_states_from_another_filesystem(tmp_path):
    states = states_of(*SPLITS)
    (tmp_path / "state").write_bytes(states.data)
    delegate = File("hdfs://dcA/job/chk-1/state", len(states.data))
    checkpoint = checkpoint_of(tmp_path, subtask(0, states, delegate))
    remap = Remap("hdfs://dcA/job/chk-1", f"file:{tmp_path}")
    assert offsets(found_in(checkpoint, (remap,))) == OF_SPLITS


def test_a_list_with_millions_of_elements_is_named_and_not_read(tmp_path):
    states = written.Stream(b"", {written.READERS: tuple(range(1_100_000))})
    (unread,) = found_in(checkpoint_of(tmp_path, subtask(0, states, inline(b"")))).unread
    assert unread.reason == "it has more elements than a source has splits"


def test_a_metadata_that_is_not_in_memory_is_read_only_if_asked(tmp_path):
    checkpoint = put_kafka_checkpoint(tmp_path, 1, SPLITS, PENDING)
    whole = read_metadata(f"file:{checkpoint}", Side())
    streamed = MetadataFile(whole.uri, whole.metadata, None, Side())
    assert positions_of(streamed, Side(), is_listed=False) is None
    found = positions_of(streamed, Side())
    assert found is not None
    assert found.found == found_in(checkpoint)


def replicated(tmp_path: Path, packing: PackOptions | None = None) -> Path:
    options = {} if packing is None else {"packing": packing}
    request = SyncRequest(
        f"file:{tmp_path}/dcA/{JOB}",
        f"file:{tmp_path}/dcB",
        execution=ExecutionOptions(runner="inline"),
        **options,
    )
    sync.sync(request, lambda _line: None)
    return tmp_path / "dcB" / JOB


def test_members_of_packs_are_read(tmp_path):
    put_with_files(tmp_path / "dcA", 1, SPLITS)
    replica = replicated(tmp_path, PackOptions("on", 10_000))
    assert list((replica / "packed").iterdir())
    assert offsets(found_in(replica / "chk-1")) == OF_SPLITS


class Pulsar:
    """A decoder of another package, of a source that is not Kafka's."""

    states = frozenset({written.READERS})

    def decode(self, state: SourceState) -> Positions | None:
        return Positions((Position(state.operator, "pulsar", 0, detail="5:7:0"),))


class _EntryPoint:
    def load(self) -> type[Pulsar]:
        return Pulsar


def _installed(group: str) -> list[_EntryPoint]:
    assert group == "cpreplicate.positions"
    return [_EntryPoint()]


def test_decoders_of_other_packages_are_asked_behind_kafkas(tmp_path, monkeypatch):
    monkeypatch.setattr(operation, "entry_points", _installed)
    operation.decoders.cache_clear()
    try:
        states = written.stream({written.READERS: [b"a message id"]})
        checkpoint = checkpoint_of(tmp_path, subtask(0, states, inline(states.data)))
        (position,) = found_in(checkpoint).positions
    finally:
        operation.decoders.cache_clear()
    assert (position.topic, position.detail) == ("pulsar", "5:7:0")


def printed(*arguments: str) -> str:
    result = CliRunner().invoke(cli, list(arguments))
    assert result.exit_code == 0, result.output
    return result.stdout


def test_inspect_shows_topics_and_with_the_option_each_partition(tmp_path):
    checkpoint = str(put_kafka_checkpoint(tmp_path, 1, SPLITS, PENDING))
    text = printed("inspect", checkpoint)
    assert "Source: orders  orders  5           7         407" in text
    assert "2 transactions of out: Committer are pending: tx-0-3, tx-1-3." in text
    summary = json.loads(printed("inspect", "--output", "json", checkpoint))
    assert summary["positions"] is None
    assert [(each["topic"], each["partitions"]) for each in summary["topics"]] == [("orders", 5)]
    every = json.loads(printed("inspect", "--positions", "--output", "json", checkpoint))
    assert every["positions"][4] == {
        "operator": OPERATOR,
        "topic": "orders",
        "partition": 4,
        "offset": 407,
        **dict.fromkeys(["marker", "stop", "stop_marker", "cluster", "servers", "detail"]),
    }
    assert every["pending"][0] == {
        "operator": "08" * 16,
        "transactional_id": "tx-0-3",
        "producer_id": 70,
        "epoch": 0,
        "checkpoint": 1,
    }


@pytest.mark.parametrize("command", ["diff", "list", "status", "promote"])
def test_other_commands_show_the_positions_of_each_checkpoint(tmp_path, command):
    put_kafka_checkpoint(tmp_path / "dcA", 1, SPLITS, PENDING)
    replica = replicated(tmp_path)
    places = {
        "diff": [f"{tmp_path}/dcA/{JOB}", str(replica.parent)],
        "list": [str(replica.parent)],
        "status": [str(replica.parent)],
        "promote": [str(replica)],
    }[command]
    text = printed(command, *places, "--positions")
    assert "Source: orders  orders  4          407" in text
    result = json.loads(printed(command, *places, "--positions", "--output", "json"))
    of_checkpoint = result
    if command in ("list", "status"):
        (of_checkpoint,) = result["replicas"]
    if command == "list":
        (of_checkpoint,) = of_checkpoint["points"]
    assert len(of_checkpoint["positions"]) == 5
    assert len(of_checkpoint["pending"]) == 2


@pytest.mark.parametrize("command", ["diff", "promote"])
def test_what_these_read_anyway_is_summed_up_without_the_option(tmp_path, command):
    put_kafka_checkpoint(tmp_path / "dcA", 1, SPLITS, PENDING)
    replica = replicated(tmp_path)
    places = [f"{tmp_path}/dcA/{JOB}", str(replica.parent)] if command == "diff" else [str(replica)]
    assert "Source: orders  orders  5           7         407" in printed(command, *places)


def test_what_hides_behind_the_names_of_others_is_printed_as_text(tmp_path):
    hostile = Transaction("tx\x1b[31m\n", 1)
    checkpoint = put_kafka_checkpoint(tmp_path, 1, SPLITS, [hostile])
    text = printed("inspect", "--positions", str(checkpoint))
    assert "\x1b" not in text
    assert "tx\\x1b[31m\\n" in text
