"""What is particular to Hadoop's own client: its checksums, and how long its JVM lives."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
import uuid
from pathlib import Path

import pytest

from cpreplicate.errors import UsageError
from cpreplicate.storage.backends.jvm import client as jvm_client
from cpreplicate.storage.backends.jvm import launcher as jvm_launcher
from cpreplicate.storage.backends.jvm.hadoop import HadoopStorage
from cpreplicate.storage.base import Transient, WriteSettings
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.xdist_group("hdfs")

MEGABYTE = 1 << 20
BYTES = bytes(range(256)) * (10 * 1024) + b"tail"  # two and a half blocks of a megabyte, and 4


def storage(cluster, uri=None, block_size=None, **options):
    options = {**cluster.conf, "hadoop.user.name": cluster.superuser, **options}
    settings = WriteSettings(block_size=block_size)
    return HadoopStorage(uri or cluster.uri, options, settings, deadline=PATIENCE)


@pytest.fixture
def a(clusters):
    return storage(clusters.a)


@pytest.fixture
def b(clusters):
    return storage(clusters.b)


@pytest.fixture
def place():
    return f"/hadoop/{uuid.uuid4().hex}"


def put(storage, uri, data):
    storage.put(uri, lambda: [data])
    return uri


def read(storage, uri):
    with storage.open(uri) as stream:
        return stream.read()


def test_two_clusters_of_one_name_are_distinguished(clusters, place):
    def named(cluster):
        names = {"dfs.nameservices": "same", "dfs.ha.namenodes.same": "nn"}
        provider = "org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider"
        names |= {"dfs.client.failover.proxy.provider.same": provider}
        return storage(
            cluster,
            "hdfs://same",
            **names,
            **{"dfs.namenode.rpc-address.same.nn": cluster.namenodes[0]},
        )

    a, b = named(clusters.a), named(clusters.b)
    source = put(a, f"hdfs://same{place}/a", b"abc")
    assert b.stat(source) is None
    put(b, source, b"another")
    assert (read(a, source), read(b, source)) == (b"abc", b"another")


def test_a_view_over_two_clusters_is_written_by_atomic_renames(clusters, place):
    links = {"a": f"{clusters.a.uri}{place}", "b": f"{clusters.b.uri}{place}"}
    view = storage(
        clusters.a,
        "viewfs://all",
        **{f"fs.viewfs.mounttable.all.link./{name}": to for name, to in links.items()},
    )
    for name, cluster in zip(links, clusters, strict=True):
        cluster.mkdirs(place)
        uri = f"viewfs://all/{name}/file"
        with cluster.counted() as calls:
            assert view.create_exclusive(uri, b"first")
        assert calls["rename2"] == 1
        assert not view.create_exclusive(uri, b"second")
        assert cluster.get(f"{place}/file") == b"first"
        assert [each.uri for each in view.list(f"viewfs://all/{name}")] == [uri]
    with pytest.raises(OSError, match="mount"):
        view.rename("viewfs://all/elsewhere/x", "viewfs://all/elsewhere/y", replace=True)


def test_a_put_costs_four_calls(clusters, a, place):
    put(a, f"{clusters.a.uri}{place}/first", b"which may ask for the defaults")
    with clusters.a.counted() as calls:
        for number in range(5):
            put(a, f"{clusters.a.uri}{place}/{number}", b"data")
    del calls["renewLease"]  # each 30 s while a file is being written
    assert calls["complete"] >= 5  # "not yet" is an answer, too
    assert calls == {"create": 5, "addBlock": 5, "complete": calls["complete"], "rename2": 5}


def test_what_is_open_for_long_is_read_to_its_end(clusters, a, place):
    with a.open(put(a, f"{clusters.a.uri}{place}", BYTES)) as stream:
        assert stream.read(3) == BYTES[:3]
        assert stream.seek(-4, os.SEEK_END) == len(BYTES) - 4
        assert stream.read() == b"tail"
        assert stream.read() == b""
        stream.seek(len(BYTES) + 10)
        assert stream.read() == b""
        stream.seek(5)
        assert stream.read() == BYTES[5:]


def refusal_in_a_new_process(**environment: str) -> str:
    """Return the message of the `UsageError` that a process without a JVM raises."""
    code = """
        from cpreplicate.errors import UsageError
        from cpreplicate.storage.backends.jvm.hadoop import HadoopStorage
        from cpreplicate.storage.base import WriteSettings
        try:
            HadoopStorage("hdfs://localhost:1", {}, WriteSettings())
        except UsageError as error:
            print(error)
    """
    inherited = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    command = [sys.executable, "-c", textwrap.dedent(code)]
    env = {**inherited, **environment}
    return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout


def test_missing_java_is_a_usage_error_before_anything_happens():
    message = refusal_in_a_new_process(PATH="/nonexistent")
    assert message.startswith("--hdfs-client hadoop needs Java 17 or later (with Spark 3.5: 8")


def test_a_java_that_does_not_start_is_a_usage_error_with_its_output(tmp_path):
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho Unrecognized option >&2\nexit 1\n")
    java.chmod(0o755)
    message = refusal_in_a_new_process(JAVA_HOME=str(tmp_path))
    assert re.search(r"Unrecognized option\. .* needs Java 17", message)


def test_java_8_is_given_no_option_that_it_refuses(tmp_path):
    """Its launcher refuses options of modules, unless it is to ignore what it does not know."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    known = 'case "$*" in *"-XX:+IgnoreUnrecognizedVMOptions --add-opens"*) echo known;; esac'
    java.write_text(f"#!/bin/sh\n({known}) >&2\nexit 1\n")
    java.chmod(0o755)
    assert "did not start: known." in refusal_in_a_new_process(JAVA_HOME=str(tmp_path))


