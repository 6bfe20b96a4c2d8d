"""What is needed is what any checkpoint in the directory references: no operation deletes it."""

from __future__ import annotations

import shutil
import time

import pytest

from cpreplicate.core.packs import PackOptions
from cpreplicate.errors import Refused
from cpreplicate.operations.handover import promote
from cpreplicate.operations.sync.diff import diff
from cpreplicate.operations.sync.put_off import Backlog
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.sync.sync import sync
from cpreplicate.operations.upkeep import relocate
from cpreplicate.protocol import publication, replica_state, source
from cpreplicate.protocol.needed import needed
from cpreplicate.protocol.replica import Replica
from cpreplicate.storage import Side, Transient
from tests.support.adopting import SHARED, Adopted
from tests.support.commandline import run
from tests.support.jobs import JOB, write_checkpoint
from tests.support.registry import serving
from tests.support.replicas import FILES, aged, held, paths, synced
from tests.support.tracing import Tracing
from tests.support.waiting import PATIENCE

ON = PackOptions("on", 1 << 20)


@pytest.fixture
def adopted(tmp_path):
    return Adopted(tmp_path)


@pytest.mark.parametrize("recorded", ["", f"file:/other/name/{JOB}", f"hdfs://nn1:8020/x/{JOB}"])
def test_a_checkpoint_that_adopt_accepted_keeps_the_files_that_it_shares(adopted, recorded):
    """Also where its job has another name for the cluster."""
    adopted.complete(SHARED, root=recorded)
    adopted.moves_on()
    plan = adopted.sync(adopt=True).plan
    gone = FILES.keys() - SHARED.keys()
    assert {action.target for action in plan.deletes} == gone
    assert adopted.there() == SHARED.keys()
    adopted.sweep()
    assert adopted.there() == SHARED.keys()


def test_relative_paths_of_such_a_checkpoint_are_those_of_its_directory(adopted):
    adopted.sync(paths="relative")
    place = adopted.replica / "chk-2"
    shutil.copytree(adopted.replica / "chk-1", place)
    adopted.moves_on()
    adopted.sync(adopt=True)
    assert adopted.there() >= {name for name in FILES if "shared/" in name}


def test_the_files_are_deleted_once_the_job_has_deleted_its_checkpoint(adopted):
    adopted.complete(SHARED)
    adopted.moves_on()
    adopted.sync(adopt=True)
    shutil.rmtree(adopted.replica / "chk-2")
    adopted.sweep()
    assert adopted.there() == set()
    assert (adopted.replica / "shared/of-b").exists()


@pytest.mark.parametrize("is_new", [True, False])
def test_a_checkpoint_that_cannot_be_read_is_not_adopted(tmp_path, is_new):
    if is_new:
        write_checkpoint(tmp_path / "dcA", 1, FILES)
        write_checkpoint(tmp_path / "dcB", 9, FILES)
        replica = tmp_path / "dcB" / JOB
    else:
        replica = Adopted(tmp_path).replica
    (replica / "chk-2").mkdir()
    (replica / "chk-2" / "_metadata").write_bytes(b"of a later Flink")
    before = paths(replica)
    words = ["--adopt", tmp_path / "dcA" / JOB, tmp_path / "dcB", "--runner", "inline"]
    for dry_run in ([], ["--dry-run"]):
        done = run("sync", *dry_run, *words)
        assert done.code == 6
        assert "chk-2/_metadata is another program's and cannot be read" in done.out + done.message
    assert paths(replica) == before


def test_deletes_that_were_put_off_spare_what_was_adopted_since(adopted):
    adopted.moves_on()
    request = adopted.request(async_deletes=True, adopt=True)
    backlog = Backlog(request)
    backlog.add(sync(request, lambda _line: None))
    assert set(backlog.targets) == FILES.keys()
    adopted.complete(SHARED)
    adopted.sync(adopt=True)
    backlog.work_off(time.monotonic() + PATIENCE, lambda _line: None)
    assert adopted.there() == SHARED.keys()


