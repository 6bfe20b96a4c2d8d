"""What the driver does while executors start, and what it leaves to them."""

import contextlib
import math
import threading

import pytest

from cpreplicate.errors import LeaseHeld
from cpreplicate.runners import Copy, Delete, Outcome, early
from cpreplicate.runners.early import EarlyWork
from cpreplicate.runners.progress import Progress
from cpreplicate.runners.tasks import RunnerStopped, Wanted, dropping
from cpreplicate.storage import Sides
from cpreplicate.storage.base import RANGE
from cpreplicate.storage.waiting.cancellation import cancellable
from tests.support.waiting import PATIENCE, wait_until

COUNT = 20


@pytest.fixture(autouse=True)
def _nothing_stands_still(monkeypatch):
    """Break off no copy because nothing moves: on a busy machine it moves later."""
    monkeypatch.setattr(early, "_STALLED", math.inf)


@pytest.fixture
def copies(tmp_path):
    (tmp_path / "a").mkdir()
    for number in range(COUNT):
        (tmp_path / "a" / f"{number}").write_bytes(bytes(100))
    return [copy(tmp_path, number) for number in range(COUNT)]


def copy(place, name, size=100):
    return Copy(f"file:{place}/a/{name}", f"file:{place}/b/{name}", size)


def begun(actions, streams=None, done=None):
    return EarlyWork(actions, Sides(), streams, Progress(), done)


def nothing():
    """Go on."""


def targets(of):
    return sorted(each.target for each in of)


@contextlib.contextmanager
def held(actions, streams):
    """Early work of which `streams` copies are made, and no other begins before it goes on."""
    reported, going_on = [], threading.Event()

    def hold(outcome):
        reported.append(outcome)
        assert going_on.wait(PATIENCE)

    with begun(actions, streams, hold) as work:
        try:
            wait_until(lambda: len(reported) == streams)
            yield work, reported, going_on
        except BaseException:
            work.stop()
            raise
        finally:
            going_on.set()


def test_copies_and_deletes_are_done_and_reported_once(copies, tmp_path):
    (tmp_path / "old").write_bytes(b"old")
    actions, reported = [*copies, Delete(f"file:{tmp_path}/old")], list[Outcome]()
    with begun(actions, done=reported.append) as work:
        wait_until(work.has_done_all)
        assert list(work.finish(nothing)) == []
    assert targets(work.outcomes) == targets(reported) == targets(actions)
    assert not (tmp_path / "old").exists()
    assert (tmp_path / "b" / "7").read_bytes() == bytes(100)


def test_what_is_handed_over_is_what_was_not_begun_and_is_not_begun_any_more(copies):
    with held(copies, 2) as (work, _, going_on):
        left = work.hand_over()
        going_on.set()
        assert list(work.finish(nothing)) == []
        assert not work.has_done_all()
    assert len(work.outcomes) == 2
    assert targets([*work.outcomes, *left]) == targets(copies)


def test_what_fails_here_is_left_to_executors_and_nothing_more_is_begun(copies, tmp_path):
    missing = copy(tmp_path, "missing")
    reported = list[Outcome]()
    with begun([missing, *copies], 1, reported.append) as work:
        wait_until(lambda: work.has_ended)
        assert list(work.hand_over()) == copies
        assert list(work.finish(nothing)) == [missing]
    assert work.outcomes == reported == []


def test_what_has_no_thread_here_is_left_to_executors(copies, monkeypatch):
    def no_thread(*_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(early, "perform", no_thread)
    with begun(copies) as work:
        wait_until(lambda: work.has_ended)
        assert not work.has_done_all()
        assert list(work.hand_over()) == copies
        assert list(work.finish(nothing)) == []


def test_large_files_are_left_to_executors_which_copy_ranges_of_them(copies, tmp_path):
    large = copy(tmp_path, "large", 2 * RANGE)
    assert early.worth_it([large]) is False
    with begun([large, *copies]) as work:
        wait_until(lambda: len(work.outcomes) == COUNT)
        assert list(work.hand_over()) == [large]
        assert not work.has_done_all()


def test_what_is_not_wanted_any_more_is_dropped_here(copies):
    wanted = Wanted()
    wanted.drop([copies[0].target])
    with dropping(wanted), begun(copies) as work:
        wait_until(work.has_done_all)
    dropped = [outcome for outcome in work.outcomes if outcome.dropped]
    assert targets(dropped) == [copies[0].target]


def test_on_leaving_nothing_is_under_way(copies):
    with pytest.raises(KeyboardInterrupt), held(copies, 1) as (work, reported, _):
        raise KeyboardInterrupt
    assert len(work.outcomes) == len(reported) < COUNT


def test_what_ends_the_work_of_the_caller_ends_it_here(copies, tmp_path):
    is_lost = threading.Event()

    def check():
        if is_lost.is_set():
            raise LeaseHeld("this run lost its lease")

    with cancellable(check), held(copies, 1) as (work, reported, going_on):
        is_lost.set()
        going_on.set()
        wait_until(lambda: work.has_ended)
    assert len(reported) == 1
    assert len(list((tmp_path / "b").iterdir())) == 1


def test_a_wait_for_what_was_begun_ends_with_the_run(copies):
    def cancelled():
        raise RunnerStopped

    with held(copies, 1) as (work, _, _going_on), pytest.raises(RunnerStopped):
        work.finish(cancelled)
