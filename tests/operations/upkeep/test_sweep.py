"""Sweeping removes orphans, and nothing else; where it cannot be sure it refuses."""

import os
import shutil
from dataclasses import replace

import pytest

from cpreplicate.core.placement import is_replica_path
from cpreplicate.core.plan import Cap
from cpreplicate.errors import LeaseHeld, NotThere, Refused, TooManyDeletes
from cpreplicate.operations.upkeep import sweep
from cpreplicate.operations.upkeep.sweep import SweepRequest
from cpreplicate.protocol import lease
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import Side
from cpreplicate.storage.backends.local.local import LocalStorage
from cpreplicate.storage.wrappers.base import StorageWrapper
from tests.support import checker, commandline
from tests.support.faults import Faulty
from tests.support.jobs import write_checkpoint
from tests.support.registry import serving
from tests.support.replicas import FILES, NEXT, aged, paths, planned, recorded, sealed, synced


@pytest.fixture
def replica(tmp_path):
    return synced(tmp_path, {1: FILES})


def request_of(replica, **options):
    return SweepRequest(f"file:{replica}", execution=ExecutionOptions(runner="inline"), **options)


def run(replica, **options):
    return sweep.sweep(request_of(replica, **options), lambda _line: None)


def orphan(replica, name, text="an orphan"):
    path = replica / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    if is_replica_path(name):
        recorded(replica, name)
    return aged(path)


def without_journals(found):
    return {path for path in found if "/copied-" not in path}


LITTER = [
    "shared/orphan",
    "shared/sub/orphan",
    "taskowned/orphan",
    "foreign/0-orphan",
    "chk-1/orphan",
    "chk-7/orphan",
    "shared/.cpreplicate-tmp-1",
    "chk-1/.cpreplicate-tmp-2",
    ".cpreplicate/.cpreplicate-tmp-3",
    ".cpreplicate/trash/20250101T000000Z/.cpreplicate-tmp-4",
    ".cpreplicate/chk-7.parquet",
    ".cpreplicate/chk-7.json",
    ".cpreplicate/chk-7.fingerprints",
    ".cpreplicate/lease-0123",
    ".cpreplicate/lease-45.heartbeat",
    ".cpreplicate/before-relocate/chk-1",
]


def test_what_dead_runs_leave_is_removed_and_nothing_else(replica):
    orphan(replica, ".cpreplicate/chk-1.fingerprints")  # of a checkpoint that is there
    before = paths(replica)
    for name in LITTER:
        orphan(replica, name)
    found = run(replica, max_delete=Cap(1, is_share=True))
    assert without_journals({each.target for each in found.deletes}) == set(LITTER)
    assert paths(replica) == before
    assert not (replica / "chk-7").exists()
    assert not (replica / "shared" / "sub").exists()
    assert checker.faults(replica) == []
    assert run(replica).deletes == ()


@pytest.mark.parametrize("data", ["theirs", "of any content"])
def test_what_a_dead_run_only_planned_stays_and_is_reported(replica, data):
    stray = replica / "shared" / "planned"
    stray.write_text(data)
    planned(replica, "shared/planned")
    aged(stray)
    for found in (run(replica), run(replica)):
        assert found.deletes == ()
        assert found.found.left["shared/planned"] == (
            "a run that died was about to write it, and nothing proves that it did"
        )
    assert stray.read_text() == data
    stray.unlink()
    assert [each.reason for each in run(replica).deletes] == ["journal of a run that is over"]


def test_what_a_dead_run_wrote_and_another_program_replaced_stays_and_is_reported(replica):
    path = orphan(replica, "shared/orphan")
    path.write_text("of another program")
    aged(path)
    found = run(replica)
    assert found.deletes == ()
    assert found.found.left["shared/orphan"] == "it has another length than cpreplicate wrote"
    assert path.read_text() == "of another program"


def test_a_dry_run_reports_the_same_and_changes_nothing(replica):
    for name in LITTER:
        orphan(replica, name)
    before = paths(replica)
    checked = sweep.check(request_of(replica, max_delete=Cap(1, is_share=True)))
    assert paths(replica) == before
    assert checked.deletes == run(replica, max_delete=Cap(1, is_share=True)).deletes


def test_what_is_young_unrecorded_or_a_link_is_left_with_a_reason(replica, tmp_path):
    (replica / "shared" / "young").write_text("of a run that is at work")
    recorded(replica, "shared/young")
    aged(replica / "shared" / "a").with_name("older").write_text(
        "of somebody else, before the checkpoint"
    )
    aged(replica / "shared" / "older")
    orphan(replica, "README")
    orphan(replica, "notes/mine")
    outside = orphan(tmp_path, "elsewhere/precious")
    (replica / "shared" / "link").symlink_to(outside)
    (replica / "linked").symlink_to(outside.parent)
    found = run(replica)
    assert found.deletes == ()
    assert found.found.left == {
        "shared/young": "younger than --min-age",
        "shared/older": "not recorded as written by cpreplicate",
        "README": "not recorded as written by cpreplicate",
        "notes": "not recorded as written by cpreplicate",
        "shared/link": "a symbolic link",
        "linked": "a symbolic link",
    }
    assert outside.read_text() == "an orphan"