def test_deletes_that_were_put_off_wait_for_a_checkpoint_that_is_not_accepted(adopted):
    adopted.moves_on()
    request = adopted.request(async_deletes=True)
    backlog = Backlog(request)
    backlog.add(sync(request, lambda _line: None))
    adopted.complete(SHARED)
    with pytest.raises(Refused, match="chk-2/_metadata was not written by cpreplicate"):
        backlog.work_off(time.monotonic() + PATIENCE, lambda _line: None)
    assert adopted.there() == FILES.keys()


def test_with_adopt_they_wait_until_the_next_sync_accepts_it(adopted):
    adopted.moves_on()
    request = adopted.request(async_deletes=True, adopt=True)
    backlog = Backlog(request)
    backlog.add(sync(request, lambda _line: None))
    adopted.complete(SHARED)
    backlog.work_off(time.monotonic() + PATIENCE, lambda _line: None)
    assert adopted.there() == set(backlog.targets) == FILES.keys()
    backlog.add(sync(request, lambda _line: None))
    backlog.work_off(time.monotonic() + PATIENCE, lambda _line: None)
    assert adopted.there() == SHARED.keys()


class TestFilesThatOnlySuchACheckpointReferences:
    """They are newer than cpreplicate's own checkpoints, but nothing to be removed."""

    @pytest.fixture
    def directory(self, adopted):
        aged(adopted.replica)
        adopted.complete({**SHARED, "chk-2/of-job": 10})
        (adopted.replica / "chk-2/of-job").write_bytes(b"0123456789")
        adopted.sync(adopt=True)
        return f"file:{adopted.replica}"

    def test_are_no_reason_to_refuse_relocate(self, directory):
        request = relocate.RelocateRequest(directory, "absolute")
        (relocated,) = relocate.relocate(request, lambda _line: None).checkpoints
        assert relocated.rewritten

    def test_are_not_among_those_that_promote_advises_to_remove(self, directory):
        result = promote.promote(promote.PromoteRequest(directory), lambda _line: None)
        assert result.sealed
        assert not result.warnings


def test_a_pack_that_such_a_checkpoint_references_outlives_unpacking(tmp_path):
    adopted = Adopted(tmp_path, packing=ON, paths="absolute")
    (pack,) = (adopted.replica / "packed").iterdir()
    place = adopted.replica / "chk-2"
    shutil.copytree(adopted.replica / "chk-1", place)
    adopted.moves_on()
    adopted.sync(adopt=True, packing=ON, paths="absolute")
    assert pack.exists()
    adopted.sweep()
    request = relocate.RelocateRequest(f"file:{adopted.replica}", "absolute", unpack=True)
    relocate.relocate(request, lambda _line: None)
    assert pack.exists()


