"""Signals end a command, also when they arrive where Python does not see them at once."""

import os
import subprocess
import sys

import pytest

from cpreplicate.cli.running import signals
from cpreplicate.errors import UsageError
from tests.support.waiting import PATIENCE

_WAITS = """
import signal, sys, threading, time
from cpreplicate.cli.running.signals import Stopped, stop_on_signals, stopped

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
from cpreplicate.cli.running.signals import Stopped, stop_on_signals, stopped

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


_RETURNS = """
import os, signal, time
import cpreplicate.cli as program
from cpreplicate.cli.running.signals import Stopped

class Service:
    def main(self, **_options):
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(1e6)
        except Stopped as request:
            code = request.code
        return code

class Finalized:
    def __del__(self):
        time.sleep(2)  # what closes connections at the end of the process is interrupted by none

program.cli = Service()
kept = Finalized()
program.main()
"""


def test_a_service_that_ends_with_the_code_of_a_signal_is_not_interrupted_again_at_its_exit():
    ended = subprocess.run(
        [sys.executable, "-c", _RETURNS],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (143, "", "")


_HOLDS_OUT = """
import contextlib, os, signal, threading, time
from cpreplicate.cli.running.signals import call_on_hangup, stop_on_signals, stop_within

stop_on_signals()
stop_within(0.5)
reloads = []
call_on_hangup(lambda: reloads.append(True))
os.kill(os.getpid(), signal.SIGHUP)
while not reloads:
    time.sleep(0.02)
time.sleep(0.2)  # the signals that follow are read apart from the first
with contextlib.suppress(BaseException):
    os.kill(os.getpid(), signal.SIGTERM)
while True:
    with contextlib.suppress(BaseException):
        threading.Event().wait(1e6)
"""


def test_a_service_that_read_its_file_again_still_ends_in_time():
    ended = subprocess.run(
        [sys.executable, "-c", _HOLDS_OUT],
        env={**os.environ, "CPREPLICATE_STOP_WITHIN": ""},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (ended.returncode, "did not end in time" in ended.stderr) == (143, True)


@pytest.mark.parametrize(
    ("text", "seconds"), [("1m", 60.0), ("30s", 30.0), ("90", 90.0), ("", 0.0)]
)
def test_the_time_to_stop_is_read_as_times_are_elsewhere(monkeypatch, text, seconds):
    monkeypatch.setenv("CPREPLICATE_STOP_WITHIN", text)
    assert signals.least_to_stop() == seconds


def test_a_time_to_stop_that_is_none_is_a_usage_error(monkeypatch):
    monkeypatch.setenv("CPREPLICATE_STOP_WITHIN", "soon")
    with pytest.raises(UsageError, match="CPREPLICATE_STOP_WITHIN=soon: expected a time"):
        signals.least_to_stop()
    ended = subprocess.run(
        [sys.executable, "-m", "cpreplicate", "inspect", "nowhere"],
        capture_output=True,
        text=True,
        env=dict(os.environ),
        timeout=PATIENCE,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "CPREPLICATE_STOP_WITHIN=soon: expected a time such as 30s or 5m" in ended.stderr
