"""What a sync that changes one file asks an HDFS that is far away. Its trips: `make bench`."""

from __future__ import annotations

import errno
import json
import shutil
import threading
from dataclasses import replace
from typing import BinaryIO

import pytest

from cpreplicate.errors import CpreplicateError, LeaseHeld
from cpreplicate.operations.sync.report import Report
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.sync.sync import sync
from cpreplicate.operations.verify.verify import ALL, verify
from cpreplicate.protocol import lease, manifest, replica
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import Side, Sides, Transient
from cpreplicate.storage.wrappers.retry import Pauses, Retrying
from tests.support import parts
from tests.support.far import (
    CHANGED,
    FILES,
    SOURCE,
    TARGET,
    Call,
    FarHdfs,
    calls_of_sync,
    counted,
    replicate,
    stage,
    verified,
)
from tests.support.faults import Faulty
from tests.support.jobs import JOB, put_checkpoint
from tests.support.registry import serving
from tests.support.untimed import hold_threads, hold_time, hurry_heartbeats
from tests.support.waiting import PATIENCE, wait_until

REPLICA = f"{TARGET}/{JOB}"
OWN = f"{REPLICA}/.cpreplicate"
MOST_CALLS = 47
DEATHS = range(1, 72)  # of calls at the target and at the source, transfers included
NEXT = {**dict(list(CHANGED.items())[1:]), "shared/newer": 4000}


def silent(_line: str) -> None:
    pass


def began(calls: list[Call], path: str, name: str = "rename2") -> float:
    """Return when a file began to appear, or another call of it."""
    return min(call.began for call in calls if call.name == name and path in call.uri)


def ended(calls: list[Call], path: str, name: str = "rename2") -> float:
    """Return when a file had appeared, or another call of it had ended."""
    return max(call.ended for call in calls if call.name == name and path in call.uri)


@pytest.mark.parametrize("source", ["/chk-2", ""], ids=["checkpoint", "job"])
def test_the_calls_of_a_sync_that_changes_one_file(tmp_path, source, monkeypatch):
    hold_time(monkeypatch)
    calls = calls_of_sync(tmp_path, source)
    assert ended(calls, f"{OWN}/lease") < began(calls, "/copied-"), "nothing is changed before"
    assert ended(calls, "/copied-") < began(calls, "/shared/new"), "it is recorded before"
    committed = began(calls, "/chk-2/_metadata")
    assert ended(calls, "/shared/new") < began(calls, f"{REPLICA}/shared", "getListing") or (
        ended(calls, "/shared/new") < ended(calls, f"{REPLICA}/shared", "getListing") < committed
    ), "the copy is looked at before the commit"
    assert max(ended(calls, "/chk-2.json"), ended(calls, "/chk-2.parquet")) < committed
    withdrawn = "/.cpreplicate-tmp-withdrawn-"
    assert ended(calls, "/chk-2/_metadata") < began(calls, withdrawn), "after the commit"
    deleted = [call for call in calls if call.name == "delete"]
    assert ended(calls, withdrawn) < min(call.began for call in deleted)
    removed = ended(calls, "/shared/000", "delete")
    for recorded in ("/copied-", "/chk-1.parquet", "/chk-1.json"):
        assert removed < began(calls, recorded, "delete"), "what lists a file outlasts it"
        assert ended(calls, recorded, "delete") < began(calls, f"{OWN}/lease", "delete")
    count = counted(calls, "hdfs://b")
    assert count.total() <= MOST_CALLS, count


