"""An exception of a caller's signal handler leaves no lease that is renewed, wherever it comes."""

import contextlib
import itertools
import shutil
import sys
import threading
from pathlib import Path

import pytest

from cpreplicate.protocol import lease
from cpreplicate.storage import Side
from cpreplicate.storage.backends import rename_commit
from cpreplicate.storage.backends.local import local
from tests.protocol.test_lease import leave_behind
from tests.support import parts
from tests.support.waiting import wait_until

# Not threading: a line begins at the end of a `with`, before its lock is released. No signal comes
# there.
FILES = {lease.__file__, local.__file__, rename_commit.__file__, contextlib.__file__}


class Interrupt(Exception):
    """As of a handler of SIGALRM."""


class Interrupting:
    """Raises at the event of this number, of lines and of returns, as long as it traces."""

    def __init__(self, number):
        self.number, self.came = number, False

    def __call__(self, frame, event, _argument):
        if frame.f_code.co_filename not in FILES:
            return None
        if event in ("line", "return") and not self.came:
            self.number -= 1
            if self.number < 0:
                self.came = True
                raise Interrupt
        return self

    def run(self, body):
        """Return the exception that ended the body, which keeps all that it came through."""
        sys.settrace(self)
        try:
            body()
        except Interrupt as error:
            return error
        finally:
            sys.settrace(None)
        return None


def renewers():
    """The threads that run. One that an exception kept from its start is listed for ever."""
    named = [thread for thread in threading.enumerate() if thread.name == "lease"]
    return [thread for thread in named if thread.is_alive()]


@pytest.fixture(params=["taken", parts.rest("taken over")])
def replica(request, tmp_path):
    def make(number):
        path = tmp_path / str(number)
        if request.param == "taken over":
            leave_behind(path, host="elsewhere", expires=1.0)
        return path

    return make


def hold(path: Path):
    with lease.NoLeaseLeft(), lease.acquire(f"file:{path}", Side()):
        pass


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # files left open
def test_a_lease_is_renewed_no_more_wherever_an_exception_comes(replica):
    for number in itertools.count():
        path, interrupting = replica(number), Interrupting(number)
        kept = interrupting.run(lambda path=path: hold(path))  # noqa: F841  # as in a notebook
        wait_until(lambda: not renewers(), f"the end of the heartbeat after event {number}")
        with lease.acquire(f"file:{path}-other", Side()):
            pass  # the lock of a take-over is not left either
        shutil.rmtree(path, ignore_errors=True)
        if not interrupting.came:
            break
    assert number > 100


def test_a_lease_is_given_back_if_an_exception_comes_once_it_is_held(tmp_path):
    root = f"file:{tmp_path}/job"

    def take():
        with lease.NoLeaseLeft():
            held = lease.acquire(root, Side())
            held.__enter__()
            raise Interrupt  # before the block begins, in which it would be handled

    with pytest.raises(Interrupt):
        take()
    assert lease.holder(root, Side()) is None
