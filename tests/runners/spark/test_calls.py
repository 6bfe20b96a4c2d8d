"""Calls by tasks: each is reported once, and one that kills its worker holds up few others."""

import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

import pytest

from cpreplicate.runners import RunnerStopped
from cpreplicate.runners.spark import calls
from cpreplicate.runners.spark.calls import AT_ONCE, CallReports, CallTask, Lost, dealt
from cpreplicate.runners.spark.clocks import DriverClock
from cpreplicate.runners.spark.executors import Differs, Needs
from cpreplicate.storage.rpc import RpcAddress, RpcClient, serve
from cpreplicate.storage.waiting.cancellation import go_on
from tests.support.waiting import PATIENCE, wait_until

NEEDS = Needs(())
GONE = RpcAddress(("127.0.0.1", 1), b"key")
MANY = 1000
KEY = "0-0"


@pytest.fixture
def driver():
    """The driver's part, and what it passed on."""
    reports, known = CallReports(), []
    answers = {**reports.answers, **DriverClock().answers}
    with (
        serve(answers, "127.0.0.1") as address,
        reports.expecting([KEY], lambda index, result: known.append((index, result))),
    ):
        yield reports, address, known


def task(function, address, is_limited=False):
    return CallTask(function, address, NEEDS, is_limited)


def doubled(item, _is_again):
    return 2 * item


def items(count):
    return [(index, index) for index in range(count)]


@pytest.mark.parametrize(
    ("count", "slots", "most"), [(1, 8, MANY), (9, 8, MANY), (5000, 8, MANY), (100, 3, 1)]
)
def test_each_call_is_dealt_once_and_the_tasks_of_a_moment_have_the_next_ones_in_turn(
    count, slots, most
):
    groups = dealt(count, slots, most)
    assert sorted(chain(*groups)) == list(range(count))
    assert max(map(len, groups)) <= most
    assert groups[: min(slots, count)] == sorted(groups[: min(slots, count)])
    firsts = sorted(group[0] for group in groups[:slots])
    assert firsts == list(range(min(slots, count)))  # the most important begin at once


def test_what_is_reported_is_not_returned_again_and_where_nobody_listens_all_is_returned(driver):
    _, address, known = driver
    assert task(doubled, address)((KEY, items(3))) == []
    assert sorted(known) == [(0, 0), (1, 2), (2, 4)]
    assert sorted(task(doubled, GONE)((KEY, items(3)))) == [(0, 0), (1, 2), (2, 4)]


@pytest.mark.parametrize("is_again", [False, True])
def test_a_call_that_is_made_again_may_have_been_begun_before(driver, is_again):
    _, address, known = driver
    made: CallTask[int, bool] = CallTask(
        lambda _item, may_have_begun: may_have_begun, address, NEEDS, False, is_again
    )
    assert made((KEY, items(1))) == []
    assert known == [(0, is_again)]


def test_a_task_that_does_not_reach_the_limits_of_the_run_makes_no_call():
    with pytest.raises(Differs, match="does not reach the driver at"):
        task(pytest.fail, GONE, is_limited=True)((KEY, items(1)))


def test_calls_of_a_task_are_made_at_the_same_time(driver):
    _, address, known = driver
    all_there = threading.Barrier(AT_ONCE, timeout=PATIENCE)
    task(lambda _item, _is_again: all_there.wait() * 0, address)((KEY, items(AT_ONCE)))
    assert len(known) == AT_ONCE


def test_another_attempt_makes_only_the_calls_that_are_left_those_under_way_last_and_alone(driver):
    _, address, known = driver
    client, made = RpcClient(address), []
    client.call("calls", KEY, 0)  # an attempt that dies after this
    for index in (0, 1, 2):
        client.call("call", KEY, index, False)
    client.call("called", KEY, 1, "done")
    task(lambda item, _is_again: made.append(item), address)((KEY, items(5)))
    assert sorted(made[:2]) == [3, 4]
    assert made[2:] == [0, 2]
    assert sorted(index for index, _ in known) == [0, 1, 2, 3, 4]


def test_a_call_whose_worker_died_while_it_was_alone_is_not_made_again(driver):
    _, address, known = driver
    client = RpcClient(address)
    client.call("calls", KEY, 0)
    client.call("call", KEY, 1, True)
    task(lambda item, _is_again: item, address)((KEY, items(3)))
    assert sorted(known) == [(0, 0), (1, Lost()), (2, 2)]


def test_who_makes_a_call_that_another_attempt_began_knows_it(driver):
    """It holds the lease: the first attempt goes on where its driver took it for dead."""
    _, address, known = driver
    other = RpcClient(address)
    other.call("calls", KEY, 1)
    other.call("call", KEY, 2, False)

    class Slow(CallTask[int, bool]):
        """The first attempt, which began before the other one."""

        def _called(self, items, before, is_again, driver):
            return super()._called(items, before._replace(begun=frozenset()), is_again, driver)

    Slow(lambda _item, is_again: is_again, address, NEEDS, False)((KEY, items(3)))
    assert sorted(known) == [(0, False), (1, False), (2, True)]


def test_a_call_that_two_attempts_make_is_passed_on_once(driver):
    reports, _, known = driver
    reports.report(KEY, 0, "first")
    reports.report(KEY, 0, "second")
    reports.report("forgotten", 0, "of another job")
    assert known == [(0, "first")]


def test_calls_that_are_to_stop_end_by_themselves_before_their_worker_is_killed(
    driver, monkeypatch
):
    monkeypatch.setattr(calls, "EASE", PATIENCE)
    reports, address, known = driver
    begun, ended = threading.Event(), threading.Event()

    def wait_to_be_cancelled(_item, _is_again):
        begun.set()
        try:
            wait_until(go_on)  # raises
        finally:
            ended.set()

    with ThreadPoolExecutor() as pool:
        running = pool.submit(task(wait_to_be_cancelled, address), (KEY, items(1)))
        assert begun.wait(PATIENCE)
        reports.stop([KEY])
        assert ended.is_set()
        with pytest.raises(RunnerStopped):
            running.result()
    assert known == []
    with pytest.raises(RunnerStopped):  # nor does another attempt begin
        task(pytest.fail, address)((KEY, items(1)))
