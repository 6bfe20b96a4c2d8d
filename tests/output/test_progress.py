"""Progress displays for people and for programs."""

import json
import os
import pty
import re
import subprocess
import sys

import pytest

from cpreplicate.output import log, progress
from cpreplicate.runners import Snapshot
from tests.support.jobs import write_checkpoint
from tests.support.waiting import PATIENCE

NOW = Snapshot(3, 10, 5 << 20, 20 << 20, 2.5 * (1 << 20), 3725.0, 0, 0, 12.34)


def test_a_line_has_files_bytes_rate_and_time_left():
    assert progress.line(NOW) == "3 of 10 files, 5.0 MiB of 20.0 MiB, 2.5 MiB/s, 1 h 02 min left"
    assert progress.line(NOW._replace(left=None)).endswith("2.5 MiB/s")
    assert progress.line(NOW._replace(left=62.0)).endswith("1 min 02 s left")


def test_a_line_has_failures_and_retries_only_if_there_are_some():
    assert progress.line(NOW._replace(failed=2, retried=1, left=5.0)).endswith(
        "5 s left, 2 failed, 1 retried"
    )


def test_an_event_is_one_object_of_stable_fields():
    assert progress.event(NOW, last=False) == {
        "event": "progress",
        "files": 3,
        "files_total": 10,
        "bytes": 5 << 20,
        "bytes_total": 20 << 20,
        "bytes_per_second": 2621440,
        "seconds_left": 3725.0,
        "failed": 0,
        "retried": 0,
        "seconds": 12.3,
    }
    assert progress.event(NOW._replace(left=None), last=True)["event"] == "end"


@pytest.fixture(autouse=True)
def _begin_log():
    """Log as without options: a test before in this process may have run a command with -q."""
    log.configure(log.LogSettings())


def test_a_log_gets_a_line_every_ten_seconds(capsys):
    show = progress.progress("lines")
    for second in range(1, 26):
        show(NOW._replace(seconds=float(second)), False)
    show(NOW._replace(seconds=26.0), True)
    assert len(capsys.readouterr().err.splitlines()) == 2


def test_a_terminal_gets_a_bar_that_is_gone_at_the_end(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich then takes it for a terminal
    show = progress.progress("bar")
    show(NOW, False)
    show(NOW, True)
    assert "3 of 10 files" in capsys.readouterr().err
    assert progress.progress("none") is None


RUNNERS = [
    ["--runner", "inline"],
    pytest.param(
        ["--runner", "spark", "--master", "local[2,2]"],
        marks=[pytest.mark.xdist_group("spark"), pytest.mark.rest],
    ),
]


def command(tmp_path, *words):
    """A sync of 30 files, 3 MB, with events on stderr."""
    checkpoint = write_checkpoint(tmp_path / "dcA", 1, {f"shared/{n}": 100_000 for n in range(30)})
    sync = [sys.executable, "-m", "cpreplicate", "sync", checkpoint, tmp_path / "dcB"]
    return [*sync, "--progress", "ndjson", "--output", "json", *words]


@pytest.mark.parametrize("words", RUNNERS)
def test_machines_get_events_and_nothing_else_on_stderr(tmp_path, words):
    done = subprocess.run(
        command(tmp_path, *words), capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    events = [json.loads(line) for line in done.stderr.splitlines()]
    assert {event["event"] for event in events} <= {"narration", "progress", "end"}
    counts = [event for event in events if event["event"] != "narration"]
    assert counts[-1] == counts[-1] | {"event": "end", "files": 30, "bytes": 3_000_000, "failed": 0}
    bytes_ = [event["bytes"] for event in counts]
    assert bytes_ == sorted(bytes_)
    assert json.loads(done.stdout)["committed"]


@pytest.mark.parametrize("words", RUNNERS)
def test_events_of_a_run_that_lasts_show_how_far_it_is(tmp_path, words):
    slowly = command(tmp_path, *words, "--bandwidth", "1KB/s")  # fifty minutes
    counts = []
    with subprocess.Popen(
        slowly, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            for line in process.stderr:
                event = json.loads(line)
                counts += [event["bytes"]] if event["event"] == "progress" else []
                if counts and counts[-1] > 0:
                    break
        finally:
            process.terminate()
            process.communicate(timeout=PATIENCE)
    assert counts == sorted(counts)
    assert 0 < counts[-1] < 3_000_000


def test_a_message_stands_on_a_line_of_its_own_beside_a_bar(tmp_path):
    """A bar is erased before a message, and drawn again below it."""
    checkpoint = write_checkpoint(tmp_path / "dcA", 1, {f"shared/{n}": 9_000 for n in range(30)})
    slowly = ["sync", checkpoint, tmp_path / "dcB", "--bandwidth", "1KB/s", "--runner", "inline"]
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "cpreplicate", *map(str, slowly)],
        stdout=follower,
        stderr=follower,
        env={**os.environ, "COLUMNS": "160", "TERM": "xterm"},
    )
    os.close(follower)
    printed = b""
    try:
        while b" left" not in printed:  # the bar, which is there while it copies
            printed += os.read(leader, 1 << 16)
        process.terminate()
        while piece := os.read(leader, 1 << 16):
            printed += piece
    except OSError:
        pass  # Linux reports that the other side of a terminal was closed
    process.communicate(timeout=PATIENCE)
    os.close(leader)
    assert process.returncode == 143
    before, _, _ = printed.decode().partition("cpreplicate: error: interrupted")
    assert re.search(r"(\n|\r|\x1b\[2K)(\x1b\[[0-9;?]*\w)*$", before), before[-80:]


def test_a_bar_is_erased_once_before_messages(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    show = progress.progress("bar")
    show(NOW, False)
    log.narrate("one")
    log.narrate("two")
    show(NOW, True)
    log.narrate("three")
    printed = capsys.readouterr().err
    assert printed.endswith("\x1b[2Kone\ntwo\nthree\n")
