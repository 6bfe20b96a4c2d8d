"""`doctor` on local directories, with each fault made on purpose."""

import errno
import json
import os
import tempfile
from pathlib import Path

import pytest

from cpreplicate.operations.doctor import Configured, diagnose
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.protocol.lease import acquire
from cpreplicate.storage import Side
from cpreplicate.storage.backends.local.local import LocalStorage
from tests.support.commandline import run
from tests.support.doctor import examined, parsed, tree
from tests.support.faults import Faulty
from tests.support.jobs import JOB, write_checkpoint
from tests.support.registry import serving
from tests.support.smallfs import CLI, in_small_filesystem

FILES = {"shared/a": 100, "shared/b": 3000}
OTHER_USER = 54321


@pytest.fixture
def source(tmp_path):
    write_checkpoint(tmp_path / "dcA", 1, FILES)
    return tmp_path / "dcA" / JOB


@pytest.fixture
def target(tmp_path):
    return tmp_path / "dcB"


def test_every_check_of_a_sync_that_could_run_is_ok_and_nothing_is_left(source, target, tmp_path):
    before = tree(tmp_path)
    found = examined(source, target)
    assert found.code == 0
    assert found.names("failed") == found.names("warning") == []
    assert found.names("skipped") == ["spark", "executors"]
    assert "copies 2 files, 3.0 KiB" in found.text("plan")
    assert tree(tmp_path) == before
    assert run("sync", source, target, "--runner", "inline").code == 0


@pytest.mark.parametrize(("data", "code"), [(b"other", 6), (bytes(3000), 0)])
def test_a_file_of_another_program_at_the_path_of_a_copy(source, target, data, code):
    run("sync", source, target, "--runner", "inline")
    write_checkpoint(source.parent, 2, {**FILES, "shared/c": 3000})
    (target / JOB / "shared" / "c").write_bytes(data)
    found = examined(source, target)
    assert found.code == code
    assert "It is shared/c" in found.text("plan")


def test_a_replica_that_is_current_is_not_changed(source, target):
    run("sync", source, target, "--runner", "inline")
    before = {path: facts[:2] for path, facts in tree(target).items()}
    found = examined(source, target)
    assert found.code == 0
    assert "nothing to do" in found.text("plan")
    # where a sync would write, not beside it
    assert f"below file:{target}/{JOB}/.cpreplicate" in found.text("target write")
    assert {path: facts[:2] for path, facts in tree(target).items()} == before


def test_the_text_has_a_line_for_each_check_with_its_remedy(source, target):
    ended = run("doctor", source.parent / "other", target)
    assert ended.code == 10
    lines = ended.out.splitlines()
    failed = [line for line in lines if line.startswith("failed ")]
    assert len(failed) == 1
    assert failed[0].split(None, 3)[1:3] == ["source", "checkpoint"]
    assert "SOURCE is a checkpoint" in failed[0]
    assert lines[-1].startswith("a sync would end with exit code 10 (")


def test_ndjson_is_an_object_for_each_check(source, target):
    lines = run("doctor", source, target, "--output", "ndjson").out.splitlines()
    fields = {"check", "status", "message", "remedy", "exit_code"}
    assert all(set(json.loads(line)) == fields for line in lines)
    assert len(lines) == 21


def test_without_a_source_the_target_is_examined_all_the_same(target, tmp_path):
    found = examined(tmp_path / "nowhere", target)
    assert found.code == 10
    assert found.names("failed") == ["source checkpoint"]
    assert found.status("target write") == found.status("target space") == "ok"
    assert "which failed" in found.text("plan")


def test_a_checkpoint_that_lacks_a_file_fails(source, target):
    for file in (source / "shared").iterdir():
        file.unlink()
    found = examined(source, target)
    assert found.code == 10
    assert found.names("failed") == ["plan", "source files"]
    assert found.status("target write") == "ok"


def test_a_checkpoint_that_lacks_one_of_many_files_fails_and_the_file_is_named(source, target):
    (source / "shared" / "b").unlink()
    found = examined(source, target)
    assert (found.code, found.names("failed")) == (10, ["plan"])
    assert f"Missing: file:{source}/shared/b" in found.text("plan")


