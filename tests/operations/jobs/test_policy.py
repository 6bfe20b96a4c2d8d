"""`watch SOURCE` follows a job: each checkpoint that completes, until what no other can change."""

import itertools
import json
import math
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest

from cpreplicate.errors import CopyFailed, Misplaced, NotThere, Refused, Sealed, UsageError
from cpreplicate.operations.jobs import attempt
from cpreplicate.operations.jobs import repeated_lines as repeated_lines
from cpreplicate.operations.sync import sync as sync_operation
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.protocol.lease import acquire
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import Side
from tests.support import checker
from tests.support.commandline import run
from tests.support.faults import Faulty
from tests.support.jobs import JOB, metadata, write_checkpoint
from tests.support.registry import serving
from tests.support.replicas import FILES, NEXT, paths
from tests.support.waiting import PATIENCE
from tests.support.watching import watch


@pytest.fixture(autouse=True)
def _no_line_again(monkeypatch):
    """Report an unchanged line once, not once a minute: a slow machine takes longer."""
    monkeypatch.setattr(repeated_lines, "_UNCHANGED", math.inf)


def follow(
    tmp_path,
    reports,
    notify=lambda _line: None,
    on_report=lambda _report: None,
    wait_for_source=False,
    interval=0.05,
    **options,
):
    """Watch until so many reports have come."""
    shown = []

    def show(stop):
        def add(replicated):
            report = replicated.report
            shown.append(report)
            on_report(report)
            if len(shown) == reports:
                stop()

        return add

    request = SyncRequest(
        f"file:{tmp_path}/dcA/{JOB}",
        f"file:{tmp_path}/dcB",
        execution=ExecutionOptions(runner="inline"),
        **options,
    )
    watch(request, show, lambda _stop: notify, wait_for_source, interval)
    return shown


def failing(fault):
    return serving("file", Faulty(Side().storage("file:/"), fault))


def test_each_checkpoint_is_replicated_as_it_completes(tmp_path):
    write_checkpoint(tmp_path / "dcA", 1, FILES)
    numbers = itertools.count(2)
    shown = follow(
        tmp_path,
        3,
        on_report=lambda _report: write_checkpoint(tmp_path / "dcA", next(numbers), NEXT),
    )
    assert [report.plan.checkpoint for report in shown] == ["chk-1", "chk-2", "chk-3"]
    assert all(report.committed for report in shown)
    assert checker.faults(tmp_path / "dcB" / JOB) == []


def test_a_checkpoint_that_failed_is_superseded_by_the_newest(tmp_path):
    write_checkpoint(tmp_path / "dcA", 1, FILES)
    lines: list[str] = []

    def notify(line):
        lines.append(line)
        if "again" in line and not (tmp_path / "dcA" / JOB / "chk-3").exists():
            write_checkpoint(tmp_path / "dcA", 2, NEXT)
            write_checkpoint(tmp_path / "dcA", 3, NEXT)

    full = OSError(28, "no space left")
    with failing(
        lambda verb, uri: (
            full if verb == "put" and uri.endswith("/dcB/" + JOB + "/shared/a") else None
        )
    ):
        shown = follow(tmp_path, 1, notify)
    assert [report.plan.checkpoint for report in shown] == ["chk-3"]
    assert any("no space left" in line for line in lines)


def test_the_newest_checkpoint_is_tried_again_while_it_is_the_newest(tmp_path):
    write_checkpoint(tmp_path / "dcA", 1, FILES)
    faults = iter([OSError(5, "a passing fault")] * 3)
    broken = Faulty(
        Side().storage("file:/"),
        lambda verb, uri: next(faults, None) if verb == "list" and "/dcA/" in uri else None,
    )
    with serving("file", broken):
        assert follow(tmp_path, 1)[0].plan.checkpoint == "chk-1"


