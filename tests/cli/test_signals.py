"""Signals end a command, also when they arrive where Python does not see them at once."""

import subprocess
import sys

import pytest

from tests.support.waiting import PATIENCE

_WAITS = """
import signal, sys, threading, time
from cpreplicate.cli.signals import Stopped, stop_on_signals, stopped

stop_on_signals()

waits = threading.Event()

def signal_another_thread():
    waits.wait()
    time.sleep(0.5)
    signal.pthread_kill(threading.get_ident(), getattr(signal, sys.argv[1]))

threading.Thread(target=signal_another_thread).start()
try:
    waits.set()
    threading.Event().wait(1e6)
except (KeyboardInterrupt, Stopped) as request:
    stopped()
    print(type(request).__name__)
time.sleep(2)  # no second one arrives
"""


@pytest.mark.parametrize(("name", "raised"), [("SIGINT", "Interrupted"), ("SIGTERM", "Stopped")])
def test_a_signal_that_another_thread_receives_interrupts_a_wait_of_the_main_thread(name, raised):
    ended = subprocess.run(
        [sys.executable, "-c", _WAITS, name],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    assert (ended.stdout.split(), ended.stderr) == ([raised], "")


_LOSES = """
import os, signal, sys, threading, time
from cpreplicate.cli.signals import Stopped, stop_on_signals, stopped

stop_on_signals()
sys.unraisablehook = lambda lost: print("lost", lost.exc_type.__name__)

class Finalized:
    def __del__(self):
        os.kill(os.getpid(), getattr(signal, sys.argv[1]))
        time.sleep(5)

try:
    Finalized()
    threading.Event().wait(1e6)
except (KeyboardInterrupt, Stopped) as request:
    stopped()
    print(type(request).__name__)
    time.sleep(2)  # no second one arrives while this one is handled
    print("handled")
"""


@pytest.mark.parametrize(("name", "raised"), [("SIGINT", "Interrupted"), ("SIGTERM", "Stopped")])
def test_a_request_to_stop_that_a_finalizer_swallows_is_made_again(name, raised):
    ended = subprocess.run(
        [sys.executable, "-c", _LOSES, name],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    assert (ended.stdout.split(), ended.stderr) == (["lost", raised, raised, "handled"], "")
