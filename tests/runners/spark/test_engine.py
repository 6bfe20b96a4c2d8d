"""A run ends once no executor has answered for too long, and not before."""

import contextlib
import socket
import threading
import time
from types import SimpleNamespace

import pytest

from cpreplicate.runners import EngineLost
from cpreplicate.runners.spark.engine import (
    FIRST_SECONDS,
    LOST_SECONDS,
    Engine,
    EngineWatch,
    Places,
    accepts_any,
    wait_for_master,
)
from tests.support.ports import free_port
from tests.support.waiting import PATIENCE

MASTER = "spark://driver:7077"


class Cluster:
    """Executors that answer or do not, and the time at which they are asked."""

    def __init__(self, timeout=None, **options):
        self.answers, self.now = True, 1000.0
        self.watch = EngineWatch(
            MASTER, lambda: self.answers, timeout, clock=lambda: self.now, **options
        )

    def is_lost_after(self, seconds):
        for _ in range(int(seconds)):
            self.watch.look()
            self.now += 1.0
        self.watch.look()
        return self.watch.is_lost


@contextlib.contextmanager
def at_work(**options):
    """A cluster with a job, of which an executor has answered."""
    cluster = Cluster(**options)
    with cluster.watch.job():
        cluster.watch.look()
        yield cluster


def test_silence_of_a_minute_ends_a_run_within_that_minute():
    with at_work() as cluster:
        cluster.answers = False
        assert not cluster.is_lost_after(LOST_SECONDS / 2)
        assert cluster.is_lost_after(LOST_SECONDS / 2)
        with pytest.raises(EngineLost) as raised:
            cluster.watch.check()
    assert str(raised.value).startswith(f"{MASTER}: no executor of Spark has answered for as long")
    assert "--engine-timeout allows (60 s)" in str(raised.value)
    assert raised.value.exit_code == 7


def test_one_answer_ends_a_silence():
    with at_work() as cluster:
        for _ in range(10):
            cluster.answers = False
            assert not cluster.is_lost_after(LOST_SECONDS / 2)
            cluster.answers = True
            assert not cluster.is_lost_after(1)
        cluster.watch.check()


def test_the_given_time_counts_with_and_without_a_first_executor():
    with at_work(timeout=300.0) as cluster:
        cluster.answers = False
        assert not cluster.is_lost_after(280)
        assert cluster.is_lost_after(20)
    cluster = Cluster(timeout=20.0)
    cluster.answers = False
    with cluster.watch.job():
        assert cluster.is_lost_after(20)
        with pytest.raises(EngineLost, match=r"that can run a task has come within 20 s\. Free"):
            cluster.watch.check()


def test_the_first_executor_has_longer():
    cluster = Cluster()
    cluster.answers = False
    with cluster.watch.job():
        assert not cluster.is_lost_after(FIRST_SECONDS - 20)
        assert cluster.is_lost_after(20)


def test_nothing_is_lost_while_no_job_runs():
    with at_work() as cluster:
        pass
    cluster.answers = False
    assert not cluster.is_lost_after(FIRST_SECONDS)
    with cluster.watch.job():
        assert not cluster.is_lost_after(1)


@pytest.mark.parametrize("comes_and_goes", [False, True])
def test_executors_that_are_released_between_jobs_have_the_time_of_the_first_ones(comes_and_goes):
    with at_work(comes_and_goes=comes_and_goes) as cluster:
        pass
    cluster.answers = False
    with cluster.watch.job():
        assert cluster.is_lost_after(LOST_SECONDS) is not comes_and_goes


def spark(executors, tasks=1):
    """A session on a cluster manager of which `executors` returns how many are alive.

    Each can run so many tasks at once.
    """
    each = SimpleNamespace(id=lambda: "1", maxTasks=lambda: tasks)
    known = SimpleNamespace(size=executors, apply=lambda _: each)
    store = SimpleNamespace(executorList=lambda _: known)
    scheduler = SimpleNamespace(
        getExecutorIds=lambda: SimpleNamespace(size=executors), statusStore=lambda: store
    )
    return SimpleNamespace(master="yarn", getConf=dict, _jsc=SimpleNamespace(sc=lambda: scheduler))


def test_a_spark_that_does_not_answer_has_no_executor_that_does_until_it_answers():
    may_answer = threading.Event()

    def executors():
        may_answer.wait()
        return 2

    engine = Engine(spark(executors), lambda: 0.0, answer_within=0.01)
    assert not engine.answers()
    assert not engine.answers()
    may_answer.set()
    end = time.monotonic() + PATIENCE
    while not engine.answers():
        assert time.monotonic() < end


@pytest.mark.parametrize(("alive", "answers"), [(2, True), (0, False)])
def test_executors_that_spark_considers_alive_answer(alive, answers):
    engine = Engine(spark(lambda: alive), lambda: 0.0, answer_within=PATIENCE)
    assert engine.answers() is answers


@pytest.mark.parametrize(("word", "is_so"), [("true", True), ("True", True), ("false", False)])
def test_dynamic_allocation_is_seen_however_its_property_is_written(word, is_so):
    """`SparkConf.set` of Python writes `True`."""
    context = spark(lambda: 1)
    context.getConf = lambda: {"spark.dynamicAllocation.enabled": word}
    assert Engine(context, lambda: 0.0).comes_and_goes is is_so


def test_executors_without_the_cores_for_a_task_do_not_answer():
    assert not Engine(spark(lambda: 2, tasks=0), lambda: 0.0, answer_within=PATIENCE).answers()


def test_a_session_that_has_ended_has_no_executor():
    def ended():
        raise RuntimeError("the session has ended")

    assert not Engine(spark(ended), lambda: 0.0, answer_within=PATIENCE).answers()


def test_one_address_that_accepts_is_enough():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        others = [f"127.0.0.1:{free_port()}", "no-such-host.invalid:1", "nonsense", "a:b"]
        assert accepts_any([*others, f"127.0.0.1:{port}"])
        assert not accepts_any(others)
    assert not accepts_any([])


def test_an_address_that_was_resolved_once_needs_no_server_of_names_again():
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"localhost:{server.getsockname()[1]}"
        places: Places = {}
        assert accepts_any([address], places)
        [place] = places.values()
        assert accepts_any(["no-such-host.invalid:1"], {"no-such-host.invalid:1": place})


def test_a_master_that_answers_is_not_waited_for_and_other_masters_have_no_address():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        wait_for_master(f"spark://127.0.0.1:{free_port()},127.0.0.1:{port}", 0.01)
    for other in ("", "yarn", "local[2]", "k8s://https://127.0.0.1:1"):
        wait_for_master(other, 0.01)


def test_a_master_that_does_not_answer_is_named():
    url = f"spark://127.0.0.1:{free_port()}"
    with pytest.raises(EngineLost, match=f"{url}: no Spark master has answered for 1 s"):
        wait_for_master(url, 1.0)
