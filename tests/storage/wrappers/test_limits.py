"""What a run may do in a second, however many threads and processes do it."""

import contextlib
import multiprocessing
import random
import threading
import time

import pytest

from cpreplicate.core.timetable import Change, Timetable
from cpreplicate.errors import UsageError
from cpreplicate.storage import Transient
from cpreplicate.storage.rpc import RpcClient, serve
from cpreplicate.storage.wrappers import limits
from cpreplicate.storage.wrappers.limits import Limited, RateLimiter, new_limits, pace, wait
from tests.support.memory import MemoryStorage
from tests.support.tracing import Tracing
from tests.support.waiting import PATIENCE


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def test_what_is_reserved_waits_its_turn():
    clock = Clock()
    limiter = RateLimiter({"calls": 10.0}, clock)
    waits = [limiter.reserve("calls a", 1).seconds for _ in range(4)]
    # a tenth of a second's allowance may be used at once
    assert waits == pytest.approx([0, 0, 0.1, 0.2])


def test_what_was_not_used_is_not_kept_for_a_storm_later():
    clock = Clock()
    limiter = RateLimiter({"calls": 10.0}, clock)
    limiter.reserve("calls a", 1)
    clock.now += 3600
    assert sum(limiter.reserve("calls a", 1).seconds == 0 for _ in range(100)) == 2


def test_each_cluster_has_its_own_allowance_and_bytes_are_shared_by_all():
    limiter = RateLimiter({"calls": 1.0, "bytes": 1.0}, Clock())
    limiter.reserve("calls a", 60)
    assert limiter.reserve("calls b", 1).seconds == 0
    limiter.reserve("bytes", 0.5)
    limiter.reserve("bytes", 0.5)
    assert limiter.reserve("bytes", 0.5).seconds == pytest.approx(0.9)


def granted(limiter, clock, amount):
    """Return how many seconds later a piece may be used which is asked for until it may."""
    began = clock.now
    while (turn := limiter.reserve("bytes", amount)).again:
        clock.now += turn.seconds
    return clock.now + turn.seconds - began


def test_a_large_piece_is_used_at_once_and_holds_up_the_next_large_one_only():
    clock = Clock()
    limiter = RateLimiter({"bytes": 100.0}, clock)
    assert granted(limiter, clock, 1000) == 0
    assert limiter.reserve("bytes", 1).seconds == pytest.approx(0.4)
    assert granted(limiter, clock, 1000) == pytest.approx(9.9, abs=0.1)
    assert limiter.reserve("bytes", 1).seconds <= 0.5


def test_large_and_small_pieces_together_keep_the_rate_and_nobody_starves():
    """Twenty who want few bytes again and again, and three who want large pieces."""
    clock, chance = Clock(), random.Random(1)
    limiter = RateLimiter({"bytes": 100.0}, clock)
    began, used = clock.now, dict.fromkeys(range(23), 0)
    due = dict.fromkeys(used, clock.now)
    while clock.now < began + 600:
        who = min(due, key=lambda each: due[each])
        clock.now = max(clock.now, due[who])
        amount = 5 if who < 20 else 1000
        turn = limiter.reserve("bytes", amount)
        used[who] += 0 if turn.again else amount
        due[who] = clock.now + turn.seconds + chance.random() / 100
        assert turn.seconds < 3
    assert 0.95 * 60_000 < sum(used.values()) < 60_000 + 1000 + 20 * 5 + 50
    assert min(used.values()) > 1000


def test_the_rate_of_a_timetable_is_that_of_the_moment():
    clock, second = Clock(), [0]
    table = Timetable((Change(0, 1.0), Change(60, None), Change(120, 100.0)))
    limiter = RateLimiter({"bytes": table}, clock, lambda: second[0])
    limiter.reserve("bytes", 0.5)
    assert limiter.reserve("bytes", 0.5).seconds == pytest.approx(0.4)
    second[0] = 60
    assert limiter.reserve("bytes", 1e9).seconds == 0
    second[0], clock.now = 120, clock.now + 120
    limiter.reserve("bytes", 50)
    assert limiter.reserve("bytes", 1).seconds == pytest.approx(0.4)


