"""A checkpoint is derived, verified, kept by a sync, promoted and forgotten on HDFS and on S3."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

from tests.support import parts
from tests.support.commandline import run
from tests.support.hdfs import Clusters
from tests.support.jobs import JOB
from tests.support.kafka_jobs import put_with_files
from tests.support.kafka_states import Split
from tests.support.s3 import S3Server

pytestmark = pytest.mark.rest

SPLITS = [Split("orders", partition, 100 * partition + 7) for partition in range(3)]


@pytest.mark.xdist_group("hdfs-sync")
@pytest.mark.parametrize("client", ["native", parts.rest("hadoop")])
def test_a_checkpoint_is_derived_on_hdfs(clusters: Clusters, client: str, tmp_path: Path):
    root = f"{clusters.b.uri}/test/{uuid.uuid4().hex}"
    go_through(root, ["--hdfs-client", client], tmp_path)


def test_a_checkpoint_is_derived_on_s3(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    s3.make_bucket("derived")
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    go_through(f"s3://derived/{uuid.uuid4().hex}", [], tmp_path)


def go_through(root: str, options: list[str], tmp_path: Path) -> None:
    replica = f"{root}/{JOB}"

    def command(verb: str, *words: object) -> dict[str, Any]:
        return run(verb, *words, *options, "--output", "json").json()

    put_with_files(tmp_path, 1, SPLITS)
    sync = ("sync", f"file:{tmp_path}/{JOB}", root, "--runner", "inline")
    command(*sync)
    offsets_file = tmp_path / "offsets.csv"
    offsets_file.write_text("orders,1,9\n")
    derived = command("rebase", replica, "--positions", offsets_file)["derived"]
    assert derived == "rebased/chk-1-1"
    assert command("verify", replica, "--checkpoint", derived, "--content")["restorable"]

    put_with_files(tmp_path, 2, SPLITS)
    command(*sync)
    assert command("verify", replica, "--checkpoint", derived, "--content")["restorable"]
    assert command("verify", replica, "--content")["checkpoint_id"] == 2

    promoted = command("promote", replica, "--checkpoint", derived, "--positions")
    held = {each["partition"]: each["offset"] for each in promoted["positions"]}
    assert held == {0: 7, 1: 9, 2: 207}
    command("unseal", replica, "--no-job-uses-it")
    assert command("rebase", replica, "--forget", derived)["removed"]
    assert command("verify", replica, "--content")["restorable"]
    assert run("verify", replica, "--checkpoint", derived, *options).code == 10