def test_half_written_files_are_removed_and_not_counted_as_left(replica):
    orphan(replica, "shared/.cpreplicate-tmp-1")
    orphan(replica, ".cpreplicate-tmp-2")
    found = run(replica)
    assert len(found.deletes) == 2
    assert found.found.left == {}


def test_a_dry_run_ends_as_a_sweep_that_another_run_keeps_from_the_replica(replica):
    with lease.acquire(f"file:{replica}", Side()):
        assert commandline.run("sweep", "--dry-run", replica).code == LeaseHeld.exit_code
        assert commandline.run("sweep", "--dry-run", "--lock-wait", "1m", replica).code == 0


def test_a_newer_file_that_cpreplicate_did_not_write_is_refused(replica):
    """A job that was started from the replica uploads its first checkpoint."""
    orphan(replica, "shared/orphan")
    (replica / "shared" / "upload").write_text("in flight")
    before = paths(replica)
    with pytest.raises(
        Refused, match=r"1 file that cpreplicate did not write: a job may write .* shared/upload"
    ):
        run(replica)
    assert paths(replica) == before


def test_a_checkpoint_that_cpreplicate_did_not_write_is_refused(replica, tmp_path):
    orphan(replica, "shared/orphan")
    write_checkpoint(tmp_path / "dcB", 9, {"shared/of-the-job": 5})
    before = paths(replica)
    with pytest.raises(Refused, match="chk-9/_metadata was not written by cpreplicate"):
        run(replica)
    assert paths(replica) == before


def test_more_than_half_is_refused_and_reported(replica):
    for number in range(len(FILES) + 2):
        orphan(replica, f"shared/orphan-{number}")
    before = paths(replica)
    with pytest.raises(TooManyDeletes, match="11 of 21 files") as refused:
        run(replica)
    assert paths(replica) == before
    report = refused.value.report
    assert isinstance(report, sweep.Sweep)
    assert len(without_journals({action.target for action in report.deletes})) == 11
    assert (
        len(without_journals({each.target for each in run(replica, max_delete=Cap(11)).deletes}))
        == 11
    )


def test_files_that_only_a_kept_checkpoint_needs_stay(tmp_path):
    replica = synced(tmp_path, {1: FILES, 2: NEXT}, keep=2)
    assert run(replica, min_age=-1).deletes == ()
    (replica / "chk-1" / "_metadata").unlink()
    removed = {each.target for each in run(replica, min_age=-1).deletes}
    own = {".cpreplicate/chk-1.parquet", ".cpreplicate/chk-1.json"}
    assert removed == {path for path in FILES if path not in NEXT} | own
    assert checker.faults(replica) == []


@pytest.mark.parametrize("damage", [b"", b"nonsense", None])
def test_a_damaged_metadata_is_refused(tmp_path, damage):
    replica = synced(tmp_path, {1: FILES, 2: NEXT}, keep=2)
    metadata = replica / "chk-1" / "_metadata"
    metadata.write_bytes(metadata.read_bytes()[:-200] if damage is None else damage)
    before = paths(replica)
    with pytest.raises(Refused, match="or the file was damaged"):
        run(replica, min_age=-1)
    assert paths(replica) == before


def test_where_nothing_is_referenced_nothing_is_removed(replica):
    aged(replica)
    (replica / "chk-1" / "_metadata").unlink()
    before = paths(replica)
    with pytest.raises(Refused, match="all would be orphans"):
        run(replica, max_delete=Cap(1, is_share=True))
    assert paths(replica) == before


def test_a_replica_that_was_moved_is_refused(tmp_path):
    replica = synced(tmp_path, {1: FILES}, paths="absolute")
    moved = replica.rename(tmp_path / "moved")
    aged(moved)
    before = paths(moved)
    with pytest.raises(Refused, match="relocate"):
        run(moved)
    assert paths(moved) == before


def test_nothing_is_swept_through_a_link(replica, tmp_path):
    (replica / "shared").rename(tmp_path / "elsewhere")
    (replica / "shared").symlink_to(tmp_path / "elsewhere")
    orphan(tmp_path, "elsewhere/precious")
    with pytest.raises(Refused, match="shared is a symbolic link"):
        run(replica, max_delete=Cap(1, is_share=True))
    assert (tmp_path / "elsewhere" / "precious").exists()


def test_a_lease_that_is_held_ends_a_sweep(replica):
    orphan(replica, "shared/orphan")
    with lease.acquire(f"file:{replica}", Side()), pytest.raises(LeaseHeld, match="is held by"):
        run(replica)
    assert (replica / "shared" / "orphan").exists()


def test_a_sealed_replica_is_refused(replica):
    orphan(replica, "shared/orphan")
    sealed(replica, "chk-1")
    with pytest.raises(Refused, match="sealed by"):
        run(replica)
    assert (replica / "shared" / "orphan").exists()


