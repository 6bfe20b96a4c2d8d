"""Work of many threads is admitted as far as one lock of the interpreter can use it, in order."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from cpreplicate.storage.waiting.admission import Admission
from tests.support.waiting import PATIENCE, wait_until


class Processor:
    """A clock that moves by hand, and threads that use all of a core meanwhile, or nothing."""

    def __init__(self, is_busy):
        self.seconds, self.is_busy, self.is_broken = 0.0, is_busy, False
        self.looks = 0

    def clock(self):
        if self.is_broken:
            raise KeyboardInterrupt
        self.looks += 1
        return self.seconds

    def cpu(self, _thread):
        return self.seconds if self.is_busy else 0.0


class Work:
    """Work of threads of a pool, each of which stays until it is let go."""

    def __init__(self, processor, pool):
        self.admission = Admission(processor.clock, processor.cpu)
        self.begun, self._pool, self._ends = [], pool, {}

    def begin(self, name):
        self._ends[name] = threading.Event()
        return self._pool.submit(self._work, name)

    def end(self, name):
        self._ends[name].set()

    def _work(self, name):
        with self.admission.admitted():
            self.begun.append(name)
            assert self._ends[name].wait(PATIENCE)

    def end_all(self):
        for end in self._ends.values():
            end.set()


@contextmanager
def working(processor):
    with ThreadPoolExecutor(20) as pool:
        work = Work(processor, pool)
        try:
            yield work
        finally:
            work.end_all()


def test_two_work_at_once_and_the_others_in_the_order_in_which_they_came():
    with working(Processor(is_busy=True)) as work:
        for count, name in enumerate("ab", 1):
            work.begin(name)
            wait_until(lambda count=count: len(work.begun) == count, "the start")
        for count, name in enumerate("cde", 1):
            work.begin(name)
            wait_until(lambda count=count: work.admission.waiting == count, "the wait")
        assert work.begun == ["a", "b"]
        for ended, begins in zip("bac", "cde", strict=True):
            work.end(ended)
            wait_until(lambda begins=begins: work.begun[-1] == begins, "the next start")


def test_none_is_admitted_while_two_use_all_that_one_interpreter_has():
    processor = Processor(is_busy=True)
    with working(processor) as work:
        for name in "abc":
            work.begin(name)
        wait_until(lambda: work.admission.waiting == 1, "the wait")
        for _ in range(20):
            processor.seconds += 0.02
            looks = processor.looks
            wait_until(lambda looks=looks: processor.looks > looks + 1, "a look")
        assert len(work.begun) == 2


def test_work_that_only_waits_holds_up_nothing():
    processor = Processor(is_busy=False)
    with working(processor) as work:
        for number in range(12):
            work.begin(number)

        def have_all_begun():
            processor.seconds += 0.02
            return len(work.begun) == 12

        wait_until(have_all_begun, "the start of all")


def test_work_that_lasts_keeps_no_place_though_it_computes():
    processor = Processor(is_busy=True)
    with working(processor) as work:
        for name in "abcd":
            work.begin(name)
        wait_until(lambda: work.admission.waiting == 2, "the wait")
        processor.seconds += 1.5
        wait_until(lambda: len(work.begun) == 4, "the start of the others")


def test_who_is_interrupted_while_it_waits_leaves_its_turn_to_the_next():
    processor = Processor(is_busy=True)
    with working(processor) as work:
        for name in "ab":
            work.begin(name)
        wait_until(lambda: len(work.begun) == 2, "the start")
        processor.is_broken = True
        with pytest.raises(KeyboardInterrupt), work.admission.admitted():
            pass
        processor.is_broken = False
        work.begin("c")
        work.end("a")
        wait_until(lambda: work.begun[-1] == "c", "the start of the third")


def test_work_within_work_waits_for_nothing():
    admission = Admission()
    with admission.admitted(), admission.admitted(), admission.admitted():
        assert admission.waiting == 0
    with admission.admitted():
        assert admission.waiting == 0
