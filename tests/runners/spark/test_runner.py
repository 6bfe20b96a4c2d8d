"""Failures of Spark's workers or of Spark itself.

Each action still has an outcome with one line, and no partial file is visible.
"""

import contextlib
import os
import signal
import socket
import threading
import time
from pathlib import Path

import pytest
from pyspark import SparkContext

from cpreplicate.errors import LeaseHeld, UsageError
from cpreplicate.runners import Copy, ExecutionOptions, JobCancelled, Outcome
from cpreplicate.runners.spark.runner import SparkRunner
from cpreplicate.storage import Side, Sides, checksum
from cpreplicate.storage.transfer import appearing_after
from cpreplicate.storage.waiting.cancellation import cancellable
from cpreplicate.storage.wrappers.limits import new_limits
from tests.support.ports import free_port
from tests.support.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.xdist_group("spark")

SIZE = 8 << 20
SLOWLY = 4e6  # bytes a second: the copies take eight seconds, so that there is a middle
WITHOUT_END = 1e3  # bytes a second: hours


@pytest.fixture
def copies(tmp_path):
    (tmp_path / "source").mkdir()
    for number in range(4):
        with open(tmp_path / "source" / f"{number}", "wb") as file:
            file.truncate(SIZE)
    return [
        Copy(f"file:{tmp_path}/source/{n}", f"file:{tmp_path}/target/{n}", SIZE) for n in range(4)
    ]


def parent_and_command(pid):
    try:
        parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        return parent, Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # it ended meanwhile
        return 0, b""


def processes_below(pid):
    """The processes that this test started, by their ids: none other may be ended."""
    directories = Path("/proc").glob("[0-9]*")
    processes = {int(entry.name): parent_and_command(entry.name) for entry in directories}
    tree, size = {pid}, 0
    while len(tree) > size:
        size = len(tree)
        tree |= {child for child, (parent, _) in processes.items() if parent in tree}
    return {child: processes[child] for child in tree - {pid}}


def workers():
    below = processes_below(os.getpid())
    return [
        pid
        for pid, (parent, command) in below.items()
        if b"daemon" in command and b"daemon" in below.get(parent, (0, b""))[1]
    ]


def machines():
    return [
        pid
        for pid, (parent, command) in processes_below(os.getpid()).items()
        if b"SparkSubmit" in command
    ]


def kill_when_copying(target, victims):
    def kill():
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if target.is_dir() and any(target.iterdir()) and (pids := victims()):
                os.kill(pids[0], signal.SIGKILL)
                return
            time.sleep(0.02)

    thread = threading.Thread(target=kill)
    thread.start()
    return thread


def run(master, copies, target, victims, bandwidth=SLOWLY):
    side = Side(limits=new_limits(None, bandwidth))
    with SparkRunner(Sides(side, side), ExecutionOptions(master=master)) as runner:
        killer = kill_when_copying(target, victims)
        outcomes = runner.run(copies)
        killer.join()
    return outcomes


def test_when_spark_dies_every_action_is_reported_as_failed_in_one_line(copies, tmp_path):
    outcomes = run("local[2]", copies, tmp_path / "target", machines, WITHOUT_END)
    assert sorted(outcome.target for outcome in outcomes) == [copy.target for copy in copies]
    for outcome in outcomes:
        assert outcome.error.startswith("Spark gave up: ")
        assert "\n" not in outcome.error
        assert not outcome.missing
    visible = [file for file in (tmp_path / "target").iterdir() if not file.name.startswith(".")]
    assert all(file.stat().st_size == SIZE for file in visible)


@pytest.mark.rest
def test_what_ends_the_work_of_the_caller_ends_the_copies_of_executors(copies, tmp_path):
    """As a lease that is lost does. The copies themselves would take hours."""
    side, target = Side(limits=new_limits(None, WITHOUT_END)), tmp_path / "target"

    def lost():
        if target.is_dir() and any(target.iterdir()):
            raise LeaseHeld("this run lost its lease")

    with (
        SparkRunner(Sides(side, side), ExecutionOptions(master="local[2]")) as runner,
        pytest.raises(LeaseHeld),
        cancellable(lost),
    ):
        runner.run(copies)
    wait_until(lambda: not workers(), "the end of the workers")
    assert not [file for file in target.iterdir() if not file.name.startswith(".")]


def test_nothing_appears_before_what_is_awaited_also_by_processes_of_this_machine(copies, tmp_path):
    """They are not asked: they are other processes. So no task begins before."""
    found = []

    def awaited():
        found.append((tmp_path / "target").exists())
        if len(found) > 1:
            raise OSError("no journal")

    with (
        SparkRunner(Sides(), ExecutionOptions(master="local[2]")) as runner,
        appearing_after(awaited),
    ):
        assert {each.error for each in runner.run(copies[:3])} == {None}
        with pytest.raises(OSError, match="no journal"):
            runner.run(copies[3:])
    assert found == [False, True]
    assert len(list((tmp_path / "target").iterdir())) == 3


