"""SIGKILL ends `cpreplicate switch` after each step that it records, between real clusters."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.operations.handover.switch.test_switch import command_line
from tests.support.commandline import run
from tests.support.flink import Flink
from tests.support.sessions import session
from tests.support.switching import Pair

pytestmark = [
    pytest.mark.xdist_group("flink"),
    pytest.mark.rest,
    pytest.mark.parametrize("flink", ["1", "2"], indirect=True),
]
# the words are a step, and those of a command
_KILLED = """
import os, signal, sys
from cpreplicate.__main__ import main
from cpreplicate.protocol.switch_record import SwitchLog

written, step = SwitchLog.write, sys.argv.pop(1)

def write(self, **changes):
    record = written(self, **changes)
    if changes.get("step") == step:
        os.kill(os.getpid(), signal.SIGKILL)
    return record

SwitchLog.write = write
main()
"""


@pytest.fixture
def pair(flink: Flink, place: Path) -> Iterator[Pair]:
    with session(flink) as a, session(flink) as b:
        pair = Pair(a, b, f"file:{place}/dcA", f"file:{place}/dcB")
        yield pair
        pair.close()


def kill_after(step: str, *words: object) -> None:
    """Run a command, which is killed once it has recorded a step."""
    command = [sys.executable, "-c", _KILLED, step, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, (step, done.stdout, done.stderr)


def test_the_same_command_goes_on_with_it(pair: Pair, place: Path) -> None:
    for step in ("stopping", "ended", "promoted", "starting", "started"):
        pair.start()
        words = command_line(pair, place)
        kill_after(step, *words)
        done = run(*words, "--output", "json")
        assert done.code == 0, (step, done.message)
        moved = done.json()["jobs"][0]["new_job_id"]
        pair.assert_runs_only(pair.b, moved)
        pair.b.cancel(moved)


def test_with_take_back_the_job_runs_again_where_it_ran(pair: Pair, place: Path) -> None:
    for step in ("stopping", "ended", "promoted", "restarting"):
        job_id = pair.start()
        words = command_line(pair, place)
        kill_after("ended" if step == "restarting" else step, *words)
        if step == "restarting":
            kill_after(step, *words, "--take-back")
        done = run(*words, "--take-back")
        assert done.code == 0, (step, done.message)
        (runs,) = pair.a.running()
        assert (runs == job_id) == (step == "stopping"), step
        pair.assert_runs_only(pair.a, runs)
        pair.a.cancel(runs)
