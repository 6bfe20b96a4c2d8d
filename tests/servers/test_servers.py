"""The real servers that other tests rely on do what those believe: `tests/support/hdfs.py` and
`tests/support/s3.py`. The tests of `make test` fail where they do not, and show less why.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import hdfs_native
import pytest
import s3fs

from tests.support.hdfs import Clusters, HdfsCluster, HdfsError
from tests.support.ports import given
from tests.support.s3 import FaultyProxy, S3Server
from tests.support.waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.xdist_group("hdfs"), pytest.mark.rest]

BODY = b"checkpoint" * 20_000
HEADERS = {
    "Authorization": (
        "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request, SignedHeaders=host,"
        " Signature=0"
    ),
    # urllib's own, a form, has moto throw the body away
    "Content-Type": "application/octet-stream",
}


def native(cluster: HdfsCluster) -> hdfs_native.Client:
    return hdfs_native.Client(cluster.uri, cluster.conf)


def runs(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rsplit(")", 1)[1].split()[0] != "Z"


class TestHdfs:
    def test_a_file_written_is_read(self, clusters: Clusters) -> None:
        path = "/read/a name with #, ? and %"
        clusters.a.put(path, BODY)
        assert clusters.a.get(path) == BODY
        assert clusters.a.status(path)["length"] == len(BODY)
        assert clusters.a.names("/read") == ["a name with #, ? and %"]
        with pytest.raises(HdfsError, match="FileNotFoundException"):
            clusters.b.get(path)

    def test_another_client_reads_what_was_written(
        self, clusters: Clusters, tmp_path: Path
    ) -> None:
        clusters.b.put("/native", BODY)
        directory = str(clusters.b.write_conf_dir(tmp_path / "conf"))
        for client in (
            native(clusters.b),
            hdfs_native.Client(clusters.b.uri, config_dir=directory),
        ):
            with client.read("/native") as file:
                assert file.read() == BODY

    def test_the_calls_of_clients_are_counted_once(self, clusters: Clusters) -> None:
        with clusters.a.counted() as calls:
            clusters.a.put("/counted", BODY)
        assert calls["create"] == calls["addBlock"] == 1
        assert calls["complete"] >= 1  # asked again where a DataNode's report came later
        assert set(calls) == {"create", "addBlock", "complete", "getServerDefaults"}

    def test_nothing_is_counted_while_nothing_is_called(self, clusters: Clusters) -> None:
        with clusters.a.counted() as calls:
            clusters.a.mkdirs("/by-command")
            time.sleep(1.5)  # heartbeats go on
        assert calls == {}

    def test_a_file_is_out_of_reach_while_its_datanodes_are_stopped(
        self, clusters: Clusters
    ) -> None:
        clusters.b.put("/stopped", BODY)
        for index in (0, 1):
            clusters.b.stop_datanode(index)
        with pytest.raises(HdfsError):
            clusters.b.get("/stopped")
        for index in (0, 1):
            clusters.b.start_datanode(index)
        assert clusters.b.get("/stopped") == BODY

    def test_a_datanode_declared_dead_is_not_written_to(self, clusters: Clusters) -> None:
        clusters.b.stop_datanode(0, declared_dead=True)
        for index in range(4):
            clusters.b.put(f"/dead/{index}", b"data")
        # the dead DataNode is still down, so what can be read is on the other one
        assert [clusters.b.get(f"/dead/{index}") for index in range(4)] == [b"data"] * 4
        clusters.b.start_datanode(0)

    def test_its_nodes_listen_where_no_connection_begins_while_they_are_stopped(
        self, clusters: Clusters
    ) -> None:
        """At the ports that it was given: see `tests/support/ports.py`."""
        cluster = clusters.a
        addresses = [*cluster.namenodes, *cluster.http, *cluster.datanodes]
        ports = {int(address.rpartition(":")[2]) for address in addresses}
        assert len(ports) == 4
        assert ports <= given.keys()

    def test_a_command_that_cannot_be_done_raises_with_the_reason(self, clusters: Clusters) -> None:
        with pytest.raises(HdfsError, match="DataNode 0 is running"):
            clusters.a.start_datanode(0)
        with pytest.raises(HdfsError, match="one NameNode"):
            clusters.a.failover()

    def test_permissions_quota_and_safe_mode_refuse_writes(self, clusters: Clusters) -> None:
        clusters.a.mkdirs("/limits")
        clusters.a.chmod("/limits", 0o700)
        with pytest.raises(HdfsError, match="AccessControlException"):
            clusters.a.put("/limits/file", b"data", user="somebody")
        clusters.a.chown("/limits", "somebody")
        clusters.a.put("/limits/file", b"data", user="somebody")
        assert clusters.a.status("/limits/file")["owner"] == "somebody"
        clusters.a.quota("/limits", 1000)
        with pytest.raises(HdfsError, match="DSQuotaExceededException"):
            clusters.a.put("/limits/second", b"data")
        clusters.a.quota("/limits", None)
        clusters.a.safemode(True)
        with pytest.raises(HdfsError, match="SafeModeException"):
            clusters.a.put("/limits/second", b"data")
        clusters.a.safemode(False)
        clusters.a.put("/limits/second", b"data")

    def test_files_outlive_the_restart_of_the_namenode(self, clusters: Clusters) -> None:
        clusters.b.put("/restart", BODY)
        clusters.b.restart_namenode()
        assert clusters.b.rpc_counts().get("create", 0) == 0
        clusters.b.put("/restarted", BODY)
        assert clusters.b.get("/restart") == clusters.b.get("/restarted") == BODY


class TestHa:
    def test_the_other_namenode_takes_over(self, ha_cluster: HdfsCluster) -> None:
        before = ha_cluster.active
        client = native(ha_cluster)
        with client.create("/failover") as file:
            file.write(BODY)
        assert ha_cluster.failover() == ha_cluster.active != before
        with client.read("/failover") as file:
            assert file.read() == BODY
        with ha_cluster.counted(ha_cluster.active) as calls:
            ha_cluster.put("/after", BODY)
        assert calls["create"] == 1

    def test_a_namenode_that_was_killed_comes_back_as_standby(
        self, ha_cluster: HdfsCluster
    ) -> None:
        client = native(ha_cluster)
        killed = ha_cluster.active
        assert killed is not None
        ha_cluster.put("/killed", BODY)
        ha_cluster.stop_namenode(killed)
        assert ha_cluster.active is None
        ha_cluster.failover()
        with client.read("/killed") as file:
            assert file.read() == BODY
        ha_cluster.start_namenode(killed)
        assert ha_cluster.active == 1 - killed
        assert ha_cluster.failover() == killed
        ha_cluster.put("/back", BODY)
        assert ha_cluster.get("/back") == BODY


class TestLifeOfProcesses:
    def test_a_cluster_is_gone_after_close(self, hdfs_cluster: Callable[..., HdfsCluster]) -> None:
        cluster = hdfs_cluster(datanodes=1, superuser="hdfs", conf={"dfs.blocksize": str(1 << 20)})
        cluster.mkdirs("/owned")
        assert (cluster.status("/owned")["owner"], cluster.conf["dfs.blocksize"]) == (
            "hdfs",
            "1048576",
        )
        pid, directory = cluster.pid, Path(f"/proc/{cluster.pid}/cwd").resolve()
        cluster.close()
        assert not runs(pid)
        assert not directory.exists()

    def test_servers_end_with_a_killed_parent(self, tmp_path: Path) -> None:
        started = tmp_path / "pids"
        script = (
            "import sys, time, pathlib\n"
            "from tests.support.hdfs import HdfsCluster\n"
            "from tests.support.s3 import S3Server\n"
            "hdfs, s3 = HdfsCluster(datanodes=1).start(), S3Server().start()\n"
            f"pathlib.Path({str(started)!r} + '~').write_text(f'{{hdfs.pid}} {{s3.pid}}')\n"
            f"pathlib.Path({str(started)!r} + '~').rename({str(started)!r})\n"
            "time.sleep(1e6)\n"
        )
        with subprocess.Popen(
            [sys.executable, "-c", script], cwd=Path(__file__).parent.parent.parent
        ) as parent:
            try:
                wait_until(lambda: started.exists() or parent.poll() is not None)
                pids = [int(pid) for pid in started.read_text().split()]
                directory = Path(f"/proc/{pids[0]}/cwd").resolve()
                assert all(map(runs, pids))
            finally:
                parent.send_signal(signal.SIGKILL)
        wait_until(lambda: not any(map(runs, pids)))
        assert not directory.exists()

    def test_an_s3_server_is_gone_after_close(self) -> None:
        with S3Server() as server:
            pid = server.pid
            assert runs(pid)
        assert not runs(pid)
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[FaultyProxy]:
    with FaultyProxy(s3.endpoint) as started:
        yield started


def fetch(url: str, data: bytes | None = None) -> bytes:
    request = urllib.request.Request(url, data, HEADERS, method="GET" if data is None else "PUT")
    with urllib.request.urlopen(request, timeout=PATIENCE) as response:
        return bytes(response.read())


class TestS3:
    def test_an_object_written_is_read(self, s3: S3Server) -> None:
        bucket = s3.make_bucket("plain")
        files = s3fs.S3FileSystem(**s3.options)
        files.pipe_file(f"{bucket}/a/b", BODY)
        assert files.cat_file(f"{bucket}/a/b") == BODY
        assert files.ls(f"{bucket}/a") == ["plain/a/b"]

    def test_the_proxy_is_transparent_unless_a_fault_is_set(
        self, s3: S3Server, proxy: FaultyProxy
    ) -> None:
        bucket = s3.make_bucket("transparent")
        files = s3fs.S3FileSystem(**proxy.options)
        large = os.urandom(6 << 20)
        files.pipe_file(f"{bucket}/large", large)
        assert files.cat_file(f"{bucket}/large") == large
        assert [line.split()[0] for line in proxy.requests][-1] == "GET"

    def test_slow_down_goes_to_the_requests_that_fit(
        self, s3: S3Server, proxy: FaultyProxy
    ) -> None:
        s3.make_bucket("slow")
        proxy.slow_down(1, only="PUT /slow/")
        with pytest.raises(urllib.error.HTTPError) as refused:
            fetch(f"{proxy.endpoint}/slow/key", BODY)
        with refused.value as answer:
            assert (answer.code, b"<Code>SlowDown</Code>" in answer.read()) == (503, True)
        assert proxy.pending == 0
        fetch(f"{proxy.endpoint}/slow/key", BODY)
        proxy.slow_down(2)
        # it tries again
        assert s3fs.S3FileSystem(**proxy.options).cat_file("s3://slow/key") == BODY

    def test_a_response_is_cut_after_so_many_bytes(self, s3: S3Server, proxy: FaultyProxy) -> None:
        s3.make_bucket("cut-response")
        fetch(f"{proxy.endpoint}/cut-response/key", BODY)
        proxy.cut_response(1, after=5000, only="GET")
        request = urllib.request.Request(f"{proxy.endpoint}/cut-response/key", headers=HEADERS)
        with urllib.request.urlopen(request, timeout=PATIENCE) as response:
            assert response.read(5000) == BODY[:5000]
            assert response.read(1) == b""
        assert fetch(f"{proxy.endpoint}/cut-response/key") == BODY

    def test_a_request_is_cut_after_so_many_bytes(self, s3: S3Server, proxy: FaultyProxy) -> None:
        s3.make_bucket("cut-request")
        proxy.cut_request(1, after=5000)
        with pytest.raises((OSError, urllib.error.URLError)):
            fetch(f"{proxy.endpoint}/cut-request/key", BODY)
        with pytest.raises(urllib.error.HTTPError) as missing:
            fetch(f"{s3.endpoint}/cut-request/key")
        with missing.value as answer:
            assert answer.code == 404
        fetch(f"{proxy.endpoint}/cut-request/key", BODY)
        assert fetch(f"{s3.endpoint}/cut-request/key") == BODY

    def test_a_delay_holds_requests_back_with_other_faults(
        self, s3: S3Server, proxy: FaultyProxy
    ) -> None:
        s3.make_bucket("delayed")
        proxy.delay(0.3)
        proxy.slow_down(1)
        begin = time.monotonic()
        with pytest.raises(urllib.error.HTTPError) as refused:
            fetch(f"{proxy.endpoint}/delayed/key", BODY)
        refused.value.close()
        assert time.monotonic() - begin >= 0.3
        proxy.delay(2 * PATIENCE)
        proxy.heal()
        fetch(f"{proxy.endpoint}/delayed/key", BODY)

    def test_a_proxy_stands_before_a_server_that_speaks_no_http(self, clusters: Clusters) -> None:
        clusters.a.put("/proxied", BODY)
        with FaultyProxy(clusters.a.namenodes[0], http=False) as proxy:
            client = hdfs_native.Client(f"hdfs://{proxy.address}", {})
            assert client.get_file_info("/proxied").length == len(BODY)
            assert proxy.requests == [""]