def test_no_copy_appears_whose_journal_could_not_be_written(tmp_path):
    far = FarHdfs(tmp_path)
    execution = ExecutionOptions(runner="inline")

    def full(_verb: str, uri: str) -> OSError | None:
        return OSError(errno.ENOSPC, "no space", uri) if "/copied-" in uri else None

    def replicate() -> None:
        source = f"hdfs://a/source/{JOB}"
        sync(SyncRequest(source, "hdfs://b/target", sides=Sides(), execution=execution), silent)

    with serving("hdfs", far):
        put_checkpoint(Side(), "hdfs://a/source", 1, FILES)
        replicate()
        put_checkpoint(Side(), "hdfs://a/source", 2, {**FILES, "shared/new": 9})
    far.calls.clear()
    with serving("hdfs", Faulty(far, full)), pytest.raises(OSError, match="no space"):
        replicate()
    assert not [call for call in far.calls if call.name == "rename2" and "lease" not in call.uri]
    with serving("hdfs", far):
        replicate()
        assert verify(f"hdfs://b/target/{JOB}", None, ALL, silent, Side()).checkpoint_id == 2


@pytest.fixture(scope="module")
def staged(tmp_path_factory):
    """A directory with a replica, and with a checkpoint that it lacks."""
    directory = tmp_path_factory.mktemp("staged")
    far = FarHdfs(directory)
    with serving("hdfs", Retrying(far, 60.0)):
        stage(far)
    return directory


def dying(far: FarHdfs, calls: int) -> None:
    """Let no call have an effect after so many of them, as if the process had died."""
    left, lock = calls, threading.Lock()

    def hook(_name: str, uri: str) -> None:
        nonlocal left
        with lock:
            left -= 1
        if left < 0:
            raise OSError(errno.EIO, "the process has died", uri)

    far.hook = hook


@pytest.mark.parametrize("calls", parts.cases(DEATHS, main=DEATHS[::3]))
def test_a_death_after_any_call_leaves_a_replica_that_the_next_syncs_complete(
    staged, tmp_path, monkeypatch, calls
):
    shutil.copytree(staged, tmp_path, dirs_exist_ok=True)
    far = FarHdfs(tmp_path)
    with serving("hdfs", Retrying(far, 60.0)):
        dying(far, calls)
        try:
            report = replicate()
        except (OSError, CpreplicateError):
            report = None
        assert report is None or report.committed or report.plan.empty
        far.hook = lambda _name, _uri: None
        found = verified()
        assert found.restorable
        assert report is None or found.checkpoint_id == 2, "what is reported was committed"
        monkeypatch.setattr(lease, "is_alive", lambda _holder: False)
        replicate()
        assert (verified().checkpoint_id, verified().restorable) == (2, True)
        assert replicate().plan.empty
        put_checkpoint(Side(), SOURCE, 3, NEXT)
        replicate()
        assert (verified().checkpoint_id, verified().restorable) == (3, True)
    there = tmp_path / "b/target" / JOB
    assert {path.name for path in there.iterdir()} == {".cpreplicate", "shared", "chk-3"}
    assert {f"shared/{path.name}" for path in (there / "shared").iterdir()} == set(NEXT)
    own = {path.name for path in (there / ".cpreplicate").iterdir()}
    of_dead_runs = (".cpreplicate-tmp-", "lease-", "late.json")
    own = {name for name in own if not name.startswith(of_dead_runs)}
    assert own == {"replica.json", "chk-3.json", "chk-3.parquet"}


def test_a_copy_that_is_made_twice_is_recorded_as_it_is_there(staged, tmp_path):
    shutil.copytree(staged, tmp_path, dirs_exist_ok=True)
    far, source = FarHdfs(tmp_path), tmp_path / "a/source" / JOB / "shared/new"
    tried = list[str]()

    def hook(name: str, uri: str) -> None:
        if (name, uri) == ("rename2", f"{REPLICA}/shared/new") and not tried:
            tried.append(uri)
            source.write_bytes(bytes(source.stat().st_size))
            raise Transient(errno.EIO, "try again", uri)

    far.hook = hook
    with serving("hdfs", Retrying(far, 60.0, Pauses(0.0, 0.0))):
        assert replicate().committed
        listed = manifest.read(Side().storage(REPLICA), REPLICA, "chk-2")
        assert verified().restorable
    assert tried
    assert (tmp_path / "b/target" / JOB / "shared/new").read_bytes() == source.read_bytes()
    assert listed is not None
    assert listed.entries["shared/new"].crc32c is not None


