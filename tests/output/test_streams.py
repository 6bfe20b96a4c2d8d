"""Streams that are closed, full, gone, or of another encoding, and control characters in names."""

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support import checker, parts
from tests.support.jobs import JOB, write_checkpoint
from tests.support.waiting import PATIENCE, wait_until

FILES = {"shared/a": 100, "shared/b": 200}
HOSTILE = "shared/\x1b[2J\x1b]0;owned\x07\x9b31m\u202egnp\nrestorable  yes"
ESCAPED = "\\x1b[2J\\x1b]0;owned\\x07\\x9b31m\\u202egnp\\nrestorable  yes"
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}


@pytest.fixture
def directory(tmp_path):
    write_checkpoint(tmp_path / "dcA", 1, FILES)
    return tmp_path


@pytest.fixture(scope="module")
def replicated(tmp_path_factory):
    """Two replicas, one of them broken. The tests that use it leave it so that the next can."""
    directory = tmp_path_factory.mktemp("replicated")
    write_checkpoint(directory / "dcA", 1, FILES)
    for target in ("dcB", "broken"):
        shell(
            directory, command("sync", f"dcA/{JOB}", target, "--runner", "inline")
        ).check_returncode()
    (directory / "broken" / JOB / "shared" / "a").unlink()
    return directory


def command(*words):
    return " ".join([sys.executable, "-m", "cpreplicate", *words])


def shell(directory, text, **environment):
    """Run a line of shell in the directory that holds dcA."""
    return subprocess.run(
        ["sh", "-c", text],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env={**os.environ, **environment},
    )


def sync(directory, redirections, *words, **environment):
    return shell(
        directory,
        f"{command('sync', f'dcA/{JOB}', 'dcB', '--runner', 'inline', *words)} {redirections}",
        **environment,
    )


