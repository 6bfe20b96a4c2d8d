"""Whole syncs by executors: what comes of each job is what a sync by itself would end with."""

import contextlib
import pickle
import shutil
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from cpreplicate import errors
from cpreplicate.cli.commands.replication import cli
from cpreplicate.errors import LeaseHeld, NotThere, TargetGone, UsageError
from cpreplicate.operations.jobs import fleet, spread
from cpreplicate.operations.jobs.fleet import FleetSettings, replicate_fleet
from cpreplicate.operations.jobs.job import Job
from cpreplicate.operations.jobs.spread import SpreadSyncs, make_all
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.protocol.lease import acquire
from cpreplicate.runners import ExecutionOptions, InlineRunner, NeedsSpark, RunnerStopped
from cpreplicate.storage import Side, Sides
from tests.support import checker, jobs
from tests.support.waiting import PATIENCE, wait_until

SPARK = ExecutionOptions(runner="spark")
FILES = {f"shared/{number}": 1000 + number for number in range(3)}
MANY = {f"shared/{number:04}": 1 for number in range(2001)}


class Executors(InlineRunner):
    """Stands in for Spark: what its executors get and return is pickled, as there."""

    def __init__(self):
        super().__init__(Sides())
        self.name, self.handed, self.copied, self.levels = "spark", [], [], []
        self.streams = None
        self.error = None
        self.before = lambda _order: None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def spread(self, function, items, done, failed, _places=(), level=0, _expected=()):
        self.levels.append(level)
        function = pickle.loads(pickle.dumps(function))
        self.streams = function._execution.streams
        for index, item in enumerate(items):
            order = pickle.loads(pickle.dumps(item))
            self.handed.append(order.label)
            self.before(order)
            if self.error is not None:
                failed(index, self.error)
            else:
                done(index, pickle.loads(pickle.dumps(function(order, False))))

    def run(self, actions, level=0, done=None):
        self.copied += [action for action in actions if hasattr(action, "source")]
        return super().run(actions, level, done)


@pytest.fixture
def executors(monkeypatch):
    standing = Executors()
    monkeypatch.setattr(fleet, "choose_runner", lambda *_: standing)
    return standing


def id_of(name):
    """An id that is drawn at random, as far as can be seen."""
    return name.encode().hex().ljust(32, "7")


def replica_of(tmp_path, name):
    return tmp_path / "dcB" / id_of(name)


def faults(tmp_path, *names):
    assert all((replica_of(tmp_path, name) / ".cpreplicate").is_dir() for name in names)
    return [fault for name in names for fault in checker.faults(replica_of(tmp_path, name))]


def write(tmp_path, name, files=FILES, number=1):
    jobs.JOB = id_of(name)
    try:
        return jobs.write_checkpoint(tmp_path / "dcA", number, files)
    finally:
        jobs.JOB = "0123456789abcdef0123456789abcdef"


def job(tmp_path, name, priority=0, **options):
    request = SyncRequest(f"file:{tmp_path}/dcA/{id_of(name)}", f"file:{tmp_path}/dcB", **options)
    return Job(name, request, priority)


def run(chosen, lines=None):
    settings = FleetSettings(spread="jobs")
    lines = [] if lines is None else lines
    return replicate_fleet(chosen, SPARK, Sides(), lines.append, False, settings)


def outcomes(report):
    return {each.name: (each.outcome, each.exit_code) for each in report.jobs}


def test_small_jobs_are_handed_to_executors_by_their_importance_and_a_large_one_is_not(
    tmp_path, executors
):
    for name in ("a", "b", "c"):
        write(tmp_path, name)
    write(tmp_path, "large", MANY)
    lines: list[str] = []
    chosen = [*(job(tmp_path, name) for name in ("a", "c", "large")), job(tmp_path, "b", 7)]
    report = run(chosen, lines)
    assert outcomes(report) == dict.fromkeys(["a", "b", "c", "large"], ("replicated", 0))
    assert sorted(executors.handed) == ["a", "b", "c"]
    assert sorted(executors.levels) == [0, 1]
    assert len(executors.copied) == len(MANY)
    assert {each.report.runner for each in report.jobs} == {"spark"}
    assert "b: copying 3 files, 2.9 KiB" in lines
    assert faults(tmp_path, "a", "b", "c", "large") == []
    assert {each.outcome for each in run(chosen).jobs} == {"current"}


