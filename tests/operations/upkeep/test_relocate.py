"""A replica is rewritten where it is, or where it was moved to, with no source at hand."""

import json
import shutil
from random import Random

import pytest

from cpreplicate.core.closure import closure
from cpreplicate.core.metadata import decode
from cpreplicate.core.restore import choose
from cpreplicate.errors import LeaseHeld, Refused
from cpreplicate.operations.handover.promote import PromoteRequest, promote
from cpreplicate.operations.sync import sync
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.upkeep import relocate
from cpreplicate.operations.upkeep.relocate import RelocateRequest
from cpreplicate.operations.verify.verify import ALL, verify
from cpreplicate.output.results import forms_of
from cpreplicate.protocol import lease, source
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import Side
from cpreplicate.storage.wrappers.base import StorageWrapper
from tests.support import checker, corpus
from tests.support.corpus import DataCentre
from tests.support.encoder import Empty, Nested, OperatorEntry, Subtask, Tree, encode
from tests.support.registry import serving
from tests.support.replicas import FILES, NEXT, paths, sealed, synced
from tests.support.staging import Stage, running_on, silent


def run(replica, **options):
    return relocate.relocate(RelocateRequest(f"file:{replica}", **options), lambda _line: None)


def metadata(replica):
    return {each.parent.name: each.read_bytes() for each in replica.glob("chk-*/_metadata")}


def is_restorable(replica, name=None):
    found = verify(f"file:{replica}", name, ALL, lambda _line: None, Side())
    return found.restorable and checker.faults(replica) == []


@pytest.fixture(params=["held in memory", "read again"])
def replica(tmp_path, request, monkeypatch):
    """A replica whose `_metadata` are small, or count as too long to be held."""
    made = synced(tmp_path, {1: FILES, 2: NEXT}, keep=2)
    if request.param == "read again":
        monkeypatch.setattr(source, "_KEPT_IN_MEMORY", 64)
        monkeypatch.setattr(relocate, "_HELD_IN_MEMORY", 64)
    return made


def test_there_and_back_again_gives_the_same_bytes(replica):
    before, files = metadata(replica), paths(replica)
    done = run(replica, paths="absolute")
    assert [(each.checkpoint, each.rewritten) for each in done.checkpoints] == [
        ("chk-2", True),
        ("chk-1", True),
    ]
    assert all(b"file:" + str(replica).encode() in data for data in metadata(replica).values())
    assert is_restorable(replica, "chk-1")
    assert is_restorable(replica, "chk-2")
    run(replica, paths="relative")
    assert metadata(replica) == before
    assert paths(replica) == files
    assert is_restorable(replica, "chk-1")


def test_again_changes_nothing(replica):
    run(replica, paths="absolute")
    before = metadata(replica)
    assert [each.rewritten for each in run(replica, paths="absolute").checkpoints] == [False, False]
    assert metadata(replica) == before


@pytest.mark.parametrize("spelling", ["relative", "absolute"])
def test_a_replica_that_was_moved_is_mended_and_still_proved_by_its_manifest(
    replica, tmp_path, spelling
):
    run(replica, paths="absolute")
    moved = shutil.move(replica, tmp_path / "elsewhere")
    assert not verify(f"file:{moved}", None, ALL, lambda _line: None, Side()).restorable
    done = run(moved, paths=spelling)
    assert done.moved_from == (f"file:{replica}",)
    assert is_restorable(moved, "chk-1")
    assert is_restorable(moved, "chk-2")


@pytest.mark.parametrize("name", ["shared", "chk-7"])
def test_a_former_root_that_looks_like_a_part_of_a_replica_is_distinguished_from_one(
    tmp_path, name
):
    replica = synced(tmp_path / name / "x", {1: FILES}, paths="absolute")
    moved = shutil.move(replica, tmp_path / "moved")
    assert run(moved).moved_from == (f"file:{replica}",)
    assert is_restorable(moved)


def test_a_replica_may_be_prepared_for_the_place_where_flink_will_find_it(replica):
    done = run(replica, paths="absolute", root="hdfs://dcB/flink/job")
    assert b"hdfs://dcB/flink/job/shared/y" in metadata(replica)["chk-2"]
    assert done.checkpoints[0].restore.command.startswith(
        "flink run -s hdfs://dcB/flink/job/chk-2 "
    )
    assert run(replica, paths="relative").moved_from == ("hdfs://dcB/flink/job",)
    assert is_restorable(replica)


def test_where_each_checkpoint_lacks_a_file_nothing_is_changed(replica):
    before = metadata(replica)
    (replica / "shared" / "e").unlink()
    with pytest.raises(Refused, match="shared/e") as raised:
        run(replica, paths="absolute")
    assert metadata(replica) == before
    # which knows what repairs an older point, or a derived one
    assert f"`cpreplicate verify --checkpoint chk-2 file:{replica}`" in str(raised.value)


def test_where_files_lie_elsewhere_nothing_is_guessed(replica, tmp_path):
    run(replica, paths="absolute")
    moved = shutil.move(replica, tmp_path / "elsewhere")
    (moved / "shared" / "e").unlink()
    before = metadata(moved)
    with pytest.raises(Refused, match="--moved-from"):
        run(moved)
    with pytest.raises(Refused, match="file:/somewhere/else is not where it was moved from"):
        run(moved, moved_from="file:/somewhere/else")
    assert metadata(moved) == before


