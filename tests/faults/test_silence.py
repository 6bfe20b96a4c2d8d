"""Servers that accept connections and never answer: each command ends in its time, with a line that
names who does not answer, and a signal ends it at once.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys

import pytest

from cpreplicate.core.uri import join
from cpreplicate.errors import exit_code_of
from cpreplicate.storage import Side, Unreachable
from cpreplicate.storage.base import TEMPORARY, NoAnswer
from tests.support import checker, jobs, parts, processes
from tests.support.hdfs import HdfsCluster
from tests.support.jobs import JOB, write_checkpoint
from tests.support.silent import silent_server
from tests.support.waiting import wait_until

pytestmark = pytest.mark.xdist_group("silence")

HANGS = 1800  # seconds that only a hang meets
OTHERS = [f"{number:032x}" for number in range(1, 4)]


@pytest.fixture
def silent():
    with silent_server() as server:
        yield server


def places(address):
    """For each client: the URI of a job at a server, and the options that reach it."""
    s3 = [f"endpoint_url=http://{address}", "key=a", "secret=b", "region=us-east-1"]
    return {
        "native": (f"hdfs://{address}/flink/{JOB}", []),
        "hadoop": (f"hdfs://{address}/flink/{JOB}", ["--hdfs-client", "hadoop"]),
        "webhdfs": (f"webhdfs://{address}/flink/{JOB}", []),
        "s3": (f"s3://bucket/flink/{JOB}", [f"--source-conf={conf}" for conf in s3]),
    }


def start(*words, **environment):
    """Start a command as an operator does, whatever these tests inherited."""
    inherited = {name: value for name, value in os.environ.items() if name != STOP_WITHIN}
    return subprocess.Popen(
        [sys.executable, "-m", "cpreplicate", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=inherited | environment,
        preexec_fn=listen_to_signals,
    )


STOP_WITHIN = "CPREPLICATE_STOP_WITHIN"


def listen_to_signals():
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


@pytest.mark.parametrize("client", ["native", parts.rest("hadoop"), "webhdfs", "s3"])
def test_a_silent_server_ends_a_sync_with_7_and_a_line_that_names_it(silent, tmp_path, client):
    source, words = places(silent.address)[client]
    limits = ["--source-conf", "deadline=500ms", "--retry-for", "1s"]
    process = start("sync", source, tmp_path / "dcB", *limits, *words)
    _, stderr = process.communicate(timeout=HANGS)
    assert process.returncode == 7, stderr
    *_, last = stderr.splitlines()
    host, _, port = silent.address.partition(":")
    assert last.startswith("cpreplicate: error: "), stderr
    assert re.search(rf"({host}|localhost)[:/].*{port}", last), stderr
    assert "not answered" in last or "timeout" in last, stderr
    assert "trying again" in stderr


@pytest.mark.parametrize(
    ("client", "number", "code"),
    [
        ("native", signal.SIGTERM, 143),
        ("native", signal.SIGINT, 130),
        ("native", signal.SIGHUP, 129),
        parts.rest("hadoop", signal.SIGTERM, 143),
        parts.rest("webhdfs", signal.SIGTERM, 143),
        parts.rest("s3", signal.SIGTERM, 143),
    ],
)
def test_a_signal_ends_a_sync_that_waits_for_a_silent_server(
    silent, tmp_path, client, number, code
):
    """The call itself would wait for an hour, and so would the retries."""
    source, words = places(silent.address)[client]
    limits = ["--source-conf", "deadline=1h", "--retry-for", "1h"]
    process = start("sync", source, tmp_path / "dcB", *limits, *words)
    assert silent.reached.wait(HANGS)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=HANGS)
    assert process.returncode == code
    assert "interrupted" in stderr
    assert "Traceback" not in stderr


NOTHING_ENDS_IT = """
import threading
from cpreplicate.cli.running.signals import stop_on_signals

stop_on_signals()
try:
    print("ready", flush=True)
    threading.Event().wait()
except BaseException as error:
    kept = error  # while it is referenced it is not raised again
