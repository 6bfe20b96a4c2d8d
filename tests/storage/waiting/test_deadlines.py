"""A call of a client ends at its deadline, whatever the client does, and leaves no harm behind."""

import math
import os
import subprocess
import sys
import threading
import time
from contextvars import ContextVar

import pytest

from cpreplicate.errors import UsageError
from cpreplicate.storage import Side
from cpreplicate.storage.base import NoAnswer, Transient
from cpreplicate.storage.waiting import bounds, deadlines, workers
from cpreplicate.storage.waiting.cancellation import cancellable
from cpreplicate.storage.waiting.deadlines import Deadline

HANGS = 1800  # seconds that only a hang meets
PLACE = "hdfs://dcA"


class Server:
    """A server whose answers wait until it may go on."""

    def __init__(self):
        self.may_go_on = threading.Event()
        self.asked, self.answered = [], []

    def ask(self, what):
        self.asked.append(what)
        assert self.may_go_on.wait(HANGS)
        self.answered.append(what)
        return what


@pytest.fixture
def server():
    before, server = deadlines.left_behind(), Server()
    yield server
    server.may_go_on.set()
    wait_for(lambda: deadlines.left_behind() <= before)


class Clock:
    """Stands still unless a test sets it. A pause takes its real time, and none of this clock."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        time.sleep(seconds)


@pytest.fixture
def still_bounds(monkeypatch):
    """Keep the instant of `bounded` from passing before the call, however slow the machine is."""
    monkeypatch.setattr(bounds, "time", Clock())


def wait_for(happened):
    while not happened():
        threading.Event().wait(0.01)


def test_a_result_and_an_exception_reach_the_caller():
    deadline = Deadline(HANGS, PLACE, "the NameNode")
    assert deadline.run(lambda: deadline.call(divmod, 7, 2)) == (3, 1)
    assert deadline.call(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        deadline.call(divmod, 1, 0)


def test_the_worker_has_the_context_of_its_caller():
    subject: ContextVar[str] = ContextVar("subject")
    subject.set("job 1")
    assert Deadline(HANGS, PLACE, "x").run(subject.get) == "job 1"


def test_a_call_that_is_not_answered_ends_with_the_name_of_who_does_not_answer(server):
    with pytest.raises(NoAnswer) as raised:
        Deadline(0.1, PLACE, "the NameNode nn1:8020").call(server.ask, "stat")
    assert "the NameNode nn1:8020 has not answered for " in raised.value.strerror
    assert (raised.value.filename, raised.value.exit_code) == (PLACE, 7)


def test_what_is_left_behind_does_nothing_more_but_clean_up(server):
    before = deadlines.left_behind()
    deadline = Deadline(0.1, PLACE, "x")
    done: list[str] = []

    def put():
        try:
            deadline.call(server.ask, "create")
            deadline.call(done.append, "rename")
        except BaseException:
            deadline.call(done.append, "delete the temporary file")
            raise

    with pytest.raises(NoAnswer):
        deadline.run(put)
    assert deadlines.left_behind() == before + 1
    server.may_go_on.set()
    wait_for(lambda: deadlines.left_behind() <= before)
    assert done == ["delete the temporary file"]


@pytest.fixture
def clock(monkeypatch):
    """The time of the calls. It counts whole: a leap is no pause of this process."""
    made = Clock()
    for module in (workers, deadlines):
        monkeypatch.setattr(module, "time", made)
    monkeypatch.setattr(workers, "_PAUSED", math.inf)
    return made


def test_the_deadline_is_that_of_each_call_and_of_progress_not_of_the_whole(clock):
    """Together the calls take longer than the deadline."""
    deadline = Deadline(8.0, PLACE, "x")

    def wait():
        clock.now += 6.0
        workers.raise_if_overdue(workers.thread.assignment)
        return 1

    def page():
        wait()
        deadline.progress()
        return 1

    def copy():
        chunks = sum(deadline.call(wait) for _ in range(10))
        return chunks + deadline.call(lambda: sum(page() for _ in range(10)))

    assert deadline.run(copy) == 20


def test_time_that_is_spent_between_calls_does_not_count():
    deadline, pause = Deadline(0.1, PLACE, "x"), threading.Event()
    assert deadline.run(lambda: pause.wait(1.0)) is False


def test_while_a_server_is_silent_one_call_at_a_time_asks_it(server):
    broken: list[int] = []
    deadline = Deadline(0.1, PLACE, "the NameNode", lambda: broken.append(1))
    with pytest.raises(NoAnswer):
        deadline.call(server.ask, "first")
    deadline.seconds = HANGS
    wait_for(lambda: broken == [1])
    asking = threading.Thread(target=deadline.call, args=(server.ask, "second"))
    asking.start()
    wait_for(lambda: "second" in server.asked)
    with pytest.raises(NoAnswer):
        deadline.call(server.ask, "at once")
    assert server.asked == ["first", "second"]
    server.may_go_on.set()
    asking.join()
    assert deadline.call(server.ask, "and on") == "and on"


def test_a_cancellation_does_not_wait_for_the_end_of_a_call_that_hangs(server):
    class Cancelled(Exception):
        pass

    def check():
        if server.asked:
            raise Cancelled

    with cancellable(check), pytest.raises(Cancelled):
        Deadline(HANGS, PLACE, "x").call(server.ask, "stat")


@pytest.mark.usefixtures("still_bounds")
def test_an_instant_bounds_the_calls_before_it(server):
    with bounds.bounded(0.1), pytest.raises(NoAnswer):
        Deadline(HANGS, PLACE, "x").call(server.ask, "stat")


@pytest.mark.usefixtures("still_bounds")
def test_an_instant_that_is_over_or_before_which_something_was_answered_shortens_no_call():
    with bounds.bounded(0.0):
        assert bounds.limit(HANGS) == HANGS
    deadline = Deadline(HANGS, PLACE, "x")
    with bounds.bounded(60.0):
        assert bounds.limit(HANGS) <= 60
        deadline.call(divmod, 7, 2)
        assert bounds.limit(HANGS) == HANGS


LEAVES_A_CALL = """
import sys, threading
from cpreplicate.storage.waiting.closing import PromptExit
from cpreplicate.storage.waiting.deadlines import Deadline
ends = PromptExit()
try:
    Deadline(0.1, "hdfs://dcA", "x").call(threading.Event().wait)