def test_deletes_that_were_put_off_are_made_between_two_checkpoints(tmp_path):
    write_checkpoint(tmp_path / "dcA", 1, FILES)
    replica = tmp_path / "dcB" / JOB

    def complete_the_next(_report):
        if not (tmp_path / "dcA" / JOB / "chk-2").exists():
            write_checkpoint(tmp_path / "dcA", 2, NEXT)
        else:
            threading.Thread(target=complete_the_last).start()

    def complete_the_last():
        until = time.monotonic() + PATIENCE
        while (replica / "shared" / "a").exists() or (replica / "chk-1").exists():
            assert time.monotonic() < until, "the backlog was not worked off"
            time.sleep(0.01)
        write_checkpoint(tmp_path / "dcA", 3, NEXT)

    # the deletes of a try have an interval from its start
    shown = follow(tmp_path, 3, on_report=complete_the_next, interval=1.0, async_deletes=True)
    assert "shared/a" in shown[1].undeleted
    assert not any("chk-1" in path or path == "shared/a" for path in paths(replica))
    assert checker.faults(replica) == []


def test_what_another_checkpoint_would_meet_too_ends_it(tmp_path):
    checkpoint = write_checkpoint(tmp_path / "dcA", 1, FILES)
    with pytest.raises(UsageError, match="one checkpoint"):
        watch(SyncRequest(f"file:{checkpoint}", f"file:{tmp_path}/dcB"))
    with pytest.raises(Refused, match="in its own source"):
        watch(SyncRequest(f"file:{tmp_path}/dcA/{JOB}", f"file:{tmp_path}/dcA"))


def test_a_replica_that_is_sealed_after_a_success_ends_it(tmp_path):
    write_checkpoint(tmp_path / "dcA", 1, FILES)

    def seal(_report):
        ended = run("promote", tmp_path / "dcB" / JOB)
        assert ended.code == 0, ended.message
        write_checkpoint(tmp_path / "dcA", 2, NEXT)

    with pytest.raises(Sealed):
        follow(tmp_path, 2, on_report=seal)


def test_another_run_that_holds_the_lease_is_waited_for_and_reported_once(tmp_path):
    write_checkpoint(tmp_path / "dcA", 1, FILES)
    replica = f"file:{tmp_path}/dcB/{JOB}"
    holder = acquire(replica, Side())
    lines: list[str] = []
    tries: list[str] = []

    def fault(verb, uri):
        if verb == "list" and uri.endswith(f"/dcA/{JOB}"):
            tries.append(uri)
            if len(tries) == 4:
                holder.__exit__(None, None, None)

    holder.__enter__()
    with failing(fault):
        assert follow(tmp_path, 1, lines.append)[0].committed
    assert len([line for line in lines if "Waiting for it" in line]) == 1


def test_a_copy_that_failed_does_not_end_it(tmp_path, monkeypatch):
    write_checkpoint(tmp_path / "dcA", 1, FILES)
    real, calls = sync_operation.sync, []

    def sync(*arguments):
        calls.append(arguments)
        if len(calls) == 1:
            raise CopyFailed("1 of 9 copies failed")
        return real(*arguments)

    monkeypatch.setattr(attempt, "sync", sync)
    assert follow(tmp_path, 1)[0].committed


def test_a_job_directory_that_is_not_there_ends_it_with_10(tmp_path):
    with pytest.raises(NotThere, match="--wait-for-source") as raised:
        follow(tmp_path, 1)
    assert raised.value.exit_code == 10
    assert not (tmp_path / "dcB").exists()


def starting(tmp_path, lines, rounds):
    """Complete the first checkpoint after some looks for it."""
    looks = []

    def fault(verb, uri):
        if verb == "list" and uri.endswith(f"/dcA/{JOB}"):
            looks.append(list(lines))
            if len(looks) == rounds:
                write_checkpoint(tmp_path / "dcA", 1, FILES)

    return failing(fault)


def test_a_job_directory_that_is_not_there_is_waited_for_if_asked_and_reported_once(tmp_path):
    lines: list[str] = []
    with starting(tmp_path, lines, rounds=4):
        watch_with_wait = follow(tmp_path, 1, lines.append, wait_for_source=True)
    assert watch_with_wait[0].committed
    assert lines[0] == f"file:{tmp_path}/dcA/{JOB} is not there yet. Waiting for it"
    assert not any("Waiting" in line for line in lines[1:])


