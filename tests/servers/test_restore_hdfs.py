"""Stock Flink with its state on HDFS: checkpoints of cluster A, replicated to B, restored from B
with A stopped.

The clusters are real ones, on loopback. Each job proves its own state, as in `test_restore.py`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.flink import Flink, Job, RunResult
from tests.support.hdfs import HdfsCluster
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.xdist_group("hdfs-sync")

CLI_SECONDS = PATIENCE
ROOT = "/flink/checkpoints"  # execution.checkpointing.dir, the same in both data centres
Report = dict[str, Any]
Starter = Callable[..., tuple[HdfsCluster, HdfsCluster]]


class Replicated(NamedTuple):
    """A job that was synced while it ran, and again after it was stopped."""

    run: RunResult
    first: Report
    later: Report

    @property
    def root(self) -> str:
        """The directory of B in which the replica is."""
        return str(self.later["replica"]).rpartition("/")[0]

    @property
    def checkpoint(self) -> str:
        """The newest one of the replica."""
        return f"{self.later['replica']}/{self.later['checkpoint']}"


@pytest.fixture
def two_clusters() -> Iterator[Starter]:
    """Starts A and B at once; takes what `HdfsCluster` takes."""
    started: list[HdfsCluster] = []

    def start(**options: Any) -> tuple[HdfsCluster, HdfsCluster]:
        started.extend(
            HdfsCluster.start_many([HdfsCluster(datanodes=1, **options) for _ in range(2)])
        )
        return started[0], started[1]

    yield start
    for cluster in started:
        cluster.close()


def test_checkpoints_on_hdfs_are_restored_exactly_from_another_hdfs_with_the_first_one_stopped(
    flink: Flink, two_clusters: Starter
) -> None:
    a, b = two_clusters()
    replicated = replicate(flink, a.uri + ROOT, b.uri + ROOT)
    assert_incremental(replicated)
    a.close()
    assert_verified(replicated)
    assert_stands_alone(flink, replicated)
    assert_restores_twice(flink, replicated)


@pytest.mark.rest
def test_merged_files_that_a_killed_taskmanager_left_open_are_restored_exactly(
    flink: Flink, two_clusters: Starter
) -> None:
    """The lease of their files is not recovered: the NameNode lists less than was flushed."""
    a, b = two_clusters()
    job = Job(file_merging=True, file_merging_across=True)
    with flink.start(a.uri + ROOT, job) as running:
        running.take_checkpoints(2)
        source = running.kill().directory_uri
    report = cli("sync", source, b.uri + ROOT, "--runner", "inline")
    replica = str(report["replica"])
    copied = b.tree(replica.removeprefix(b.uri))
    merged = {path: data for path, data in copied.items() if data and "/taskowned/" in path}
    assert any(a.status(path)["length"] < len(data) for path, data in merged.items())
    a.close()
    checkpoint = f"{replica}/{report['checkpoint']}"
    again = flink.run(b.uri + "/again", job, restore=checkpoint, checkpoints=1)
    assert again.exact, again.failure


@pytest.mark.rest
def test_two_ha_pairs_of_one_name_are_distinguished_and_the_second_restores_alone(
    two_clusters: Starter, tmp_path: Path
) -> None:
    a, b = two_clusters(nameservice="nameservice1")
    at_a, at_b = a.write_conf_dir(tmp_path / "a"), b.write_conf_dir(tmp_path / "b")
    confs = ("--source-conf", str(at_a), "--target-conf", str(at_b))
    assert a.uri == b.uri

    def fail_over() -> None:
        a.failover()
        b.failover()

    with Flink("2", hadoop_conf=at_a) as flink:
        replicated = replicate(
            flink, a.uri + ROOT, b.uri + ROOT, *confs, "--paths", "absolute", between=fail_over
        )
    assert_incremental(replicated)
    a.close()
    assert_verified(replicated, "--target-conf", str(at_b))
    with Flink("2", hadoop_conf=at_b) as flink:
        assert_restores_twice(flink, replicated)


def replicate(
    flink: Flink, source: str, target: str, *options: str, between: Callable[[], None] | None = None
) -> Replicated:
    """Runs a job with checkpoints below `source`.

    Syncs them while it runs, then the next one when it is stopped.
    """
    with flink.start(source) as job:
        first = sync(job.so_far.directory_uri, target, *options)
        if between is not None:
            between()
        job.take_checkpoints(1)
        stopped = job.stop()
    return Replicated(stopped, first, sync(stopped.directory_uri, target, *options))


def assert_incremental(replicated: Replicated) -> None:
    """The later sync copied only what the first one had not brought."""
    run, first, later = replicated
    assert later["source"] == run.newest_uri != first["source"]
    assert later["base_checkpoint_id"] == first["checkpoint_id"]
    assert later["copy"]["files"] > 0
    assert later["keep"]["files"] > 0


def assert_verified(replicated: Replicated, *options: str) -> None:
    """Every byte of the replica is what was copied."""
    found = cli("verify", replicated.later["replica"], "--content", *options)
    assert found["restorable"], found
    assert found["checkpoint_id"] == replicated.later["checkpoint_id"]


def assert_stands_alone(flink: Flink, replicated: Replicated) -> None:
    """Every file that Flink's own loader finds in the checkpoint is in the replica."""
    paths = [row["path"] for row in flink.refs(replicated.checkpoint) if "path" in row]
    assert paths
    assert [path for path in paths if not path.startswith(f"{replicated.later['replica']}/")] == []


def assert_restores_twice(flink: Flink, replicated: Replicated) -> None:
    """The job goes on from the replica, as the report describes, for two checkpoints, and from the
    newest of these again.
    """
    restore = replicated.later["restore"]
    assert replicated.checkpoint in restore["command"]
    mode = restore["claim_mode"]
    first = flink.run(
        replicated.root, restore=replicated.checkpoint, claim_mode=mode, checkpoints=2
    )
    assert first.exact, first.failure
    assert first.newest_uri.startswith(f"{replicated.root}/{first.job_id}/")
    second = flink.run(replicated.root, restore=first.newest_uri, claim_mode=mode, checkpoints=0)
    assert second.exact, second.failure


def sync(source: str, target: str, *options: str) -> Report:
    report = cli("sync", source, target, "--runner", "inline", *options)
    assert report["committed"], report
    return report


def cli(*words: str) -> Report:
    """Return the result of a command that gets its Hadoop configuration only from its options."""
    command = [sys.executable, "-m", "cpreplicate", *words, "--output", "json"]
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("HADOOP_")
    }
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=CLI_SECONDS, env=environment, check=False
    )
    assert done.returncode == 0, (
        f"{command} ended with {done.returncode}\n{done.stdout}{done.stderr}"
    )
    return dict(json.loads(done.stdout))
