"""`status` of replicas on real HDFS and on a real S3 server."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from cpreplicate.storage import Side
from tests.support.commandline import run
from tests.support.hdfs import Clusters
from tests.support.jobs import JOB, put_checkpoint
from tests.support.s3 import S3Server, side_options

pytestmark = pytest.mark.rest

FILES = {"shared/a": 1000, "shared/b": 2000, "chk-1/own": 30}
NEXT = {"shared/b": 2000, "shared/c": 500, "chk-2/own": 40}
LAGGING = 21


def row(*words: object) -> dict[str, Any]:
    """The only row of `status`."""
    (found,) = run("status", *words, "--output", "json").json()["replicas"]
    return dict(found)


def assert_follows_its_source(side: Side, source: str, target: str) -> None:
    """A job is replicated, completes a checkpoint, and is replicated again."""
    put_checkpoint(side, source, 1, FILES)
    assert run("status", target, "--source", source, "--max-lag", "1h").code == LAGGING
    assert run("sync", f"{source}/{JOB}", target, "--runner", "inline").code == 0
    before = row(target)
    assert (before["checkpoint"], before["lag_seconds"], before["files"]) == ("chk-1", 0, 3)
    assert before["checkpoint_completed"] == before["source_checkpoint_completed"] is not None
    put_checkpoint(side, source, 2, NEXT)
    behind = row(target, "--orphans")
    assert (behind["source_checkpoint_id"], behind["checkpoints_behind"]) == (2, 1)
    assert behind["lag_seconds"] == behind["age_seconds"]
    assert behind["orphans"] == {"files": 0, "bytes": 0}
    assert run("status", target, "--max-lag", "0s").code == LAGGING
    assert run("sync", f"{source}/{JOB}", target, "--runner", "inline").code == 0
    assert run("verify", f"{target}/{JOB}", "--content", "--record").code == 0
    after = row(target, "--max-lag", "0s")
    assert (after["checkpoint_id"], after["lag_seconds"], after["is_lagging"]) == (2, 0, False)
    assert after["verified"]["is_current"] is True
    assert after["bytes"] == sum(NEXT.values())


@pytest.mark.xdist_group("hdfs-sync")
def test_on_hdfs(clusters: Clusters, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HADOOP_USER_NAME", clusters.a.superuser)
    here = f"/test/{uuid.uuid4().hex}"
    assert_follows_its_source(
        Side(), f"{clusters.a.uri}{here}/checkpoints", f"{clusters.b.uri}{here}/replicas"
    )


def test_on_s3(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    s3.make_bucket("status")
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    here = f"s3://status/{uuid.uuid4().hex}"
    side = Side((("s3:", tuple(side_options(s3.endpoint).items())),))
    assert_follows_its_source(side, f"{here}/checkpoints", f"{here}/replicas")
