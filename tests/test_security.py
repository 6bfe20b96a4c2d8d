"""Secrets stay where they were given: not in results, messages, replicas, nor in what other users
of the host can see.
"""

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path

import pytest
import s3fs

from cpreplicate.operations import sync
from cpreplicate.operations.sync_plan import SyncRequest
from cpreplicate.protocol import lease, seal
from cpreplicate.protocol.replica import Replica
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import Side, Sides
from tests.support.jobs import JOB, write_checkpoint
from tests.support.replicas import FILES
from tests.support.s3 import s3fs_options
from tests.support.waiting import PATIENCE

SECRET = "s3cr3t-0f-the-0perat0r"


def run(*words, **environment):
    """A run of the real process: its exit code, all of its output, and the arguments of every
    process meanwhile.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "cpreplicate", "--debug", *words],
        env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    seen: set[bytes] = set()
    watcher = threading.Thread(target=watch_arguments, args=(process, seen))
    watcher.start()
    output = process.communicate(timeout=PATIENCE)[0]
    watcher.join()
    return process.returncode, output, b"\n".join(seen)


def watch_arguments(process, seen):
    while process.poll() is None:
        for each in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                seen.add(each.read_bytes())
        time.sleep(0.05)


def assert_unseen(*texts):
    assert not any(SECRET.encode() in text for text in texts)


@pytest.fixture
def bucket(s3):
    name = f"security-{os.getpid()}-{time.monotonic_ns()}"
    s3.make_bucket(name)
    return name


@pytest.mark.parametrize("runner", ["inline", "spark"])
def test_a_secret_of_the_environment_reaches_the_storage_only(s3, bucket, tmp_path, runner):
    checkpoint = write_checkpoint(tmp_path / "dcA", 1, FILES)
    words = [
        "sync",
        str(checkpoint),
        f"s3://{bucket}/ckpt",
        "--runner",
        runner,
        "--output",
        "json",
        "--actions",
    ]
    code, output, arguments = run(
        *words,
        AWS_ACCESS_KEY_ID="testing",
        AWS_SECRET_ACCESS_KEY=SECRET,
        AWS_ENDPOINT_URL=s3.endpoint,
        AWS_REGION="us-east-1",
    )
    assert code == 0, output
    assert b"cpreplicate" in arguments
    filesystem = s3fs.S3FileSystem(**s3fs_options(s3.endpoint), skip_instance_cache=True)
    keys = filesystem.find(bucket)
    assert f"{bucket}/ckpt/{JOB}/chk-1/_metadata" in keys
    assert_unseen(output, arguments, *filesystem.cat(keys).values())


@pytest.mark.parametrize(
    ("place", "options"),
    [
        ("s3://b/x", {"key": "k", "secret": SECRET, "endpoint_url": "http://127.0.0.1:1"}),
        (
            "s3://b/x",
            {"key": "k", "token": SECRET, "secret": SECRET, "endpoint_url": "http://127.0.0.1:1"},
        ),
        ("webhdfs://127.0.0.1:1/x", {"token": SECRET}),
        ("hdfs://127.0.0.1:1/x", {"fs.some.password": SECRET}),
    ],
    ids=["s3", "s3-token", "webhdfs", "hdfs"],
)
def test_a_secret_is_not_printed_when_the_storage_fails_even_in_a_traceback(place, options):
    side = Side((("", tuple(options.items())),))
    with pytest.raises(OSError, match=r".") as raised:
        side.storage(place).unwrapped.stat(place)
    trace = "".join(traceback.format_exception(raised.value))
    assert "Error" in trace
    assert_unseen(trace.encode(), repr(raised.value).encode())


def test_a_seal_and_a_lease_hold_no_secret(tmp_path):
    side = Side((("", (("password", SECRET),)),))
    checkpoint = write_checkpoint(tmp_path / "dcA", 1, FILES)
    request = SyncRequest(
        f"file:{checkpoint}",
        f"file:{tmp_path}/dcB",
        sides=Sides(side, side),
        execution=ExecutionOptions(runner="inline"),
    )
    report = sync.sync(request, lambda _line: None)
    replica = tmp_path / "dcB" / JOB
    seal.seal(Replica(f"file:{replica}", side), "chk-1")
    with lease.acquire(f"file:{replica}", side):
        notes = [each.read_bytes() for each in (replica / ".cpreplicate").iterdir()]
    assert len(notes) == 5  # marker, record, manifest, seal and lease
    assert_unseen(*notes, json.dumps(report.plan.actions).encode(), repr(report).encode())