def test_a_job_that_fails_at_an_executor_has_the_code_the_message_and_the_obstacle_of_its_sync(
    tmp_path, executors
):
    for name in ("whole", "held", "linked"):
        write(tmp_path, name)
    run([job(tmp_path, "linked")])
    shutil.rmtree(tmp_path / "dcA")
    for name in ("whole", "held", "linked"):
        write(tmp_path, name, number=2)

    def damage(order):
        if order.label == "linked":
            shared = replica_of(tmp_path, "linked") / "shared"
            shared.rename(tmp_path / "elsewhere")
            shared.symlink_to(tmp_path / "elsewhere")

    executors.before = damage
    lines: list[str] = []
    with acquire(f"file:{replica_of(tmp_path, 'held')}", Side()):
        report = run([job(tmp_path, name) for name in ("whole", "held", "linked")], lines)
    assert outcomes(report) == {
        "whole": ("replicated", 0),
        "held": ("failed", 11),
        "linked": ("failed", 6),
    }
    by_name = {each.name: each for each in report.jobs}
    assert "lease" in by_name["held"].error
    assert by_name["linked"].obstacle == "link"
    assert [line for line in lines if line.startswith("held: ")]


def test_a_sync_that_has_become_large_since_it_was_checked_is_made_by_the_driver(
    tmp_path, executors
):
    write(tmp_path, "a")
    executors.before = lambda _order: write(tmp_path, "a", MANY, number=2)
    assert outcomes(run([job(tmp_path, "a")])) == {"a": ("replicated", 0)}
    assert len(executors.copied) == len(MANY)
    assert faults(tmp_path, "a") == []


def test_a_job_whose_kafka_is_asked_is_made_by_the_driver(tmp_path, executors):
    write(tmp_path, "a")
    run([job(tmp_path, "a", kafka_source="127.0.0.1:1")])
    assert executors.handed == []
    assert faults(tmp_path, "a") == []


def test_the_streams_of_a_run_are_those_of_each_sync(tmp_path, executors):
    write(tmp_path, "a")
    settings, chosen = FleetSettings(spread="jobs"), replace(SPARK, streams=3)
    replicate_fleet([job(tmp_path, "a")], chosen, Sides(), print, False, settings)
    assert executors.streams == 3
    of_service = Executors()
    syncs = SpreadSyncs(lambda: contextlib.nullcontext(of_service), 5)
    syncs.make("a", job(tmp_path, "a").request, print, 0)
    assert of_service.streams == 5


def test_what_spark_gave_up_fails_alone(tmp_path, executors):
    write(tmp_path, "a")
    executors.error = errors.CopyFailed("Spark gave up: executors died")
    report = run([job(tmp_path, "a")])
    assert outcomes(report) == {"a": ("failed", 3)}
    assert not (tmp_path / "dcB").exists()


def test_an_executor_that_has_another_directory_there_writes_nothing(tmp_path, executors):
    write(tmp_path, "a")
    (tmp_path / "dcB").mkdir()

    def unmount(_order):
        (tmp_path / "dcB").rename(tmp_path / "shared")
        (tmp_path / "dcB").mkdir()

    executors.before = unmount
    report = run([job(tmp_path, "a")])
    assert outcomes(report) == {"a": ("failed", TargetGone.exit_code)}
    assert "is not the same directory for an executor" in report.jobs[0].error
    assert not list((tmp_path / "dcB").iterdir())


def test_a_directory_with_the_same_inode_and_other_names_in_it_is_another_one(tmp_path):
    """As the roots of two filesystems, which have one and the same inode."""
    (tmp_path / "replica").mkdir()
    (tmp_path / "other").mkdir()
    seen = spread._present(f"file:{tmp_path}/not yet there")
    assert spread._is_here(seen)
    (tmp_path / "other").rmdir()  # another run did
    assert spread._is_here(seen)
    (tmp_path / "replica").rename(tmp_path / "other")
    assert not spread._is_here(seen)


def test_a_replica_that_the_driver_does_not_see_is_no_success(tmp_path):
    write(tmp_path, "a")
    results = []

    class Elsewhere(Executors):
        def spread(self, function, items, done, *others):
            def hidden(index, made):
                shutil.rmtree(tmp_path / "dcB")
                done(index, made)

            super().spread(function, items, hidden, *others)

    asked = [("a", job(tmp_path, "a").request)]
    make_all(Elsewhere(), asked, lambda _index, made: results.append(made))
    [made] = results
    assert isinstance(made.error, TargetGone)
    assert "which does not see" in str(made.error)


def denied(*_):
    raise PermissionError(13, "Permission denied")


@pytest.mark.usefixtures("executors")
def test_a_replica_that_the_driver_may_not_look_at_fails_alone(tmp_path, monkeypatch):
    """What `done` raises would go to the executor: nobody would know what came of the job."""
    for name in ("a", "b"):
        write(tmp_path, name)
    look = spread._seen_here
    monkeypatch.setattr(
        spread,
        "_seen_here",
        lambda made, side: (denied if id_of("a") in made.report.plan.replica else look)(made, side),
    )
    report = run([job(tmp_path, name) for name in ("a", "b")])
    assert outcomes(report) == {"a": ("failed", 1), "b": ("replicated", 0)}


