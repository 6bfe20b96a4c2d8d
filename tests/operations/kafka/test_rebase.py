"""A derived checkpoint holds what was asked for, and needs what it references until forgotten."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cpreplicate.core.packs import PackOptions
from cpreplicate.core.positions.offsets import as_given, looked_up
from cpreplicate.core.positions.ranges import clamped
from cpreplicate.errors import NotThere, Refused, UsageError
from cpreplicate.operations.handover.promote import PromoteRequest, promote
from cpreplicate.operations.kafka.positions import positions_of
from cpreplicate.operations.kafka.rebase import Rebase, RebaseRequest, forget, rebase
from cpreplicate.operations.sync import sync
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.upkeep.relocate import RelocateRequest, relocate
from cpreplicate.operations.upkeep.sweep import SweepRequest, sweep
from cpreplicate.operations.verify.verify import ALL, verify
from cpreplicate.protocol import replica_state
from cpreplicate.protocol.ledger import Ledger
from cpreplicate.protocol.replica import Replica
from cpreplicate.protocol.source import read_metadata
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import Side
from tests.support import kafka_states as written
from tests.support import replicas
from tests.support.encoder import File, Tree, encode
from tests.support.jobs import JOB
from tests.support.kafka_jobs import (
    inline,
    put_kafka_checkpoint,
    put_with_files,
    source_operator,
    subtask,
)
from tests.support.kafka_states import Split, Transaction
from tests.support.replicas import aged, planned
from tests.support.standin_kafka import StandInKafka

SPLITS = [Split("orders", partition, 100 * partition + 7) for partition in range(5)]
PENDING = [Transaction("tx-0-3", 70), Transaction("tx-1-3", 71)]
INLINE = ExecutionOptions(runner="inline")


def quiet(_line: str) -> None:
    """Report nothing."""


def synced(tmp_path: Path, **options) -> Path:
    request = SyncRequest(
        f"file:{tmp_path}/dcA/{JOB}", f"file:{tmp_path}/dcB", execution=INLINE, **options
    )
    sync.sync(request, quiet)
    return tmp_path / "dcB" / JOB


@pytest.fixture
def replica(tmp_path: Path) -> Path:
    put_kafka_checkpoint(tmp_path / "dcA", 1, SPLITS, PENDING)
    return synced(tmp_path)


@pytest.fixture
def with_files(tmp_path: Path) -> Path:
    put_with_files(tmp_path / "dcA", 1, SPLITS)
    return synced(tmp_path)


def rebased(replica: Path, **options) -> Rebase:
    return rebase(RebaseRequest(f"file:{replica}", **options), quiet)


def held(replica: Path, checkpoint: str = "rebased/chk-1-1"):
    found = positions_of(read_metadata(f"file:{replica}/{checkpoint}", Side()), Side())
    assert found is not None
    return found.found


def offsets(replica: Path, checkpoint: str = "rebased/chk-1-1") -> dict[tuple[str, int], int]:
    positions = held(replica, checkpoint).positions
    return {(each.topic, each.partition): each.offset for each in positions}


def content(directory: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(directory)): file.read_bytes()
        for file in directory.rglob("*")
        if file.is_file()
    }


def is_restorable(replica: Path, checkpoint: str | None = None) -> bool:
    return verify(f"file:{replica}", checkpoint, ALL, quiet, Side()).restorable


def test_positions_become_those_that_are_given_and_all_else_stays(replica):
    before = content(replica / "chk-1")
    result = rebased(replica, choice=as_given({("orders", 3): 9, ("orders", 4): 99}))
    assert result.name == "rebased/chk-1-1"
    assert offsets(replica) == {
        ("orders", 0): 7,
        ("orders", 1): 107,
        ("orders", 2): 207,
        ("orders", 3): 9,
        ("orders", 4): 99,
    }
    assert len(held(replica).pending) == 2
    assert content(replica / "chk-1") == before
    assert is_restorable(replica, "rebased/chk-1-1")
    assert is_restorable(replica)


def test_what_is_rebased_back_is_the_same_file_but_for_its_paths(replica):
    rebased(replica, choice=as_given({("orders", 3): 9}))
    rebased(
        replica, checkpoint="rebased/chk-1-1", name="back", choice=as_given({("orders", 3): 307})
    )
    back = (replica / "rebased" / "back" / "_metadata").read_bytes()
    assert back == (replica / "chk-1" / "_metadata").read_bytes()


def test_states_in_files_are_written_to_new_files(with_files):
    before = content(with_files)
    rebased(with_files, choice=as_given({("orders", 3): 9}))
    assert offsets(with_files)["orders", 3] == 9
    assert offsets(with_files, "chk-1")["orders", 3] == 307
    after = content(with_files)
    new = {path for path in after.keys() - before.keys() if path.startswith("rebased/")}
    assert new == {"rebased/chk-1-1/_metadata", "rebased/chk-1-1/state-0"}
    assert {path: after[path] for path in before if not path.startswith(".cpreplicate")} == {
        path: data for path, data in before.items() if not path.startswith(".cpreplicate")
    }
    assert is_restorable(with_files, "rebased/chk-1-1")


@pytest.mark.parametrize("is_compressed", [False, True])
def test_compressed_states_and_other_lists_beside_keep_their_content(tmp_path, is_compressed):
    lists = {
        "before": [b"other", b"elements"],
        written.READERS: [split.element for split in SPLITS],
        "behind": [b"x" * 900],
    }
    states = written.stream(lists, is_compressed=is_compressed)
    operator = source_operator(
        [subtask(0, states, inline(states.data))], written.coordinator(3, SPLITS)
    )
    directory = tmp_path / "dcA" / JOB / "chk-1"
    directory.mkdir(parents=True)
    (directory / "_metadata").write_bytes(encode(Tree(6, (operator,))).data)
    replica = synced(tmp_path)
    rebased(replica, topics={"orders": "A.orders-with-a-longer-name"})
    wanted = {("A.orders-with-a-longer-name", each.partition): each.start for each in SPLITS}
    assert offsets(replica) == wanted
    data = (replica / "rebased" / "chk-1-1" / "_metadata").read_bytes()
    for other in (b"other", b"elements", b"x" * 900):
        assert written.block(other) in data


def test_topics_are_renamed_in_readers_and_coordinator(replica):
    rebased(replica, topics={"orders": "A.orders"})
    data = (replica / "rebased" / "chk-1-1" / "_metadata").read_bytes()
    renamed = [Split("A.orders", each.partition, each.start) for each in SPLITS]
    assert written.coordinator(3, renamed) in data
    assert all(split.element in data for split in renamed)
    assert written.utf("orders") not in data


def test_pending_transactions_are_dropped_if_asked_for_and_named(replica):
    result = rebased(replica, drops_pending=True)
    assert [each.transactional_id for each in result.dropped] == ["tx-0-3", "tx-1-3"]
    assert held(replica).pending == ()
    assert len(held(replica, "chk-1").pending) == 2
    data = (replica / "rebased" / "chk-1-1" / "_metadata").read_bytes()
    assert written.block(written.NO_COMMITTABLES) in data


def test_servers_of_a_dynamic_source_become_those_of_b(tmp_path):
    splits = [Split("orders", 0, 7, cluster="a"), Split("orders", 0, 8, cluster="b")]
    servers = {"a": "kafka-a:9092", "b": "kafka-b:9092"}
    states = written.stream({written.READERS: [split.element for split in splits]})
    operator = source_operator(
        [subtask(0, states, inline(states.data))], written.dynamic_coordinator(2, splits, servers)
    )
    directory = tmp_path / "dcA" / JOB / "chk-1"
    directory.mkdir(parents=True)
    (directory / "_metadata").write_bytes(encode(Tree(6, (operator,))).data)
    replica = synced(tmp_path)
    rebased(replica, servers={"a": "kafka-in-b:9092"})
    assert [(each.cluster, each.servers, each.offset) for each in held(replica).positions] == [
        ("a", "kafka-in-b:9092", 7),
        ("b", "kafka-b:9092", 8),
    ]


def put_source(tmp_path: Path, splits, coordinator: bytes) -> Path:
    states = written.stream({written.READERS: [split.element for split in splits]})
    operator = source_operator([subtask(0, states, inline(states.data))], coordinator)
    directory = tmp_path / "dcA" / JOB / "chk-1"
    directory.mkdir(parents=True)
    (directory / "_metadata").write_bytes(encode(Tree(6, (operator,))).data)
    return synced(tmp_path)


def test_start_values_in_a_version_3_coordinator_stay(tmp_path):
    started = [Split("orders", each.partition, 6000) for each in SPLITS]
    replica = put_source(tmp_path, SPLITS, written.coordinator(3, started))
    rebased(replica, choice=as_given({("orders", 3): 9}))
    data = (replica / "rebased" / "chk-1-1" / "_metadata").read_bytes()
    assert written.coordinator(3, started) in data


def test_a_partition_that_no_reader_holds_is_moved_in_the_coordinator(tmp_path):
    waiting = Split("orders", 9, 400, status=1)
    replica = put_source(tmp_path, SPLITS, written.coordinator(3, [*SPLITS, waiting]))
    rebased(replica, choice=as_given({("orders", 9): 41}))
    assert offsets(replica)["orders", 9] == 41


def test_a_partition_whose_offset_is_not_recorded_cannot_be_moved(tmp_path):
    waiting = Split("orders", 9, 400, status=1)
    replica = put_source(tmp_path, SPLITS, written.coordinator(2, [*SPLITS, waiting]))
    with pytest.raises(Refused, match="partition 9 is held by no reader"):
        rebased(replica, choice=as_given({("orders", 9): 41}))
    assert not (replica / "rebased").exists()


def test_finished_splits_stay_in_the_coordinator(tmp_path):
    finished = Split("orders", 9, 0, 500)
    replica = put_source(tmp_path, SPLITS, written.coordinator(3, [*SPLITS, finished]))
    rebased(replica, topics={"orders": "A.orders"})
    data = (replica / "rebased" / "chk-1-1" / "_metadata").read_bytes()
    assert Split("A.orders", 9, 0, 500).plain in data


@pytest.mark.parametrize("marker", [-1, -2, -3])
def test_markers_stay_unless_an_offset_is_given(tmp_path, marker):
    splits = [Split("orders", 0, marker), Split("orders", 1, marker)]
    replica = put_source(tmp_path, splits, written.coordinator(3, splits))
    rebased(replica, choice=as_given({("orders", 0): 5}))
    first, second = held(replica).positions
    assert (first.offset, first.marker) == (5, None)
    assert (second.offset, second.marker is not None) == (None, True)


def test_an_offset_of_a_partition_that_is_not_there_is_refused(replica):
    with pytest.raises(Refused, match="payments partition 0"):
        rebased(replica, choice=as_given({("payments", 0): 5}))


def test_what_changes_nothing_is_refused(replica):
    with pytest.raises(Refused, match="nothing that would change"):
        rebased(replica, topics={"orders": "orders"})


@pytest.mark.parametrize("names", [{"payments": "A.payments"}, {"orders": "a b"}])
def test_a_rename_that_does_not_fit_the_checkpoint_is_refused(replica, names):
    with pytest.raises(UsageError):
        rebased(replica, topics=names)
    assert not (replica / "rebased").exists()


def test_a_new_name_is_one_of_the_kafka_that_is_asked(replica):
    there = StandInKafka({("A.orders", each.partition): (0, 9999) for each in SPLITS})
    with pytest.raises(UsageError, match="no topic has the new name"):
        rebased(replica, topics={"orders": "A.ordres"}, kafka=there)
    rebased(replica, topics={"orders": "A.orders"}, kafka=there)


def test_the_nearest_offsets_are_refused_where_they_skip_younger_records(replica):
    partitions = [("orders", each.partition) for each in SPLITS]
    there = StandInKafka(dict.fromkeys(partitions, (0, 300)), first_since={partitions[4]: 250})
    clamp = clamped(lambda asked: there.ranges(asked))
    with pytest.raises(Refused, match=r"orders partition 4 \(50 records from 250 on\)"):
        rebased(replica, choice=clamp, by="clamp", kafka=there)
    assert not (replica / "rebased").exists()
    there.by_broker = frozenset(partitions)
    result = rebased(replica, choice=clamp, by="clamp", kafka=there)
    assert any("LogAppendTime" in each for each in result.warnings)


def test_a_group_that_is_ahead_is_reported_with_its_numbers(replica):
    partitions = [("orders", each.partition) for each in SPLITS]
    there = StandInKafka(dict.fromkeys(partitions, (0, 900)), first_since={partitions[0]: 20})
    choice = looked_up(lambda asked: {each: 100 * each[1] + 30 for each in asked})
    result = rebased(replica, choice=choice, by="group", kafka=there)
    ahead, skipped = (each for each in result.warnings if "partition 0" in each)
    assert "in 5 partitions: orders partition 0 (30, in the checkpoint 7: 23)" in ahead
    assert "orders partition 0 (10 records from 20 on)" in skipped


def test_a_dry_run_writes_nothing(replica):
    before = content(replica)
    result = rebased(replica, drops_pending=True, dry_run=True)
    assert (result.starting, len(result.dropped)) == (None, 2)
    assert content(replica) == before


def test_a_state_that_cannot_be_read_is_not_derived_from(with_files):
    state = with_files / "chk-1" / "state-3"
    state.write_bytes(bytes(state.stat().st_size))
    with pytest.raises(Refused, match="cannot be changed"):
        rebased(with_files, topics={"orders": "A.orders"})
    assert not (with_files / "rebased").exists()


@pytest.mark.parametrize("name", ["a/b", "..", ".hidden", "", "x" * 101, "a b"])
def test_a_name_that_is_no_directory_of_its_own_is_refused(replica, name):
    with pytest.raises(UsageError):
        rebased(replica, drops_pending=True, name=name)


def test_a_name_that_is_taken_is_refused(replica):
    rebased(replica, drops_pending=True, name="mine")
    with pytest.raises(Refused, match="is there already"):
        rebased(replica, drops_pending=True, name="mine")
    assert rebased(replica, drops_pending=True).name == "rebased/chk-1-1"
    assert rebased(replica, drops_pending=True).name == "rebased/chk-1-2"


def with_next(tmp_path: Path) -> None:
    """Let the source go on, so that a sync deletes what only the first checkpoint needed."""
    put_with_files(tmp_path / "dcA", 2, SPLITS)


def test_the_files_of_a_derived_checkpoint_are_needed_until_it_is_forgotten(tmp_path, with_files):
    rebased(with_files, choice=as_given({("orders", 3): 9}))
    with_next(tmp_path)
    synced(tmp_path)
    assert not (with_files / "chk-1" / "_metadata").exists()
    assert is_restorable(with_files, "rebased/chk-1-1")
    assert offsets(with_files)["orders", 1] == 107
    swept(with_files)
    assert is_restorable(with_files, "rebased/chk-1-1")
    forget(f"file:{with_files}", "chk-1-1", Side(), False, 0, quiet)
    assert not (with_files / "rebased" / "chk-1-1").exists()
    swept(with_files)
    assert not (with_files / "chk-1").exists()
    assert is_restorable(with_files)
    assert not [name for name in content(with_files) if "rebased" in name or "chk-1." in name]


def swept(replica: Path) -> None:
    sweep(SweepRequest(f"file:{replica}", min_age=-1.0, execution=INLINE), quiet)


def test_files_that_a_run_left_which_died_are_swept(with_files):
    rebased(with_files, choice=as_given({("orders", 3): 9}))
    (with_files / "rebased" / "chk-1-1" / "_metadata").unlink()
    swept(with_files)
    assert not [name for name in content(with_files) if "rebased" in name]
    assert is_restorable(with_files)


def test_a_file_of_another_program_below_rebased_is_left_alone(replica):
    rebased(replica, drops_pending=True)
    stray = replica / "rebased" / "chk-1-1" / "notes"
    stray.write_text("mine")
    forget(f"file:{replica}", "chk-1-1", Side(), False, 0, quiet)
    assert stray.read_text() == "mine"


def test_a_checkpoint_of_another_program_below_rebased_stops_a_sync(tmp_path, replica):
    (replica / "rebased" / "theirs").mkdir(parents=True)
    (replica / "rebased" / "theirs" / "_metadata").write_bytes(
        (replica / "chk-1" / "_metadata").read_bytes()
    )
    with_next(tmp_path)
    with pytest.raises(Refused, match="was not written by cpreplicate"):
        synced(tmp_path)


def test_forgetting_what_is_not_there_names_what_is(replica):
    rebased(replica, drops_pending=True, name="mine")
    with pytest.raises(NotThere, match="It holds rebased/mine"):
        forget(f"file:{replica}", "theirs", Side(), False, 0, quiet)


def test_a_derived_checkpoint_can_be_promoted_and_then_not_forgotten(replica):
    rebased(replica, drops_pending=True)
    promotion = promote(
        PromoteRequest(f"file:{replica}", checkpoint="rebased/chk-1-1", execution=INLINE), quiet
    )
    assert promotion.starting is not None
    assert promotion.starting.checkpoint == f"file:{replica}/rebased/chk-1-1"
    with pytest.raises(Refused, match="is sealed"):
        forget(f"file:{replica}", "chk-1-1", Side(), False, 0, quiet)


def test_a_sealed_replica_can_be_rebased(replica):
    promote(PromoteRequest(f"file:{replica}", execution=INLINE), quiet)
    before = (replica / "chk-1" / "_metadata").read_bytes()
    result = rebased(replica, drops_pending=True)
    assert result.starting is not None
    assert held(replica).pending == ()
    assert (replica / "chk-1" / "_metadata").read_bytes() == before


def test_a_replica_that_was_moved_is_relocated_with_its_derived_checkpoints(tmp_path, with_files):
    rebased(with_files, choice=as_given({("orders", 3): 9}))
    moved = tmp_path / "elsewhere" / JOB
    moved.parent.mkdir()
    with_files.rename(moved)
    relocate(RelocateRequest(f"file:{moved}"), quiet)
    assert offsets(moved)["orders", 3] == 9
    assert is_restorable(moved, "rebased/chk-1-1")
    assert is_restorable(moved)


def test_members_of_packs_are_changed_in_files_of_their_own(tmp_path):
    put_with_files(tmp_path / "dcA", 1, SPLITS)
    replica = synced(tmp_path, packing=PackOptions("on", 10_000))
    rebased(replica, choice=as_given({("orders", 3): 9}))
    assert offsets(replica)["orders", 3] == 9
    assert is_restorable(replica, "rebased/chk-1-1")
    with pytest.raises(Refused, match="--forget"):
        relocate(RelocateRequest(f"file:{replica}", unpack=True), quiet)
    forget(f"file:{replica}", "chk-1-1", Side(), False, 0, quiet)
    relocate(RelocateRequest(f"file:{replica}", unpack=True), quiet)
    assert is_restorable(replica)


def put_with_shared(root: Path, number: int, count: int) -> None:
    """A checkpoint that shares the states of the first splits with all others."""
    job = root / JOB
    (job / "shared").mkdir(parents=True, exist_ok=True)
    subtasks = []
    for index, split in enumerate(SPLITS[:count]):
        states = written.stream({written.READERS: [split.element]})
        (job / f"shared/state-{index}").write_bytes(states.data)
        handle = File(f"file:{job}/shared/state-{index}", len(states.data))
        subtasks.append(subtask(index, states, handle))
    operator = source_operator(subtasks, written.coordinator(3, SPLITS[:count]))
    (job / f"chk-{number}").mkdir()
    metadata = encode(Tree(6, (operator,), number)).data
    (job / f"chk-{number}/_metadata").write_bytes(metadata)


def test_an_older_point_is_derived_from_with_the_packs_that_it_references(tmp_path):
    packing = PackOptions("on", 10_000)
    put_with_shared(tmp_path / "dcA", 1, 5)
    synced(tmp_path, packing=packing)
    put_with_shared(tmp_path / "dcA", 2, 2)
    replica = synced(tmp_path, packing=packing, keep=2)  # moves two members to a new pack
    assert len(list((replica / "packed").iterdir())) == 2
    rebased(replica, checkpoint="chk-1", choice=as_given({("orders", 3): 9}))
    put_with_shared(tmp_path / "dcA", 3, 2)
    synced(tmp_path, packing=packing)
    assert not (replica / "chk-1").exists()
    place = Replica(f"file:{replica}", Side())
    derived = replica_state.examine(place).derived[0]
    listed = place.manifest(derived.name)
    assert listed is not None
    assert {path: row[:3] for path, row in listed.members.items()} == {
        path: row[:3] for path, row in derived.members.items()
    }
    aged(replica)
    sweep(SweepRequest(f"file:{replica}", execution=INLINE), quiet)
    assert is_restorable(replica, derived.name)
    assert is_restorable(replica)
    forget(f"file:{replica}", "chk-1-1", Side(), False, 0, quiet)
    assert len(list((replica / "packed").iterdir())) == 1
    assert is_restorable(replica)


def test_what_a_dead_run_only_planned_is_not_replaced_by_another_program_s_name(with_files):
    stray = with_files / "rebased" / "chk-1-1" / "state-0"
    stray.parent.mkdir(parents=True)
    stray.write_text("theirs")
    planned(with_files, "rebased/chk-1-1/state-0")
    with pytest.raises(Refused, match="did not write: rebased/chk-1-1/state-0"):
        rebased(with_files, name="chk-1-1", choice=as_given({("orders", 3): 9}))
    assert rebased(with_files, choice=as_given({("orders", 3): 9})).name == "rebased/chk-1-2"
    assert stray.read_text() == "theirs"


def test_a_file_of_another_program_where_a_state_would_be_written_is_not_replaced(with_files):
    stray = with_files / "rebased" / "mine" / "state-0"
    stray.parent.mkdir(parents=True)
    stray.write_text("theirs")
    with pytest.raises(Refused, match="did not write: rebased/mine/state-0"):
        rebased(with_files, name="mine", choice=as_given({("orders", 3): 9}))
    assert stray.read_text() == "theirs"
    assert [each.name for each in stray.parent.iterdir()] == ["state-0"]


@pytest.mark.parametrize("linked", ["rebased", "rebased/mine"])
def test_nothing_is_written_through_a_link(tmp_path, with_files, linked):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (with_files / linked).parent.mkdir(exist_ok=True)
    (with_files / linked).symlink_to(elsewhere)
    with pytest.raises(Refused, match="link"):
        rebased(with_files, name="mine", choice=as_given({("orders", 3): 9}))
    assert list(elsewhere.iterdir()) == []


def test_a_derived_checkpoint_behind_a_link_is_not_forgotten(tmp_path, with_files):
    rebased(with_files, name="mine", choice=as_given({("orders", 3): 9}))
    moved = tmp_path / "elsewhere"
    (with_files / "rebased" / "mine").rename(moved)
    (with_files / "rebased" / "mine").symlink_to(moved)
    with pytest.raises(NotThere):
        forget(f"file:{with_files}", "mine", Side(), False, 0, quiet)
    assert sorted(each.name for each in moved.iterdir()) == ["_metadata", "state-0"]


def test_what_a_derived_checkpoint_records_of_a_shared_file_never_replaces_a_later_record(
    with_files,
):
    rebased(with_files, choice=as_given({("orders", 3): 9}))
    replica = Replica(f"file:{with_files}", Side())
    listed = replica.manifest("rebased/chk-1-1")
    assert listed is not None
    older = replace(listed.entries, bytes=listed.entries.bytes + 1)
    with replicas.held(with_files) as changed:
        changed.write_manifest("rebased/chk-1-1", listed._replace(entries=older))
    ledger = Ledger(replica, replica_state.examine(replica))
    state = with_files / "chk-1" / "state-1"
    assert ledger.files["chk-1/state-1"].length == state.stat().st_size
