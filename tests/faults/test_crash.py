"""A run that is interrupted leaves nothing behind, and the checker that judges replicas finds what
is wrong with one.
"""

import signal
import subprocess
import sys
import time

import pytest

from tests.support import checker, jobs
from tests.support.corpus import DataCentre
from tests.support.jobs import write_checkpoint
from tests.support.waiting import PATIENCE

JOB = "55d11b0e36f1bfdaa08cb74d9bea9f76"


@pytest.fixture
def source(tmp_path):
    return DataCentre("2.3.0-rocks-incr", tmp_path)


def run(source, target, number):
    command = [
        sys.executable,
        "-m",
        "cpreplicate",
        "sync",
        f"{source.job_root(JOB)}/chk-{number}",
        str(target),
    ]
    remap = f"{source.remap.recorded}={source.path}"
    done = subprocess.run(
        [*command, "--remap", remap, "--runner", "inline"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("name", "code"), [(signal.SIGHUP, 129), (signal.SIGINT, 130), (signal.SIGTERM, 143)]
)
def test_an_interrupted_run_exits_with_its_code_and_gives_the_lease_back(name, code, tmp_path):
    files = {f"shared/{number}": 256 << 10 for number in range(24)}
    checkpoint = write_checkpoint(tmp_path / "dcA", 1, {**files, "shared/0": 10})
    command = [
        sys.executable,
        "-m",
        "cpreplicate",
        "sync",
        str(checkpoint),
        str(tmp_path / "dcB"),
        "--runner",
        "inline",
    ]
    slowly = ["--parallelism", "1", "--bandwidth", "25KB/s"]  # four minutes
    process = subprocess.Popen([*command, *slowly], stderr=subprocess.PIPE, text=True)
    replica = tmp_path / "dcB" / jobs.JOB
    while not list(replica.glob("shared/[0-9]*")):
        time.sleep(0.01)
    process.send_signal(name)
    messages = process.communicate(timeout=PATIENCE)[1]
    assert process.returncode == code
    assert "interrupted" in messages
    assert "Traceback" not in messages
    assert not list(replica.glob("chk-*/_metadata"))
    assert not (replica / ".cpreplicate" / "lease").exists()
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
    assert checker.faults(replica) == []


def test_the_checker_finds_what_is_missing_short_or_elsewhere(source, tmp_path):
    target = tmp_path / "dcB"
    run(source, target, 6)
    replica = target / JOB
    file = max((replica / "shared").iterdir(), key=lambda path: path.stat().st_size)
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    assert [fault.split(": ")[1] for fault in checker.faults(replica)] == ["short"]
    file.unlink()
    assert [fault.split(": ")[1] for fault in checker.faults(replica)] == ["missing"]
    file.write_bytes(whole)
    assert checker.faults(replica) == []
    replica.rename(tmp_path / "moved")
    assert checker.faults(tmp_path / "moved") == []
