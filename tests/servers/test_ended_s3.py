"""A job that was stopped with a savepoint, and left nothing on an object store but that."""

from __future__ import annotations

import re
import shlex

import pytest
import s3fs

from cpreplicate.errors import NotThere, Refused
from cpreplicate.storage import Side
from tests.support import jobs
from tests.support.commandline import run
from tests.support.jobs import JOB, put_checkpoint
from tests.support.s3 import S3Server, side_options

FILES = {"shared/a": 1000, "chk-1/own": 30}
SAVEPOINT = f"savepoint-{JOB[:6]}-0123456789ab"


@pytest.fixture
def side(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Side:
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    return Side((("s3:", tuple(side_options(s3.endpoint).items())),))


def advised(message: str) -> list[str]:
    (command,) = re.findall("`cpreplicate (sync [^`]+)`", message)
    return shlex.split(command)


@pytest.mark.parametrize("above", ["", "/flink"])
def test_the_only_job_below_a_root_is_not_taken_back_without_a_word(
    s3: S3Server, side: Side, above: str
) -> None:
    bucket = s3.make_bucket(f"ended{above.replace('/', '-')}")
    target = s3.make_bucket(f"replicas{above.replace('/', '-')}")
    source, storage = f"{bucket}{above}/checkpoints", side.storage(bucket)
    put_checkpoint(side, source, 1, FILES)
    assert run("sync", f"{source}/{JOB}", target, "--runner", "inline").code == 0
    for name in (*FILES, "chk-1/_metadata"):
        storage.delete(f"{source}/{JOB}/{name}")
    savepoint = f"{bucket}{above}/savepoints/{SAVEPOINT}"
    metadata = jobs.metadata_of(2, {f"{savepoint}/state": 50})
    storage.put(f"{savepoint}/state", lambda: [b"s" * 50])
    storage.put(f"{savepoint}/_metadata", lambda: [metadata])

    synced = run("sync", f"{source}/{JOB}", target, "--runner", "inline")
    refused = run("promote", f"{target}/{JOB}")
    assert (synced.code, refused.code) == (NotThere.exit_code, Refused.exit_code)
    assert savepoint in advised(synced.message)
    assert savepoint in advised(refused.message)
    assert run(*advised(refused.message), "--runner", "inline").code == 0
    (row,) = run("status", target, "--output", "json").json()["replicas"]
    assert row["checkpoint"] == "chk-2"


def test_a_bucket_that_is_not_there_is_not_the_end_of_a_job(s3: S3Server, side: Side) -> None:
    bucket, target = s3.make_bucket("gone"), s3.make_bucket("of-the-gone")
    put_checkpoint(side, f"{bucket}/checkpoints", 1, FILES)
    assert run("sync", f"{bucket}/checkpoints/{JOB}", target, "--runner", "inline").code == 0
    storage = side.storage(bucket)
    for name in (*FILES, "chk-1/_metadata"):
        storage.delete(f"{bucket}/checkpoints/{JOB}/{name}")
    client = s3fs.S3FileSystem(**s3.options, use_listings_cache=False)
    client.rmdir(bucket.removeprefix("s3://"))
    assert run("promote", f"{target}/{JOB}", "--dry-run").code == 0
