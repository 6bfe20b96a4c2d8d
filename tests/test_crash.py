"""A replica stays whole whenever a run dies, by the word of a checker that shares no code with cpreplicate."""

import random
import signal
import subprocess
import sys
import time

import pytest

from tests.support import checker
from tests.support.corpus import DataCentre

JOB = "55d11b0e36f1bfdaa08cb74d9bea9f76"
KILLS = 12


@pytest.fixture
def source(tmp_path):
    return DataCentre("2.3.0-rocks-incr", tmp_path)


def start(source, target, number):
    command = [sys.executable, "-m", "cpreplicate", "sync", f"{source.job_root(JOB)}/chk-{number}", str(target)]
    remap = f"{source.remap.recorded}={source.path}"
    return subprocess.Popen([*command, "--remap", remap, "--runner", "inline"], stderr=subprocess.PIPE, text=True)


def run(source, target, number):
    process = start(source, target, number)
    assert process.wait(60) == 0, process.stderr.read()
    process.stderr.close()


def test_a_run_killed_at_any_time_leaves_the_old_checkpoint_whole_and_the_next_one_completes(source, tmp_path):
    first, second, third = source.numbers(JOB)
    draw = random.Random(20261121)
    died = 0
    for attempt in range(KILLS):
        target = tmp_path / f"dcB-{attempt}"
        run(source, target, first)
        process = start(source, target, second)
        time.sleep(draw.uniform(0.1, 0.6))
        process.kill()
        died += process.wait() == -signal.SIGKILL
        process.stderr.close()
        replica = target / JOB
        assert checker.faults(replica) == []
        assert any(checker.needs(metadata) for metadata in replica.glob("chk-*/_metadata"))
        run(source, target, third)
        assert checker.faults(replica) == []
        assert [each.parent.name for each in replica.glob("chk-*/_metadata")] == [f"chk-{third}"]
    assert died, "no run was killed in time: the test would prove nothing"


def test_an_interrupted_run_exits_with_its_code_and_gives_the_lease_back(source, tmp_path):
    for number, (name, code) in enumerate([(signal.SIGINT, 130), (signal.SIGTERM, 143)]):
        target = tmp_path / f"dcB-{number}"
        fifo = source.job_root(JOB) / "chk-6" / "_metadata"
        kept = fifo.read_bytes()
        fifo.unlink()
        subprocess.run(["mkfifo", str(fifo)], check=True)
        process = start(source, target, 6)
        time.sleep(1)  # it waits for the metadata to come through the pipe
        process.send_signal(name)
        assert process.wait(30) == code
        assert "interrupted" in process.stderr.read()
        process.stderr.close()
        fifo.unlink()
        fifo.write_bytes(kept)
        run(source, target, 6)


def test_the_checker_finds_what_is_missing_short_or_elsewhere(source, tmp_path):
    target = tmp_path / "dcB"
    run(source, target, 6)
    replica = target / JOB
    file = max((replica / "shared").iterdir(), key=lambda each: each.stat().st_size)
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    assert [fault.split(": ")[1] for fault in checker.faults(replica)] == ["short"]
    file.unlink()
    assert [fault.split(": ")[1] for fault in checker.faults(replica)] == ["missing"]
    file.write_bytes(whole)
    assert checker.faults(replica) == []
    replica.rename(tmp_path / "moved")
    assert checker.faults(tmp_path / "moved") == []
