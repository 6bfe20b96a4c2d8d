"""`doctor` on real HDFS clusters, with each fault made on purpose."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from cpreplicate.storage import Side
from cpreplicate.storage.statuses import Attributes
from tests.support import parts
from tests.support.commandline import run
from tests.support.doctor import Examined, examined
from tests.support.hdfs import Clusters, HdfsCluster
from tests.support.jobs import JOB, put_checkpoint

pytestmark = pytest.mark.xdist_group("hdfs")

FILES = {"shared/a": 1000, "shared/b": 2000}
CLIENTS = pytest.mark.parametrize("client", ["native", parts.rest("hadoop")])


class Pair:
    """A source on one cluster, and a directory that exists on the other as TARGET_ROOT."""

    def __init__(self, clusters: Clusters) -> None:
        self.a, self.b = clusters
        self.here = f"/test/doctor/{uuid.uuid4().hex}"
        self.root = f"{self.here}/replicas"
        self.target = f"{self.b.uri}{self.root}"
        self.checkpoint = put_checkpoint(Side(), self.a.uri + self.here, 1, FILES)
        self.source = f"{self.a.uri}{self.here}/{JOB}"
        self.b.mkdirs(self.root)
        self.b.chmod(self.root, 0o755)

    def doctor(self, *words: object, target: str | None = None) -> Examined:
        """Return what `doctor` finds."""
        return examined(self.source, target or self.target, *words)


@pytest.fixture
def pair(clusters: Clusters, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    monkeypatch.setenv("HADOOP_USER_NAME", clusters.b.superuser)  # hdfs-native changes it
    pair = Pair(clusters)
    before = pair.a.tree(pair.here)
    yield pair
    assert pair.a.tree(pair.here) == before  # the source is never changed
    assert not [path for path in pair.b.tree(pair.here) if "doctor-" in path]


@CLIENTS
def test_a_sync_that_could_run(pair: Pair, client: str) -> None:
    found = pair.doctor("--hdfs-client", client)
    assert found.code == 0
    assert found.names("failed") == found.names("warning") == []
    assert "copies 2 files" in found.text("plan")
    assert pair.b.tree(pair.here) == {pair.root: None}
    name = "hdfs-native" if client == "native" else "Hadoop 3"
    assert found.text("source client").startswith(name)
    assert ("the cluster leaves" in found.text("target space")) is (client == "hadoop")


@pytest.mark.rest
def test_directories_that_were_made_for_the_check_are_removed(pair: Pair) -> None:
    assert pair.doctor(target=f"{pair.target}/in/here").code == 0
    assert pair.b.tree(pair.here) == {pair.root: None}


@pytest.mark.rest
@CLIENTS
@pytest.mark.parametrize("side", ["source", "target"])
def test_a_port_that_refuses(pair: Pair, client: str, side: str) -> None:
    there = f"hdfs://localhost:1{pair.here}"
    places = (there, pair.target) if side == "source" else (pair.source, there)
    found = examined(*places, "--hdfs-client", client)
    assert found.code == 7
    assert found.names("failed") == [f"{side} reach"]
    assert "Check the address" in found.text(f"{side} reach")
    other = "target write" if side == "source" else "source files"
    assert found.status(other) == "ok"


@CLIENTS
@pytest.mark.rest
def test_a_host_that_does_not_resolve(pair: Pair, client: str) -> None:
    found = pair.doctor("--hdfs-client", client, target="hdfs://nowhere.invalid:8020/replicas")
    assert found.code == 7
    assert found.names("failed") == ["target conf"]
    assert "nowhere.invalid:8020 cannot be resolved" in found.text("target conf")


@CLIENTS
def test_a_nameservice_without_configuration(pair: Pair, client: str) -> None:
    found = pair.doctor("--hdfs-client", client, target="hdfs://nameservice9/replicas")
    assert found.code == 2
    assert found.names("failed") == ["target conf"]
    assert "--target-conf" in found.text("target conf")


@pytest.mark.rest
def test_safe_mode(pair: Pair) -> None:
    pair.b.safemode(True)
    try:
        found = pair.doctor()
    finally:
        pair.b.safemode(False)
    assert found.code == 7
    assert found.names("failed") == ["target write"]
    assert "safe mode" in found.text("target write")


@CLIENTS
def test_a_user_without_the_right_to_write(pair: Pair, client: str) -> None:
    found = pair.doctor("--hdfs-client", client, "--target-conf", "hadoop.user.name=mallory")
    assert found.code == 1
    assert found.names("failed") == ["target write"]
    assert "as mallory" in found.text("target write")
    assert "Grant the user" in found.text("target write")


@pytest.mark.rest
def test_a_user_without_the_right_to_read(pair: Pair) -> None:
    pair.a.chmod(f"{pair.here}/{JOB}/shared", 0o700)
    try:
        found = pair.doctor("--source-conf", "hadoop.user.name=mallory", "--hdfs-client", "hadoop")
    finally:
        pair.a.chmod(f"{pair.here}/{JOB}/shared", 0o755)
    assert found.code == 3  # as `sync`, whose copies fail
    assert found.names("failed")[0] == "source files"
    assert "Grant the user" in found.text("source files")


@CLIENTS
def test_a_quota_that_is_used_up(pair: Pair, client: str) -> None:
    pair.b.quota(pair.root, 500)
    found = pair.doctor("--hdfs-client", client, "--target-conf", "dfs.replication=1")
    assert found.code == 3
    assert found.names("failed") == ["target write", "target space"]
    assert "quota" in found.text("target write")
    assert f"the space quota of {pair.target}, at replication 1, leaves 500 B" in found.text(
        "target space"
    )


@pytest.mark.rest
@CLIENTS
def test_a_quota_that_leaves_enough_is_shown(pair: Pair, client: str) -> None:
    pair.b.quota(pair.root, 1 << 30)
    conf = ("--target-conf", "dfs.replication=2")
    found = pair.doctor("--hdfs-client", client, *conf)
    assert found.code == 0
    assert "leaves 512.0 MiB" in found.text("target space")


@pytest.mark.rest
def test_a_snapshot_keeps_deleted_files(pair: Pair) -> None:
    pair.b.snapshot(pair.here, "s1")
    found = pair.doctor()
    assert found.code == 0
    assert found.names("warning") == ["target deletes"]
    assert f"{pair.b.uri}{pair.here} is snapshottable" in found.text("target deletes")


def test_the_trash_is_reported_with_what_it_means(pair: Pair) -> None:
    found = pair.doctor("--target-conf", "fs.trash.interval=1440")
    assert found.status("target deletes") == "ok"
    assert "1440 min; cpreplicate deletes without it" in found.text("target deletes")


@pytest.mark.rest
def test_a_checkpoint_of_the_future_is_a_warning(pair: Pair) -> None:
    storage = Side().storage(pair.source).unwrapped
    storage.set_attributes(f"{pair.checkpoint}/_metadata", Attributes(None, 2.0**32))  # type: ignore[attr-defined]
    found = pair.doctor()
    assert found.code == 0
    assert found.names("warning") == ["source clock"]


def test_the_source_under_another_name(pair: Pair) -> None:
    """No path shows it, only a file that is written here and read there."""
    other = pair.a.uri.replace("localhost", "127.0.0.1")
    found = pair.doctor(target=f"{other}{pair.here}")
    assert found.code == 6
    assert found.names("failed") == ["plan", "target write"]
    assert "under another name" in found.text("target write")


def test_webhdfs(pair: Pair) -> None:
    pair.b.quota(pair.root, 1 << 30)
    found = pair.doctor(target=f"{pair.b.webhdfs_uri}{pair.root}")
    assert found.code == 0
    assert found.names("failed") == []
    assert "the space quota" in found.text("target space")


@pytest.mark.rest
def test_a_replica_that_is_current(pair: Pair) -> None:
    run("sync", pair.source, pair.target, "--runner", "inline")
    before = pair.b.tree(pair.here)
    assert pair.doctor().code == 0
    assert pair.b.tree(pair.here) == before


@pytest.mark.rest
def test_one_of_two_namenodes_is_down(pair: Pair, ha_cluster: HdfsCluster) -> None:
    conf = [f"--target-conf={key}={value}" for key, value in ha_cluster.conf.items()]
    target = f"{ha_cluster.uri}{pair.root}"
    assert pair.doctor(*conf, target=target).names("warning") == []
    active = ha_cluster.active or 0
    ha_cluster.stop_namenode(1 - active)
    try:
        found = pair.doctor(*conf, target=target)
    finally:
        ha_cluster.start_namenode(1 - active)
    assert found.code == 0
    assert found.names("warning") == ["target reach"]
    assert ha_cluster.namenodes[1 - active] in found.text("target reach")