@pytest.mark.usefixtures("executors")
def test_a_line_that_cannot_be_narrated_fails_its_job_alone(tmp_path):
    for name in ("a", "b"):
        write(tmp_path, name)

    def narrate(line):
        if line.startswith("a: "):
            raise BrokenPipeError(32, "Broken pipe")

    settings, chosen = FleetSettings(spread="jobs"), [job(tmp_path, name) for name in ("a", "b")]
    report = replicate_fleet(chosen, SPARK, Sides(), narrate, False, settings)
    assert outcomes(report) == {"a": ("failed", 1), "b": ("replicated", 0)}


def test_a_target_that_the_driver_may_not_look_at_is_known_by_the_directory_above_it(
    tmp_path, monkeypatch
):
    hidden, stat = tmp_path / "hidden" / "dcB", Path.stat

    def seen(path, **words):
        return denied() if path.is_relative_to(tmp_path / "hidden") else stat(path, **words)

    monkeypatch.setattr(Path, "stat", seen)
    found = spread._present(f"file:{hidden}")
    assert found == spread.Seen(str(tmp_path), stat(tmp_path).st_ino, ())


def test_without_spark_there_is_nothing_to_spread_jobs_to(tmp_path):
    write(tmp_path, "a")
    settings = FleetSettings(spread="jobs")
    with pytest.raises(UsageError, match="--spread jobs needs --runner spark"):
        replicate_fleet([job(tmp_path, "a")], ExecutionOptions(), Sides(), print, False, settings)
    (tmp_path / "jobs.toml").write_text("[[job]]\n")
    for more in ([], ["--every", "1h"]):
        words = ["fleet", str(tmp_path / "jobs.toml"), "--spread", "jobs", *more]
        done = CliRunner().invoke(cli, words)
        assert isinstance(done.exception, UsageError)  # before the file is read: it is wrong


class Counting(Executors):
    """Executors that count the jobs of Spark."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def spread(self, *arguments):
        self.calls += 1
        super().spread(*arguments)


def service_of(executors):
    return SpreadSyncs(lambda: contextlib.nullcontext(executors))


def test_syncs_of_a_service_that_are_asked_for_together_share_a_job_of_spark(tmp_path, monkeypatch):
    for name in ("a", "b"):
        write(tmp_path, name)
    executors = Counting()
    syncs, reports = service_of(executors), {}

    def gather(_seconds):
        wait_until(lambda: len(syncs._asked) == 2, "the second sync")

    monkeypatch.setattr(spread, "time", SimpleNamespace(sleep=gather))

    def ask(name):
        reports[name] = syncs.make(name, job(tmp_path, name).request, print, 0)

    asking = [threading.Thread(target=ask, args=[name]) for name in ("a", "b")]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join()
    assert {name: report.committed for name, report in reports.items()} == {"a": True, "b": True}
    assert executors.calls == 1


def test_a_failure_of_a_sync_reaches_the_thread_of_its_job_and_one_of_spark_all_of_them(tmp_path):
    syncs, request = service_of(Executors()), job(tmp_path, "a").request
    with pytest.raises(NotThere):
        syncs.make("a", request, print, 0)
    with pytest.raises(NeedsSpark):
        syncs.make("a", replace(request, kafka_source="127.0.0.1:1"), print, 0)

    @contextlib.contextmanager
    def stopped():
        raise RunnerStopped
        yield

    with pytest.raises(RunnerStopped):
        SpreadSyncs(stopped).make("a", request, print, 0)


def test_a_service_without_a_thread_left_fails_the_job_and_makes_the_next_one(
    tmp_path, monkeypatch
):
    write(tmp_path, "a")
    syncs, request = service_of(Executors()), job(tmp_path, "a").request

    def no_thread(*_):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(spread, "in_thread", no_thread)
        with pytest.raises(RuntimeError):
            syncs.make("a", request, print, 0)
    reports = []
    asking = threading.Thread(
        target=lambda: reports.append(syncs.make("a", request, print, 0)), daemon=True
    )
    asking.start()
    asking.join(PATIENCE)
    assert [report.committed for report in reports] == [True]


@pytest.mark.parametrize(
    "error",
    [
        LeaseHeld("held"),
        errors.Obstructed("a link", "link"),
        errors.FlinkRefused("no", 409),
        errors.TooManyDeletes("too many", {"the": "report"}),
    ],
)
def test_an_error_of_another_process_is_as_it_was_raised_there(error):
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)
