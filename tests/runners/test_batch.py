"""What the execution of a batch promises, with faults made at the storage."""

import errno
import threading
import time

import pytest

from cpreplicate.errors import CpreplicateError
from cpreplicate.runners import Copy, Delete, ExecutionOptions, RunnerStopped
from cpreplicate.runners.batch import perform
from cpreplicate.runners.inline import InlineRunner
from cpreplicate.storage import Side, Sides, Transient, checksum
from cpreplicate.storage.waiting.cancellation import cancellable
from cpreplicate.storage.waiting.work_slots import waiting
from cpreplicate.storage.wrappers.limits import Limited, new_limits
from cpreplicate.storage.wrappers.retry import Retrying
from tests.support.faults import Faulty
from tests.support.memory import MemoryStorage
from tests.support.registry import serving
from tests.support.tracing import Tracing
from tests.support.waiting import PATIENCE

SOURCE, TARGET = "memory:/source/f", "memory:/target/f"


@pytest.fixture
def memory():
    storage = MemoryStorage()
    storage.put(SOURCE, lambda: [b"123456789"])
    with serving("memory", storage):
        yield storage


def puts(tracing):
    return [uri for verb, uri in tracing.calls if verb == "put"]


def test_a_copy_trusts_nothing_that_is_there(memory):
    memory.put(TARGET, lambda: [b"987654321"])
    [outcome] = perform([Copy(SOURCE, TARGET, 9)], Sides())
    assert outcome.crc32c == 0xE3069283
    with memory.open(TARGET) as stream:
        assert stream.read() == b"123456789"


@pytest.mark.parametrize("why", ["--max-rps", "a server that is down"])
def test_what_waits_for_its_turn_or_for_a_server_ends_when_it_is_no_longer_wanted(memory, why):
    limited = Limited(memory, new_limits(0.0001, None), "memory")
    down = Retrying(Faulty(memory, lambda _verb, _uri: Transient(errno.EIO, "down")), 1e6)
    copies = [Copy(SOURCE, f"memory:/target/{number}", 9) for number in range(8)]
    with (
        serving("memory", limited if why == "--max-rps" else down),
        InlineRunner(Sides()) as runner,
    ):
        timer = threading.Timer(0.5, runner.cancel)
        timer.start()
        with pytest.raises(RunnerStopped):
            runner.run(copies)
        timer.join()


class Ended(CpreplicateError):
    """What ends the work of a caller, as a lease that is lost does."""


class EndsAtLook:
    """Ends the work of a caller at a look of this number."""

    def __init__(self, number):
        self._left, self._lock = number, threading.Lock()

    def __call__(self):
        with self._lock:
            self._left -= 1
            if self._left < 0:
                raise Ended("no longer wanted")


@pytest.mark.parametrize("pack", [None, "memory:/target/packed/run"])
def test_what_ends_the_work_of_the_caller_ends_its_copies(memory, pack):
    copies = [Copy(SOURCE, f"memory:/target/{number}", 9, pack=pack) for number in range(400)]
    with (
        InlineRunner(Sides(), ExecutionOptions(parallelism=1)) as runner,
        pytest.raises(Ended),
        cancellable(EndsAtLook(40)),
    ):
        runner.run(copies)
    there = len(memory.list("memory:/target")) + len(memory.list("memory:/target/packed"))
    assert there < 40


@pytest.mark.usefixtures("memory")
def test_what_ends_the_work_of_the_caller_ends_what_it_maps():
    read = []

    def read_it(number):
        read.append(number)
        return checksum(SOURCE, Side())

    with (
        InlineRunner(Sides(), ExecutionOptions(parallelism=1)) as runner,
        pytest.raises(Ended),
        cancellable(EndsAtLook(40)),
    ):
        runner.map(read_it, range(400))
    assert len(read) < 40


@pytest.mark.usefixtures("memory")
def test_what_ends_the_work_of_one_caller_ends_no_other_work_of_a_runner():
    copies = [Copy(SOURCE, f"memory:/target/{number}", 9) for number in range(4)]
    with InlineRunner(Sides()) as runner:
        with pytest.raises(Ended), cancellable(EndsAtLook(0)):
            runner.run(copies)
        assert not any(outcome.error for outcome in runner.run(copies))