def test_nothing_is_written_where_no_replica_is(tmp_path):
    with pytest.raises(NotThere):
        run(tmp_path / "none")
    assert list(tmp_path.iterdir()) == []


def test_the_trash_keeps_orphans_until_it_is_emptied(replica):
    before = paths(replica)
    orphan(replica, "shared/orphan", "needed after all")
    done = run(replica, trash=True)
    trash = replica / done.trash.removeprefix(f"file:{replica}/")
    moved, original = (trash / "contents.tsv").read_text().strip().split("\t")
    assert original == "shared/orphan"
    assert (trash / moved).read_text() == "needed after all"
    assert run(replica, empty_trash=True).deletes == ()
    shutil.move(trash, trash.with_name("20200101T000000Z"))
    assert run(replica).deletes == ()
    assert len(run(replica, empty_trash=True).deletes) == 2
    assert paths(replica) == before
    assert not (replica / ".cpreplicate" / "trash").exists()


def test_the_manifest_of_a_dropped_checkpoint_stays_until_its_files_are_gone(tmp_path):
    """It is the record that they are cpreplicate's."""
    replica = synced(tmp_path, {1: FILES})
    synced(tmp_path, {2: NEXT}, async_deletes=True)
    full = Faulty(
        Side().storage("file:/"),
        lambda verb, uri: OSError("busy") if (verb, uri[-9:]) == ("delete", "/shared/a") else None,
    )
    aged(replica)
    with serving("file", full):
        assert run(replica, max_delete=Cap(1, is_share=True)).warnings
    done = run(replica, max_delete=Cap(1, is_share=True))
    assert "shared/a" in {each.target for each in done.deletes}
    assert not (replica / "shared" / "a").exists()
    assert sorted(each.name for each in (replica / ".cpreplicate").iterdir()) == [
        "chk-2.json",
        "chk-2.parquet",
        "lease-room",
        "replica.json",
    ]


def test_deletes_that_were_put_off_twice_are_swept(tmp_path):
    replica = synced(tmp_path, {1: FILES})
    synced(tmp_path, {2: NEXT}, async_deletes=True)
    synced(tmp_path, {3: {"shared/z": 5}})
    aged(replica)
    run(replica, max_delete=Cap(1, is_share=True))
    assert {path for path in paths(replica) if not path.startswith(".cpreplicate")} == {
        "chk-3/_metadata",
        "shared/z",
    }


def test_what_cannot_be_removed_is_a_warning(replica, monkeypatch):
    orphan(replica, "shared/orphan")
    real = os.unlink

    def unlink(path, **options):
        if str(path).endswith("orphan"):
            raise PermissionError(13, "permission denied", path)
        real(path, **options)

    monkeypatch.setattr(os, "unlink", unlink)
    done = run(replica)
    assert len(done.warnings) == 1
    assert "shared/orphan" in done.warnings[0]


def test_the_runner_asked_for_removes(replica):
    orphan(replica, "shared/orphan")
    done = sweep.sweep(
        replace(request_of(replica), execution=ExecutionOptions()), lambda _line: None
    )
    assert done.runner == "inline"
    assert not (replica / "shared" / "orphan").exists()


def test_directories_that_held_only_orphans_are_removed_and_those_of_every_replica_stay(replica):
    orphan(replica, "shared/sub/deep/orphan")
    orphan(replica, "chk-7/orphan")
    orphan(replica, "taskowned/orphan")
    run(replica, max_delete=Cap(1, is_share=True))
    assert not (replica / "shared" / "sub").exists()
    assert not (replica / "chk-7").exists()
    assert (replica / "taskowned").is_dir()


def test_each_orphan_has_its_reason(replica):
    orphan(replica, "shared/orphan")
    orphan(replica, "shared/.cpreplicate-tmp-1")
    orphan(replica, ".cpreplicate/chk-7.parquet")
    found = sweep.check(request_of(replica)).found
    reasons = {action.target: action.reason for action in found.orphans}
    assert reasons["shared/orphan"] == "no committed checkpoint references it"
    assert reasons["shared/.cpreplicate-tmp-1"] == "half-written, left by a run that died"
    assert reasons[".cpreplicate/chk-7.parquet"] == "manifest of a checkpoint that is not committed"


class Timeless(StorageWrapper):
    """A storage that does not know when an orphan was modified."""

    def listing(self, uri):
        listed = super().listing(uri)
        for row, name in enumerate(listed.names):
            if name == "orphan":
                listed.modified[row] = 0.0
        return listed


def test_an_orphan_of_unknown_age_is_left_with_a_reason(replica):
    orphan(replica, "shared/orphan")
    with serving("file", Timeless(LocalStorage())):
        found = sweep.check(request_of(replica)).found
    assert found.left["shared/orphan"] == "its age is not known"
    assert "shared/orphan" not in {action.target for action in found.orphans}
