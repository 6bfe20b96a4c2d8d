"""What is tried again, for how long, and what is not."""

import errno
import gc
import pickle
import weakref
from functools import partial

import pytest

from cpreplicate.errors import exit_code_of
from cpreplicate.storage import Transient, Unreachable
from cpreplicate.storage.base import NoAnswer
from cpreplicate.storage.waiting import bounds, deadlines
from cpreplicate.storage.waiting.retry_reports import RetryReports, report_retries_to
from cpreplicate.storage.wrappers import retry
from cpreplicate.storage.wrappers.retry import Pauses, Retrying
from tests.support.faults import Faulty
from tests.support.memory import MemoryStorage

URI = "memory:/a/f"
SHORT_PAUSES = Pauses(0.001, 0.002)


class Time:
    """Passes only while somebody sleeps."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """The time of the retries: calls take none."""
    made = Time()
    monkeypatch.setattr(retry, "time", made)
    monkeypatch.setattr(bounds, "time", made)
    monkeypatch.setattr(retry, "RetryReports", partial(RetryReports, made.monotonic))
    return made


class Failing:
    """Raises each of some errors once, then none; counts the calls."""

    def __init__(self, *errors):
        self.errors, self.calls = list(errors), 0

    def __call__(self, _verb, _uri):
        self.calls += 1
        return self.errors.pop(0) if self.errors else None


def transient():
    return Transient(errno.EIO, "the connection broke", URI)


def storage_with(fault, seconds=0.05, pauses=SHORT_PAUSES):
    memory = MemoryStorage()
    memory.put(URI, lambda: [b"old"])
    return Retrying(Faulty(memory, fault), seconds, pauses)


def test_what_may_pass_is_tried_again_until_it_succeeds():
    fault = Failing(*[transient() for _ in range(5)])
    assert storage_with(fault).stat(URI).length == 3
    assert fault.calls == 6


def test_the_content_of_a_put_is_made_anew_for_each_try():
    storage = storage_with(Failing(transient()))
    made = []

    def content():
        made.append(1)
        return iter([b"new ", b"bytes"])

    def content_that_breaks_once():
        yield from content()
        if len(made) == 1:
            raise transient()

    storage.put(URI, content_that_breaks_once)
    assert len(made) == 2
    assert storage.open(URI).read() == b"new bytes"


@pytest.mark.parametrize(
    "error", [PermissionError("no"), FileNotFoundError("none"), OSError(errno.EDQUOT, "full")]
)
def test_an_error_that_will_not_pass_is_raised_at_once(error):
    fault = Failing(error)
    with pytest.raises(type(error)):
        storage_with(fault).stat(URI)
    assert fault.calls == 1


@pytest.mark.parametrize(
    ("verb", "tries"), [("stat", 1), ("list", 1), ("open", 1), ("put", 8), ("create_exclusive", 8)]
)
def test_a_write_gets_at_least_eight_tries_and_a_read_only_its_time(verb, tries):
    fault = Failing(*[transient() for _ in range(10_000)])
    storage = storage_with(
        lambda called, uri: fault(called, uri) if called == verb else None, seconds=0
    )
    arguments = {"put": [lambda: [b"new"]], "create_exclusive": [b"new"]}.get(verb, [])
    with pytest.raises(Unreachable, match=f"{URI}: the connection broke"):
        getattr(storage, verb)(URI, *arguments)
    assert fault.calls == tries


@pytest.mark.parametrize("seconds", [0.1, 0.4])
def test_a_failure_that_lasts_is_raised_as_unreachable_once_its_time_has_passed(seconds, clock):
    fault = Failing(*[transient() for _ in range(10_000)])
    began = clock.now
    with pytest.raises(
        Unreachable, match=f"longer than --retry-for allows .{seconds:g} s."
    ) as raised:
        storage_with(fault, seconds).stat(URI)
    assert clock.now - began == pytest.approx(seconds)
    assert fault.calls > 8
    assert isinstance(raised.value, OSError)
    assert exit_code_of(raised.value) == 7
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)


def test_the_last_pause_is_no_longer_than_the_time_that_is_left(clock):
    fault = Failing(*[transient() for _ in range(100)])
    storage = storage_with(fault, seconds=0.2, pauses=Pauses(60.0, 60.0))
    began = clock.now
    with pytest.raises(Unreachable):
        storage.stat(URI)
    assert clock.now - began == pytest.approx(0.2)


def test_what_the_other_storage_of_a_copy_has_tried_for_its_time_is_not_tried_again():
    storage, calls = storage_with(Failing()), []

    def content():
        calls.append(1)
        raise Unreachable(errno.EIO, "the source is down", "memory:/source")

    with pytest.raises(Unreachable, match="memory:/source: the source is down"):
        storage.put(URI, content)
    assert len(calls) == 1


def test_retries_are_reported_once_when_they_begin_and_then_every_ten_seconds():
    lines: list[str] = []
    now = [1000.0]
    report_retries_to(lines.append)
    try:
        reports = RetryReports(clock=lambda: now[0])
        for second in range(25):
            now[0] = 1000.0 + second
            reports.report(URI, "the connection broke", 57 - second)
    finally:
        report_retries_to(lambda _line: None)
    assert lines == [
        f"{URI}: the connection broke; trying again for up to {left} s" for left in (57, 47, 37)
    ]


def test_a_retry_is_reported_to_the_callback_of_the_process():
    lines: list[str] = []
    report_retries_to(lines.append)
    try:
        storage_with(Failing(transient(), transient()), seconds=30).stat(URI)
    finally:
        report_retries_to(lambda _line: None)
    assert lines == [f"{URI}: the connection broke; trying again for up to 30 s"]


def test_a_storage_that_is_down_is_not_waited_for_by_every_file():
    fault = Failing(*[transient() for _ in range(10_000)])
    storage = storage_with(fault)
    with pytest.raises(Transient):
        storage.stat(URI)
    with pytest.raises(Transient):
        storage.stat(URI)  # the time counts from the first failure, so only now it is surely over
    before = fault.calls
    for _ in range(10):
        with pytest.raises(Transient):
            storage.stat(URI)
    assert fault.calls == before + 10
    fault.errors.clear()
    assert storage.stat(URI) is not None
    fault.errors = [transient() for _ in range(3)]
    assert storage.stat(URI) is not None  # it is up again, so its failures may pass again


class Forgetful(Retrying):
    """Loses the answer of a call that was carried out, once."""

    def __init__(self, inner):
        super().__init__(inner, 1.0)
        self.lost = False

    def carry_out(self, verb, uri, call):
        def once():
            result = call()
            if verb in ("create_exclusive", "take_over") and not self.lost:
                self.lost = True
                raise transient()
            return result

        return super().carry_out(verb, uri, once)


def test_a_lease_whose_answer_was_lost_is_known_as_ours():
    memory = MemoryStorage()
    assert Forgetful(memory).create_exclusive(URI, b"mine") is True
    assert Forgetful(memory).create_exclusive(URI, b"another's") is False
    assert Forgetful(memory).take_over(URI, b"mine", b"later") is True
    assert Forgetful(memory).take_over(URI, b"mine", b"too late") is False


def test_nothing_is_printed_of_what_passed(capfd):
    storage_with(Failing(transient())).stat(URI)
    assert capfd.readouterr() == ("", "")


def test_a_storage_that_still_answers_questions_may_be_down_for_writing():
    """As in safe mode: the questions between the writes do not keep each write waiting."""
    puts = Failing(*[transient() for _ in range(10_000)])
    storage = storage_with(lambda verb, uri: puts(verb, uri) if verb == "put" else None)
    for _ in range(10):
        assert storage.stat(URI) is not None
        with pytest.raises(Transient):
            storage.put(URI, lambda: [b"new"])
    assert puts.calls < 60
    assert storage.stat(URI).length == 3


def silent(seconds=1.0):
    return NoAnswer(errno.ETIMEDOUT, f"the NameNode has not answered for {seconds} s", URI)


def test_a_write_to_a_server_that_is_silent_gets_no_more_tries_than_its_time():
    """Other failures of a write get eight tries, however long they take."""
    fault = Failing(*[silent() for _ in range(8)])
    with pytest.raises(Unreachable, match="the NameNode has not answered"):
        storage_with(fault, seconds=0.0).put(URI, lambda: [b"new"])
    assert fault.calls == 1


def test_a_later_try_has_the_time_that_is_left_and_the_message_is_of_the_first():
    limits = []

    def fault(_verb, _uri):
        limits.append(bounds.limit(1800.0))
        return silent(len(limits))

    with pytest.raises(Unreachable, match=r"has not answered for 1 s"):
        storage_with(fault, seconds=20.0).stat(URI)
    assert limits[0] == 1800
    assert all(1 <= limit <= 20 for limit in limits[1:-1])


def test_the_time_counts_from_the_first_failure_not_from_the_begin_of_a_call(clock):
    """A NameNode pauses late in a put that has lasted longer than the retries may."""
    errors = [silent()]

    def late(_verb, _uri):
        clock.now += 1000.0
        return errors.pop() if errors else None

    storage = storage_with(late, seconds=3.0)
    assert storage.put(URI, lambda: [b"new"]) == 3


def test_a_further_try_that_makes_progress_has_its_whole_time():
    limits = []

    def fault(_verb, _uri):
        limits.append(bounds.limit(1800.0))
        bounds.answered()
        limits.append(bounds.limit(1800.0))
        return transient() if len(limits) == 2 else None

    storage_with(fault, seconds=60.0).stat(URI)
    assert limits[2] <= 60
    assert limits[3] == 1800


def test_nothing_is_tried_again_when_the_process_ends(monkeypatch):
    monkeypatch.setattr(deadlines, "is_ending", lambda: True)
    fault = Failing(*[transient() for _ in range(5)])
    with pytest.raises(Transient):
        storage_with(fault, seconds=1800).stat(URI)
    assert fault.calls == 1


class Noted(Transient):
    """A failure that can be referenced weakly."""


def test_a_failure_that_lasts_is_gone_with_its_frames_once_it_was_handled():
    """Else a service that is never down keeps what each failed try came through."""
    noted: weakref.WeakSet[Noted] = weakref.WeakSet()

    class Broken(MemoryStorage):
        def open(self, uri):
            raise noting(Noted(errno.EIO, "the connection broke", uri))

    def noting(error):
        noted.add(error)
        return error

    gc.disable()
    try:
        with pytest.raises(Unreachable, match="this has lasted"):
            Retrying(Broken(), 5.0, Pauses(1.0, 2.0)).read(URI)
        assert list(noted) == []
    finally:
        gc.enable()