def test_a_source_that_is_missing_is_not_tried_again(memory):
    tracing = Tracing(memory)
    with serving("memory", tracing), InlineRunner(Sides()) as runner:
        [outcome] = runner.run([Copy("memory:/source/gone", TARGET, 1)])
    assert outcome.missing
    assert tracing.calls == [("put", TARGET), ("open", "memory:/source/gone")]
    assert memory.stat(TARGET) is None


def test_a_file_missing_at_the_target_is_not_taken_for_a_missing_source(memory):
    error = FileNotFoundError(errno.ENOENT, "the directory went", TARGET)
    with serving("memory", Faulty(memory, lambda verb, _uri: error if verb == "put" else None)):
        [outcome] = perform([Copy(SOURCE, TARGET, 9)], Sides())
    assert not outcome.missing
    assert outcome.error.startswith("FileNotFoundError: ")


def test_an_error_is_one_line_and_spares_the_other_files(memory):
    error = OSError(errno.EIO, "first line\nsecond line")
    faulty = Faulty(memory, lambda verb, uri: error if (verb, uri) == ("put", TARGET) else None)
    with serving("memory", faulty):
        actions = [Copy(SOURCE, TARGET, 9), Copy(SOURCE, TARGET + "2", 9), Delete("memory:/none")]
        failed, copied, deleted = perform(actions, Sides())
    assert failed.error == "OSError: first line second line"
    assert (copied.error, copied.bytes) == (None, 9)
    assert (deleted.error, deleted.bytes, deleted.missing) == (None, 0, False)


def test_a_failure_that_lasts_is_reported_after_three_tries(memory):
    tracing = Tracing(
        Faulty(memory, lambda verb, _uri: OSError(errno.EIO, "broken") if verb == "put" else None)
    )
    with serving("memory", tracing), InlineRunner(Sides()) as runner:
        [outcome] = runner.run([Copy(SOURCE, TARGET, 9)])
    assert "broken" in outcome.error
    assert puts(tracing) == [TARGET] * 3


def test_a_mistake_in_the_program_is_not_taken_for_a_failed_file(memory, monkeypatch):
    def mistaken(*_):
        raise TypeError("a mistake")

    monkeypatch.setattr(memory, "put", mistaken)
    with pytest.raises(TypeError, match="a mistake"):
        perform([Copy(SOURCE, TARGET, 9)], Sides())


def test_no_more_files_are_in_flight_than_streams_and_no_fewer(memory):
    lock, flying, most = threading.Lock(), 0, 0
    no_fewer = threading.Barrier(4, timeout=PATIENCE)
    plain = Side().storage(SOURCE).put

    def slow(*words):
        nonlocal flying, most
        with lock:
            flying += 1
            most = max(most, flying)
        no_fewer.wait()
        time.sleep(0.05)  # a fifth one would come now
        with lock:
            flying -= 1
        return plain(*words)

    memory.put = slow
    perform([Copy(SOURCE, f"{TARGET}{n}", 9) for n in range(12)], Sides(), streams=4)
    assert most == 4


def test_while_small_files_wait_for_their_close_others_are_copied(memory):
    memory.closers = 8
    lock, copying, most = threading.Lock(), 0, 0
    eight_copy, all_are_closing = (threading.Barrier(n, timeout=PATIENCE) for n in (8, 16))
    plain = Side().storage(SOURCE).put

    def closing_slowly(*words):
        nonlocal copying, most
        with lock:
            copying += 1
            most = max(most, copying)
        eight_copy.wait()
        time.sleep(0.05)  # a ninth one would come now
        with lock:
            copying -= 1
        waiting()
        all_are_closing.wait()
        return plain(*words)

    memory.put = closing_slowly
    copies = [Copy(SOURCE, f"{TARGET}{number}", 9) for number in range(16)]
    outcomes = perform(copies, Sides())
    assert [outcome.error for outcome in outcomes] == [None] * 16
    assert most == 8