def test_a_file_that_the_replica_holds_already_is_not_looked_for(source, target, tmp_path):
    run("sync", source, target, "--runner", "inline")
    write_checkpoint(tmp_path / "dcA", 2, {**FILES, "shared/new": 10})
    for name in FILES:
        (source / name).unlink()
    found = examined(source, target)
    assert (found.code, found.names("failed")) == (0, [])
    assert found.text("source files").startswith(f"file:{source}/shared/new can be read")


def test_a_file_that_may_not_be_read_fails_with_the_code_of_copies():
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        root.chmod(0o755)
        write_checkpoint(root / "dcA", 1, FILES)
        (root / "dcB").mkdir()
        (root / "dcB").chmod(0o777)
        (root / "dcA" / JOB / "shared" / "a").chmod(0)
        found = _as_another_user(root / "dcA" / JOB, root / "dcB")
    assert (found.code, found.names("failed")) == (3, ["source files"])


def test_a_sample_of_the_files_is_a_warning_that_names_what_was_looked_at(tmp_path, target):
    write_checkpoint(tmp_path / "dcA", 1, {f"shared/{number}/x": 1 for number in range(100)})
    found = examined(tmp_path / "dcA" / JOB, target)
    assert (found.code, found.names("warning")) == (0, ["plan"])
    assert "only 64 of the 100 files to be copied were looked for" in found.text("plan")
    assert found.status("runner") == "ok"


def test_a_lease_that_is_held_is_no_failure_if_there_is_nothing_to_do(source, target):
    run("sync", source, target, "--runner", "inline")
    with acquire(f"file:{target}/{JOB}", Side()):
        found = examined(source, target)
        assert (found.code, found.names("failed")) == (0, [])
        assert "not needed, since there is nothing to do" in found.text("lease")


def test_a_damaged_metadata_fails_with_its_code(source, target):
    (source / "chk-1" / "_metadata").write_bytes(b"damaged")
    assert examined(source, target).code == 5


def test_the_metadata_of_a_damaged_checkpoint_names_its_job(source, target):
    (source / "chk-1" / "_metadata").write_bytes(b"damaged")
    found = examined(source / "chk-1" / "_metadata", target)
    assert (found.code, found.text("places")) == (5, f"the replica is file:{target}/{JOB}. ")


def test_a_checkpoint_of_others_in_the_replica_fails_and_is_named(source, target):
    run("sync", source, target, "--runner", "inline")
    write_checkpoint(target, 12, {"shared/of-b": 5})
    found = examined(source, target)
    assert (found.code, found.names("failed")) == (6, ["plan"])
    assert f"{target}/{JOB}/chk-12/_metadata was not written by" in found.text("plan")


def test_an_unknown_scheme_fails_with_its_code(source):
    found = examined(source, "nfs://host/replicas")
    assert found.code == 2
    assert found.names("failed") == ["target conf"]
    assert "not supported" in found.text("target conf")


def test_a_file_in_the_place_of_the_target_root_fails(source, target):
    target.write_text("a file")
    found = examined(source, target)
    assert (found.code, found.names("failed")) == (6, ["places"])
    assert f"file:{target} is a file" in found.text("places")
    assert target.read_text() == "a file"


def test_a_file_above_the_target_root_fails(source, target):
    target.write_text("a file")
    found = examined(source, target / "replicas")
    assert (found.code, found.names("failed")) == (6, ["places"])
    assert target.read_text() == "a file"


def test_a_directory_that_must_not_be_written_fails_with_the_remedy():
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        root.chmod(0o755)
        write_checkpoint(root / "dcA", 1, FILES)
        (root / "dcB").mkdir(mode=0o555)
        found = _as_another_user(root / "dcA" / JOB, root / "dcB")
        assert list((root / "dcB").iterdir()) == []
    assert found.code == 1
    assert found.names("failed") == ["target write"]
    assert "Grant the user" in found.text("target write")
    assert found.status("target clock") == "skipped"


def _as_another_user(source, target):
    if os.geteuid() != 0:
        return examined(source, target)
    os.seteuid(OTHER_USER)
    try:
        return examined(source, target)
    finally:
        os.seteuid(0)


def _in_a_small_filesystem(source, target, script):
    """Run `doctor` where TARGET_ROOT is a tmpfs of 256 KiB, in a mount namespace of its own."""
    doctor = f"{script}; exec {CLI} doctor {source} {target} --output json"
    done = in_small_filesystem(target, doctor)
    return parsed(done.returncode, done.stdout)