def into_closed_pipe(directory, *words):
    """The exit code and the messages of a command whose reader has gone."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "cpreplicate", *words]
    done = subprocess.run(
        command, cwd=directory, stdout=writer, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(writer)
    return done.returncode, done.stderr


UNWRITABLE = [">/dev/full", ">&-", "2>/dev/full", "2>&-", ">/dev/full 2>&1", "<&- >&- 2>&-"]


@pytest.mark.slow
@pytest.mark.parametrize("redirections", UNWRITABLE)
@pytest.mark.parametrize("form", [parts.rest("text"), "json"])
def test_a_sync_that_committed_exits_with_0_whatever_its_streams_are(directory, redirections, form):
    done = sync(directory, redirections, "--output", form, "--progress", "ndjson")
    assert (done.returncode, "Traceback" in done.stderr) == (0, False)
    assert checker.faults(directory / "dcB" / JOB) == []
    assert not (directory / "dcB" / JOB / ".cpreplicate" / "lease").exists()


@pytest.mark.parametrize(
    ("redirections", "why"),
    [(">/dev/full", "No space left on device"), (">&-", "Bad file descriptor")],
)
def test_a_lost_result_of_a_sync_is_mentioned_on_stderr(directory, redirections, why):
    last = sync(directory, redirections).stderr.splitlines()[-1]
    assert last.startswith(
        f"cpreplicate: warning: the result could not be written to stdout: {why}"
    )


def test_a_sync_whose_reader_went_away_exits_with_0(directory):
    code, stderr = into_closed_pipe(directory, "sync", f"dcA/{JOB}", "dcB", "--runner", "inline")
    assert code == 0
    assert "could not be written to stdout: Broken pipe" in stderr


def test_a_sync_that_failed_keeps_its_code_where_stderr_is_full(directory):
    (directory / "dcA" / JOB / "shared" / "a").unlink()
    assert sync(directory, "2>/dev/full").returncode == 10
    assert sync(directory, "2>&-").returncode == 10


def test_a_fleet_in_which_a_job_failed_keeps_its_code_and_mentions_a_lost_result(directory):
    job = f'source = "{directory}/nothing"\ntarget = "{directory}/dcB"\n'
    (directory / "jobs.toml").write_text(f"[[job]]\n{job}")
    done = shell(directory, f"{command('fleet', 'jobs.toml')} >/dev/full")
    assert done.returncode == 10
    assert "could not be written to stdout: No space left on device" in done.stderr


@pytest.mark.parametrize("words", ["--help", "status --help", "--version", "completion bash"])
def test_help_that_cannot_be_written_ends_as_a_result(directory, words):
    done = shell(directory, f"{command(*words.split())} >/dev/full", PYTHONUNBUFFERED="")
    assert done.returncode == 1
    assert done.stderr == (
        "cpreplicate: error: the result could not be written to stdout: No space left on device\n"
    )


def test_a_progress_bar_that_cannot_be_drawn_ends_no_run(tmp_path):
    write_checkpoint(tmp_path / "dcA", 1, {f"shared/{number}": 4_000_000 for number in range(3)})
    done = sync(tmp_path, "2>/dev/full", "--progress", "bar", "--bandwidth", "4MB/s")
    assert done.returncode == 0


def test_no_file_of_a_replica_gets_the_number_of_a_closed_stream(directory):
    """What a library writes to stderr would land in that file."""
    code = (
        "import os, runpy; os.closerange(0, 3); runpy.run_module('cpreplicate',"
        " run_name='__main__', alter_sys=True)"
    )
    spy = (
        "import os, sys; sys.addaudithook(lambda event, words: os.write(2, b'noise') if event =="
        " 'os.rename' else None)"
    )
    words = ["sync", f"dcA/{JOB}", "dcB", "--runner", "inline"]
    done = subprocess.run(
        [sys.executable, "-c", f"{spy}\n{code}", *words], cwd=directory, check=False
    )
    assert done.returncode == 0
    assert checker.faults(directory / "dcB" / JOB) == []
    assert b"noise" not in b"".join(
        path.read_bytes() for path in (directory / "dcB").rglob("*") if path.is_file()
    )


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("diff", f"dcA/{JOB}", "new"), 1),
        (("diff", f"dcA/{JOB}", "new", "--exit-code"), 20),
        (("sync", f"dcA/{JOB}", "new", "--dry-run"), 1),
        (("sync", f"dcA/{JOB}", "dcB"), 0),
        (("inspect", f"dcA/{JOB}"), 1),
        (("verify", f"dcB/{JOB}"), 1),
        (("verify", f"broken/{JOB}"), 4),
        (("sweep", f"dcB/{JOB}", "--dry-run"), 1),
        (("sweep", f"dcB/{JOB}", "--min-age", "0s"), 0),
        (("relocate", f"dcB/{JOB}"), 0),
        (("promote", f"dcB/{JOB}"), 0),
    ],
)
def test_a_lost_result_gives_1_where_the_command_only_reads_and_no_other_code_is_more_specific(
    replicated, words, code
):
    done = shell(replicated, f"{command(*words)} >/dev/full")
    assert done.returncode == code
    assert "the result could not be written to stdout: No space left on device" in done.stderr


def test_a_reader_that_has_seen_enough_gets_no_message(directory):
    assert into_closed_pipe(directory, "inspect", "--refs", f"dcA/{JOB}") == (1, "")


def test_a_watch_goes_on_when_its_results_cannot_be_written(directory):
    words = ["watch", f"dcA/{JOB}", "dcB", "--interval", "50ms"]
    with open("/dev/full", "w") as full:
        process = subprocess.Popen(
            [sys.executable, "-m", "cpreplicate", *words],
            cwd=directory,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    for number in (1, 2):
        write_checkpoint(directory / "dcA", number, {**FILES, f"chk-{number}/x": 10})
        wait_until((directory / "dcB" / JOB / f"chk-{number}" / "_metadata").exists)
    process.terminate()
    assert "No space left" in process.communicate(timeout=PATIENCE)[1]
    assert process.returncode == 143


def test_text_that_the_encoding_of_the_stream_lacks_is_escaped(directory):
    write_checkpoint(directory / "dcA", 2, {**FILES, "shared/\u2026": 300, "chk-2/x": 10})
    done = sync(directory, "", "--actions", PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert "shared/\\u2026" in done.stdout
    assert done.stdout.isascii()


def hostile(directory):
    write_checkpoint(directory / "dcA", 2, {**FILES, HOSTILE: 300, "chk-2/x": 10})


def is_safe(text):
    return all(line.isprintable() for line in text.split("\n"))


@pytest.mark.parametrize("words", [("--actions",), ("--output", "json"), ("--output", "ndjson")])
def test_no_control_character_of_a_file_name_is_printed_by_sync(directory, words):
    hostile(directory)
    done = sync(directory, "", *words)
    assert done.returncode == 0
    assert is_safe(done.stdout)
    assert is_safe(done.stderr)
    if words == ("--actions",):
        assert ESCAPED in done.stdout
    else:
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        assert "ndjson" not in words or HOSTILE in {row["target"] for row in rows}


@pytest.mark.slow
def test_no_control_character_of_a_file_name_is_printed_by_any_other_command(directory):
    hostile(directory)
    sync(directory, "")
    (directory / "dcB" / JOB / HOSTILE).unlink()
    verified = shell(directory, command("verify", f"dcB/{JOB}"))
    assert (verified.returncode, is_safe(verified.stdout)) == (4, True)
    assert f"missing: {ESCAPED}" in verified.stdout.replace("shared/", "")
    refs = shell(directory, command("inspect", "--refs", f"dcA/{JOB}"))
    assert is_safe(refs.stdout)
    assert ESCAPED in refs.stdout
    (directory / "dcA" / JOB / HOSTILE).unlink()
    failed = sync(directory, "", "--debug")
    assert failed.returncode == 2  # --debug is an option of the whole
    failed = shell(directory, command("--debug", "sync", f"dcA/{JOB}", "dcC", "--runner", "inline"))
    assert failed.returncode == 10
    assert is_safe(failed.stderr)
    assert ESCAPED in failed.stderr.splitlines()[-1]


def test_no_control_character_of_an_argument_is_printed(directory):
    words = [sys.executable, "-m", "cpreplicate", "sync", "a", "b", "--remap", "\x1b[2Jx"]
    done = subprocess.run(words, cwd=directory, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert is_safe(done.stderr)
    assert "\\x1b[2Jx" in done.stderr


def test_a_table_on_a_terminal_has_a_bold_heading_and_escaped_names(directory):
    hostile(directory)
    leader, follower = pty.openpty()
    words = [sys.executable, "-m", "cpreplicate", "diff", f"dcA/{JOB}", "dcB", "--actions"]
    process = subprocess.Popen(
        words, cwd=directory, stdout=follower, stderr=follower, env={**os.environ, "COLUMNS": "300"}
    )
    os.close(follower)
    printed = read_all(leader)
    assert process.wait(PATIENCE) == 0
    assert "\x1b[1m" in printed
    assert ESCAPED in printed
    assert is_safe(printed.replace("\x1b[1m", "").replace("\x1b[0m", "").replace("\r\n", "\n"))


def read_all(descriptor):
    read = b""
    try:
        while piece := os.read(descriptor, 1 << 16):
            read += piece
    except OSError:
        pass  # Linux reports that the other side of a terminal was closed
    os.close(descriptor)
    return read.decode()


@pytest.mark.parametrize("ignored", [False, True])
def test_a_hangup_stops_a_sync_unless_nohup_had_it_ignored(tmp_path, ignored):
    write_checkpoint(tmp_path / "dcA", 1, {f"shared/{number}": 4_000_000 for number in range(2)})
    bandwidth = "4MB/s" if ignored else "1KB/s"  # what is to be stopped would take hours
    words = ["sync", f"dcA/{JOB}", "dcB", "--runner", "inline", "--bandwidth", bandwidth]
    process = subprocess.Popen(
        [*(["nohup"] if ignored else []), sys.executable, "-m", "cpreplicate", *words],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    replica = tmp_path / "dcB" / JOB
    wait_until(lambda: list(replica.glob("shared/*")) or list(replica.glob("shared/.*")))
    # a terminal that is closed and its shell send several
    while process.poll() is None:
        process.send_signal(signal.SIGHUP)
        time.sleep(0.001)
    stderr = process.communicate(timeout=PATIENCE)[1]
    assert process.returncode == (0 if ignored else 129)
    assert (replica / "chk-1" / "_metadata").exists() == ignored
    assert ("interrupted. No partial files" in stderr) != ignored
    assert not (replica / ".cpreplicate" / "lease").exists()


def test_a_terminal_that_is_closed_stops_a_sync_with_129(tmp_path):
    write_checkpoint(tmp_path / "dcA", 1, {f"shared/{number}": 12_000_000 for number in range(2)})
    words = [
        sys.executable,
        "-m",
        "cpreplicate",
        "sync",
        f"{tmp_path}/dcA/{JOB}",
        f"{tmp_path}/dcB",
        "--runner",
        "inline",
    ]
    child, leader = pty.fork()
    if child == 0:
        os.execv(sys.executable, [*words, "--bandwidth", "1KB/s", "--progress", "bar"])
    drawn = b""
    while b" of 2 files" not in drawn:  # the bar
        drawn += os.read(leader, 1 << 16)
    os.close(leader)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 129
    assert not Path(tmp_path / "dcB" / JOB / ".cpreplicate" / "lease").exists()
