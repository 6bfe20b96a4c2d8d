"""A command that fails under `--output json` prints an object to stdout as well."""

import json
import os
import signal
import subprocess
import sys
import threading

import pytest

from cpreplicate.errors import described
from tests.support.commandline import printed
from tests.support.jobs import JOB, write_checkpoint
from tests.support.replicas import FILES, aged, recorded, synced
from tests.support.waiting import PATIENCE


def error_of(ended):
    """The object of a failure, which is the last line."""
    found = json.loads(ended.stdout.splitlines()[-1])
    assert set(found) == {"schema", "started", "finished", "error", "exit_code"}
    assert found["exit_code"] == ended.returncode
    assert ended.stderr.splitlines()[-1] == f"cpreplicate: error: {found['error']}"
    return found


@pytest.mark.parametrize("form", ["json", "ndjson"])
@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["inspect", "dcA/nothing"], 10),
        (["verify", "dcB/nothing"], 10),
        (["diff", "dcA"], 2),
        (["diff", "dcA", "dcB", "--unknown"], 2),
        (["promote", "dcB", "--checkpoint", "chk-1", "--as-of", "2026-11-24T03:00Z"], 2),
        (["sync", "dcA/nothing", "dcB", "--log-file", "absent/run.log"], 2),
        (["list", "."], 10),
    ],
)
def test_an_error_is_an_object_on_stdout_and_a_line_on_stderr(tmp_path, form, words, code):
    ended = printed(*words, "--output", form, cwd=tmp_path)
    assert len(ended.stdout.splitlines()) == 1
    assert error_of(ended)["exit_code"] == code


def test_the_form_is_taken_from_wherever_it_is_set(tmp_path):
    config = tmp_path / "config.toml"
    config.write_text('[options]\noutput = "json"\n')
    words = ("inspect", "dcA/nothing")
    error_of(printed(*words, cwd=tmp_path, CPREPLICATE_INSPECT_OUTPUT="json"))
    error_of(printed(*words, "--nope", cwd=tmp_path, CPREPLICATE_INSPECT_OUTPUT="json"))
    error_of(printed("--config", config, *words, cwd=tmp_path))
    error_of(printed("--config", config, *words, "--nope", cwd=tmp_path))
    error_of(printed(*words, "--nope", "--output=ndjson", cwd=tmp_path))


@pytest.mark.parametrize("form", ["json", "ndjson"])
@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["list", ""], 2),
        (["list", "foo:rel"], 2),
        (["list", "file:/../../x"], 2),
        (["list", "--hdfs-client", "hdfs3", "dcB"], 2),
        (["sync", "dcA", "dcB", "--bandwidth", "9" * 400], 2),
        (["lst", "dcB"], 2),
        (["--nosuch", "list", "dcB"], 2),
        (["--config", "mistake.toml", "list", "dcB"], 2),
        (["list", "dcB", "--config", "mistake.toml"], 2),
        (["--config", "absent.toml", "list", "dcB"], 2),
    ],
)
def test_a_failure_before_the_command_begins_is_an_object_too(tmp_path, form, words, code):
    (tmp_path / "mistake.toml").write_text("[sync]\nkepp = 3\n")
    ended = printed(*words, "--output", form, cwd=tmp_path)
    assert len(ended.stdout.splitlines()) == 1
    assert error_of(ended)["exit_code"] == code


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ('[options]\noutput = "json"\nkepp = 3\n', ["list", "dcB"]),
        ('[options]\noutput = "json"\nkepp = 3\n', ["list", ""]),
        ('[list]\noutput = "json"\n[options]\noutput = "text"\nkepp = 3\n', ["list", "dcB"]),
        ('[options]\noutput = "json"\n', ["list", "foo:rel"]),
        ('[options]\noutput = "json"\n', ["lst", "dcB"]),
    ],
)
def test_the_form_of_such_a_failure_is_that_of_the_file(tmp_path, file, words):
    (tmp_path / "c.toml").write_text(file)
    error_of(printed("--config", "c.toml", *words, cwd=tmp_path))
    assert printed("--config", "c.toml", *words, "--output", "text", cwd=tmp_path).stdout == ""


@pytest.mark.parametrize(
    "words",
    [["list", ""], ["list", "foo:rel"], ["--nosuch", "list"], ["--config", "list", "list", "dcB"]],
)
def test_the_form_of_such_a_failure_is_that_of_the_environment(tmp_path, words):
    error_of(printed(*words, cwd=tmp_path, CPREPLICATE_LIST_OUTPUT="json"))
    assert printed(*words, cwd=tmp_path, CPREPLICATE_SYNC_OUTPUT="json").stdout == ""


@pytest.mark.parametrize(
    "words", [["version", "--output", "json"], ["config", "--output", "json", "chk"]]
)
def test_a_command_without_output_prints_no_object(tmp_path, words):
    ended = printed(*words, cwd=tmp_path)
    assert (ended.returncode, ended.stdout) == (2, "")