def test_too_little_space_for_the_plan_fails(tmp_path, target):
    write_checkpoint(tmp_path / "dcA", 1, {"shared/a": 1 << 20})
    found = _in_a_small_filesystem(tmp_path / "dcA" / JOB, target, "true")
    assert found.code == 3
    assert found.names("failed") == ["target space"]
    assert "leaves 256.0 KiB" in found.text("target space")
    assert "2 files" not in found.text("target space")
    assert "1.0 MiB" in found.text("target space")


def test_a_full_filesystem_fails(source, target):
    fill = f"dd if=/dev/zero of={target}/full bs=1k 2>/dev/null"
    found = _in_a_small_filesystem(source, target, fill)
    assert found.names("failed") == ["target write", "target space"]
    assert "Free space" in found.text("target write")


def test_a_sealed_replica_fails_and_the_target_is_examined_beside_it(source, target):
    run("sync", source, target, "--runner", "inline")
    run("promote", target / JOB)
    before = tree(target / JOB)
    found = examined(source, target)
    assert found.code == 6
    assert found.names("failed") == ["plan"]
    assert "unseal" in found.checks["plan"]["remedy"]
    assert found.status("target write") == "ok"
    assert tree(target / JOB) == before


def test_a_directory_of_another_program_fails(source, target):
    write_checkpoint(target, 7, FILES)
    before = tree(target / JOB)
    found = examined(source, target)
    assert found.code == 6
    assert found.names("failed") == ["plan"]
    assert "--adopt" in found.text("plan")
    assert tree(target / JOB) == before
    assert examined(source, target, "--adopt").code == 0


def test_more_deletes_than_allowed_fail(source, target, tmp_path):
    run("sync", source, target, "--runner", "inline")
    write_checkpoint(tmp_path / "dcA", 2, {"shared/new": 10})
    found = examined(source, target, "--max-delete", "0")
    assert (found.code, found.names("failed")) == (6, ["plan"])


def test_a_lease_that_is_held_fails_unless_the_sync_would_wait_for_it(source, target):
    with acquire(f"file:{target}/{JOB}", Side()):
        found = examined(source, target)
        assert found.code == 11
        assert found.names("failed") == ["lease"]
        assert f"process {os.getpid()}" in found.text("lease")
        patient = examined(source, target, "--lock-wait", "1m")
        assert patient.code == 0
        assert patient.names("warning") == ["lease"]


def test_a_source_that_is_its_own_target_fails_and_is_not_written(source, tmp_path):
    before = tree(tmp_path)
    found = examined(source, source.parent)
    assert found.code == 6
    assert found.names("failed") == ["places"]
    assert found.status("target write") == "skipped"
    assert tree(tmp_path) == before


@pytest.mark.parametrize("checkpoint", ["", "chk-9"])
def test_a_target_in_a_source_without_a_checkpoint_is_not_written(tmp_path, checkpoint):
    job = tmp_path / "dcA" / JOB
    (job / "shared").mkdir(parents=True)
    before = tree(tmp_path)
    for target in (job, job / "shared", job.parent):
        found = examined(job / checkpoint, target)
        assert found.status("places") == "failed", target
        assert found.status("target write") == "skipped"
        assert tree(tmp_path) == before


def test_a_link_to_the_source_is_noticed(source, tmp_path):
    (tmp_path / "link").symlink_to(source.parent)
    before = tree(tmp_path)
    assert examined(source, tmp_path / "link").code == 6
    assert tree(tmp_path) == before


def test_a_replica_as_target_root_fails(source, target):
    run("sync", source, target, "--runner", "inline")
    before = tree(target)
    found = examined(source, target / JOB)
    assert found.code == 2
    assert found.status("target write") == "skipped"
    assert tree(target) == before


@pytest.mark.parametrize("verb", ["list", "put", "open", "create_exclusive", "delete"])
def test_the_directory_of_the_check_is_removed_whichever_step_fails(source, target, verb):
    left = 1  # the first call in the directory of the check fails

    def fault(called, uri):
        nonlocal left
        is_step = called == verb and (".cpreplicate-doctor" in uri or called == "list")
        if not (is_step and str(target) in uri and left):
            return None
        left -= 1
        return PermissionError(errno.EACCES, "denied", uri)

    target.mkdir()
    before = tree(target)
    with serving("file", Faulty(LocalStorage(), fault)):
        found = examined(source, target)
    assert left == 0
    assert found.names("failed")
    assert {path: facts[:2] for path, facts in tree(target).items()} == {
        path: facts[:2] for path, facts in before.items()
    }