def test_a_job_that_has_just_started_is_waited_for_and_reported_once(tmp_path):
    (tmp_path / "dcA" / JOB / "shared").mkdir(parents=True)
    lines: list[str] = []
    with starting(tmp_path, lines, rounds=4):
        assert follow(tmp_path, 1, lines.append)[0].committed
    assert (
        lines[0]
        == f"file:{tmp_path}/dcA/{JOB} holds no completed checkpoint yet. Waiting for the first one"
    )
    assert not any("Waiting" in line for line in lines[1:])


def test_a_job_directory_that_vanishes_after_a_success_does_not_end_it(tmp_path):
    write_checkpoint(tmp_path / "dcA", 1, FILES)
    lines: list[str] = []

    def notify(line):
        lines.append(line)
        if "is not there" in line:
            write_checkpoint(tmp_path / "dcA", 2, NEXT)

    shown = follow(tmp_path, 2, notify, on_report=lambda _report: shutil.rmtree(tmp_path / "dcA"))
    assert [report.plan.checkpoint for report in shown] == ["chk-1", "chk-2"]
    assert any("is not there or is empty. SOURCE is" in line for line in lines)


def test_a_missing_remap_ends_it(tmp_path):
    checkpoint = write_checkpoint(tmp_path / "dcA", 1, FILES)
    (checkpoint / "_metadata").write_bytes(metadata("file:/nowhere", 1, FILES))
    with pytest.raises(Misplaced, match=f"--remap file:/nowhere=file:{tmp_path}/dcA"):
        follow(tmp_path, 1)


def test_a_failure_that_lasts_does_not_flood(tmp_path):
    write_checkpoint(tmp_path / "dcA", 1, FILES)
    lines: list[str] = []
    looks: list[object] = []

    def fault(verb, uri):
        if verb == "list" and uri.endswith(f"/dcA/{JOB}") and len(looks) < 10:
            looks.append(uri)
            return OSError(5, "a passing fault")
        return None

    with failing(fault):
        follow(tmp_path, 1, lines.append)
    assert len(looks) == 10
    assert len([line for line in lines if "a passing fault" in line]) == 1


@pytest.mark.parametrize(
    ("name", "code"), [(signal.SIGHUP, 129), (signal.SIGINT, 130), (signal.SIGTERM, 143)]
)
def test_a_watch_that_is_stopped_has_printed_each_checkpoint_in_a_line(tmp_path, name, code):
    write_checkpoint(tmp_path / "dcA", 1, FILES)
    words = [f"{tmp_path}/dcA/{JOB}", f"{tmp_path}/dcB", "--interval", "50ms", "--output", "json"]
    with subprocess.Popen(
        [sys.executable, "-m", "cpreplicate", "watch", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert json.loads(process.stdout.readline())["checkpoint"] == "chk-1"
        write_checkpoint(tmp_path / "dcA", 2, NEXT)
        assert json.loads(process.stdout.readline())["checkpoint"] == "chk-2"
        process.send_signal(name)
        assert process.wait(PATIENCE) == code
    assert not (tmp_path / "dcB" / JOB / ".cpreplicate" / "lease").exists()


def test_a_number_that_is_given_a_second_time_is_followed(tmp_path):
    """The job was started from scratch and has reached the number that was replicated last."""
    write_checkpoint(tmp_path / "dcA", 1, FILES)

    def start_from_scratch(_report):
        if not (tmp_path / "dcA" / JOB / "shared" / "new").exists():
            shutil.rmtree(tmp_path / "dcA" / JOB)
            write_checkpoint(tmp_path / "dcA", 1, {"shared/new": 70})

    shown = follow(tmp_path, 2, on_report=start_from_scratch)
    assert [report.plan.checkpoint for report in shown] == ["chk-1", "chk-1"]
    assert (tmp_path / "dcB" / JOB / "shared" / "new").exists()
