"""A call that may be left behind: it ends when it is cancelled often enough, or alone."""

import threading

import pytest

from cpreplicate.runners.spark.aside import Aside
from tests.support.waiting import PATIENCE


def fail():
    raise KeyError("no such key")


def test_returns_what_the_call_returned_and_raises_what_it_raised():
    answer, failure = Aside(lambda: 42), Aside(fail)
    assert answer.wait(PATIENCE)
    assert answer.result() == 42
    assert failure.wait(PATIENCE)
    with pytest.raises(KeyError, match="no such key"):
        failure.result()


def test_a_call_that_does_not_know_the_first_cancellations_is_cancelled_again():
    knows, cancelled, seen = threading.Event(), threading.Event(), []

    def cancel():
        seen.append(knows.is_set())
        if knows.is_set():
            cancelled.set()
        knows.set()  # as a job of Spark that is submitted after it was cancelled

    call = Aside(cancelled.wait)
    call.end(cancel)
    assert call.wait(0)
    first, *later = seen  # more than two if the call takes long to end
    assert not first
    assert later
    assert all(later)


@pytest.mark.parametrize("cancel_ends", [True, False])
def test_a_call_that_does_not_end_is_left_behind_as_is_its_cancellation(cancel_ends):
    never = threading.Event()
    call = Aside(never.wait)
    call.end((lambda: None) if cancel_ends else never.wait, seconds=0.01)
    assert not call.wait(0)
    never.set()
    assert call.wait(PATIENCE)


def test_a_cancellation_that_fails_is_reported():
    never = threading.Event()
    call = Aside(never.wait)
    with pytest.raises(KeyError):
        call.end(fail)
    never.set()
