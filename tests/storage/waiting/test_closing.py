"""Files whose close sleeps: the caller goes on once the file is closed."""

import subprocess
import sys
import threading
import time

import pytest

from cpreplicate.storage.waiting.closing import close_promptly
from tests.support.waiting import PATIENCE

A_CLOSE_THAT_SLEEPS = """
import atexit, sys, threading, time
from cpreplicate.storage.waiting.closing import PromptExit, close_promptly

printed = threading.Event()

def close():
    printed.wait({seconds})
    time.sleep(0.2)
    print("the close ended")
"""
LEFT_ALONE = "close_promptly(close, lambda: True)\n"


def run(script, **values):
    return subprocess.run(
        [sys.executable, "-c", script.format(**values)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


@pytest.fixture
def sleep():
    """Where a close sleeps, until the test ends at the latest."""
    event = threading.Event()
    yield event
    event.set()


def test_the_caller_goes_on_once_the_file_is_closed_though_the_close_still_sleeps(sleep):
    answers = iter([False, True])
    close_promptly(sleep.wait, lambda: next(answers))
    assert not sleep.is_set()


def test_it_returns_when_the_close_does(sleep):
    ended = []
    sleep.set()
    close_promptly(lambda: ended.append(sleep.wait()), lambda: False)
    assert ended == [True]


def test_it_raises_what_the_close_raises():
    def close():
        raise OSError("the pipeline broke")

    with pytest.raises(OSError, match="the pipeline broke"):
        close_promptly(close, lambda: False)


def test_where_many_files_are_being_closed_nobody_asks_whether_one_is(sleep):
    are_closing, asked = threading.Barrier(5, timeout=PATIENCE), []

    def close():
        are_closing.wait()
        sleep.wait()

    others = [
        threading.Thread(target=close_promptly, args=(close, lambda: False)) for _ in range(4)
    ]
    for other in others:
        other.start()
    are_closing.wait()

    def is_closed():
        asked.append(True)
        return True

    close_promptly(lambda: time.sleep(0.2), is_closed)
    sleep.set()
    for other in others:
        other.join()
    assert asked == []


def test_the_process_ends_with_its_exit_code_while_a_close_sleeps():
    script = (
        A_CLOSE_THAT_SLEEPS
        + "ends = PromptExit()\natexit.register(print, 'handled')\n"
        + LEFT_ALONE
        + "ends.is_due(7)\nprint('last words')\nsys.exit(7)"
    )
    ended = run(script, seconds=10 * PATIENCE)
    assert (ended.returncode, ended.stdout, ended.stderr) == (7, "last words\nhandled\n", "")


def test_a_program_that_uses_the_package_waits_at_its_end_for_a_close_that_sleeps():
    script = A_CLOSE_THAT_SLEEPS + LEFT_ALONE + "print('last words')\nprinted.set()"
    ended = run(script, seconds=PATIENCE)
    assert (ended.returncode, ended.stdout) == (0, "last words\nthe close ended\n")
