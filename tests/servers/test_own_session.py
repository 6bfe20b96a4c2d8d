"""The Python API in a SparkSession of the user's own, on a cluster whose executors come and go."""

import json
import os
import subprocess
import sys

import pytest

from tests.support.jobs import JOB, write_checkpoint
from tests.support.standalone import QUICKLY, StandaloneCluster
from tests.support.waiting import PATIENCE

pytestmark = [pytest.mark.xdist_group("spark-cluster"), pytest.mark.rest]


@pytest.fixture
def cluster(tmp_path):
    with StandaloneCluster(tmp_path / "standalone", workers=1) as started:
        yield started


class Program:
    """`tests.support.own_session` in a process of its own."""

    def __init__(self, cluster, target_root, *checkpoints, **environment):
        command = [sys.executable, "-m", "tests.support.own_session", cluster.master]
        self.process = subprocess.Popen(
            [*command, str(target_root), *map(str, checkpoints)],
            env={**os.environ, "PYSPARK_PYTHON": sys.executable, **cluster.environment, **QUICKLY}
            | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()

    def next(self):
        """Return the next line that it prints."""
        return json.loads(self.process.stdout.readline())


def test_any_number_of_syncs_leave_a_session_as_it_was(tmp_path, cluster):
    """One after the other and at the same time; jobs of the user run on later executors, too."""
    files = {f"shared/{name}": 100 for name in "abc"}
    checkpoints = [write_checkpoint(tmp_path / f"dcA{number}", 1, files) for number in range(3)]
    with Program(cluster, tmp_path / "dcB", *checkpoints) as program:
        assert program.next() == {"event": "job", "sum": 5050}
        assert [program.next() for _ in range(4)] == [
            {"event": "sync", "error": None},
            {"event": "again", "error": None},
            {"event": "sync", "error": None},
            {"event": "sync", "error": None},
        ]
        state = program.next()
        assert state["before"] == state["after"]
        assert program.next() == {"event": "synced"}
        cluster.kill_worker(cluster.workers[0])
        cluster.start_worker()
        program.process.stdin.write("\n")
        program.process.stdin.flush()
        assert program.next() == {"event": "job", "sum": 5050}
        assert program.process.wait(PATIENCE) == 0
    for name in ("0", "1", "2", "again"):
        assert (tmp_path / "dcB" / name / JOB / "chk-1" / "_metadata").exists()


def test_a_session_whose_threads_share_their_properties_keeps_its_job_group(tmp_path, cluster):
    checkpoint = write_checkpoint(tmp_path / "dcA", 1, {"shared/a": 100})
    with Program(cluster, tmp_path / "dcB", checkpoint, PYSPARK_PIN_THREAD="false") as program:
        events = [program.next() for _ in range(4)]
    assert [each.get("error") for each in events] == [None] * 4
    assert events[-1]["before"] == events[-1]["after"]


def test_executors_without_the_packages_are_one_of_our_errors(tmp_path, cluster):
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {os.path.realpath(sys.executable)} -S "$@"\n')
    bare.chmod(0o755)
    checkpoint = write_checkpoint(tmp_path / "dcA", 1, {"shared/a": 100})
    with Program(cluster, tmp_path / "dcB", checkpoint, PYSPARK_PYTHON=str(bare)) as program:
        assert program.next() == {"event": "job", "sum": 5050}
        found = program.next()
    assert found["error"].startswith("CopyFailed: ")
    assert "docs/clusters.md" in found["error"]
    assert not (tmp_path / "dcB" / "0" / JOB / "chk-1" / "_metadata").exists()
