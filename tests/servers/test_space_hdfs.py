"""The quotas of HDFS are looked at before a sync copies, by one call of a large plan."""

import uuid
from collections.abc import Iterator

import pytest

from cpreplicate.storage import Side
from tests.support import parts
from tests.support.commandline import printed
from tests.support.hdfs import Clusters
from tests.support.jobs import JOB, put_checkpoint

pytestmark = pytest.mark.xdist_group("hdfs-sync")

CLIENTS = pytest.mark.parametrize("client", ["native", parts.rest("hadoop")])
FILES = {f"shared/{number:02}": 1000 for number in range(40)}
MORE = {**FILES, "shared/new": 10}
COUNTING = ("getContentSummary", "getQuotaUsage")


class Place:
    """A job on local disk, and a TARGET_ROOT on HDFS."""

    def __init__(self, clusters: Clusters, source: str) -> None:
        self.cluster, self.source = clusters.b, source
        self.root = f"/test/space-{uuid.uuid4().hex}"
        self.target = f"{self.cluster.uri}{self.root}"
        self.cluster.mkdirs(self.root)

    def run(self, command: str, client: str) -> tuple[int, str]:
        conf = ("--target-conf", "dfs.replication=1", "--hdfs-client", client)
        done = printed(command, f"{self.source}/{JOB}", self.target, "-q", *conf)
        return done.returncode, done.stderr


@pytest.fixture
def place(clusters: Clusters, tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.setenv("HADOOP_USER_NAME", clusters.b.superuser)
    place = Place(clusters, f"file:{tmp_path}")
    put_checkpoint(Side(), place.source, 1, FILES)
    yield place
    place.cluster.quota(place.root, None)


@CLIENTS
@pytest.mark.parametrize("command", ["sync", parts.rest("diff")])
def test_a_quota_that_is_too_small_is_found_before_anything_is_copied(
    place: Place, client: str, command: str
) -> None:
    place.cluster.quota(place.root, 400 << 20)  # enough for the block of a lease
    put_checkpoint(Side(), place.source, 2, {**FILES, "shared/large": 401 << 20})
    code, message = place.run(command, client)
    assert code == 3
    assert f"the space quota of {place.target}, at replication 1, leaves" in message
    assert "Nothing was copied, committed or deleted" in message
    assert not [path for path in place.cluster.tree(place.root) if "shared" in path]


@CLIENTS
def test_a_large_plan_costs_one_call_and_others_none(place: Place, client: str) -> None:
    def counting(command: str) -> int:
        with place.cluster.counted() as calls:
            assert place.run(command, client)[0] == 0
        return sum(calls[name] for name in COUNTING)

    place.cluster.quota(place.root, 1 << 40)
    assert counting("sync") == 1
    assert counting("sync") == 0  # nothing to do
    put_checkpoint(Side(), place.source, 2, MORE)
    assert counting("sync") == 0  # one file of ten bytes


def test_a_directory_without_a_quota_is_asked_once_a_process(place: Place) -> None:
    with place.cluster.counted() as calls:
        assert place.run("sync", "native")[0] == 0
        put_checkpoint(Side(), place.source, 2, {"shared/other": 1 << 20})
        assert place.run("sync", "native")[0] == 0
    assert calls["getContentSummary"] == 1
