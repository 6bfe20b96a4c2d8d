"""Logs of a command: `-q`, `-v`, `--log-file` and `--log-format`, with the real command line."""

import json
import os
import re
import subprocess
import sys

import pytest

from cpreplicate.output import log
from tests.support.jobs import JOB, write_checkpoint
from tests.support.replicas import FILES, NEXT
from tests.support.waiting import PATIENCE

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
KEYS = {"time", "level", "run", "job", "checkpoint", "event", "text"}


@pytest.fixture
def directory(tmp_path):
    write_checkpoint(tmp_path / "dcA", 1, FILES)
    (tmp_path / "jobs.toml").write_text(
        f'[[job]]\nname = "orders"\nsource = "{tmp_path}/dcA/{JOB}"\ntarget = "{tmp_path}/fleet"\n'
    )
    return tmp_path


def run(directory, *words):
    command = [sys.executable, "-m", "cpreplicate", *words]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=PATIENCE)


def sync(directory, *words, runner="inline"):
    return run(directory, "sync", f"dcA/{JOB}", "dcB", "--runner", runner, *words)


def objects(text):
    return [json.loads(line) for line in text.splitlines()]


def test_a_quiet_cron_run_prints_nothing_to_stderr_and_logs_to_the_file(directory):
    done = sync(directory, "-q", "--log-file", "run.log")
    assert (done.returncode, done.stderr) == (0, "")
    lines = (directory / "run.log").read_text().splitlines()
    assert all(re.match(rf"{TIME} INFO run=[0-9a-f]{{12}} job={JOB}", line) for line in lines)
    assert "sync of cpreplicate" in lines[0]
    assert any("checkpoint=chk-1: committed" in line for line in lines)
    assert lines[-1].endswith("ended with exit code 0")


@pytest.mark.spark
@pytest.mark.rest
def test_a_quiet_cron_run_on_spark_prints_nothing_to_stderr(directory):
    words = ("-q", "--master", "local[1]", "--output", "json")
    done = sync(directory, *words, runner="spark")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["runner"] == "spark"


def test_every_line_of_a_json_log_is_an_object_with_run_job_and_checkpoint(directory):
    done = sync(directory, "-v", "--log-format", "json", "--log-file", "run.log")
    assert done.returncode == 0
    on_stderr = objects(done.stderr)
    assert all(line.keys() == KEYS for line in on_stderr)
    assert {line["level"] for line in on_stderr} == {"debug", "info"}
    assert {line["job"] for line in on_stderr} == {JOB}
    assert on_stderr[-1]["checkpoint"] == "chk-1"
    in_file = objects((directory / "run.log").read_text())
    assert len({line["run"] for line in on_stderr + in_file}) == 1
    assert [line for line in in_file if line in on_stderr] == on_stderr


@pytest.mark.parametrize("command", ["sync", "diff", "watch"])
def test_the_metadata_of_a_checkpoint_names_its_job_in_every_line(directory, command):
    places = (f"dcA/{JOB}/chk-1/_metadata", "dcB")
    run(directory, command, *places, "--log-file", "run.log", "--log-format", "json")
    assert {line["job"] for line in objects((directory / "run.log").read_text())} == {JOB}


def test_an_error_is_a_line_of_the_log(directory):
    done = run(directory, "sync", "dcA/nothing", "dcB", "--log-format", "json", "-q")
    (line,) = objects(done.stderr)
    assert done.returncode == 10
    assert (line["level"], line["job"]) == ("error", "nothing")
    assert "dcA/nothing" in line["text"]


def test_a_traceback_is_one_line_of_a_json_log(directory):
    done = run(directory, "--debug", "sync", "dcA/nothing", "dcB", "--log-format", "json")
    assert all(line["level"] == "error" for line in objects(done.stderr))
    assert "Traceback" in objects(done.stderr)[0]["text"]


def test_progress_events_of_a_json_log_have_its_fields(directory):
    done = sync(directory, "--progress", "ndjson", "--log-format", "json")
    events = objects(done.stderr)
    assert {event["event"] for event in events} >= {"narration", "end"}
    assert all(event.keys() >= KEYS - {"text"} for event in events)


