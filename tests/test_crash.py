"""A replica stays whole whenever a run dies, by the word of a checker that shares no code with cpreplicate."""

import random
import signal
import subprocess
import sys
import time

import pytest

from tests.support import checker, jobs
from tests.support.corpus import DataCentre
from tests.support.jobs import write_checkpoint

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


@pytest.mark.parametrize(("name", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_run_exits_with_its_code_and_gives_the_lease_back(name, code, tmp_path):
    checkpoint = write_checkpoint(tmp_path / "dcA", 1, {f"shared/{number}": 16 << 20 for number in range(24)})
    command = [sys.executable, "-m", "cpreplicate", "sync", str(checkpoint), str(tmp_path / "dcB"), "--runner", "inline"]
    process = subprocess.Popen([*command, "--parallelism", "1"], stderr=subprocess.PIPE, text=True)
    replica = tmp_path / "dcB" / jobs.JOB
    while not list(replica.glob("shared/[0-9]*")):
        time.sleep(0.01)
    process.send_signal(name)
    told = process.communicate(timeout=30)[1]
    assert process.returncode == code
    assert "interrupted" in told
    assert "Traceback" not in told
    assert not list(replica.glob("chk-*/_metadata"))
    assert not (replica / ".cpreplicate" / "lease").exists()
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
    assert checker.faults(replica) == []


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
