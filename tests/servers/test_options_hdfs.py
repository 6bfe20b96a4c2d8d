"""Properties of Hadoop's configuration change what a NameNode is asked for, with each client."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from cpreplicate.storage import Side
from tests.support.hdfs import HdfsCluster, site_xml
from tests.support.jobs import JOB, write_checkpoint
from tests.support.silent import silent_server
from tests.support.waiting import PATIENCE

pytestmark = [pytest.mark.hdfs, pytest.mark.rest, pytest.mark.xdist_group("options-hdfs")]

WRITTEN = {
    "hadoop.user.name": "ann",
    "dfs.replication": "2",
    "dfs.blocksize": "2m",
    "fs.permissions.umask-mode": "027",
}
TABLE = "fs.viewfs.mounttable.view"


@pytest.fixture(scope="module")
def cluster() -> Iterator[HdfsCluster]:
    with HdfsCluster(datanodes=1) as started:
        started.chmod("/", 0o777)
        yield started


def side(client: str, options: dict[str, str]) -> Side:
    return Side((("", tuple(options.items())),), client, retry_for=0.0)


@pytest.mark.parametrize("client", ["native", "hadoop", "webhdfs"])
def test_a_new_file_is_as_the_configuration_asks(cluster: HdfsCluster, client: str) -> None:
    before, after = (
        written(cluster, client, {**cluster.conf, **more})
        for more in ({"hadoop.user.name": cluster.superuser}, WRITTEN)
    )
    assert before == (cluster.superuser, 1, 128 << 20, "644")
    assert after == ("ann", 2, 2 << 20, "640")


def written(cluster: HdfsCluster, client: str, options: dict[str, str]) -> tuple[object, ...]:
    """Returns owner, replication, block size and permission of a new file."""
    path = f"/{uuid.uuid4().hex}"
    uri = f"{cluster.webhdfs_uri if client == 'webhdfs' else cluster.uri}{path}"
    side("hadoop" if client == "hadoop" else "native", options).storage(uri).put(uri, lambda: [b""])
    status = cluster.status(path)
    return tuple(status[name] for name in ("owner", "replication", "blockSize", "permission"))


def test_the_environment_names_the_configuration_and_the_user(
    cluster: HdfsCluster, tmp_path: Path
) -> None:
    write_checkpoint(tmp_path, 1, {"shared/a": 5})
    conf, root = tmp_path / "conf", f"/{uuid.uuid4().hex}"
    conf.mkdir()
    options = {**cluster.conf, "dfs.replication": "3"}
    (conf / "core-site.xml").write_text(site_xml(options))
    words = ["sync", f"file:{tmp_path / JOB}", f"hdfs:{root}", "--runner", "inline"]
    subprocess.run(
        [sys.executable, "-m", "cpreplicate", *words],
        env={**os.environ, "HADOOP_CONF_DIR": str(conf), "HADOOP_USER_NAME": "bob"},
        check=True,
    )
    status = cluster.status(f"{root}/{JOB}/shared/a")
    assert (status["owner"], status["replication"]) == ("bob", 3)


def test_a_view_of_one_cluster_is_written_by_hadoops_client(cluster: HdfsCluster) -> None:
    view = side("hadoop", {**cluster.conf, f"{TABLE}.linkMergeSlash": f"{cluster.uri}/"})
    path = f"/{uuid.uuid4().hex}/file"
    view.storage("viewfs://view/").put(f"viewfs://view{path}", lambda: [b"x"])
    assert cluster.get(path) == b"x"


def test_a_view_by_regular_expressions_is_read_by_hadoops_client_and_not_written(
    cluster: HdfsCluster,
) -> None:
    link = {f"{TABLE}.linkRegex.#.^/jobs/(?<job>\\w+)": f"{cluster.uri}/flink/${{job}}"}
    storage = side("hadoop", {**cluster.conf, **link}).storage("viewfs://view/")
    cluster.put("/flink/a/file", b"x")
    with storage.open("viewfs://view/jobs/a/file") as stream:
        assert stream.read() == b"x"
    with pytest.raises(OSError, match="no link of the mount table leads there"):
        storage.put("viewfs://view/jobs/a/other", lambda: [b"x"])


def test_the_timeout_of_calls_is_that_of_hadoops_client() -> None:
    with silent_server() as silent:
        uri = f"hdfs://{silent.address}/x"
        options = {"ipc.client.rpc-timeout.ms": "700", "deadline": "1h"}
        with pytest.raises(OSError, match="700 millis timeout"):
            side("hadoop", options).storage(uri).stat(uri)


def test_the_timeout_of_data_is_that_of_hadoops_client(cluster: HdfsCluster) -> None:
    """Each call has an hour, so without the property nothing ends the wait for the DataNode."""
    options = {**cluster.conf, "deadline": "1h", "hadoop.user.name": cluster.superuser}
    once = {"dfs.client.max.block.acquire.failures": "0"}
    uri = f"{cluster.uri}/{uuid.uuid4().hex}"
    side("hadoop", options).storage(uri).put(uri, lambda: [b"content"])
    short = {"dfs.client.socket-timeout": "700"}
    storage = side("hadoop", {**options, **once, **short}).storage(uri)
    port = int(cluster.datanodes[0].rpartition(":")[2])
    cluster.stop_datanode(0)
    with contextlib.ExitStack() as stack:
        stack.callback(cluster.start_datanode, 0)
        silent = stack.enter_context(silent_server(port))
        with pytest.raises(OSError, match="obtain block"), storage.open(uri) as stream:
            stream.read()
        assert silent.reached.wait(PATIENCE)
