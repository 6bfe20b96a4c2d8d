"""An answer that was asked ahead counts for some seconds, and is used once."""

from __future__ import annotations

import errno
import threading

import pytest

from cpreplicate.core import clock
from cpreplicate.errors import LeaseHeld
from cpreplicate.protocol import lease, replica_state
from cpreplicate.protocol.replica import Replica
from cpreplicate.storage import Side
from cpreplicate.storage.base import ANSWER_COUNTS
from cpreplicate.storage.wrappers import ahead
from cpreplicate.storage.wrappers.ahead import Answering, asking_ahead
from tests.support.asking import asked_ahead
from tests.support.memory import MemoryStorage
from tests.support.simulated import SimulatedDisk
from tests.support.staging import running_on

PLACE = "memory:/place"


class TwoClocks(clock.Clock):
    """Clocks that move by hand, of which one may be set."""

    def __init__(self) -> None:
        self.wall, self.passed = 1e9, 0.0

    def now(self) -> float:
        return self.wall

    def monotonic(self) -> float:
        return self.passed

    def pass_(self, seconds: float) -> None:
        self.wall, self.passed = self.wall + seconds, self.passed + seconds


class Memory(MemoryStorage):
    """A storage that may fail, and counts what it is asked."""

    error: OSError | None = None
    asked = 0

    def open(self, uri):
        self.asked += 1
        if self.error is not None:
            raise self.error
        return super().open(uri)


@pytest.fixture
def clocks(monkeypatch):
    clocks = TwoClocks()
    monkeypatch.setattr(clock, "MACHINE", clocks)
    return clocks


@pytest.fixture
def memory():
    memory = Memory()
    memory.put(PLACE, lambda: [b"old"])
    return memory


@pytest.fixture
def far(memory):
    with asked_ahead("asking"), asking_ahead():
        yield Answering(memory)


def test_an_answer_is_used_once(far, memory, clocks):
    far.ask("read", PLACE, 0, 9)
    clocks.pass_(ANSWER_COUNTS - 1)
    memory.put(PLACE, lambda: [b"new"])
    assert [far.read(PLACE, 0, 9), far.read(PLACE, 0, 9)] == [b"old", b"new"]
    assert memory.asked == 2


@pytest.mark.parametrize("is_set_back", [False, True])
@pytest.mark.parametrize("is_asked_again", [False, True])
def test_what_was_asked_too_long_ago_is_asked_again(
    far, memory, clocks, is_set_back, is_asked_again
):
    far.ask("read", PLACE, 0, 9, seconds=1.0)
    clocks.pass_(1.0)
    clocks.wall -= 5.0 * is_set_back
    memory.put(PLACE, lambda: [b"new"])
    if is_asked_again:
        far.ask("read", PLACE, 0, 9, seconds=1.0)
    assert far.read(PLACE, 0, 9) == b"new"
    assert memory.asked == 2


def test_a_failure_is_that_of_who_uses_the_answer(far, memory, clocks):
    memory.error = OSError(errno.EIO, "down", PLACE)
    far.ask("read", PLACE, 0, 9)
    with pytest.raises(OSError, match="down"):
        far.read(PLACE, 0, 9)
    far.ask("read", PLACE, 0, 9)
    clocks.pass_(ANSWER_COUNTS)
    memory.error = None
    assert far.read(PLACE, 0, 9) == b"old"


def test_where_no_thread_is_left_nothing_is_asked_ahead(memory, monkeypatch):
    def start(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    with asking_ahead():
        far = Answering(memory)
        far.ask("read", PLACE, 0, 9)
        assert far.read(PLACE, 0, 9) == b"old"
        ahead.together(lambda: memory.put(PLACE, lambda: [b"new"]), lambda: None)
    assert memory.read(PLACE) == b"new"


REPLICA = "file:/dcB/job"


def test_an_answer_about_the_lease_counts_from_the_first_question():
    disk = SimulatedDisk()
    with asked_ahead("asking"), running_on(disk), asking_ahead():
        with lease.acquire(REPLICA, Side()) as hold:
            disk.clock.pass_(0.6)
            hold.ask(0.5)
            hold.check(1.0)  # which needs no answer yet
            disk.clock.pass_(50.0)
            disk.place(f"{REPLICA}/.cpreplicate/lease", b'{"token": "another"}')
            hold.ask()
            with pytest.raises(LeaseHeld, match="lost its lease"):
                hold.check()
        assert disk.is_file(f"{REPLICA}/.cpreplicate/lease")


def test_an_examination_began_when_its_first_answer_was_asked():
    disk = SimulatedDisk()
    disk.place(f"{REPLICA}/file", b"")
    with asked_ahead("asking"), running_on(disk), asking_ahead():
        replica, began = Replica(REPLICA, Side()), disk.clock()
        replica.ask()
        disk.clock.pass_(ANSWER_COUNTS - 1)
        assert replica_state.examine(replica).began <= began
