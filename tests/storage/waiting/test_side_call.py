"""A call in a side thread: it ends when it is cancelled often enough, or is left behind."""

import threading

import pytest

from cpreplicate.storage.waiting.cancellation import cancellable
from cpreplicate.storage.waiting.side_call import all_ended, in_thread
from tests.support.waiting import PATIENCE


def fail():
    raise KeyError("no such key")


def test_returns_what_the_call_returned_and_raises_what_it_raised():
    answer, failure = in_thread(lambda: 42, "side"), in_thread(fail, "side")
    assert answer.wait(PATIENCE)
    assert answer.result() == 42
    assert failure.wait(PATIENCE)
    with pytest.raises(KeyError, match="no such key"):
        failure.result()


def test_what_the_caller_is_handling_is_no_reason_of_the_failure():
    failure = in_thread(fail, "side")
    assert failure.wait(PATIENCE)
    try:
        raise StopIteration
    except StopIteration:
        with pytest.raises(KeyError) as raised:
            failure.result()
    assert raised.value.__context__ is None


def test_a_call_that_does_not_know_the_first_cancellations_is_cancelled_again():
    knows, cancelled, seen = threading.Event(), threading.Event(), []

    def cancel():
        seen.append(knows.is_set())
        if knows.is_set():
            cancelled.set()
        knows.set()  # as a job of Spark that is submitted after it was cancelled

    call = in_thread(cancelled.wait, "side")
    call.end(cancel)
    assert call.wait(0)
    first, *later = seen  # more than two if the call takes long to end
    assert not first
    assert later
    assert all(later)


@pytest.mark.parametrize("cancel_ends", [True, False])
def test_a_call_that_does_not_end_is_left_behind_as_is_its_cancellation(cancel_ends):
    never = threading.Event()
    call = in_thread(never.wait, "side")
    call.end((lambda: None) if cancel_ends else never.wait, seconds=0.01)
    assert not call.wait(0)
    never.set()
    assert call.wait(PATIENCE)


def test_a_cancellation_that_fails_is_reported():
    never = threading.Event()
    call = in_thread(never.wait, "side")
    with pytest.raises(KeyError):
        call.end(fail)
    never.set()


def test_a_wait_for_several_calls_ends_when_the_last_has_ended_or_the_time_is_over():
    never = threading.Event()
    ended, open_end = in_thread(lambda: None, "side"), in_thread(never.wait, "side")
    assert not all_ended([ended, open_end], 0.01)
    never.set()
    assert all_ended([ended, open_end], PATIENCE)
    assert all_ended([ended, open_end], 0.0)


def test_who_waits_for_a_call_can_be_cancelled_meanwhile():
    never = threading.Event()
    call = in_thread(never.wait, "side")
    with pytest.raises(KeyError), cancellable(fail):
        call.wait_or_be_cancelled(PATIENCE)
    never.set()
    assert call.wait_or_be_cancelled(PATIENCE)