except OSError as error:
    print(error.exit_code)
ends.is_due(7)
sys.exit(7)
"""


def test_a_call_that_was_left_behind_does_not_hold_up_the_end_of_the_process():
    done = subprocess.run(
        [sys.executable, "-c", LEAVES_A_CALL], capture_output=True, text=True, timeout=HANGS
    )
    assert (done.returncode, done.stdout, done.stderr) == (7, "7\n", "")


def test_a_forked_process_has_workers_of_its_own():
    deadline = Deadline(HANGS, PLACE, "x")
    assert deadline.call(divmod, 7, 2) == (3, 1)  # the parent has a worker
    child = os.fork()
    if child == 0:
        os._exit(0 if deadline.call(divmod, 7, 2) == (3, 1) else 1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize(
    ("text", "seconds"), [("30", 30), ("30s", 30), ("250ms", 0.25), ("2m", 120), (" 1.5s ", 1.5)]
)
def test_the_option_is_a_time(text, seconds):
    assert deadlines.deadline_of(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "soon", "0", "-3s", "inf", "nan", "3 weeks"])
def test_what_is_no_time_is_refused(text):
    with pytest.raises(UsageError, match="deadline"):
        deadlines.deadline_of(text)


def test_the_option_holds_for_the_filesystems_that_it_is_given_for_and_no_client_gets_it():
    side = Side(options=(("", (("deadline", "7s"), ("a", "b"))), (PLACE, (("deadline", "9s"),))))
    assert side.deadline("hdfs://dcA") == 9
    assert side.deadline("s3://bucket") == 7
    assert side.options_for("hdfs://dcA") == {"a": "b"}
    assert Side().deadline("hdfs://dcA") == 20


@pytest.mark.usefixtures("still_bounds")
def test_a_call_that_had_less_time_than_its_deadline_does_not_make_others_fail(server):
    deadline = Deadline(HANGS, PLACE, "x", lambda: None)
    with bounds.bounded(0.1), pytest.raises(NoAnswer):
        deadline.call(server.ask, "first")
    server.may_go_on.set()
    asking = [threading.Thread(target=deadline.call, args=(server.ask, n)) for n in range(4)]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join()
    assert set(range(4)) <= set(server.answered)


def test_a_job_asks_a_silent_server_only_during_its_call(server):
    """Afterwards it may be busy elsewhere for long: others ask."""
    deadline = Deadline(0.1, PLACE, "x", lambda: None)
    with pytest.raises(NoAnswer):
        deadline.call(server.ask, "first")
    deadline.seconds = HANGS
    asked, may_end = threading.Event(), threading.Event()

    def long():
        deadline.call(asked.set)
        assert may_end.wait(HANGS)

    busy = threading.Thread(target=deadline.run, args=(long,))
    busy.start()
    assert asked.wait(HANGS)
    deadline.seconds = 0.1
    with pytest.raises(NoAnswer):
        deadline.call(server.ask, "second outage")
    deadline.seconds = HANGS
    assert deadline.call(divmod, 7, 2) == (3, 1)
    may_end.set()
    busy.join()


@pytest.mark.usefixtures("still_bounds")
def test_a_change_that_is_left_behind_has_its_connection_broken_also_if_others_are_answered(server):
    broken = threading.Event()
    deadline = Deadline(HANGS, PLACE, "x", broken.set)
    with bounds.bounded(0.1), pytest.raises(NoAnswer):
        deadline.call(server.ask, "a question")
    assert not broken.is_set()
    with bounds.bounded(0.1), pytest.raises(NoAnswer):
        deadline.change(server.ask, "rename")
    assert broken.wait(HANGS)


def test_the_calls_that_one_server_left_unanswered_refuse_none_to_another(server, monkeypatch):
    monkeypatch.setattr(workers, "_MOST_LEFT", 2)
    bad, good = Deadline(0.1, "hdfs://a", "x"), Deadline(HANGS, "hdfs://b", "y")
    for _ in range(2):
        with pytest.raises(NoAnswer):
            bad.call(server.ask, "stat")
    with pytest.raises(Transient, match="2 calls to x have not been answered"):
        bad.call(divmod, 7, 2)
    assert good.call(divmod, 7, 2) == (3, 1)


def test_what_is_left_behind_between_two_calls_does_not_make_the_second():
    deadline = Deadline(HANGS, PLACE, "x")
    done: list[str] = []

    def put():
        deadline.call(done.append, "create")
        workers.thread.assignment.is_left = True
        try:
            deadline.call(done.append, "rename")
        finally:
            deadline.call(done.append, "delete the temporary file")

    with pytest.raises(workers.LeftBehind):
        deadline.run(put)
    assert done == ["create", "delete the temporary file"]


def test_a_pause_of_this_process_counts_for_no_call(monkeypatch):
    """As by SIGSTOP, or of a virtual machine: the answers have arrived meanwhile."""

    class Paused:
        now, test = 1000.0, threading.get_ident()

        def monotonic(self):
            return self.now

        def sleep(self, seconds):
            if threading.get_ident() == self.test:
                self.now += seconds + 3600.0
            else:  # the thread that looks at the calls of other tests
                time.sleep(seconds)

    monkeypatch.setattr(workers, "time", clock := Paused())
    pool, deadline = workers.Workers(), Deadline(20.0, PLACE, "x")
    job = workers.Assignment(lambda: None, deadline)
    job.call = workers.Call(20.0, deadline, False)
    pool._active.add(job)
    assert pool._has_been_paused()
    workers.raise_if_overdue(job)
    clock.now += 20.0
    with pytest.raises(NoAnswer):
        workers.raise_if_overdue(job)


def test_a_view_has_the_namenodes_of_all_its_mounts():
    table = "fs.viewfs.mounttable.view.link"
    links = ((f"{table}./a", "hdfs://nn1:8020/a"), (f"{table}Fallback", "hdfs://nn2:8020/"))
    side = Side(options=(("", links),))
    assert side.namenodes("viewfs://view") == ("nn1:8020", "nn2:8020")
    assert side.namenodes("viewfs://view/a/b") == ("nn1:8020",)
