"""A hardened HDFS as target: a umask that leaves nothing to others, and an encryption zone."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.commandline import Ended, run
from tests.support.hdfs import HdfsCluster
from tests.support.jobs import JOB, write_checkpoint

pytestmark = [pytest.mark.hdfs, pytest.mark.rest, pytest.mark.xdist_group("hardened-hdfs")]

FILES = {"shared/a": 3000, "shared/b": 5}
UMASK = "fs.permissions.umask-mode"
ZONE = "/zone"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HdfsCluster]:
    keys = tmp_path_factory.mktemp("keys") / "keys.jceks"
    conf = {"hadoop.security.key.provider.path": f"jceks://file{keys}"}
    with HdfsCluster(datanodes=1, conf=conf) as started:
        started.encrypt(ZONE)
        yield started


def sync(cluster: HdfsCluster, scratch: Path, root: str, *options: str) -> Ended:
    write_checkpoint(scratch, 1, FILES)
    words = [f"file:{scratch / JOB}", f"{cluster.uri}{root}", "--runner", "inline", *options]
    return run("sync", *words)


@pytest.mark.parametrize("client", ["native", "hadoop"])
def test_what_is_written_has_the_umask_of_the_configuration(
    cluster: HdfsCluster, tmp_path: Path, client: str
) -> None:
    root = f"/{uuid.uuid4().hex}"
    options = ("--hdfs-client", client, "--target-conf", f"{UMASK}=077")
    assert sync(cluster, tmp_path, root, *options).code == 0
    written = [f"{root}/{JOB}/{name}" for name in (*FILES, "chk-1/_metadata")]
    assert {cluster.status(path)["permission"] for path in written} == {"600"}


def test_hadoops_client_replicates_into_an_encryption_zone_and_compares_content(
    cluster: HdfsCluster, tmp_path: Path
) -> None:
    keys = f"hadoop.security.key.provider.path={cluster.conf['hadoop.security.key.provider.path']}"
    options = ("--hdfs-client", "hadoop", "--target-conf", keys)
    assert sync(cluster, tmp_path, ZONE, *options).code == 0
    replica = f"{cluster.uri}{ZONE}/{JOB}"
    assert run("verify", replica, "--content", *options).code == 0
    again = sync(cluster, tmp_path, ZONE, "--check-content", "--output", "json", *options)
    assert again.json()["copy"]["files"] == 0


def test_the_native_client_names_the_other_one_in_an_encryption_zone(
    cluster: HdfsCluster, tmp_path: Path
) -> None:
    with pytest.raises(OSError, match="Use --hdfs-client hadoop"):
        sync(cluster, tmp_path, f"{ZONE}/native", "--retry-for", "1h")
