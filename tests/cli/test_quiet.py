"""`--quiet` and `--progress` on every command: what is printed to stderr."""

import json
import shutil
import subprocess
import sys

import pytest
from click.testing import CliRunner

from cpreplicate.cli.commands.replication import cli
from tests.support import parts
from tests.support.jobs import JOB, write_checkpoint
from tests.support.replicas import FILES
from tests.support.waiting import PATIENCE

UNREACHABLE = "hdfs://nosuchhost.invalid:8020/a/chk-1"


@pytest.fixture
def directory(tmp_path):
    write_checkpoint(tmp_path / "dcA", 1, FILES)
    (tmp_path / "jobs.toml").write_text(
        f'[[job]]\nsource = "{tmp_path}/dcA/{JOB}"\ntarget = "{tmp_path}/fleet"\n'
    )
    return tmp_path


def commands_of(directory):
    """Every command that ends, with words with which it prints narration or may do so."""
    source, replica = f"{directory}/dcA/{JOB}", f"{directory}/dcB/{JOB}"
    return [
        ["inspect", source],
        ["diff", source, f"{directory}/dcB"],
        ["sync", source, f"{directory}/dcB", "--runner", "inline", "--verbose"],
        ["verify", replica, "--content"],
        ["sweep", replica, "--runner", "inline"],
        ["relocate", replica, "--paths", "absolute"],
        ["promote", replica, "--content"],
        ["unseal", replica, "--no-job-uses-it"],
        ["fleet", f"{directory}/jobs.toml", "--runner", "inline"],
    ]


def run(words):
    return CliRunner().invoke(cli, words, standalone_mode=False, catch_exceptions=False)


SILENT = {"sync", "verify", "sweep", "relocate", "unseal", "fleet"}


@pytest.mark.parametrize("flag", ["-q", parts.rest("--quiet")])
def test_a_quiet_command_that_succeeds_prints_nothing_but_what_was_asked_for(directory, flag):
    for words in commands_of(directory):
        done = run([*words, flag])
        assert done.stderr == "", words
        assert bool(done.stdout) == (words[0] not in SILENT), words


def test_a_quiet_command_prints_its_result_as_json_or_as_a_listing_all_the_same(directory):
    for words in commands_of(directory):
        assert json.loads(run([*words, "-q", "--output", "json"]).stdout), words
    source, target = f"{directory}/dcA/{JOB}", f"{directory}/listed"
    words = ["sync", source, target, "--runner", "inline", "-q", "--actions"]
    assert "shared/a" in run(words).stdout


def test_a_quiet_command_prints_what_is_no_success(directory):
    for words in commands_of(directory)[:3]:
        run(words)
    done = run(["sync", f"{directory}/dcA/{JOB}", f"{directory}/new", "--dry-run", "-q"])
    assert "this is the plan" in done.stdout
    (directory / "dcB" / JOB / "shared" / "a").unlink()
    assert "missing: shared/a" in run(["verify", f"{directory}/dcB/{JOB}", "-q"]).stdout
    (directory / "dcA" / JOB / "shared" / "a").unlink()
    done = run(["fleet", f"{directory}/jobs.toml", "--runner", "inline", "-q"])
    assert "exit 10" in done.stdout


def test_warnings_of_a_quiet_success_are_printed_to_stderr(directory):
    source, target = f"{directory}/dcA/{JOB}", directory / "packed"
    words = ["sync", source, str(target), "--pack", "on", "--runner", "inline"]
    warnings = [line for line in run(words).stdout.splitlines() if line.startswith("warning: ")]
    assert warnings
    shutil.rmtree(target)
    done = run([*words, "-q"])
    assert done.stdout == ""
    assert done.stderr.splitlines() == [f"cpreplicate: {line}" for line in warnings]


def test_quiet_wins_over_a_progress_display(directory):
    for words in commands_of(directory):
        assert run([*words, "--progress", "ndjson", "--quiet"]).stderr == ""


def test_without_quiet_narration_is_printed_and_no_progress_display_hides_it(directory):
    narrating = {"sync", "verify", "promote", "unseal", "fleet"}
    for words in commands_of(directory):
        lines = run([*words, "--progress", "none"]).stderr
        assert bool(lines) == (words[0] in narrating), words


def test_narration_is_ndjson_on_every_command_where_progress_is(directory):
    for words in commands_of(directory):
        lines = run([*words, "--progress", "ndjson"]).stderr.splitlines()
        events = {json.loads(line)["event"] for line in lines}
        assert events <= {"narration", "progress", "end"}


@pytest.mark.parametrize(
    "words",
    [
        ["inspect", UNREACHABLE],
        ["verify", UNREACHABLE],
        ["watch", UNREACHABLE, "dcB"],
        ["unseal", UNREACHABLE, "--no-job-uses-it"],
    ],
)
def test_a_quiet_command_prints_its_error_and_no_retries(directory, words):
    command = [sys.executable, "-m", "cpreplicate", *words, "--retry-for", "1s", "-q"]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=PATIENCE)
    (line,) = done.stderr.splitlines()
    assert line.startswith("cpreplicate: error: ")
    assert done.returncode != 0


def test_a_quiet_watch_still_warns_of_each_failure(directory):
    (directory / "dcA" / JOB / "shared" / "a").unlink()
    words = ["watch", f"dcA/{JOB}", "dcB", "--interval", "30m", "--quiet"]  # one try
    command = [sys.executable, "-m", "cpreplicate", *words]
    with subprocess.Popen(command, cwd=directory, stderr=subprocess.PIPE, text=True) as process:
        line = process.stderr.readline()
        process.terminate()
        rest = process.stderr.read()
    assert line.startswith("cpreplicate: warning: ")
    assert "is incomplete at the source" in line
    assert rest == ""  # the end of a service is no error
    assert process.returncode == 143


def test_a_wrong_use_ends_with_a_line_like_every_other_error(directory):
    command = [sys.executable, "-m", "cpreplicate", "sync", "dcA"]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        "Usage: cpreplicate sync [OPTIONS] SOURCE TARGET_ROOT",
        "Try 'cpreplicate sync --help' for help.",
        "cpreplicate: error: Missing argument 'TARGET_ROOT'.",
    ]
