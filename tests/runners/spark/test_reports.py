"""Progress reports of tasks to the driver."""

import contextlib
import math
import threading
import time

import pytest

from cpreplicate.runners import Copy, Outcome, RunnerStopped
from cpreplicate.runners.progress import Progress
from cpreplicate.runners.spark.reports import ProgressReports, Reporter
from cpreplicate.storage.rpc import Answers, RpcAddress, serve
from tests.support.waiting import PATIENCE

BATCH = [Copy(f"s{n}", f"t{n}", 10) for n in range(3)]
GONE = RpcAddress(("127.0.0.1", 1), b"key")


def done(at):
    return Outcome(f"t{at}", 10, 7, 0.5)


@pytest.fixture
def progress():
    return Progress()


@pytest.fixture
def reports(progress):
    reports = ProgressReports(progress)
    reports.expect("0-0", BATCH)
    progress.expect(3, 30)
    return reports


@pytest.fixture
def address(reports):
    with serve(reports.answers, "127.0.0.1") as address:
        yield address


def attempt(address, number, *finished, failed=()):
    with Reporter(address, "0-0", number) as reporter:
        known = reporter.begin(BATCH)
        reporter.indexes = [at for at in range(3) if at not in (known or {})]
        for at in finished:
            reporter.moved(10)
            reporter.done(reporter.indexes.index(at), done(at))
        for at in failed:
            reporter.done(
                reporter.indexes.index(at), Outcome(f"t{at}", 0, None, 0.1, "OSError: broken")
            )
    return known


def test_what_an_attempt_finished_the_next_one_knows_and_leaves_out(address, reports):
    assert attempt(address, 0, 0, 2, failed=[1]) == {}
    assert attempt(address, 1, 1) == {0: done(0), 2: done(2)}
    assert reports.finished("0-0") == {0: done(0), 1: done(1), 2: done(2)}


def test_progress_is_reported_while_the_attempt_runs(address, progress):
    with Reporter(address, "0-0", 0) as reporter:
        reporter.begin(BATCH)
        reporter.indexes = [0, 1, 2]
        reporter.moved(10)
        reporter.done(0, done(0))
        end = time.monotonic() + PATIENCE
        while progress.snapshot().files == 0:
            assert time.monotonic() < end
            time.sleep(0.05)


def test_two_attempts_at_once_count_once(address, progress):
    attempt(address, 0, 0, 1, 2)
    with Reporter(address, "0-0", 1) as late:
        late.indexes = [0, 1, 2]
        for at in range(3):
            late.moved(10)
            late.done(at, done(at))
    now = progress.snapshot()
    assert (now.files, now.bytes) == (3, 30)


def test_failures_are_counted_until_the_batch_is_tried_again(address, progress):
    attempt(address, 0, 0, failed=[1, 2])
    assert progress.snapshot().failed == 2
    attempt(address, 1, 1, 2)
    now = progress.snapshot()
    assert (now.files, now.failed, now.retried) == (3, 0, 1)


def test_what_comes_too_late_is_not_counted(address, reports, progress):
    reports.forget("0-0")
    assert attempt(address, 2, 1) == {}
    with Reporter(address, "0-0", 0) as late:
        late.indexes = [0, 1, 2]
        late.done(0, done(0))
    assert progress.snapshot()[:2] == (0, 3)
    assert progress.snapshot().retried == 0


@pytest.mark.parametrize("refused", [0.0, math.inf], ids=["its port is closed", "it is silent"])
def test_a_task_is_cancelled_once_the_driver_that_answered_is_gone(refused):
    """It must not write beside the next run, which may begin at once."""
    silent, answering = threading.Event(), threading.Event()
    answers: Answers = {
        **ProgressReports(Progress()).answers,
        "dropped": lambda _key: silent.wait(PATIENCE) if answering.is_set() else frozenset(),
    }
    with contextlib.ExitStack() as driver:
        address = driver.enter_context(serve(answers, "127.0.0.1"))
        patience = math.inf if refused == 0.0 else 0.0
        with Reporter(address, "0-0", 0, silent=patience, refused=refused) as reporter:
            assert reporter.begin(BATCH) == {}
            if patience > 0:  # else a question that is under way is one of too long
                reporter.moved(0)
            answering.set()
            if refused == 0.0:
                driver.close()
            with pytest.raises(RunnerStopped):
                go_on(reporter)
            silent.set()


def go_on(reporter):
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        reporter.moved(1)
        time.sleep(0.01)


def test_a_task_continues_without_known_outcomes_if_the_driver_cannot_be_reached():
    assert attempt(GONE, 0, 0, 1, 2) is None