threading.Event().wait()
"""


def test_a_signal_ends_a_process_that_does_not_unwind():
    process = subprocess.Popen(
        [sys.executable, "-c", NOTHING_ENDS_IT],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={name: value for name, value in os.environ.items() if name != STOP_WITHIN},
        preexec_fn=listen_to_signals,
    )
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    _, stderr = process.communicate(timeout=HANGS)
    assert process.returncode == 143
    assert "interrupted" in stderr


@pytest.fixture
def fleet_file(silent, tmp_path, monkeypatch):
    """A fleet of jobs on this disk, between them two whose NameNode is silent."""
    text = ""
    for job in OTHERS:
        monkeypatch.setattr(jobs, "JOB", job)
        write_checkpoint(tmp_path / "dcA", 1, {"shared/1": 1000})
        text += f'[[job]]\nsource = "{tmp_path}/dcA/{job}"\ntarget = "{tmp_path}/dcB"\n'
        silently = f"hdfs://{silent.address}/flink/{'a' * 24}{job[-8:]}"
        text += f'[[job]]\nsource = "{silently}"\ntarget = "{tmp_path}/dcB"\n'
    (tmp_path / "fleet.toml").write_text(text)
    return tmp_path / "fleet.toml"


def test_a_silent_namenode_holds_up_no_other_job_of_a_fleet_and_a_signal_ends_it(
    silent, fleet_file, tmp_path
):
    """The calls and the retries of the silent jobs would take an hour."""
    limits = ["--source-conf", "deadline=1h", "--retry-for", "1h", "--runner", "inline"]
    # calls are broken off after two fifths of this time, and the process without a word at its end
    process = start("fleet", fleet_file, *limits, **{STOP_WITHIN: "20s"})
    wait_until(lambda: len(list((tmp_path / "dcB").glob("*/chk-1/_metadata"))) == len(OTHERS))
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    _, stderr = process.communicate(timeout=HANGS)
    assert process.returncode == 143, stderr
    assert f"the NameNode {silent.address} has not answered" in stderr or "later" in stderr


@pytest.mark.rest
def test_the_silent_jobs_of_a_fleet_fail_with_7_and_the_others_are_replicated(
    silent, fleet_file, tmp_path
):
    limits = ["--source-conf", "deadline=500ms", "--retry-for", "1s", "--runner", "inline"]
    process = start("fleet", fleet_file, *limits)
    stdout, stderr = process.communicate(timeout=HANGS)
    assert process.returncode == 7, stderr
    assert all(checker.faults(tmp_path / "dcB" / job) == [] for job in OTHERS)
    assert f"{len(OTHERS)} jobs, one cause: " in stdout
    assert f"the NameNode {silent.address} has not answered" in stdout


@pytest.fixture(scope="module")
def cluster():
    with HdfsCluster(datanodes=1) as running:
        yield running


@pytest.fixture
def frozen(cluster):
    """What freezes all servers of the cluster, until the test ends or lets them go on."""

    class Host:
        def freeze(self):
            processes.stop(cluster.pid)

        def thaw(self):
            os.kill(cluster.pid, signal.SIGCONT)

    yield Host()
    os.kill(cluster.pid, signal.SIGCONT)


@pytest.fixture(params=["native", parts.rest("hadoop")])
def side(cluster, request):
    """Calls have a second; what is frozen is asked once."""
    options = tuple({**cluster.conf, "deadline": "2s"}.items())
    return Side(options=(("", options),), hdfs_client=request.param, retry_for=0.0)


def patient(side):
    """The same side, but with more time for calls than a busy machine takes."""
    return Side(options=(*side.options, ("", (("deadline", "1h"),))), hdfs_client=side.hdfs_client)


def opened(side, uri):
    """A stream of a file, opened again where the servers were too slow for it."""
    while True:
        with contextlib.suppress(NoAnswer):
            return side.storage(uri).open(uri)


@pytest.mark.hdfs
def test_datanodes_that_are_silent_while_a_file_is_read_are_named_in_time(cluster, frozen, side):
    uri = f"{cluster.uri}/silence/{side.hdfs_client}/read"
    patient(side).storage(uri).put(uri, lambda: [bytes(1 << 20)] * 8)
    with opened(side, uri) as stream:
        frozen.freeze()
        with pytest.raises(NoAnswer) as raised:
            stream.read()
    assert raised.value.exit_code == 7
    frozen.thaw()
    with patient(side).storage(uri).open(uri) as stream:
        assert len(stream.read()) == 8 << 20


@pytest.mark.hdfs
def test_servers_that_are_silent_while_a_file_is_written_are_named_and_no_part_of_it_stays(
    cluster, frozen, side
):
    """What was left behind removes the temporary file once the servers answer again."""
    uri = f"{cluster.uri}/silence/{side.hdfs_client}/written"
    storage = patient(side).storage(uri)
    storage.put(join(uri, "before"), lambda: [b"x"])

    def content():
        yield bytes(1 << 20)
        frozen.freeze()
        for _ in range(64):
            yield bytes(1 << 20)

    with pytest.raises(OSError, match=r"answer|time") as raised:
        side.storage(uri).put(join(uri, "file"), content)
    assert exit_code_of(raised.value) == 7
    frozen.thaw()
    storage.put(join(uri, "after"), lambda: [b"x"])
    if side.hdfs_client == "native":
        wait_until(lambda: not [s for s in storage.list(uri) if s.name.startswith(TEMPORARY)])
    names = {status.name for status in storage.list(uri)}
    assert {"before", "after"} <= names
    assert "file" not in names


@pytest.mark.hdfs
def test_a_namenode_that_was_frozen_is_used_again_once_it_answers(cluster, frozen, side):
    uri = f"{cluster.uri}/silence/{side.hdfs_client}/again"
    storage = side.storage(uri)
    patient(side).storage(uri).put(uri, lambda: [b"content"])
    frozen.freeze()
    with pytest.raises(Unreachable, match=cluster.namenodes[0].rpartition(":")[2]):
        storage.stat(uri)
    frozen.thaw()
    wait_until(lambda: is_there(storage, uri))


def is_there(storage, uri):
    try:
        return storage.stat(uri).length == 7
    except Unreachable:  # the machine is busy
        return False


@pytest.mark.hdfs
def test_a_pair_of_namenodes_is_used_although_the_first_one_is_silent(silent, cluster):
    """hdfs-native waits for the first one for ever; its connection is broken, so it turns to the
    second one.
    """
    names = {
        "dfs.nameservices": "pair",
        "dfs.ha.namenodes.pair": "first,second",
        "dfs.namenode.rpc-address.pair.first": silent.address,
        "dfs.namenode.rpc-address.pair.second": cluster.namenodes[0],
        "deadline": "2s",
    }
    side = Side(options=(("", tuple({**cluster.conf, **names}.items())),), retry_for=HANGS)
    storage = side.storage("hdfs://pair/")
    assert storage.stat("hdfs://pair/").is_directory
    assert silent.reached.is_set()


def test_a_deadline_that_is_no_time_is_refused(tmp_path):
    process = start("sync", f"hdfs://nn:8020/{JOB}", tmp_path, "--source-conf", "deadline=soon")
    _, stderr = process.communicate(timeout=HANGS)
    assert (process.returncode, "expected a time such as 20s" in stderr) == (2, True)


def test_a_root_on_a_silent_namenode_fails_as_a_job_does_and_the_others_are_replicated(
    silent, fleet_file, tmp_path
):
    root = f"hdfs://{silent.address}/flink"
    text = fleet_file.read_text() + f'[[root]]\nsource = "{root}"\ntarget = "{tmp_path}/dcB"\n'
    fleet_file.write_text(text)
    limits = ["--source-conf", "deadline=500ms", "--retry-for", "1s", "--runner", "inline"]
    process = start("fleet", fleet_file, *limits, "--output", "json")
    stdout, stderr = process.communicate(timeout=HANGS)
    assert process.returncode == 7, stderr
    codes = {job["name"]: job["exit_code"] for job in json.loads(stdout)["jobs"]}
    assert codes[root] == 7
    assert {codes[job] for job in OTHERS} == {0}