def test_lines_of_a_fleet_name_their_job(directory):
    done = run(directory, "fleet", "jobs.toml", "--runner", "inline", "--log-format", "json")
    lines = objects(done.stderr)
    assert done.returncode == 0
    assert {(line["job"], line["checkpoint"]) for line in lines if "committed" in line["text"]} == {
        ("orders", "chk-1")
    }


def test_a_bar_is_refused_as_a_line_of_a_log(directory):
    done = sync(directory, "--progress", "bar", "--log-format", "text")
    assert done.returncode == 2
    assert "--progress bar cannot be given with --log-format" in done.stderr


def test_a_log_file_that_cannot_be_opened_is_a_usage_error_and_nothing_is_done(directory):
    done = sync(directory, "--log-file", "no/such/directory/run.log")
    assert done.returncode == 2
    assert "cannot be opened for append: No such file or directory" in done.stderr
    assert not (directory / "dcB").exists()


def test_a_pipe_that_nobody_reads_is_no_log_file(directory):
    os.mkfifo(directory / "run.log")
    done = sync(directory, "--log-file", "run.log")
    assert done.returncode == 2
    assert "--log-file run.log cannot be opened for append: No such device" in done.stderr


def test_a_log_file_in_a_replica_is_refused_and_nothing_is_done(directory):
    assert sync(directory).returncode == 0
    (replica,) = (directory / "dcB").iterdir()
    before = sorted(replica.rglob("*"))
    (directory / "link.log").symlink_to(replica / "shared" / "run.log")
    for place in (f"dcB/{replica.name}/run.log", "link.log"):
        refused = sync(directory, "--log-file", place)
        assert refused.returncode == 2
        assert f"--log-file {place} would be in the replica" in refused.stderr
    assert sorted(replica.rglob("*")) == before


def test_verbose_names_the_runner_and_the_steps_and_the_default_does_not(directory):
    details = sync(directory, "-v").stderr
    assert "runner: inline (" in details
    assert "copy 9 files" in details
    write_checkpoint(directory / "dcA", 2, NEXT)
    assert "runner:" not in sync(directory).stderr


@pytest.fixture
def logging_to():
    yield lambda **settings: log.configure(log.LogSettings(**settings))
    log.configure(log.LogSettings())


def test_a_log_file_that_logrotate_moved_is_opened_again(tmp_path, logging_to):
    file = tmp_path / "run.log"
    logging_to(file=str(file), is_quiet=True)
    log.narrate("before")
    file.rename(tmp_path / "run.log.1")
    log.narrate("after")
    assert file.read_text().endswith(": after\n")
    assert (tmp_path / "run.log.1").read_text().endswith(": before\n")


def test_a_log_file_that_cannot_be_written_any_more_does_not_end_the_run(tmp_path, logging_to):
    directory = tmp_path / "logs"
    directory.mkdir()
    logging_to(file=str(directory / "run.log"), is_quiet=True)
    directory.rename(tmp_path / "moved")
    log.narrate("lost")
    directory.mkdir()
    log.narrate("found")
    assert (directory / "run.log").read_text().endswith(": found\n")


def test_a_log_file_on_a_full_disk_is_reported_once(capsys, logging_to):
    logging_to(file="/dev/full")
    log.narrate("first")
    log.narrate("second")
    warning = (
        "cpreplicate: warning: --log-file /dev/full could not be written: No space left on device."
        " The command goes on without it"
    )
    assert sorted(capsys.readouterr().err.splitlines()) == [warning, "first", "second"]


def test_a_line_feed_in_a_name_begins_no_line_of_a_log(tmp_path, logging_to):
    logging_to(file=str(tmp_path / "run.log"), is_quiet=True)
    log.narrate("a\nb\x1b[2J")
    assert (tmp_path / "run.log").read_text().endswith(": a\\nb\\x1b[2J\n")


@pytest.mark.parametrize("form", [None, "text", "json"])
def test_without_a_log_format_stderr_is_as_before(form, capsys, logging_to):
    logging_to(form=form)
    log.narrate("working")
    log.write_warning("careful")
    log.narrate_failure("one try failed")
    plain = "working\ncpreplicate: warning: careful\none try failed\n"
    assert (capsys.readouterr().err == plain) == (form is None)
