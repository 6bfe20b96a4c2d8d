"""A file of another program at the path of a copy is compared, kept if equal, never replaced."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import pytest

from cpreplicate.core.packs import PackOptions
from cpreplicate.errors import Refused, SourceBroken
from cpreplicate.operations.sync.diff import check, diff
from cpreplicate.operations.sync.report import Report
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.sync.sync import sync
from cpreplicate.operations.upkeep import sweep
from cpreplicate.operations.verify.verify import ALL, verify
from cpreplicate.protocol import manifest
from cpreplicate.protocol.pending import PendingPut
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import Side
from tests.support.faults import Faulty
from tests.support.jobs import (
    JOB,
    NEXT_JOB,
    pattern,
    put_restored,
    write_checkpoint,
    write_merged,
)
from tests.support.registry import serving
from tests.support.replicas import FILES, NEXT, aged, planned, synced

EARLIER = {"shared/a": 100, "shared/b": 200}
WRITTEN = pattern("shared/y", 60)


def request(root: Path, job: str = JOB, **options: object) -> SyncRequest:
    return SyncRequest(
        f"file:{root}/dcA/{job}",
        f"file:{root}/dcB",
        execution=ExecutionOptions(runner="inline"),
        subsumption_wait=0.0,
        **options,
    )


def run(root: Path, job: str = JOB, **options: object) -> Report:
    return sync(request(root, job, **options), lambda _line: None)


def place(replica: Path, name: str, data: bytes) -> Path:
    path = replica / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def listed(replica: Path, checkpoint: str) -> manifest.Manifest:
    found = manifest.read(Side().storage("file:/"), f"file:{replica}", checkpoint)
    assert found is not None
    return found


@pytest.fixture
def replica(tmp_path):
    """A replica of chk-1; the job has completed chk-2 since, which references shared/y, too."""
    made = synced(tmp_path, {1: FILES})
    write_checkpoint(tmp_path / "dcA", 2, NEXT)
    return made


def is_whole(replica: Path) -> bool:
    return verify(f"file:{replica}", None, ALL, lambda _line: None, Side()).restorable


class TestEqualContent:
    @pytest.fixture
    def kept(self, replica):
        return place(replica, "shared/y", WRITTEN)

    def test_is_kept_and_recorded_as_not_written(self, tmp_path, replica, kept):
        inode = kept.stat().st_ino
        plan = run(tmp_path).plan
        assert "shared/y" not in {action.target for action in plan.copies}
        assert kept.stat().st_ino == inode
        assert not listed(replica, "chk-2").entries["shared/y"].written
        assert is_whole(replica)
        assert run(tmp_path).plan.empty

    def test_is_never_deleted(self, tmp_path, replica, kept):
        run(tmp_path)
        write_checkpoint(tmp_path / "dcA", 3, FILES)
        deleted = {action.target for action in run(tmp_path).plan.deletes}
        assert deleted == {"chk-2/x"}
        aged(replica)
        options = ExecutionOptions(runner="inline")
        found = sweep.sweep(
            sweep.SweepRequest(f"file:{replica}", 0, execution=options), lambda _line: None
        ).found
        assert found.left["shared/y"] == "not recorded as written by cpreplicate"
        assert kept.read_bytes() == WRITTEN

    def test_stays_kept_in_later_checkpoints(self, tmp_path, replica, kept):
        run(tmp_path)
        write_checkpoint(tmp_path / "dcA", 3, {"shared/y": 60, "chk-3/x": 5})
        run(tmp_path)
        assert not listed(replica, "chk-3").entries["shared/y"].written
        write_checkpoint(tmp_path / "dcA", 4, {"chk-4/x": 5})
        run(tmp_path)
        assert kept.exists()

    def test_that_its_owner_changes_later_is_refused(self, tmp_path, kept):
        run(tmp_path)
        kept.write_bytes(b"the owner went on")
        with pytest.raises(Refused, match=r"differs from .*shared/y"):
            run(tmp_path)
        assert kept.read_bytes() == b"the owner went on"

    def test_that_is_damaged_at_equal_length_is_refused_by_check_content(self, tmp_path, kept):
        run(tmp_path)
        kept.write_bytes(bytes(60))
        with pytest.raises(Refused, match=r"differs from .*shared/y"):
            run(tmp_path, check_content=True)

    @pytest.mark.usefixtures("kept")
    def test_is_kept_instead_of_packed(self, tmp_path, replica):
        run(tmp_path, packing=PackOptions("on", 1 << 20))
        assert not listed(replica, "chk-2").entries["shared/y"].written
        assert "shared/y" not in listed(replica, "chk-2").members
        assert is_whole(replica)

    def test_is_copied_if_it_vanishes_before_it_is_compared(self, tmp_path, replica, kept):
        def vanish(verb, uri):
            if verb == "open" and uri == f"file:{kept}":
                kept.unlink(missing_ok=True)

        with serving("file", Faulty(Side().storage("file:/"), vanish)):
            plan = run(tmp_path).plan
        assert "shared/y" in {action.target for action in plan.copies}
        assert is_whole(replica)

    def test_cannot_be_compared_if_the_source_lacks_the_file(self, tmp_path, kept):
        (tmp_path / "dcA" / JOB / "shared/y").unlink()
        inode = kept.stat().st_ino
        with pytest.raises(SourceBroken):
            run(tmp_path)
        assert kept.stat().st_ino == inode


class TestOtherContent:
    @pytest.mark.parametrize("data", [b"", b"other", WRITTEN[:-1], WRITTEN + b"x", bytes(60)])
    def test_is_refused_and_named_and_nothing_is_changed(self, tmp_path, replica, data):
        path = place(replica, "shared/y", data)
        with pytest.raises(Refused, match=r"1 file of .*It is shared/y") as caught:
            run(tmp_path)
        assert caught.value.exit_code == 6
        assert path.read_bytes() == data
        assert not (replica / "chk-2").exists()
        assert is_whole(replica)

    def test_of_equal_length_is_announced_by_a_dry_run(self, tmp_path, replica):
        place(replica, "shared/y", bytes(60))
        for shown in (diff(request(tmp_path)), check(request(tmp_path), is_dry_run=True)):
            (warning,) = [line for line in shown.warnings if "not written" in line]
            assert "shared/y" in warning

    @pytest.mark.parametrize("data", [b"", b"other", WRITTEN + b"x"])
    def test_of_another_length_is_refused_by_a_dry_run_too(self, tmp_path, replica, data):
        place(replica, "shared/y", data)
        for dry_run in (diff, partial(check, is_dry_run=True)):
            with pytest.raises(Refused, match=r"1 file of .*It is shared/y"):
                dry_run(request(tmp_path))
            dry_run(request(tmp_path, packing=PackOptions("on", 1 << 20)))

    def test_is_no_obstacle_to_a_copy_into_a_pack(self, tmp_path, replica):
        path = place(replica, "shared/y", b"other")
        run(tmp_path, packing=PackOptions("on", 1 << 20))
        assert path.read_bytes() == b"other"
        assert is_whole(replica)

    def test_is_refused_in_foreign_too(self, tmp_path):
        write_checkpoint(tmp_path / "dcA", 1, EARLIER)
        put_restored(Side(), f"file:{tmp_path}/dcA", 2, {"shared/n": 70}, {})
        run(tmp_path, NEXT_JOB)
        put_restored(Side(), f"file:{tmp_path}/dcA", 3, {"shared/n": 70}, EARLIER)
        target = next(
            action.target
            for action in diff(request(tmp_path, NEXT_JOB)).plan.copies
            if action.target.startswith("foreign/")
        )
        place(tmp_path / "dcB" / NEXT_JOB, target, b"other")
        with pytest.raises(Refused, match=target):
            run(tmp_path, NEXT_JOB)


class TestWhatADeadRunOnlyPlanned:
    """It was about to write there: whether it did, only the content proves."""

    @pytest.mark.parametrize("data", [b"", b"other", bytes(60), WRITTEN + b"x"])
    def test_is_another_programs_if_it_differs(self, tmp_path, replica, data):
        planned(replica, "shared/y")
        path = place(replica, "shared/y", data)
        with pytest.raises(Refused, match=r"1 file of .*It is shared/y"):
            run(tmp_path)
        assert path.read_bytes() == data
        assert not (replica / "chk-2").exists()

    def test_is_ours_and_kept_if_it_is_equal(self, tmp_path, replica):
        planned(replica, "shared/y")
        inode = place(replica, "shared/y", WRITTEN).stat().st_ino
        run(tmp_path)
        assert (replica / "shared/y").stat().st_ino == inode
        assert listed(replica, "chk-2").entries["shared/y"].written
        write_checkpoint(tmp_path / "dcA", 3, FILES)
        run(tmp_path)
        assert not (replica / "shared/y").exists()

    @pytest.mark.parametrize("length", [100, 150])
    def test_is_ours_if_it_is_the_beginning_of_a_merged_file(self, tmp_path, replica, length):
        write_merged(tmp_path / "dcA", 3, {"shared/m": 200}, {"shared/m": (0, 120)})
        planned(replica, "shared/m")
        place(replica, "shared/m", pattern("shared/m", length))
        run(tmp_path)
        assert (replica / "shared/m").stat().st_size == (200 if length < 120 else 150)
        assert listed(replica, "chk-3").entries["shared/m"].written
        assert is_whole(replica)

    def test_the_beginning_of_a_merged_file_of_another_program_is_not_replaced(
        self, tmp_path, replica
    ):
        write_merged(tmp_path / "dcA", 3, {"shared/m": 200}, {"shared/m": (0, 120)})
        path = place(replica, "shared/m", pattern("shared/m", 100))
        with pytest.raises(Refused, match="It is shared/m"):
            run(tmp_path)
        assert path.stat().st_size == 100


class TestARunThatDiedBeforeItsManifest:
    """It replaced the `_metadata` of a checkpoint, and the manifest is still the former one."""

    @pytest.fixture
    def died(self, tmp_path, replica, monkeypatch):
        """A replica of which a `_metadata` was replaced, with a file of another program in it."""
        (tmp_path / "dcA" / JOB / "chk-2/_metadata").unlink()
        write_checkpoint(tmp_path / "dcA", 1, {**FILES, "shared/y": 60, "shared/z": 70})
        place(replica, "shared/y", WRITTEN)

        def appear(pending, *_args):
            if pending._uri.endswith("chk-1.parquet"):
                raise Killed
            return original(pending, *_args)

        original = PendingPut.appear
        monkeypatch.setattr(PendingPut, "appear", appear)
        with pytest.raises(Killed):
            run(tmp_path)
        monkeypatch.undo()
        assert (replica / "shared/z").exists()
        return replica

    def test_leaves_the_file_to_the_other_program(self, tmp_path, died):
        run(tmp_path)
        assert not listed(died, "chk-1").entries["shared/y"].written
        write_checkpoint(tmp_path / "dcA", 3, FILES)
        run(tmp_path)
        assert not (died / "shared/z").exists()
        assert (died / "shared/y").read_bytes() == WRITTEN

    def test_so_it_is_if_the_checkpoint_is_only_kept(self, tmp_path, died):
        write_checkpoint(tmp_path / "dcA", 3, FILES)
        run(tmp_path, keep=2)
        assert not listed(died, "chk-1").entries["shared/y"].written
        assert not list((died / ".cpreplicate").glob("copied-*"))
        found = verify(f"file:{died}", "chk-1", ALL, lambda _line: None, Side())
        assert (found.restorable, found.compared) == (True, len(FILES) + 2)
        write_checkpoint(tmp_path / "dcA", 4, FILES)
        run(tmp_path)
        assert not (died / "shared/z").exists()
        assert (died / "shared/y").read_bytes() == WRITTEN

    def test_so_it_is_if_the_next_run_drops_the_checkpoint(self, tmp_path, died):
        write_checkpoint(tmp_path / "dcA", 3, FILES)
        run(tmp_path)
        assert not (died / "shared/z").exists()
        assert (died / "shared/y").read_bytes() == WRITTEN


class Killed(BaseException):
    """The process is killed."""


class TestWhatWasReplaced:
    """What a record lists, and has another length by now, may be another program's."""

    def test_is_not_deleted_with_its_checkpoint(self, tmp_path, replica):
        path = place(replica, "shared/a", b"theirs")
        report = run(tmp_path)
        deleted = {action.target for action in report.plan.deletes}
        assert {"shared/b", "shared/c"} <= deleted
        assert "shared/a" not in deleted
        assert any("another length" in line and "shared/a" in line for line in report.warnings)
        assert path.read_bytes() == b"theirs"

    def test_nor_by_a_later_sweep(self, tmp_path, replica):
        path = place(replica, "shared/a", b"theirs")
        run(tmp_path)
        aged(replica)
        options = ExecutionOptions(runner="inline")
        found = sweep.sweep(
            sweep.SweepRequest(f"file:{replica}", 0, execution=options), lambda _line: None
        ).found
        assert "shared/a" in found.left
        assert path.read_bytes() == b"theirs"