def test_an_unknown_cluster_is_reported_at_once():
    with pytest.raises(
        UsageError, match=r"hdfs://nowhere: .*UnknownHostException: nowhere; .*--source-conf"
    ):
        HadoopStorage("hdfs://nowhere", {}, WriteSettings())


def test_a_host_that_cannot_be_resolved_may_be_resolved_later():
    with pytest.raises(Transient, match=r"nosuchhost\.invalid"):
        HadoopStorage("hdfs://nosuchhost.invalid:8020", {}, WriteSettings()).stat(
            "hdfs://nosuchhost.invalid:8020/a"
        )


@pytest.fixture
def run():
    """Starts a Python process that may use the JVM by `jvm_launcher.jvm()`.

    Returns it and the PID of the JVM that it prints.
    """
    started = []

    def start(code):
        source = (
            "import os, signal, sys, time\n"
            "from cpreplicate.storage.backends.jvm import launcher as jvm_launcher\n"
            + textwrap.dedent(code)
        )
        process = subprocess.Popen(
            [sys.executable, "-c", source], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        return process, int(process.stdout.readline())

    yield start
    for process in started:
        process.kill()
        process.communicate()


def lives(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def ends(pid, seconds=PATIENCE):
    deadline = time.monotonic() + seconds
    while lives(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not lives(pid)


USES = "print(jvm_launcher.jvm().process.pid, flush=True)\n"


def test_the_jvm_ends_with_its_process(run):
    process, jvm = run(USES)
    assert process.wait(PATIENCE) == 0
    assert ends(jvm)  # its process does not wait for it for long


def test_the_jvm_ends_with_a_process_that_was_killed(run):
    process, jvm = run(USES + "sys.stdin.read()")
    assert lives(jvm)
    process.kill()
    assert ends(jvm)


def test_the_jvm_survives_the_ctrl_c_that_its_process_catches(run):
    process, jvm = run("""
        def answer(*_):  # amid a print, too
            os.write(1, f"{jvm_launcher.jvm().is_there()}\\n".encode())
        signal.signal(signal.SIGINT, answer)
        print(jvm_launcher.jvm().process.pid, flush=True)
        sys.stdin.read()
    """)
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "True\n"
    assert lives(jvm)


@pytest.mark.rest
def test_a_jvm_that_is_stopped_is_not_waited_for(run):
    process, jvm = run("""
        from cpreplicate.storage.backends.jvm import client as jvm_client
        from tests.support import processes
        jvm = jvm_launcher.jvm()
        print(jvm.process.pid, flush=True)
        processes.stop(jvm.process.pid)
        jvm_client.QUIET_SECONDS = 0.2
        print(jvm.is_there(), flush=True)
        os.kill(jvm.process.pid, signal.SIGKILL)
    """)
    assert process.stdout.readline() == "False\n"
    assert ends(jvm)


@pytest.mark.rest
def test_what_is_forked_uses_the_same_jvm(run):
    process, jvm = run(
        USES
        + """
if os.fork() == 0:
    print(jvm_launcher.jvm().process.pid, jvm_launcher.jvm().is_there(), flush=True)
    os._exit(0)
os.wait()
print(jvm_launcher.jvm().is_there(), flush=True)
"""
    )
    assert process.communicate()[0].splitlines() == [f"{jvm} True", "True"]


@pytest.mark.rest
def test_the_user_that_hdfs_native_was_given_is_not_that_of_the_jvm(run):
    process, pid = run(f"os.environ['HADOOP_USER_NAME'] = 'another'\n{USES}sys.stdin.read()")
    environment = Path(f"/proc/{pid}/environ").read_bytes()
    process.communicate()
    assert b"PATH=" in environment
    assert b"HADOOP_USER_NAME" not in environment


def test_a_jvm_that_died_is_started_anew(clusters, place):
    files = storage(clusters.a)
    uri = put(files, f"{clusters.a.uri}{place}", b"abc")
    died = jvm_launcher.jvm().process.pid
    os.kill(died, signal.SIGKILL)
    assert ends(died)
    with pytest.raises(Transient, match="JVM"):
        files.stat(uri)
    assert read(files, uri) == b"abc"
    assert jvm_launcher.jvm().process.pid != died


class Large(HadoopStorage):
    """Has a directory and a file whose answers take long."""

    def __init__(self):
        self.waits = []

    @contextlib.contextmanager
    def translated_errors(self, _uri):
        with jvm_client.answering(25.0):
            yield self

    def statuses(self, _uri):
        self.waits.append(jvm_client._seconds.get())
        return []

    def path(self, uri):
        return uri

    def call(self, _method, *_arguments):
        self.waits.append(jvm_client._seconds.get())


def test_a_large_directory_has_no_limit_beyond_those_of_hadoops_client():
    storage = Large()
    assert storage.list("hdfs://ns/directory") == []
    assert storage.waits == [None]
