"""Multipart uploads on a real S3 server whose run was killed: aborted if they are cpreplicate's."""

from __future__ import annotations

import sys
import uuid
from pathlib import Path

import pytest
import s3fs

from cpreplicate.storage import Side
from tests.support.commandline import printed
from tests.support.jobs import JOB, put_checkpoint, write_checkpoint
from tests.support.killing import started
from tests.support.s3 import FaultyProxy, S3Server, side_options
from tests.support.waiting import wait_until

BUCKET = "uploads"
LARGE = {"shared/large": 40 << 20, "shared/small": 100}
AFTER = {"shared/small": 100, "shared/other": 200}
WORDS = ("--runner", "inline", "--progress", "none")


class Target:
    """A root of replicas in the bucket, as commands and as the test see it."""

    def __init__(self, server: S3Server) -> None:
        self.endpoint, self.prefix = server.endpoint, uuid.uuid4().hex
        self.root = f"{server.make_bucket(BUCKET)}/{self.prefix}"
        self.replica = f"{self.root}/{JOB}"
        self._client = s3fs.S3FileSystem(
            **server.options, use_listings_cache=False, skip_instance_cache=True
        )

    def conf(self, endpoint: str | None = None) -> tuple[str, ...]:
        options = side_options(endpoint or self.endpoint)
        return tuple(f"--target-conf={name}={value}" for name, value in options.items())

    def uploads(self) -> list[str]:
        """The paths below the replica of the uploads that are not complete."""
        listed = self._client.call_s3("list_multipart_uploads", Bucket=BUCKET, Prefix=self.prefix)
        begun = f"{self.prefix}/{JOB}/"
        return sorted(upload["Key"].removeprefix(begun) for upload in listed.get("Uploads", ()))

    def begin_upload(self, path: str) -> None:
        key = f"{self.prefix}/{JOB}/{path}"
        self._client.call_s3("create_multipart_upload", Bucket=BUCKET, Key=key)


@pytest.fixture
def target(s3: S3Server) -> Target:
    return Target(s3)


@pytest.fixture
def killed(target: Target, tmp_path: Path) -> Target:
    """A sync was killed after the first part of a file."""
    source = write_checkpoint(tmp_path / "dcA", 1, LARGE)
    with FaultyProxy(target.endpoint) as proxy:
        proxy.slow_down(sys.maxsize, only="partNumber=2")
        words = ("sync", source, target.root, *target.conf(proxy.endpoint), *WORDS)
        with started(*words, "--retry-for", "1h") as run:
            wait_until(target.uploads, "an upload")
            assert run.kill()
    assert target.uploads() == ["shared/large"]
    return target


def test_the_next_sync_aborts_what_a_killed_one_left_and_nothing_else(
    killed: Target, tmp_path: Path
) -> None:
    killed.begin_upload("shared/of another program")
    source = write_checkpoint(tmp_path / "dcA", 2, AFTER)  # the large file is never copied
    done = printed("sync", source, killed.root, *killed.conf(), *WORDS, "--lock-wait", "10m")
    assert done.returncode == 0, done.stderr
    assert "aborted 1 incomplete upload of runs that died" in done.stderr
    assert killed.uploads() == ["shared/of another program"]
    verified = printed("verify", killed.replica, *killed.conf(), "--content", *WORDS)
    assert verified.returncode == 0, verified.stderr


@pytest.mark.rest
def test_the_next_sync_aborts_the_upload_of_a_file_that_executors_copied_as_ranges(
    target: Target, tmp_path: Path
) -> None:
    source = write_checkpoint(tmp_path / "dcA", 1, {**LARGE, "shared/large": 300 << 20})
    with FaultyProxy(target.endpoint) as proxy:
        proxy.slow_down(sys.maxsize, only="partNumber=10")  # of the second range
        words = ("sync", source, target.root, *target.conf(proxy.endpoint), "--progress", "none")
        spark = ("--runner", "spark", "--master", "local[2]", "--retry-for", "1h")
        with started(*words, *spark) as run:
            wait_until(lambda: any("partNumber=10" in each for each in proxy.requests), "its part")
            assert run.kill()
    assert target.uploads() == ["shared/large"]
    source = write_checkpoint(tmp_path / "dcA", 2, AFTER)
    done = printed("sync", source, target.root, *target.conf(), *WORDS, "--lock-wait", "10m")
    assert done.returncode == 0, done.stderr
    assert target.uploads() == []


@pytest.mark.rest
def test_an_upload_of_a_metadata_that_was_adopted_is_another_programs(
    target: Target, tmp_path: Path
) -> None:
    own = write_checkpoint(tmp_path / "dcA", 1, AFTER)
    storage = Side((("s3:", tuple(side_options(target.endpoint).items())),))
    put_checkpoint(storage, target.root, 7, {"shared/of another program": 10})
    adopted = printed("sync", own, target.root, *target.conf(), *WORDS, "--adopt")
    assert adopted.returncode == 0, adopted.stderr
    target.begin_upload("chk-7/_metadata")
    target.begin_upload("chk-1/_metadata")
    swept = printed("sweep", target.replica, *target.conf(), "--progress", "none")
    assert swept.returncode == 0, swept.stderr
    assert target.uploads() == ["chk-7/_metadata"]


def test_sweep_aborts_uploads_of_recorded_files_and_metadata(
    target: Target, tmp_path: Path
) -> None:
    source = write_checkpoint(tmp_path / "dcA", 1, AFTER)
    done = printed("sync", source, target.root, *target.conf(), *WORDS)
    assert done.returncode == 0, done.stderr
    ours = ["shared/other", "chk-1/_metadata", ".cpreplicate/chk-1.parquet"]
    others = ["chk-7/_metadata", "shared/of another program", "taskowned/of another program"]
    for path in (*ours, *others):
        target.begin_upload(path)
    swept = printed("sweep", target.replica, *target.conf(), "--progress", "none")
    assert swept.returncode == 0, swept.stderr
    assert "aborted 3 incomplete uploads of runs that died" in swept.stderr
    assert target.uploads() == sorted(others)