def test_a_timetable_that_never_limits_is_no_limit():
    assert not new_limits(None, Timetable((Change(0, None), Change(60, None)))).any
    assert new_limits(None, Timetable((Change(0, None), Change(60, 5.0)))).any


def test_nothing_is_waited_for_where_nothing_is_limited():
    assert not new_limits(None, None).any
    assert RateLimiter({"calls": None}).reserve("calls a", 1e12).seconds == 0


def work(given, amount, times):
    for _ in range(times):
        wait(given, "bytes", amount)


@contextlib.contextmanager
def served(given, host="127.0.0.1"):
    with serve({"reserve": pace(given).reserve}, host) as address:
        yield given._replace(address=address)


@pytest.mark.parametrize("rate", [0, -1.0, float("nan"), float("inf")])
def test_a_rate_that_nothing_can_be_divided_by_is_refused_before_the_run(rate):
    for given in ((rate, None), (None, rate), (None, Timetable((Change(0, rate),)))):
        with pytest.raises(UsageError, match="Give a number above 0"):
            new_limits(*given)


def test_several_processes_together_keep_one_limit():
    """Four processes move what takes two seconds in all.

    A limit a process would take half a second.
    """
    with served(new_limits(None, 1e6)) as given:
        started = time.monotonic()
        spawn = multiprocessing.get_context("spawn")
        processes = [spawn.Process(target=work, args=(given, 10_000, 50)) for _ in range(4)]
        for process in processes:
            process.start()
        for process in processes:
            process.join(PATIENCE)
        took = time.monotonic() - started
    assert [process.exitcode for process in processes] == [0] * 4
    assert took > 1.8


def test_threads_of_a_process_share_one_connection_and_one_limit():
    with served(new_limits(None, 1e6)) as given:
        wait(given, "bytes", 0)
        started = time.monotonic()
        threads = [threading.Thread(target=work, args=(given, 5_000, 20)) for _ in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        took = time.monotonic() - started
    assert took > 0.85


def test_a_stranger_without_the_key_gets_nothing_and_stops_nobody():
    with served(new_limits(5.0, None)) as given:
        with pytest.raises(Transient, match="driver"):
            pace(given._replace(address=given.address._replace(key=b"wrong"))).reserve("calls a", 1)
        assert pace(given).reserve("calls a", 1).seconds == 0


def test_what_answering_raises_is_raised_where_it_was_asked_and_others_are_answered():
    def refuse():
        raise ValueError("no such batch")

    with serve({"refuse": refuse, "add": lambda *numbers: sum(numbers)}, "127.0.0.1") as address:
        caller = RpcClient(address)
        with pytest.raises(ValueError, match="no such batch"):
            caller.call("refuse")
        assert caller.call("add", 1, 2) == 3


def test_where_the_driver_is_gone_a_task_fails_and_does_not_run_without_limit():
    with served(new_limits(5.0, None)) as given:
        pass
    with pytest.raises(Transient, match="driver"):
        pace(given).reserve("calls a", 1)


def test_a_put_counts_for_the_calls_that_it_makes(monkeypatch):
    reserved = []
    monkeypatch.setattr(
        limits, "wait", lambda _limits, what, amount, _look: reserved.append((what, amount))
    )
    memory = MemoryStorage()
    memory.put_calls = 4
    tracing = Tracing(memory)
    storage = Limited(tracing, new_limits(5.0, None), "hdfs://a")
    storage.put("memory:/a/f", lambda: [b"x"])
    storage.stat("memory:/a/f")
    storage.open("memory:/a/f")
    storage.delete("memory:/a/f")
    assert reserved == [("calls hdfs://a", 4)] + [("calls hdfs://a", 1)] * 3
    assert [verb for verb, _ in tracing.calls] == ["put", "stat", "open", "delete"]
