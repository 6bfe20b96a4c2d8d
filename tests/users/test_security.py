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
from click.testing import CliRunner

from cpreplicate.cli.commands.replication import cli
from cpreplicate.operations.sync import sync
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.protocol import lease
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import Side, Sides
from tests.support import parts
from tests.support.jobs import JOB, write_checkpoint
from tests.support.replicas import FILES, sealed
from tests.support.s3 import s3fs_options
from tests.support.waiting import PATIENCE

SECRET = "s3cr3t-0f-the-0perat0r"


def run(*words, **environment):
    """A run of the real process: its exit code, all of its output, and the arguments of every
    process meanwhile.
    """
    when_watched = ["sh", "-c", 'read -r go; exec "$@"', "sh"]
    process = subprocess.Popen(
        [*when_watched, sys.executable, "-m", "cpreplicate", "--debug", *words],
        env={**os.environ, **environment},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    seen: set[bytes] = set()
    watching = threading.Event()
    watcher = threading.Thread(target=watch_arguments, args=(process, seen, watching))
    watcher.start()
    assert watching.wait(PATIENCE)
    output = process.communicate(b"go\n", timeout=PATIENCE)[0]
    watcher.join()
    return process.returncode, output, b"\n".join(seen)


def watch_arguments(process, seen, watching):
    while process.poll() is None:
        for each in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                seen.add(each.read_bytes())
        watching.set()
        time.sleep(0.05)


def assert_unseen(*texts):
    assert not any(SECRET.encode() in text for text in texts)


@pytest.fixture
def bucket(s3):
    name = f"security-{os.getpid()}-{time.monotonic_ns()}"
    s3.make_bucket(name)
    return name


@pytest.mark.parametrize("runner", ["inline", parts.rest("spark")])
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
    sealed(replica, "chk-1", side)
    with lease.acquire(f"file:{replica}", side, heartbeat=PATIENCE):  # a heartbeat is a file
        notes = [each.read_bytes() for each in (replica / ".cpreplicate").iterdir()]
    assert len(notes) == 6  # marker, record, manifest, seal, lease and the room for the next one
    assert_unseen(*notes, json.dumps(report.plan.actions).encode(), repr(report).encode())


PROPERTY = "fs.s3a.secret.key"
# What was meant is PROPERTY=SECRET
MISTYPED = [
    f"{PROPERTY}:{SECRET}",
    f"{PROPERTY} {SECRET}",
    f"{PROPERTY}{SECRET}",
    f"/{PROPERTY}:{SECRET}",
    f"{PROPERTY}:{SECRET}==",  # Base64 ends so
    f"={SECRET}",
    f"{PROPERTY}:{SECRET * 20}",  # longer than a name in a directory may be
    f"{PROPERTY}\0{SECRET}",
]


def mistyped(*words, environment=None):
    """Run a command whose options are wrong; return its exit code and all that it printed."""
    done = CliRunner().invoke(cli, list(map(str, words)), env=environment or {})
    return done.exit_code, done.output + repr(done.exception)


@pytest.mark.parametrize("option", ["--source-conf", "--target-conf", "--conf"])
@pytest.mark.parametrize("value", MISTYPED, ids=range(len(MISTYPED)))
def test_what_is_no_property_is_in_no_message_and_no_log(tmp_path, option, value):
    log = tmp_path / "log"
    words = ["sync", "file:/a", "file:/b", option, value, "--log-file", log]
    code, output = mistyped("--debug", *words)
    assert (code, f"Invalid value for '{option}'" in output) == (2, True), output
    assert_unseen(output.encode(), log.read_bytes() if log.exists() else b"")


@pytest.mark.parametrize("command", ["diff", "watch", "doctor", "verify", "sweep", "status"])
def test_no_command_shows_what_is_no_property(command):
    words = [command, "file:/a", "file:/b", "--target-conf", f"{PROPERTY}:{SECRET}"]
    code, output = mistyped(*words)
    assert code == 2
    assert_unseen(output.encode())


def test_what_is_no_property_is_not_shown_when_the_environment_has_it():
    environment = {"CPREPLICATE_SYNC_TARGET_CONF": f"{PROPERTY}:{SECRET}"}
    code, output = mistyped("sync", "file:/a", "file:/b", environment=environment)
    assert (code, "--target-conf" in output) == (2, True)
    assert_unseen(output.encode())


@pytest.mark.parametrize(
    "text",
    [
        f'[sync]\ntarget-conf = ["a=b", "{PROPERTY}:{SECRET}"]\n',
        f'[sync]\ntarget-conf = "{PROPERTY}:{SECRET}"\n',
        f'[sync]\nconf = ["{PROPERTY}:{SECRET}"]\n',
        f'[storage."s3://b"]\n"{PROPERTY}:{SECRET}" = true\n',
        f'[storage."s3://b"]\n"{PROPERTY}:{SECRET}" = []\n',
        f'[storage."s3://b"]\n"{PROPERTY}" = ["{SECRET}"]\n',
        f'[storage."s3://b"]\n{PROPERTY} = "{SECRET}"\n',  # a dotted key: a table
        f'[storage."s3://b"]\n"{PROPERTY}": "{SECRET}"\n',
        f'[storage."s3://b"]\n"{PROPERTY}" = {SECRET}\n',
    ],
)
def test_a_mistake_in_the_toml_file_shows_no_value(tmp_path, text):
    file = tmp_path / "cpreplicate.toml"
    file.write_text(text)
    code, output = mistyped("--config", file, "sync", "file:/a", "file:/b")
    assert (code, "cpreplicate.toml:" in output) == (2, True), output
    assert_unseen(output.encode())


def test_a_property_may_be_longer_than_a_name_in_a_directory(tmp_path):
    """A session token of AWS has a thousand characters."""
    checkpoint = write_checkpoint(tmp_path / "dcA", 1, FILES)
    words = ["--target-conf", f"fs.s3a.session.token={SECRET * 50}"]
    code, output = mistyped("sync", checkpoint, tmp_path / "dcB", *words)
    assert code == 0, output
    assert_unseen(output.encode())