class TestWhatIsOurs:
    """It is copied again, whatever is there."""

    def test_what_a_checkpoint_references_whose_manifest_was_lost(self, tmp_path, replica):
        (replica / ".cpreplicate/chk-1.parquet").unlink()
        run(tmp_path)
        assert is_whole(replica)
        for name in ("shared/a", "shared/b", "shared/c"):
            assert not (replica / name).exists(), "deleted, since it is recorded by the _metadata"

    def test_but_not_in_a_directory_that_was_adopted(self, tmp_path):
        write_checkpoint(tmp_path / "dcA", 1, FILES)
        mine = place(tmp_path / "dcB" / JOB, "shared/a", pattern("shared/a", 100))
        run(tmp_path, adopt=True)
        (tmp_path / "dcB" / JOB / ".cpreplicate/chk-1.parquet").unlink()
        write_checkpoint(tmp_path / "dcA", 2, NEXT)
        inode = mine.stat().st_ino
        run(tmp_path)
        assert mine.stat().st_ino == inode


class TestBesideTheReplicaOfAnEarlierJob:
    @pytest.mark.parametrize("packing", ["off", "on"])
    @pytest.mark.parametrize("adopt", [True, False])
    def test_files_that_were_there_are_kept(self, tmp_path, packing, adopt):
        write_checkpoint(tmp_path / "dcA", 1, EARLIER)
        run(tmp_path)
        put_restored(Side(), f"file:{tmp_path}/dcA", 2, {"shared/n": 70}, {})
        replica = tmp_path / "dcB" / NEXT_JOB
        if not adopt:  # another checkpoint makes it a replica
            run(tmp_path, NEXT_JOB)
        put_restored(Side(), f"file:{tmp_path}/dcA", 3, {"shared/m": 70}, EARLIER)
        copies = diff(request(tmp_path, NEXT_JOB)).plan.copies
        before = {}
        for action in copies[1:]:
            path = replica / action.target
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(str(action.source).removeprefix("file:"), path)
            before[path] = path.stat().st_ino
        report = run(tmp_path, NEXT_JOB, adopt=adopt, packing=PackOptions(packing, 1 << 20))
        assert {path: path.stat().st_ino for path in before} == before
        assert len(report.plan.copies) == 1
        assert is_whole(replica)
        assert run(tmp_path, NEXT_JOB).plan.empty
        put_restored(Side(), f"file:{tmp_path}/dcA", 4, {"shared/k": 70}, {})
        run(tmp_path, NEXT_JOB)
        assert {path: path.stat().st_ino for path in before} == before
