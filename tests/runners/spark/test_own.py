"""Runs of one process that need a context of Spark at the same time, with stand-ins for it."""

import contextlib
import threading

import pytest

from cpreplicate.runners.spark import own
from cpreplicate.runners.tasks import RunnerStopped
from cpreplicate.storage.waiting.cancellation import cancellable
from cpreplicate.storage.waiting.side_call import in_thread
from tests.support.waiting import PATIENCE, wait_until

CLUSTER, OTHER = ("spark://a:7077", ()), ("spark://b:7077", ())


class Contexts:
    """Starts and stops stand-ins, each a new number, and notes which ones are there."""

    def __init__(self):
        self.made, self.there, self.were_lost = 0, set(), []
        self.begun, self.may_start = threading.Event(), threading.Event()
        self.may_start.set()
        self.stops, self.may_stop = threading.Event(), threading.Event()
        self.may_stop.set()
        self.failures, self.died = 0, set()

    def is_running(self, number):
        return number not in self.died

    @contextlib.contextmanager
    def start(self, is_lost):
        self.begun.set()
        while not self.may_start.wait(0.01):
            own.go_on()
        if self.failures:
            self.failures -= 1
            raise RuntimeError("no cluster")
        self.made += 1
        number = self.made
        self.there.add(number)
        try:
            yield number
        finally:
            self.stops.set()
            assert self.may_stop.wait(PATIENCE)
            self.there.remove(number)
            self.were_lost.append(is_lost())


class Run:
    """A run in a thread of its own, which uses a context until `end`."""

    def __init__(self, contexts, wanted=CLUSTER, is_lost=False):
        self.used, self.end = threading.Event(), threading.Event()
        self.context, self.is_new, self.thread, self.is_cancelled = None, None, None, False
        self.ended = in_thread(lambda: self._use(contexts, wanted, is_lost), "run")

    def _use(self, contexts, wanted, is_lost):
        self.thread = threading.get_ident()
        with (
            cancellable(self._check),
            own.shared(wanted, contexts.start, lambda: is_lost, contexts.is_running) as (
                self.context,
                self.is_new,
            ),
        ):
            self.used.set()
            assert self.end.wait(PATIENCE)

    def _check(self):
        if self.is_cancelled:
            raise RunnerStopped

    def has_begun(self):
        assert self.used.wait(PATIENCE)
        return self

    def has_ended(self):
        self.end.set()
        assert self.ended.wait(PATIENCE)
        self.ended.result()


@pytest.fixture
def contexts():
    return Contexts()


def test_runs_at_the_same_time_share_a_context_which_the_last_one_stops(contexts):
    first, second = Run(contexts).has_begun(), Run(contexts).has_begun()
    assert (first.context, first.is_new) == (1, True)
    assert (second.context, second.is_new) == (1, False)
    assert own.existing(CLUSTER) is first.context
    assert own.existing(OTHER) is None  # a run that wants it will start its own
    first.has_ended()
    assert contexts.there == {1}
    second.has_ended()
    assert contexts.there == set()
    assert own.existing(CLUSTER) is None
    third = Run(contexts).has_begun()
    assert (third.context, third.is_new) == (2, True)
    third.has_ended()


def test_a_context_that_starts_is_waited_for_and_is_no_existing_one(contexts):
    contexts.may_start.clear()
    runs = [Run(contexts) for _ in range(3)]
    assert contexts.begun.wait(PATIENCE)
    assert own.existing(CLUSTER) is None
    contexts.may_start.set()
    assert {run.has_begun().context for run in runs} == {1}
    assert sum(run.is_new for run in runs) == 1
    for run in runs:
        run.has_ended()
    assert contexts.made == 1


def test_a_run_with_other_properties_waits_until_the_context_has_ended(contexts):
    first = Run(contexts).has_begun()
    second = Run(contexts, OTHER)
    third = Run(contexts).has_begun()
    first.has_ended()
    assert not second.used.is_set()
    third.has_ended()
    assert (second.has_begun().context, second.is_new) == (2, True)
    second.has_ended()


def test_a_run_that_waits_for_the_context_of_another_one_can_be_cancelled(contexts):
    first, second = Run(contexts).has_begun(), Run(contexts, OTHER)
    second.is_cancelled = True
    with pytest.raises(RunnerStopped):
        second.has_ended()
    first.has_ended()


def test_where_a_start_fails_the_next_run_starts_a_context_of_its_own(contexts):
    contexts.failures = 1
    contexts.may_start.clear()
    runs = [Run(contexts) for _ in range(2)]
    contexts.may_start.set()
    wait_until(lambda: any(run.used.is_set() for run in runs), "the second start")
    good = next(run for run in runs if run.used.is_set())
    bad = next(run for run in runs if run is not good)
    with pytest.raises(RuntimeError, match="no cluster"):
        bad.has_ended()
    good.has_ended()
    assert contexts.there == set()


def test_only_the_thread_that_starts_a_context_gives_it_up(contexts):
    contexts.may_start.clear()
    first = Run(contexts)
    assert contexts.begun.wait(PATIENCE)
    second = Run(contexts)
    wait_until(lambda: second.thread is not None, "the second run")
    assert not own.give_up(second.thread)
    assert own.give_up(first.thread)
    with pytest.raises(RunnerStopped):
        first.has_ended()
    contexts.may_start.set()
    assert second.has_begun().is_new  # it starts a context for itself
    assert not own.give_up(second.thread)
    second.has_ended()


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_context_whose_executors_do_not_answer_is_stopped_as_such(contexts, is_lost):
    Run(contexts, is_lost=is_lost).has_begun().has_ended()
    assert contexts.were_lost == [is_lost]


def test_a_context_that_has_ended_by_itself_is_joined_by_nobody_once_a_run_has_noticed(contexts):
    first, second = Run(contexts).has_begun(), Run(contexts).has_begun()
    contexts.died.add(first.context)
    first.has_ended()
    assert contexts.there == set()
    third = Run(contexts).has_begun()
    assert (third.context, third.is_new) == (2, True)
    second.has_ended()
    assert contexts.there == {2}
    fourth = Run(contexts).has_begun()
    assert fourth.context == 2
    third.has_ended()
    fourth.has_ended()
    assert contexts.there == set()


@pytest.mark.parametrize("has_died", [False, True])
def test_nobody_starts_a_context_while_the_last_one_is_being_stopped(contexts, has_died):
    first, second = Run(contexts).has_begun(), Run(contexts).has_begun()
    contexts.may_stop.clear()
    if has_died:
        contexts.died.add(first.context)
        first.end.set()
        assert contexts.stops.wait(PATIENCE)
        second.has_ended()  # it has nothing more to stop
    else:
        first.has_ended()
        second.end.set()
        assert contexts.stops.wait(PATIENCE)
    contexts.begun.clear()
    third = Run(contexts)
    assert not contexts.begun.wait(0.2)
    contexts.may_stop.set()
    assert third.has_begun().context == 2
    third.has_ended()
    (first if has_died else second).has_ended()
    assert contexts.there == set()


def test_a_start_that_succeeds_although_it_was_given_up_is_used_by_nobody(contexts):
    @contextlib.contextmanager
    def start(_is_lost):
        assert own.give_up(threading.get_ident())
        with contexts.start(lambda: False) as number:
            yield number

    contexts.may_start.clear()
    with pytest.raises(RunnerStopped), own.shared(CLUSTER, start, bool, contexts.is_running):
        raise AssertionError("it was used")
    assert contexts.there == set()
    assert own.existing(CLUSTER) is None
