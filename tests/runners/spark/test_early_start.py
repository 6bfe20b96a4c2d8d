"""A run on a cluster whose driver works while the session starts."""

import os
import signal
import socket
import threading
from pathlib import Path

import pytest
from pyspark import SparkContext

from cpreplicate.errors import UsageError
from cpreplicate.runners import Copy, Delete, ExecutionOptions
from cpreplicate.runners.spark import runner as spark_runner
from cpreplicate.runners.spark import session
from cpreplicate.runners.spark.engine import wait_for_master
from cpreplicate.runners.spark.runner import SparkRunner
from cpreplicate.runners.tasks import EngineLost, JobCancelled, RunnerStopped
from cpreplicate.storage import Sides
from cpreplicate.storage.base import RANGE
from tests.cli.running.test_services import CANCELS_SOON
from tests.support import jobs
from tests.support.jobs import JOB, write_checkpoint
from tests.support.killing import started
from tests.support.ports import free_port
from tests.support.standalone import StandaloneCluster
from tests.support.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.xdist_group("spark")

COUNT = 20


@pytest.fixture
def copies(tmp_path):
    (tmp_path / "a").mkdir()
    for number in range(COUNT):
        (tmp_path / "a" / f"{number}").write_bytes(bytes(100))
    return [Copy(f"file:{tmp_path}/a/{n}", f"file:{tmp_path}/b/{n}", 100) for n in range(COUNT)]


@pytest.fixture
def large(tmp_path):
    """A copy that the driver leaves to executors."""
    return Copy(f"file:{tmp_path}/a/large", f"file:{tmp_path}/b/large", 2 * RANGE)


@pytest.fixture
def fails_late(monkeypatch):
    """Let the start of a session fail only after copies were made, however long they take."""

    def after(copies):
        def are_made():
            at_work = any(each.name == "early" for each in threading.enumerate())
            return not at_work and all(path_of(each.target).exists() for each in copies)

        def wait(url, timeout):
            wait_until(are_made, "the copies")
            wait_for_master(url, timeout)

        monkeypatch.setattr(session, "wait_for_master", wait)

    return after


def path_of(uri):
    return Path(uri.removeprefix("file:"))


def runner(conf=(), timeout=None):
    """A runner for a cluster whose master is not there."""
    master = f"spark://127.0.0.1:{free_port()}"
    options = ExecutionOptions(master=master, conf=conf, engine_timeout=timeout)
    return SparkRunner(Sides(), options)


def test_little_work_is_done_before_the_cluster_answers_and_does_without_it(copies, tmp_path):
    with runner() as spark:
        assert [each.error for each in spark.run(copies)] == [None] * COUNT
        deletes = [Delete(each.target) for each in copies]
        assert [each.error for each in spark.run(deletes)] == [None] * COUNT
        assert not spark.has_started
    assert list((tmp_path / "b").iterdir()) == []


def test_a_cluster_that_does_not_answer_ends_the_run_and_what_was_copied_stays(
    copies, large, tmp_path, fails_late
):
    fails_late(copies)
    with runner(timeout=1.0) as spark, pytest.raises(EngineLost, match="What was copied is kept"):
        spark.run([*copies, large])
    assert len(list((tmp_path / "b").iterdir())) == COUNT


def test_a_run_that_is_cancelled_while_the_cluster_starts_ends(copies, large):
    with runner() as spark, pytest.raises(RunnerStopped):
        spark.run([*copies, large], done=lambda _outcome: spark.cancel())


class Awaits:
    """What a context of Spark on a full YARN does: it is not made before the AM runs."""

    _active_spark_context = _gateway = _jvm = None
    begun, may_end = threading.Event(), threading.Event()

    def __init__(self, conf):
        Awaits.begun.set()
        Awaits.may_end.wait()
        raise ConnectionError(conf)


@pytest.fixture
def full_yarn(monkeypatch):
    """Let the start of a session wait for YARN, until the test ends. Return when it has begun."""
    Awaits.begun, Awaits.may_end = threading.Event(), threading.Event()
    monkeypatch.setattr(session, "SparkContext", Awaits)
    monkeypatch.setattr(session, "_launch", lambda *_: None)
    yield Awaits.begun
    Awaits.may_end.set()


def on_yarn(timeout=None):
    return SparkRunner(Sides(), ExecutionOptions(master="yarn", engine_timeout=timeout))


@pytest.mark.usefixtures("full_yarn")
def test_a_cluster_that_does_not_begin_the_application_in_time_ends_the_run(
    copies, large, tmp_path
):
    with (
        on_yarn(timeout=1.0) as spark,
        pytest.raises(EngineLost, match="has not begun Spark's application within 1 s"),
    ):
        spark.run([*copies, large])
    assert len(list((tmp_path / "b").iterdir())) == COUNT


def test_a_start_that_waits_for_a_full_cluster_is_left_behind_once_nobody_needs_it(
    copies, large, tmp_path, full_yarn, monkeypatch
):
    """As under `spark-submit`, where this process has no JVM that it could end."""
    monkeypatch.setattr(spark_runner, "_START_SECONDS", 0.1)
    with on_yarn() as spark:
        assert {each.error for each in spark.run(copies)} == {None}
        assert full_yarn.wait(PATIENCE)
    assert len(list((tmp_path / "b").iterdir())) == COUNT
    # the next one waits for that, and adds none in the same JVM
    full_yarn.clear()
    with on_yarn(timeout=0.2) as spark, pytest.raises(EngineLost, match="has not begun"):
        spark.run([*copies, large])
    assert not full_yarn.is_set()