def test_the_directory_of_the_check_is_removed_after_an_interrupt(source, target):
    def interrupt(verb, uri):
        if verb == "open" and ".cpreplicate-doctor" in uri:
            raise KeyboardInterrupt
        return

    request = SyncRequest(f"file:{source}", f"file:{target}")
    with serving("file", Faulty(LocalStorage(), interrupt)), pytest.raises(KeyboardInterrupt):
        diagnose(request, Configured())
    assert not target.exists()


class _NotExclusive(LocalStorage):
    def create_exclusive(self, uri, data):
        self.put(uri, lambda: [data])
        return True


def test_a_storage_on_which_two_runs_could_hold_the_lease_fails(source, target):
    with serving("file", _NotExclusive()):
        found = examined(source, target)
    assert found.names("failed") == ["target write"]
    assert "exclusively" in found.text("target write")


def test_a_directory_that_cannot_be_removed_is_a_warning_that_names_it(source, target):
    def fault(verb, uri):
        is_removal = verb == "rmdir" and "doctor" in uri
        return PermissionError(errno.EACCES, "denied", uri) if is_removal else None

    with serving("file", Faulty(LocalStorage(), fault)):
        found = examined(source, target)
    assert found.names("warning") == ["target write"]
    (left,) = target.iterdir()
    assert str(left) in found.text("target write")


def test_a_checkpoint_of_the_future_is_a_warning(source, target):
    os.utime(source / "chk-1" / "_metadata", (2**32, 2**32))
    found = examined(source, target)
    assert found.code == 0
    assert found.names("warning") == ["source clock"]
    assert "NTP" in found.text("source clock")


class TestJava:
    @pytest.fixture
    def java(self, tmp_path, monkeypatch):
        """A directory that is all of PATH."""
        directory = tmp_path / "bin"
        directory.mkdir()
        monkeypatch.setenv("PATH", str(directory))
        monkeypatch.delenv("JAVA_HOME", raising=False)
        return directory / "java"

    @pytest.mark.usefixtures("java")
    def test_is_missing_where_spark_was_asked_for(self, source, target):
        found = examined(source, target, "--runner", "spark")
        assert found.code == 1
        assert found.names("failed") == ["java"]
        assert found.status("spark") == "skipped"
        assert "JAVA_HOME" in found.text("java")

    @pytest.mark.usefixtures("java")
    def test_is_missing_where_a_small_sync_does_not_need_it(self, source, target):
        found = examined(source, target)
        assert found.code == 0
        assert found.names("warning") == ["java"]

    @pytest.mark.usefixtures("java")
    def test_is_not_looked_for_with_threads(self, source, target):
        assert examined(source, target, "--runner", "inline").status("java") == "ok"

    @pytest.mark.parametrize("version", ["1.8.0_292", "11.0.2"])
    def test_is_too_old(self, source, target, java, version):
        java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
        java.chmod(0o755)
        found = examined(source, target, "--runner", "spark")
        assert found.names("failed") == ["java"]
        assert "needs Java 17" in found.text("java")

    def test_of_version_8_suffices_for_spark_3(self, source, target, java, tmp_path, monkeypatch):
        java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_292\"' >&2\n")
        java.chmod(0o755)
        described = tmp_path / "installed" / "pyspark-3.5.9.dist-info" / "METADATA"
        described.parent.mkdir(parents=True)
        described.write_text("Metadata-Version: 2.1\nName: pyspark\nVersion: 3.5.9\n")
        monkeypatch.syspath_prepend(tmp_path / "installed")
        found = examined(source, target)
        assert found.status("java") == "ok"
        assert "Java 8" in found.text("java")

    def test_does_not_run(self, source, target, java):
        java.write_text("#!/bin/sh\nexit 1\n")
        java.chmod(0o755)
        assert examined(source, target, "--runner", "spark").names("failed") == ["java"]

    @pytest.mark.usefixtures("java")
    def test_is_missing_for_hadoops_client(self, source):
        found = examined(source, "hdfs://localhost:1/x", "--hdfs-client", "hadoop")
        assert found.code == 2
        assert found.names("failed") == ["target client"]
