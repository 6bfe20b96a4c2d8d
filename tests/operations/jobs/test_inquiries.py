"""Questions to many servers at the same time, also where threads run out."""

import threading
from collections import Counter

from cpreplicate.core.clock import MACHINE
from cpreplicate.operations.jobs.inquiries import Inquiries
from cpreplicate.storage.waiting.side_call import SideCall
from tests.support.waiting import PATIENCE, wait_until


class Questions:
    """Questions that are answered when a test allows it, and how often each is under way."""

    def __init__(self, count):
        self.released = threading.Event()
        self.begun: Counter[str] = Counter()
        self._lock = threading.Lock()
        self.all = {str(number): self._question(str(number)) for number in range(count)}

    def _question(self, key):
        def ask():
            with self._lock:
                self.begun[key] += 1
            self.released.wait(PATIENCE)

        return ask


def test_questions_that_are_under_way_when_threads_run_out_are_asked_once(monkeypatch):
    questions, inquiries = Questions(8), Inquiries(0.0, MACHINE)
    started, start = [], threading.Thread.start

    def few(thread):
        started.append(thread)
        if len(started) == 4:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", few)
    inquiries.ask(questions.all)
    assert inquiries.pending == 3
    inquiries.ask(questions.all)
    wait_until(lambda: questions.begun.total() == 8)
    assert inquiries.pending == 8
    questions.released.set()
    wait_until(lambda: inquiries.pending == 0)
    assert set(questions.begun.values()) == {1}


def test_questions_without_room_are_asked_when_others_end_or_the_next_time():
    questions, inquiries = Questions(5), Inquiries(0.0, MACHINE, most=2)
    inquiries.ask(questions.all)
    assert inquiries.pending == 2
    questions.released.set()
    wait_until(lambda: inquiries.pending == 0)
    inquiries.ask(questions.all)
    wait_until(lambda: questions.begun.total() == 4)
    assert set(questions.begun.values()) == {1}  # those that were not asked come first
    questions.begun.clear()
    patient = Inquiries(PATIENCE, MACHINE, most=2)
    patient.ask(questions.all)
    assert questions.begun.total() == 5


def test_those_that_do_not_answer_hold_up_no_one_who_does():
    asked: Counter[str] = Counter()
    silent = {f"silent-{number}": lambda: None for number in range(300)}
    healthy = {
        f"healthy-{number}": lambda number=number: asked.update([f"healthy-{number}"])
        for number in range(30)
    }

    def answered(call, _name):
        """Make the calls to those that answer at once, and leave the others under way."""
        begun = SideCall(call)
        if call in healthy.values():
            begun.run()
        return begun

    inquiries = Inquiries(1e-9, MACHINE, answered, most=10)
    for _ in range(4):
        inquiries.ask({**silent, **healthy})
    assert inquiries.pending <= 40
    asked.clear()
    inquiries = Inquiries(1e-9, MACHINE, answered, most=400)
    for number in range(1, 4):
        inquiries.ask({**silent, **healthy})
        assert set(asked.values()) == {number}
