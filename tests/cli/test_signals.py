"""Signals end a command, also when they arrive where Python does not see them at once."""

import subprocess
import sys

import pytest

_WAITS = """
import signal, sys, threading, time
from cpreplicate.cli.signals import Stopped, stop_on_signals

stop_on_signals()

def signal_another_thread():
    time.sleep(0.5)
    signal.pthread_kill(threading.get_ident(), getattr(signal, sys.argv[1]))

threading.Thread(target=signal_another_thread).start()
began = time.monotonic()
try:
    threading.Event().wait(60)
except (KeyboardInterrupt, Stopped) as stopped:
    print(type(stopped).__name__, time.monotonic() - began < 30)
time.sleep(2)  # no second one arrives
"""


@pytest.mark.parametrize(
    ("name", "raised"), [("SIGINT", "KeyboardInterrupt"), ("SIGTERM", "Stopped")]
)
def test_a_signal_that_another_thread_receives_interrupts_a_wait_of_the_main_thread(name, raised):
    ended = subprocess.run(
        [sys.executable, "-c", _WAITS, name], capture_output=True, text=True, timeout=90, check=True
    )
    assert (ended.stdout.split(), ended.stderr) == ([raised, "True"], "")