class TestACheckpointThatIsCompletedWhileASyncCopies:
    def sync(self, adopted, act, **options):
        """Sync, and act once before anything is deleted."""
        adopted.moves_on()

        def then(line):
            if line.startswith("committed "):
                act()

        return sync(adopted.request(**options), then)

    @pytest.mark.parametrize("options", [{}, {"async_deletes": True}, {"adopt": True}])
    def test_has_nothing_withdrawn_or_deleted(self, adopted, options):
        report = self.sync(adopted, lambda: adopted.complete(SHARED), **options)
        (warning,) = report.warnings
        assert "chk-2/_metadata was created by another program during the run" in warning
        assert "chk-3 was committed before that" in warning
        assert report.committed
        assert adopted.there() == FILES.keys()
        assert (adopted.replica / "chk-1/_metadata").exists()
        adopted.sync(adopt=True)
        assert adopted.there() == SHARED.keys()

    def test_is_not_to_be_accepted_where_adopt_is_refused(self, tmp_path):
        """The advice is one that the next sync does not refuse."""
        replica = synced(tmp_path, {1: FILES})
        write_checkpoint(tmp_path / "dcA", 3, {"chk-3/q": 7})
        request = SyncRequest(f"file:{tmp_path}/dcA/{JOB}", f"file:{tmp_path}/dcB")

        def complete(line):
            if line.startswith("committed "):
                shutil.copytree(replica / "chk-1", replica / "chk-2")

        (warning,) = sync(request, complete).warnings
        assert "chk-2/_metadata was created by another program" in warning
        assert "--adopt" not in warning
        assert "Sync into another TARGET_ROOT" in warning

    def test_so_does_an_adopted_one_that_was_replaced(self, adopted):
        adopted.complete({})
        adopted.sync(adopt=True)

        def again():
            shutil.rmtree(adopted.replica / "chk-2")
            adopted.complete(SHARED)

        report = self.sync(adopted, again)
        assert "chk-2/_metadata was created by another" in report.warnings[0]
        assert adopted.there() == FILES.keys()

    def test_or_one_of_those_that_are_kept(self, adopted):
        adopted.moves_on()
        adopted.sync(keep=2)
        write_checkpoint(adopted.root / "dcA", 4, {"chk-4/q": 9})

        def replace(line):
            if line.startswith("committed "):
                shutil.rmtree(adopted.replica / "chk-3")
                adopted.complete(SHARED, number=3)

        report = sync(adopted.request(keep=2), replace)
        assert "chk-3/_metadata was created by another" in report.warnings[0]
        assert adopted.there() == FILES.keys()

    def test_an_adopted_one_that_stays_as_it_is_does_no_harm(self, adopted):
        adopted.complete(SHARED)
        report = self.sync(adopted, lambda: None, adopt=True)
        assert not report.warnings
        assert adopted.there() == SHARED.keys()


class TestACheckpointThatCannotBeRead:
    @pytest.fixture
    def unreadable(self, adopted):
        adopted.complete({})
        (adopted.replica / "chk-2/_metadata").write_bytes(b"of a later Flink")
        adopted.moves_on()
        return adopted

    def test_has_nothing_deleted_because_it_is_not_known_what_it_needs(self, unreadable):
        with pytest.raises(Refused, match="chk-2/_metadata is another program's and cannot be"):
            unreadable.sync(adopt=True)
        assert unreadable.there() == FILES.keys()

    def test_that_a_former_version_adopted_is_no_reason_where_nothing_is_deleted(self, unreadable):
        with held(unreadable.replica) as changed:
            publication.adopt(changed, "chk-2")
        assert unreadable.sync(adopt=True, keep=2).committed
        with pytest.raises(Refused, match="cannot be read"):
            unreadable.sweep()

    def test_is_examined_again_if_its_job_deletes_it_while_it_is_read(self, adopted, monkeypatch):
        """A large `_metadata` is opened twice. That it is gone is a matter of the moment."""
        monkeypatch.setattr(source, "_KEPT_IN_MEMORY", 8)
        adopted.complete(SHARED)
        replica = Replica(f"file:{adopted.replica}", Side())
        state = replica_state.examine(replica)
        shutil.rmtree(adopted.replica / "chk-2")
        with pytest.raises(Transient, match="Run again"):
            needed(replica, state)

    def test_is_no_reason_any_more_once_it_was_moved_out(self, unreadable):
        shutil.rmtree(unreadable.replica / "chk-2")
        assert unreadable.sync().committed


def test_a_dry_run_shows_the_same_deletes(adopted):
    adopted.complete(SHARED)
    adopted.moves_on()
    planned = diff(adopted.request(adopt=True)).plan.deletes
    assert planned == adopted.sync(adopt=True).plan.deletes


def test_a_directory_without_checkpoints_of_others_costs_no_call(tmp_path):
    write_checkpoint(tmp_path / "dcA", 1, FILES)
    request = SyncRequest(f"file:{tmp_path}/dcA/{JOB}", f"file:{tmp_path}/dcB")
    sync(request, lambda _line: None)
    replica = Replica(f"file:{tmp_path}/dcB/{JOB}", Side())
    state = replica_state.examine(replica)
    with serving("file", tracing := Tracing(Side().storage("file:/"))):
        assert set(needed(replica, state).to_pylist()) == FILES.keys()
    assert tracing.calls == []