@pytest.mark.parametrize("words", [["inspect", "dcA/nothing"], ["inspect"], ["--nope"], ["nope"]])
def test_with_text_nothing_but_stderr_has_the_error(tmp_path, words):
    assert printed(*words, cwd=tmp_path).stdout == ""
    assert printed(*words, "--output", "xml", cwd=tmp_path).stdout == ""


@pytest.fixture
def shrunk(tmp_path):
    """A replica of which a sync deletes files, and which has an orphan."""
    synced(tmp_path, {1: {**FILES, "shared/gone": 10}})
    write_checkpoint(tmp_path / "dcA", 2, {"shared/new": 10})
    replica = tmp_path / "dcB" / JOB
    (replica / "shared" / "orphan").write_bytes(b"an orphan")
    recorded(replica, "shared/orphan")
    aged(replica)
    return tmp_path


@pytest.mark.parametrize(
    "words",
    [
        ["diff", f"dcA/{JOB}", "dcB", "--max-delete", "0"],
        ["sync", f"dcA/{JOB}", "dcB", "--max-delete", "0"],
        ["sweep", f"dcB/{JOB}", "--max-delete", "0"],
    ],
)
def test_a_plan_that_is_refused_stays_one_document_with_the_reason(shrunk, words):
    ended = printed(*words, "--output", "json", cwd=shrunk)
    assert ended.returncode == 6
    refused = json.loads(ended.stdout)["refused"]
    assert ended.stderr.splitlines()[-1] == f"cpreplicate: error: {refused}"
    *rows, last = printed(*words, "--output", "ndjson", cwd=shrunk).stdout.splitlines()
    assert all("action" in json.loads(row) for row in rows)
    assert json.loads(last)["error"] == refused


def test_an_object_is_the_last_line_of_a_watch_that_failed_and_not_of_one_that_was_stopped(
    tmp_path,
):
    write_checkpoint(tmp_path / "dcA", 1, FILES)
    command = [sys.executable, "-m", "cpreplicate", "watch", f"dcA/{JOB}", "dcB"]
    command += ["--output", "json", "--interval", "100ms", "--runner", "inline"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        first = json.loads(process.stdout.readline())
        os.kill(process.pid, signal.SIGTERM)
        assert process.communicate(timeout=PATIENCE)[0] == ""
    assert first["committed"]
    assert printed("promote", f"dcB/{JOB}", cwd=tmp_path).returncode == 0
    write_checkpoint(tmp_path / "dcA", 2, FILES)
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE)
    assert error_of(ended)["exit_code"] == 6


def run_by(shell, *words, cwd):
    """What a process returned that a line of a shell started, as `exec "$@"`."""
    command = ["bash", "-c", shell, "bash", sys.executable, "-m", "cpreplicate", *words]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=PATIENCE)


def test_a_file_that_the_system_does_not_let_grow_is_named(tmp_path):
    write_checkpoint(tmp_path / "dcA", 1, {"shared/large": 3000})
    ended = run_by('ulimit -f 1; exec "$@"', "sync", f"dcA/{JOB}", "dcB", cwd=tmp_path)
    assert ended.returncode != 0
    assert f" {tmp_path}/dcB/{JOB}/" in ended.stderr.splitlines()[-1]
    assert ".cpreplicate-tmp" not in ended.stderr


def test_only_a_relative_path_needs_the_working_directory(tmp_path):
    write_checkpoint(tmp_path / "dcA", 1, FILES)
    removed = 'mkdir gone && cd gone && rmdir ../gone && exec "$@"'
    places = (f"{tmp_path}/dcA/{JOB}", f"{tmp_path}/dcB")
    assert run_by(removed, "sync", *places, cwd=tmp_path).returncode == 0
    refused = run_by(removed, "sync", f"../dcA/{JOB}", f"{tmp_path}/dcB", cwd=tmp_path)
    assert refused.returncode == 2
    assert "below the working directory, which was removed" in refused.stderr


def test_a_command_that_only_reads_resumes_nothing(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    reason = printed("list", "loop", cwd=tmp_path).stderr
    assert reason.endswith("Fix the problem and run the command again\n")
    assert "partial" not in reason
    write_checkpoint(tmp_path / "dcA", 1, FILES)
    reason = printed("sync", f"dcA/{JOB}", "loop", cwd=tmp_path).stderr
    assert reason.endswith("Fix the problem and run the command again to resume\n")


def test_threads_that_cannot_start_are_a_limit_of_the_host_and_no_bug(tmp_path, monkeypatch):
    def start(_thread):
        raise RuntimeError("can't start new thread")

    write_checkpoint(tmp_path / "dcA", 1, FILES)
    monkeypatch.setattr(threading.Thread, "start", start)
    ended = printed("sync", f"dcA/{JOB}", "dcB", cwd=tmp_path)
    assert ended.returncode == 1
    assert "`ulimit -u`" in ended.stderr
    assert "report what it prints" not in ended.stderr


def test_a_service_names_the_limit_for_the_job_that_could_not_start_a_thread():
    assert "`ulimit -u`" in described(RuntimeError("can't start new thread"))
    assert described(RuntimeError("other")) == "unexpected RuntimeError: other"