@pytest.mark.parametrize("is_read_for", ["ledger", "metadata"])
def test_a_manifest_that_another_run_wrote_before_the_lease_is_the_one_that_counts(
    staged, tmp_path, monkeypatch, is_read_for
):
    if is_read_for == "metadata":  # a large one is not decoded if it has a manifest
        monkeypatch.setattr(replica, "_MANIFEST_WORTH", 0)
    shutil.copytree(staged, tmp_path, dirs_exist_ok=True)
    far, plain = FarHdfs(tmp_path), FarHdfs(tmp_path)
    before = manifest.read(plain, REPLICA, "chk-1")
    assert before is not None
    entries = replace(before.entries, crcs=before.entries.crcs ^ 1)

    def is_read() -> bool:
        return any(call.uri.endswith("/chk-1.parquet") for call in far.calls)

    def hook(name: str, uri: str) -> None:
        if (name, uri) == ("rename2", f"{OWN}/lease"):
            wait_until(is_read, "the read of the manifest before the lease")
            manifest.write(plain, REPLICA, "chk-1", before._replace(entries=entries))

    far.hook = hook
    with serving("hdfs", Retrying(far, 60.0)):
        replicate()
    after = manifest.read(plain, REPLICA, "chk-2")
    assert after is not None
    assert after.entries["shared/001"].crc32c == entries["shared/001"].crc32c


def test_an_old_metadata_that_a_job_replaces_after_the_look_under_the_lease_stays(staged, tmp_path):
    shutil.copytree(staged, tmp_path, dirs_exist_ok=True)
    far, old = FarHdfs(tmp_path), tmp_path / "b/target" / JOB / "chk-1/_metadata"

    def hook(name: str, uri: str) -> None:
        if (name, uri) == ("rename2", f"{OWN}/chk-2.json"):
            old.write_bytes(b"of a job")

    far.hook = hook
    with serving("hdfs", Retrying(far, 60.0)):
        report = replicate()
    assert report.committed
    [warning] = report.warnings
    assert "chk-1/_metadata is not the one that cpreplicate wrote" in warning
    assert old.read_bytes() == b"of a job"
    assert (old.parent.parent / "shared/000").exists()


def test_a_lease_that_another_run_took_is_not_removed(staged, tmp_path, monkeypatch):
    now = hold_time(monkeypatch)
    shutil.copytree(staged, tmp_path, dirs_exist_ok=True)
    far, held = FarHdfs(tmp_path), tmp_path / "b/target" / JOB / ".cpreplicate/lease"

    def hook(name: str, uri: str) -> None:
        if name == "rename2" and "-withdrawn-" in uri:
            held.write_text(json.dumps({**json.loads(held.read_text()), "token": "another"}))
            now.pass_(2 * lease.JUST_CHECKED)

    far.hook = hook
    with serving("hdfs", Retrying(far, 60.0)):
        report = replicate()
    assert "another" in held.read_text()
    assert report.is_lease_lost


@pytest.mark.parametrize("name", ["chk-2.json", "chk-2.parquet"])
def test_without_its_record_or_manifest_no_checkpoint_is_committed(staged, tmp_path, name):
    shutil.copytree(staged, tmp_path, dirs_exist_ok=True)
    far = FarHdfs(tmp_path)

    def hook(call: str, uri: str) -> None:
        if (call, uri) == ("rename2", f"{OWN}/{name}"):
            raise OSError(errno.EIO, "cannot appear", uri)

    far.hook = hook
    with serving("hdfs", Retrying(far, 60.0)):
        with pytest.raises(OSError, match="cannot appear"):
            replicate()
        assert verified().checkpoint_id == 1
        far.hook = lambda _name, _uri: None
        assert replicate().committed