def test_a_checkpoint_that_lacks_a_file_does_not_keep_the_others_from_their_place(tmp_path):
    replica = synced(tmp_path, {1: FILES, 2: NEXT}, keep=2)
    run(replica, paths="absolute")
    moved = shutil.move(replica, tmp_path / "elsewhere")
    before = metadata(moved)["chk-1"]
    gone = next(path for path in FILES if path not in NEXT)
    (moved / gone).unlink()
    done = run(moved, paths="absolute")
    assert [each.checkpoint for each in done.checkpoints] == ["chk-2"]
    assert f"{moved}/chk-1 references" in done.warnings[0]
    assert metadata(moved)["chk-1"] == before
    assert promote(PromoteRequest(f"file:{moved}"), lambda _line: None).is_promoted


def test_a_sealed_or_held_replica_is_left_alone(replica):
    before = metadata(replica)
    with lease.acquire(f"file:{replica}", Side()), pytest.raises(LeaseHeld):
        run(replica, paths="absolute")
    sealed(replica, "chk-2")
    with pytest.raises(Refused, match="sealed"):
        run(replica, paths="absolute")
    assert metadata(replica) == before


class Mangling(StorageWrapper):
    """The first `_metadata` that is written is stored with another byte at its end."""

    is_done = False

    def publish(self, uri, content, *rest):
        if not uri.endswith("/chk-1/_metadata") or self.is_done:
            return super().publish(uri, content, *rest)
        self.is_done = True
        return super().publish(uri, lambda: [b"".join(content())[:-1], b"?"], *rest)


def test_what_does_not_read_back_is_undone(replica):
    before = metadata(replica)
    with (
        serving("file", Mangling(Side().storage("file:/"))),
        pytest.raises(OSError, match="did not read back"),
    ):
        run(replica, paths="absolute")
    assert metadata(replica)["chk-1"] == before["chk-1"]
    assert is_restorable(replica, "chk-1")
    assert [each.rewritten for each in run(replica, paths="absolute").checkpoints] == [False, True]
    assert is_restorable(replica, "chk-1")


@pytest.mark.parametrize("folder", sorted({each.folder for each in corpus.checkpoints()}))
def test_every_kind_of_real_state_is_moved_and_mended(folder, tmp_path):
    source = DataCentre(folder, tmp_path)
    job = source.jobs()[-1]
    place = f"file:{source.job_root(job)}/chk-{source.numbers(job)[-1]}"
    request = SyncRequest(
        place,
        f"file:{tmp_path}/dcB",
        paths="absolute",
        remaps=(source.remap,),
        execution=ExecutionOptions(runner="inline"),
    )
    sync.sync(request, lambda _line: None)
    moved = shutil.move(tmp_path / "dcB" / job, tmp_path / "moved")
    run(moved)
    assert is_restorable(moved)
    assert str(tmp_path / "dcB").encode() not in next(iter(metadata(moved).values()))


def merged(tmp_path, **options):
    """A replica of a checkpoint with merged segments, which real Flink wrote."""
    source = DataCentre("2.3.0-filemerge", tmp_path)
    job = source.jobs()[-1]
    place = f"file:{source.job_root(job)}/chk-{source.numbers(job)[-1]}"
    request = SyncRequest(
        place,
        f"file:{tmp_path}/dcB",
        remaps=(source.remap,),
        execution=ExecutionOptions(runner="inline"),
        **options,
    )
    return tmp_path / "dcB" / job, sync.sync(request, lambda _line: None)


@pytest.mark.parametrize("spelling", ["auto", "relative"])
def test_a_replica_with_merged_segments_is_reported_as_mixed_with_a_warning(tmp_path, spelling):
    replica, report = merged(tmp_path, paths=spelling)
    for written in (forms_of(report).text(report), forms_of(report).json(report)):
        assert "mixed" in written
        assert "merged segments have no relative form" in written
    assert json.loads(forms_of(report).json(report))["paths"] == "mixed"
    assert report.restore.claim_mode == "NO_CLAIM"
    done = run(replica, paths=spelling)
    assert [(each.rewritten, each.paths) for each in done.checkpoints] == [(False, "mixed")]
    assert done.warnings == report.warnings
    assert json.loads(forms_of(done).json(done))["warnings"] == list(done.warnings)
    assert done.warnings[0] in forms_of(done).text(done)


def test_a_mixed_replica_that_was_moved_is_not_restorable_until_it_is_relocated(tmp_path):
    replica, _ = merged(tmp_path)
    moved = shutil.move(replica, tmp_path / "moved")
    assert not verify(f"file:{moved}", None, ALL, lambda _line: None, Side()).restorable
    run(moved)
    assert is_restorable(moved)


def test_a_replica_with_merged_segments_and_absolute_paths_is_reported_as_absolute(tmp_path):
    _, report = merged(tmp_path, paths="absolute")
    assert json.loads(forms_of(report).json(report))["paths"] == "absolute"
    assert report.warnings == ()


def test_empty_segments_alone_make_no_replica_mixed():
    tree = Tree(
        6, (OperatorEntry(bytes(16), 1, 128, (Subtask(0, keyed=Nested(0, (0,), Empty())),)),), 1
    )
    metadata = decode(encode(tree).data, "file:/dcA/job/chk-1")
    assert metadata.file_merging
    assert choose(metadata, closure(metadata), "auto").reported == "relative"


@pytest.mark.parametrize("is_coarse", [False, True])
def test_after_a_relocate_of_two_checkpoints_a_merged_file_that_grew_is_not_copied_again(is_coarse):
    stage = Stage(Random(0), keep=2, merged=True)
    if not is_coarse:
        stage.disk.hook = lambda *_: stage.disk.clock.pass_(0.001)
    while stage.last < 10:  # chk-9 or less, then chk-10 or more
        stage.complete().sync(paths="relative")
    request = stage.request(paths="absolute")
    with running_on(stage.disk):
        done = relocate.relocate(RelocateRequest(stage.replica, "absolute"), silent)
        assert [each.rewritten for each in done.checkpoints] == [True, True]
        assert sync.sync(request, silent).plan.empty
