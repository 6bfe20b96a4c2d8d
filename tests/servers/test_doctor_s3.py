"""`doctor` on a real S3 server, with each fault made on purpose."""

from __future__ import annotations

import subprocess
import sys
import uuid
from pathlib import Path
from subprocess import CompletedProcess
from urllib.request import Request, urlopen

import pytest
import s3fs

from cpreplicate.storage import Side
from tests.support import parts
from tests.support.doctor import Examined, examined
from tests.support.jobs import JOB, metadata, put_checkpoint, write_checkpoint
from tests.support.s3 import S3Server, side_options

pytestmark = pytest.mark.s3

FILES = {"shared/a": 1000}


@pytest.fixture
def bucket(s3: S3Server) -> str:
    """A bucket of the test's own."""
    name = f"doctor-{uuid.uuid4().hex}"
    s3.make_bucket(name)
    return name


@pytest.fixture
def source(tmp_path: Path) -> Path:
    write_checkpoint(tmp_path, 1, FILES)
    return tmp_path / JOB


def client(server: S3Server) -> s3fs.S3FileSystem:
    return s3fs.S3FileSystem(**server.options, use_listings_cache=False, skip_instance_cache=True)


def doctor(server: S3Server, source: object, target: object) -> Examined:
    words = [f"{name}={value}" for name, value in side_options(server.endpoint).items()]
    conf = [f"--{side}-conf={word}" for side in ("source", "target") for word in words]
    return examined(source, target, *conf)


def test_a_sync_that_could_run(s3: S3Server, source: Path, bucket: str) -> None:
    found = doctor(s3, source, f"s3://{bucket}/replicas")
    assert found.code == 0
    assert found.names("failed") == found.names("warning") == []
    assert found.text("target client").startswith("s3fs ")
    assert s3.endpoint in found.text("target conf")
    assert found.status("target clock") == "ok"
    assert client(s3).find(bucket) == []


@pytest.mark.rest
def test_a_source_on_s3_shows_its_clock(s3: S3Server, bucket: str, tmp_path: Path) -> None:
    side = Side((("s3:", tuple(side_options(s3.endpoint).items())),))
    put_checkpoint(side, f"s3://{bucket}/flink", 1, FILES)
    before = client(s3).find(bucket, detail=True)
    found = doctor(s3, f"s3://{bucket}/flink/{JOB}", tmp_path / "dcB")
    assert found.code == 0
    assert "differs from this machine's by" in found.text("source clock")
    assert client(s3).find(bucket, detail=True) == before


def test_a_missing_bucket(s3: S3Server, source: Path, tmp_path: Path) -> None:
    as_target = doctor(s3, source, "s3://doctor-no-such-bucket/replicas")
    assert as_target.code == 10
    assert as_target.names("failed") == ["target reach"]
    assert "Create the bucket" in as_target.text("target reach")
    as_source = doctor(s3, "s3://doctor-no-such-bucket/job", tmp_path / "dcB")
    assert as_source.code == 10
    assert as_source.names("failed") == ["source reach"]


@pytest.mark.rest
def test_versions_keep_deleted_objects(s3: S3Server, source: Path, bucket: str) -> None:
    calls = client(s3)
    enabled = {"Status": "Enabled"}
    calls.call_s3("put_bucket_versioning", Bucket=bucket, VersioningConfiguration=enabled)
    found = doctor(s3, source, f"s3://{bucket}/replicas")
    assert found.code == 0
    assert found.names("warning") == ["target deletes"]
    assert "no lifecycle rule expires them" in found.text("target deletes")
    rule = {
        "ID": "old",
        "Status": "Enabled",
        "Filter": {"Prefix": ""},
        "NoncurrentVersionExpiration": {"NoncurrentDays": 1},
    }
    calls.call_s3(
        "put_bucket_lifecycle_configuration",
        Bucket=bucket,
        LifecycleConfiguration={"Rules": [rule]},
    )
    found = doctor(s3, source, f"s3://{bucket}/replicas")
    assert "1 lifecycle rule expires them" in found.text("target deletes")


def test_an_object_lock_keeps_deleted_objects(s3: S3Server, source: Path) -> None:
    bucket = f"doctor-{uuid.uuid4().hex}"
    client(s3).call_s3("create_bucket", Bucket=bucket, ObjectLockEnabledForBucket=True)
    found = doctor(s3, source, f"s3://{bucket}/replicas")
    assert found.names("warning") == ["target deletes"]
    assert "object lock" in found.text("target deletes")


def test_a_server_that_does_not_answer(source: Path) -> None:
    server = S3Server()
    server.port = 1
    found = doctor(server, source, "s3://bucket/replicas")
    assert found.code == 7
    assert found.names("failed") == ["target reach"]


@pytest.mark.rest
def test_wrong_credentials(source: Path) -> None:
    with S3Server() as server:
        server.make_bucket("replicas")
        # from the next request on, moto checks who signs it
        plain = {"Content-Type": "text/plain"}
        urlopen(Request(f"{server.endpoint}/moto-api/reset-auth", b"0", plain)).close()
        found = doctor(server, source, "s3://replicas/flink")
    assert found.code == 1
    assert found.names("failed") == ["target reach"]
    assert "credentials" in found.text("target reach")


VERSIONED = {"shared/a": 1000, "shared/abc?versionId=1": 10}


@pytest.mark.parametrize("command", parts.cases(["sync", "diff", "doctor"], ["sync"]))
def test_a_target_file_whose_name_s3fs_would_cut_is_refused_before_anything_is_copied(
    s3: S3Server, bucket: str, tmp_path: Path, command: str
) -> None:
    write_checkpoint(tmp_path, 1, VERSIONED)
    target = f"s3://{bucket}/replicas"
    ended = run(command, s3, tmp_path / JOB, target)
    assert ended.returncode == 6, ended
    assert f"{target}/{JOB}/shared/abc?versionId=1: the client of this storage" in ended.stdout
    assert client(s3).find(bucket) == []


@pytest.mark.parametrize("command", parts.cases(["sync", "diff", "doctor"], ["sync"]))
def test_a_source_file_whose_name_s3fs_would_cut_is_refused_before_anything_is_copied(
    s3: S3Server, bucket: str, tmp_path: Path, command: str
) -> None:
    side = Side((("s3:", tuple(side_options(s3.endpoint).items())),))
    source = f"s3://{bucket}/flink"
    put_checkpoint(side, source, 1, {"shared/a": 1000})
    data = metadata(source, 2, VERSIONED)
    side.storage(source).put(f"{source}/{JOB}/chk-2/_metadata", lambda: [data])
    ended = run(command, s3, f"{source}/{JOB}", tmp_path / "dcB")
    assert ended.returncode == 6, ended
    assert f"{source}/{JOB}/shared/abc?versionId=1: the client of this storage" in ended.stdout
    assert not (tmp_path / "dcB").exists()


def run(command: str, server: S3Server, source: object, target: object) -> CompletedProcess[str]:
    """Run a command, with its messages in stdout."""
    words = [f"{name}={value}" for name, value in side_options(server.endpoint).items()]
    conf = [f"--{side}-conf={word}" for side in ("source", "target") for word in words]
    return subprocess.run(
        [sys.executable, "-m", "cpreplicate", command, str(source), str(target), *conf],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