def test_a_manifest_that_a_run_which_died_left_alone_goes_with_the_next_commit(staged, tmp_path):
    shutil.copytree(staged, tmp_path, dirs_exist_ok=True)
    own = tmp_path / "b/target" / JOB / ".cpreplicate"
    shutil.copy2(own / "chk-1.parquet", own / "chk-0.parquet")
    with serving("hdfs", Retrying(FarHdfs(tmp_path), 60.0)):
        assert replicate().committed
    names = {path.name for path in own.iterdir()}
    assert names == {"replica.json", "chk-2.json", "chk-2.parquet"}


def test_an_answer_that_is_slow_outlasts_the_put_amid_which_it_was_asked(
    staged, tmp_path, monkeypatch
):
    hold_time(monkeypatch)  # else what was asked ahead is asked again, and the third look earlier
    shutil.copytree(staged, tmp_path, dirs_exist_ok=True)
    far, looks, committed = FarHdfs(tmp_path), list[str](), threading.Event()

    def hook(name: str, uri: str) -> None:
        if (name, uri) == ("getListing", REPLICA):
            looks.append(uri)
            if len(looks) == 3:  # before the withdrawals
                assert committed.wait(PATIENCE)
                raise Transient(errno.EIO, "try again", uri)

    def committing(_report: Report) -> None:
        committed.set()

    far.hook = hook
    execution = ExecutionOptions(runner="inline")
    request = SyncRequest(f"{SOURCE}/{JOB}", TARGET, sides=Sides(), execution=execution)
    with serving("hdfs", Retrying(far, 60.0, Pauses(0.0, 0.0))):
        report = sync(request, silent, committed=committing)
    assert report.committed
    assert not report.warnings
    assert not (tmp_path / "b/target" / JOB / "chk-1").exists()


@pytest.mark.parametrize("is_found_by_a_heartbeat", [False, True])
@pytest.mark.parametrize("fails", ["a copy", "the clean-up"])
def test_a_run_that_finds_its_lease_lost_leaves_that_of_the_other_run(
    staged, tmp_path, fails, is_found_by_a_heartbeat, monkeypatch
):
    if is_found_by_a_heartbeat:
        hurry_heartbeats(monkeypatch, 0.01)
    else:
        hold_threads(monkeypatch)
    shutil.copytree(staged, tmp_path, dirs_exist_ok=True)
    far, held = FarHdfs(tmp_path), tmp_path / "b/target" / JOB / ".cpreplicate/lease"
    place = {"a copy": f"{REPLICA}/shared/new", "the clean-up": f"{OWN}/.cpreplicate-tmp-withdrawn"}

    def hook(name: str, uri: str) -> None:
        if name == "rename2" and uri.startswith(place[fails]):
            held.write_text(json.dumps({**json.loads(held.read_text()), "token": "another"}))
            if is_found_by_a_heartbeat:
                wait_until(lambda: "lease" not in {each.name for each in threading.enumerate()})
            raise OSError(errno.EIO, "fails", uri)

    far.hook = hook
    with serving("hdfs", Retrying(far, 60.0)):
        if fails == "a copy":
            with pytest.raises(LeaseHeld):
                replicate()
        else:
            replicate()
    assert "another" in held.read_text()


def test_a_checkpoint_that_completes_between_two_questions_is_not_taken_for_subsumed(
    staged, tmp_path
):
    shutil.copytree(staged, tmp_path, dirs_exist_ok=True)
    far, place = FarHdfs(tmp_path), f"{SOURCE}/{JOB}/chk-2/_metadata"
    path = tmp_path / "a/source" / JOB / "chk-2/_metadata"
    content, read = path.read_bytes(), threading.Event()
    path.unlink()

    def hook(name: str, uri: str) -> None:
        if (name, uri) == ("getFileInfo", place) and not path.exists():
            assert read.wait(PATIENCE)
            path.write_bytes(content)

    def opened(uri: str) -> BinaryIO:
        try:
            return FarHdfs.open(far, uri)
        finally:
            if uri == place:
                read.set()

    far.hook, far.open = hook, opened  # type: ignore[method-assign]
    with serving("hdfs", Retrying(far, 60.0)):
        assert replicate().committed
        assert verified().checkpoint_id == 2