def test_a_run_that_is_cancelled_while_yarn_is_full_ends(copies, large, full_yarn):
    def cancel():
        assert full_yarn.wait(PATIENCE)
        spark.cancel()

    spark, thread = on_yarn(), threading.Thread(target=cancel)
    thread.start()
    with spark, pytest.raises(RunnerStopped):
        spark.run([*copies, large])
    thread.join(PATIENCE)


def cancel_a_job(options):
    """Cancel the jobs of this process in Spark, as its pages do, once there is one."""

    def has_job():
        context = session.existing(options)  # not one that is not ready
        return context is not None and bool(context.statusTracker().getActiveJobsIds())

    wait_until(has_job, "a job of Spark")
    SparkContext._active_spark_context.cancelAllJobs()


@pytest.mark.rest
def test_a_job_that_somebody_cancels_while_executors_are_awaited_is_not_started_again(
    copies, large, tmp_path
):
    """The first job of a run is the one that waits for an executor."""
    with StandaloneCluster(tmp_path, workers=0) as cluster:
        options = ExecutionOptions(master=cluster.master)
        spark = SparkRunner(Sides(), options)
        thread = threading.Thread(target=cancel_a_job, args=[options])
        thread.start()
        with spark, pytest.raises(JobCancelled, match="was cancelled in Spark"):
            spark.run([*copies, large])
        thread.join(PATIENCE)
    assert not Path(path_of(large.target)).exists()


def test_the_driver_copies_nothing_where_that_is_not_wanted(copies, tmp_path):
    conf = (("spark.cpreplicate.driverCopies", "false"),)
    with runner(conf, 1.0) as spark, pytest.raises(EngineLost):
        spark.run(copies)
    assert not (tmp_path / "b").exists()


def test_a_start_that_failed_while_nobody_needed_it_does_not_fail_a_later_run(copies, fails_late):
    with runner(timeout=1.0) as spark:
        for each in copies[:3]:
            fails_late([each])
            assert [outcome.error for outcome in spark.run([each])] == [None]
            wait_until(lambda: not spark.is_starting, "the end of the start")


def test_what_is_neither_true_nor_false_is_refused(copies):
    conf = (("spark.cpreplicate.driverCopies", "no"),)
    with runner(conf, 1.0) as spark, pytest.raises(UsageError, match="neither true nor false"):
        spark.run(copies)


@pytest.fixture
def silent_master():
    """The URL of a master that accepts connections, and answers no registration."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield f"spark://127.0.0.1:{listening.getsockname()[1]}"


def test_a_session_that_nobody_needs_any_more_is_not_waited_for(copies, silent_master):
    """Spark would try to register for a minute."""
    with SparkRunner(Sides(), ExecutionOptions(master=silent_master)) as spark:
        assert [each.error for each in spark.run(copies)] == [None] * COUNT
        wait_until(lambda: SparkContext._gateway is not None, "the JVM's start")
        machine = SparkContext._gateway.proc
    assert not spark.has_started
    assert machine.poll() is not None


@pytest.mark.rest
def test_a_command_ends_by_a_signal_while_its_session_starts_and_leaves_nothing(
    tmp_path, silent_master
):
    checkpoint = write_checkpoint(tmp_path / "dcA", 1, {"shared/a": 100_000})
    words = ("--runner", "spark", "--master", silent_master, "--bandwidth", "1KB/s")
    with started("sync", checkpoint, tmp_path / "dcB", *words) as sync:
        wait_until(lambda: sync.processes("SparkSubmit"), "the JVM's start")
        os.kill(sync.pid, signal.SIGTERM)
        assert sync.ended() == 143, sync.messages()
        wait_until(lambda: not sync.processes("java"), "the end of the JVM")
        assert "Traceback" not in sync.messages()
    assert not (tmp_path / "dcB" / JOB / ".cpreplicate" / "lease").exists()


@pytest.mark.rest
@pytest.mark.parametrize("spread", ["files", "jobs"])
def test_a_service_ends_by_itself_while_its_session_starts_and_leaves_no_lease(
    tmp_path, silent_master, monkeypatch, spread
):
    """A run that waits for another one's start, and a start that is not beside a run, end too."""
    for number in range(3):
        monkeypatch.setattr(jobs, "JOB", f"{number:031x}e")
        write_checkpoint(tmp_path / "dcA", 1, {"shared/a": 100_000})
    file = tmp_path / "jobs.toml"
    file.write_text(f'[[root]]\nsource = "{tmp_path}/dcA"\ntarget = "{tmp_path}/dcB"\n')
    options = ("--every", "1s", "--grace", "30m", "--runner", "spark", "--master", silent_master)
    words = ("fleet", file, *options, "--spread", spread)
    with started(*words, program=("-c", CANCELS_SOON)) as service:
        wait_until(lambda: service.processes("SparkSubmit"), "the JVM's start")
        os.kill(service.pid, signal.SIGTERM)
        assert service.ended() == 143, service.messages()
        assert "ended without waiting" not in service.messages()
        wait_until(lambda: not service.processes("java"), "the end of the JVM")
    assert not list((tmp_path / "dcB").glob("*/.cpreplicate/lease"))
