"""The runners of a service: one Spark session for all jobs, kept while it is used."""

import math
import threading

import pytest

from cpreplicate.runners import (
    Copy,
    Delete,
    ExecutionOptions,
    NeedsSpark,
    RunnerStopped,
    WarmRunners,
)
from cpreplicate.storage import Sides
from tests.support.waiting import PATIENCE


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def copies(tmp_path, name, count=3):
    (tmp_path / "source").mkdir(exist_ok=True)
    result = []
    for number in range(count):
        file = tmp_path / "source" / f"{name}-{number}"
        file.write_bytes(b"x" * 100)
        target = f"file:{tmp_path}/target/{file.name}"
        result.append(Copy(f"file:{file}", target, 100))
    return result


def test_small_plans_are_executed_by_threads_and_no_session_is_started(tmp_path):
    with WarmRunners(Sides(), ExecutionOptions(), 60.0) as runners:
        share = runners.share()
        assert [outcome.error for outcome in share.run(copies(tmp_path, "a"))] == [None] * 3
        assert (share.name, runners.is_warm) == ("inline", False)
        assert not runners.give_up_idle()


def test_a_process_without_the_session_copies_nothing_of_a_plan_that_is_worth_it(tmp_path):
    execution = ExecutionOptions(runner="spark")
    with WarmRunners(Sides(), execution, 60.0, has_spark=False) as runners:
        with pytest.raises(NeedsSpark):
            runners.share().run(copies(tmp_path, "a"))
        assert not (tmp_path / "target").exists()
        deletes = [Delete(f"file:{tmp_path}/source/a-0", math.inf)]
        assert [outcome.error for outcome in runners.share().run(deletes)] == [None]


@pytest.mark.parametrize(
    ("runner", "master", "has_spark", "expected"),
    [
        ("spark", "spark://cluster:7077", True, True),
        ("auto", "yarn", True, True),
        ("auto", None, True, False),
        ("spark", "local[2]", True, False),
        ("inline", "yarn", True, False),
        ("auto", "yarn", False, False),  # another process has the session
    ],
)
def test_a_share_may_be_elsewhere_before_its_first_run(runner, master, has_spark, expected):
    """What a run records, and how its lease is left, is decided before it has its tasks."""
    execution = ExecutionOptions(runner=runner, master=master)
    with WarmRunners(Sides(), execution, 60.0, has_spark=has_spark) as runners:
        assert runners.share().is_elsewhere is expected


def test_after_a_cancellation_every_run_is_stopped(tmp_path):
    with WarmRunners(Sides(), ExecutionOptions(runner="inline"), 60.0) as runners:
        runners.cancel()
        with pytest.raises(RunnerStopped):
            runners.share().run(copies(tmp_path, "a"))


@pytest.mark.spark
@pytest.mark.rest
@pytest.mark.xdist_group("spark")
def test_jobs_share_a_session_which_ends_when_it_was_idle_and_starts_again(tmp_path):
    from pyspark import SparkContext

    def application():
        return SparkContext._active_spark_context.applicationId

    clock = Clock()
    execution = ExecutionOptions(runner="spark", master="local[2]")
    with WarmRunners(Sides(), execution, 60.0, clock) as runners:
        shares = [runners.share(level) for level in range(3)]
        threads = [
            threading.Thread(target=share.run, args=[copies(tmp_path, f"job-{number}")])
            for number, share in enumerate(shares)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        assert len(list((tmp_path / "target").iterdir())) == 9
        assert [share.name for share in shares] == ["spark"] * 3
        first = application()
        clock.now = 59.0
        assert not runners.give_up_idle()
        shares[0].run(copies(tmp_path, "again"))
        assert application() == first
        clock.now = 59.0 + 60.0
        assert runners.give_up_idle()
        assert not runners.is_warm
        shares[1].run(copies(tmp_path, "later"))
        assert application() != first
        SparkContext._active_spark_context._jsc.stop()  # as when the application fails
        outcomes = shares[2].run(copies(tmp_path, "after"))
        assert [outcome.error for outcome in outcomes] == [None] * 3
    assert SparkContext._active_spark_context is None
    assert len(list((tmp_path / "target").iterdir())) == 18
