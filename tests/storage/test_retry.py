"""What is tried again, for how long, and what is not."""

import errno

import pytest

from cpreplicate.storage import Transient, retry
from cpreplicate.storage.faults import Faulty
from cpreplicate.storage.memory import MemoryStorage
from cpreplicate.storage.retry import Retrying

PLACE = "memory:/a/f"


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    monkeypatch.setattr(retry, "_FIRST_PAUSE", 0.001)
    monkeypatch.setattr(retry, "_LONGEST_PAUSE", 0.002)


class Failing:
    """Raises each of some errors once, then none; counts the calls."""

    def __init__(self, *errors):
        self.errors, self.calls = list(errors), 0

    def __call__(self, _verb, _uri):
        self.calls += 1
        return self.errors.pop(0) if self.errors else None


def transient():
    return Transient(errno.EIO, "the connection broke", PLACE)


def storage_with(fault, seconds=0.05):
    memory = MemoryStorage()
    memory.put(PLACE, lambda: [b"old"])
    return Retrying(Faulty(memory, fault), seconds)


def test_what_may_pass_is_tried_again_until_it_succeeds():
    fault = Failing(*[transient() for _ in range(5)])
    assert storage_with(fault).stat(PLACE).length == 3
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

    storage.put(PLACE, content_that_breaks_once)
    assert len(made) == 2
    assert storage.open(PLACE).read() == b"new bytes"


@pytest.mark.parametrize("error", [PermissionError("no"), FileNotFoundError("none"), OSError(errno.EDQUOT, "full")])
def test_what_will_not_pass_is_told_at_once(error):
    fault = Failing(error)
    with pytest.raises(type(error)):
        storage_with(fault).stat(PLACE)
    assert fault.calls == 1


def test_a_failure_that_lasts_is_told_after_its_time_and_at_least_eight_tries():
    fault = Failing(*[transient() for _ in range(10_000)])
    with pytest.raises(Transient, match="the connection broke"):
        storage_with(fault, seconds=0).stat(PLACE)
    assert fault.calls == 8
    fault = Failing(*[transient() for _ in range(10_000)])
    with pytest.raises(Transient):
        storage_with(fault, seconds=0.1).stat(PLACE)
    assert fault.calls > 8


def test_a_storage_that_is_down_is_not_waited_for_by_every_file():
    fault = Failing(*[transient() for _ in range(10_000)])
    storage = storage_with(fault)
    with pytest.raises(Transient):
        storage.stat(PLACE)
    before = fault.calls
    for _ in range(10):
        with pytest.raises(Transient):
            storage.stat(PLACE)
    assert fault.calls == before + 10
    fault.errors.clear()
    assert storage.stat(PLACE) is not None
    fault.errors = [transient() for _ in range(3)]
    assert storage.stat(PLACE) is not None  # it is up again, so its failures may pass again


class Forgetful(Retrying):
    """Loses the answer of a call that was carried out, once."""

    def __init__(self, inner):
        super().__init__(inner, 1.0)
        self.lost = False

    def around(self, verb, uri, call):
        def once():
            result = call()
            if verb in ("create_exclusive", "take_over") and not self.lost:
                self.lost = True
                raise transient()
            return result

        return super().around(verb, uri, once)


def test_a_lease_whose_answer_was_lost_is_known_as_ours():
    memory = MemoryStorage()
    assert Forgetful(memory).create_exclusive(PLACE, b"mine") is True
    assert Forgetful(memory).create_exclusive(PLACE, b"another's") is False
    assert Forgetful(memory).take_over(PLACE, b"mine", b"later") is True
    assert Forgetful(memory).take_over(PLACE, b"mine", b"too late") is False


def test_nothing_is_printed_of_what_passed(capfd):
    storage_with(Failing(transient())).stat(PLACE)
    assert capfd.readouterr() == ("", "")


def test_a_storage_that_still_answers_questions_may_be_down_for_writing():
    """As in safe mode: the questions between the writes do not keep each write waiting."""
    puts = Failing(*[transient() for _ in range(10_000)])
    storage = storage_with(lambda verb, uri: puts(verb, uri) if verb == "put" else None)
    for _ in range(10):
        assert storage.stat(PLACE) is not None
        with pytest.raises(Transient):
            storage.put(PLACE, lambda: [b"new"])
    assert puts.calls < 60
    assert storage.stat(PLACE).length == 3