def cancel_once(is_at_work):
    """Cancel the job of this process in Spark, as its pages do, once it is at work."""

    def cancel():
        wait_until(is_at_work, "the work of the job")
        SparkContext._active_spark_context.cancelAllJobs()

    thread = threading.Thread(target=cancel)
    thread.start()
    return thread


def jobs_of(runner):
    """How many jobs of Spark a runner has started."""
    return runner._session().context._jsc.sc().statusStore().jobsList(None).size()


def test_copies_that_somebody_cancelled_in_spark_are_not_started_again(copies, tmp_path):
    """Not by another job either: `run` is what every part of a command copies with."""
    side, target = Side(limits=new_limits(None, WITHOUT_END)), tmp_path / "target"
    with SparkRunner(Sides(side, side), ExecutionOptions(master="local[2]")) as runner:
        thread = cancel_once(lambda: target.is_dir() and any(target.iterdir()))
        with pytest.raises(JobCancelled, match="was cancelled in Spark, so it was not started"):
            runner.run(copies)
        thread.join()
        assert jobs_of(runner) == 1
    wait_until(lambda: not workers(), "the end of the workers")


def waits_to_be_cancelled(place, _is_again):
    """Do nothing but wait, on an executor."""
    Path(place).touch()
    while True:
        time.sleep(1)


def test_calls_that_somebody_cancelled_in_spark_are_not_made_again(tmp_path):
    began, failures = tmp_path / "began", []
    with SparkRunner(Sides(), ExecutionOptions(master="local[2]")) as runner:
        thread = cancel_once(began.exists)
        runner.spread(
            waits_to_be_cancelled,
            [str(began)],
            lambda _index, _result: None,
            lambda _index, error: failures.append(str(error)),
        )
        thread.join()
        assert jobs_of(runner) == 1
    [failure] = failures
    assert "was cancelled in Spark, so it was not started again" in failure


@pytest.mark.rest
def test_a_port_of_the_driver_that_another_run_has_is_not_needed():
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        options = ExecutionOptions(master="local[1]", conf=(("spark.cpreplicate.port", port),))
        with SparkRunner(Sides(), options) as runner:
            assert runner.map(os.path.basename, ["a/b"]) == ["b"]


@pytest.mark.rest
def test_a_port_that_there_is_not_is_named():
    options = ExecutionOptions(master="local[1]", conf=(("spark.cpreplicate.port", "65520"),))
    with (
        SparkRunner(Sides(), options) as runner,
        pytest.raises(UsageError, match=r"65520 has too few ports behind it\. Give 65519 or less"),
    ):
        runner.map(os.path.basename, ["a/b"])


@pytest.mark.rest
def test_a_worker_that_dies_is_replaced_even_if_spark_does_not_retry_tasks(copies, tmp_path):
    outcomes = run("local[2]", copies, tmp_path / "target", workers)
    assert [outcome.error for outcome in outcomes] == [None] * 4


@pytest.mark.rest
def test_a_large_file_is_copied_by_several_tasks_though_a_worker_dies(copies, tmp_path):
    large = tmp_path / "source" / "large"
    with open(large, "wb") as file:
        for number in range(30):
            file.seek(number * 10 << 20)
            file.write(os.urandom(1000))
        file.truncate((300 << 20) + 77)
    task = Copy(f"file:{large}", f"file:{tmp_path}/target/large", 300 << 20)
    wanted, target = [*copies, task], tmp_path / "target"
    outcomes = {each.target: each for each in run("local[2,3]", wanted, target, workers, 60e6)}
    assert outcomes.keys() == {each.target for each in wanted}
    assert all(outcome.error is None for outcome in outcomes.values())
    assert outcomes[task.target][1:3] == checksum(task.source, Side())
    assert checksum(task.target, Side()) == checksum(task.source, Side())
    assert sorted(path.name for path in target.iterdir()) == [*"0123", "large"]


def test_a_mistake_in_the_program_is_raised_and_not_reported_as_failed_files(copies):
    mistaken = Sides(Side(options=5))  # noticed by the task that asks for an option
    with (
        SparkRunner(mistaken, ExecutionOptions(master="local[2]")) as runner,
        pytest.raises(Exception, match="PythonException"),
    ):
        runner.run(copies[:1])


def test_silent_clients_at_the_port_of_the_driver_do_not_stop_a_run(copies):
    """As a port scanner, or an executor that froze: they connect and never show the key."""
    port = free_port()
    options = ExecutionOptions(master="local[2]", conf=(("spark.cpreplicate.port", str(port)),))
    with SparkRunner(Sides(), options) as runner, contextlib.ExitStack() as stack:
        assert runner.map(str, [1]) == ["1"]  # the session has started, and listens
        for _ in range(3):
            stack.enter_context(socket.create_connection(("127.0.0.1", port), PATIENCE))
        reported: list[Outcome] = []
        outcomes = runner.run(copies, done=reported.append)
    assert [outcome.error for outcome in outcomes] == [None] * 4
    assert reported  # reports of tasks got through
