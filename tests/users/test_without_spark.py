"""An installation from which pyspark was removed copies by threads, and states what is missing."""

import subprocess
import sys

import pytest

from cpreplicate.runners import ExecutionOptions
from cpreplicate.runners.choose import runner_choice
from tests.support.jobs import JOB, write_checkpoint
from tests.support.waiting import PATIENCE

WITHOUT = """
import sys
sys.modules["pyspark"] = sys.modules["py4j"] = None
from cpreplicate.cli import main
main()
"""
FILES = {"shared/a": 10, "chk-1/x": 20}


def without_spark(*words):
    command = [sys.executable, "-c", WITHOUT, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)


@pytest.fixture
def places(tmp_path):
    """A job, the root of replicas, and a file of a fleet with both."""
    write_checkpoint(tmp_path / "dcA", 1, FILES)
    source, target = tmp_path / "dcA" / JOB, tmp_path / "dcB"
    (tmp_path / "jobs.toml").write_text(f'[[job]]\nsource = "{source}"\ntarget = "{target}"\n')
    return source, target, tmp_path / "jobs.toml"


@pytest.mark.parametrize("runner", ["auto", "inline"])
def test_replicates_verifies_and_runs_fleets(places, runner):
    source, target, fleet = places
    for words in (
        ("sync", source, target),
        ("verify", "--content", target / JOB),
        ("fleet", fleet),
    ):
        done = without_spark(*words, "--runner", runner)
        assert done.returncode == 0, done.stderr
        assert "pyspark" not in done.stderr, "of so little, Spark would not be faster"


@pytest.mark.parametrize("command", ["sync", "doctor", "fleet"])
def test_names_the_package_where_spark_is_asked_for(places, command):
    source, target, fleet = places
    arguments = (fleet,) if command == "fleet" else (source, target)
    done = without_spark(command, *arguments, "--runner", "spark")
    assert done.returncode == 2
    assert "pip install pyspark" in done.stdout + done.stderr
    assert "unexpected" not in done.stdout + done.stderr
    assert not (target / JOB / "chk-1").exists()


def test_warns_where_spark_would_be_faster(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyspark", None)
    cluster = ExecutionOptions(runner="auto", master="spark://host:7077", parallelism=100)
    chosen = runner_choice(cluster, files=100_000, size=10 << 40)
    assert chosen.runner == "inline"
    assert "pip install pyspark" in chosen.warning
    assert not runner_choice(cluster, files=1, size=1).warning
