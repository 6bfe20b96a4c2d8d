"""Replication between real HDFS clusters: what it asks of the NameNodes, and how each cluster is
reached.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from cpreplicate.operations.sync import sync as sync_operation
from cpreplicate.operations.sync.diff import diff
from cpreplicate.operations.sync.report import Report
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.verify.verify import ALL, verify
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import Side, Sides, Transient, WriteSettings
from cpreplicate.storage.wrappers.base import READING
from cpreplicate.storage.wrappers.limits import new_limits
from tests.support import parts
from tests.support.hdfs import Clusters, HdfsCluster
from tests.support.jobs import JOB, put_checkpoint, write_checkpoint
from tests.support.registry import serving
from tests.support.tracing import Tracing
from tests.support.untimed import untimed
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.xdist_group("hdfs-sync")

FILES = {f"shared/{number:03}": 3000 + number for number in range(60)}
NEXT = {
    **dict(list(FILES.items())[20:]),
    **{f"shared/new-{number:03}": 2000 + number for number in range(40)},
}
COPIED, DELETED = 40, 20


def side_of(cluster: HdfsCluster, **settings: Any) -> Side:
    return Side((("", tuple(cluster.conf.items())),), **settings)


def silent(_line: str) -> None:
    pass


@pytest.fixture
def here() -> str:
    """A directory of the test's own, on any cluster."""
    return f"/test/{uuid.uuid4().hex}"


@pytest.fixture
def two(clusters: Clusters) -> Clusters:
    return clusters


def sync(source: str, target: str, sides: Sides, **options: Any) -> Report:
    return sync_operation.sync(
        SyncRequest(
            source, target, sides=sides, execution=ExecutionOptions(runner="inline"), **options
        ),
        silent,
    )


def assert_restorable(replica: str, side: Side) -> None:
    found = verify(replica, None, ALL, silent, side)
    assert found.restorable, found


@pytest.fixture(scope="module", params=["native", parts.rest("hadoop")])
def calls(request: pytest.FixtureRequest, clusters: Clusters) -> tuple[Counter[str], Counter[str]]:
    """The calls of a sync to both sides, without those that a clock triggers."""
    with untimed():
        return counted_calls(clusters, request.param)


def counted_calls(clusters: Clusters, client: str) -> tuple[Counter[str], Counter[str]]:
    """The calls of an incremental sync to both sides."""
    here = f"/test/{uuid.uuid4().hex}"
    source_side, target_side = (side_of(cluster, hdfs_client=client) for cluster in clusters)
    sides = Sides(source_side, target_side)
    source, target = f"{clusters.a.uri}{here}", f"{clusters.b.uri}{here}"
    sync(put_checkpoint(sides.source, source, 1, FILES), target, sides)
    checkpoint = put_checkpoint(sides.source, source, 2, NEXT)
    with clusters.a.counted() as at_source, clusters.b.counted() as at_target:
        report = sync(checkpoint, target, sides)
    assert (len(report.plan.copies), len(report.plan.deletes)) == (COPIED, DELETED)
    return at_source, at_target


class TestTheCallsOfAnIncrementalSync:
    """The budget: the source one open a copied file; the target four calls a copied and one a
    deleted file; a constant.

    The constant holds four calls each for lease, journal, record, `_metadata` and manifest. What
    is asked while files are being closed comes on top: few calls for each of a few files.
    """

    CONSTANT = 42
    LOOKS = 4 * 12  # five files of the protocol, and copies before there are many

    def test_ask_the_source_once_for_each_copied_file(
        self, calls: tuple[Counter[str], Counter[str]]
    ) -> None:
        at_source, _ = calls
        assert COPIED <= at_source["getBlockLocations"] <= COPIED + 4
        assert sum(at_source.values()) <= COPIED + self.CONSTANT

    def test_ask_the_target_four_times_for_a_copied_and_once_for_a_deleted_file(
        self, calls: tuple[Counter[str], Counter[str]]
    ) -> None:
        _, at_target = calls
        assert COPIED <= at_target["create"] <= COPIED + 8
        assert COPIED <= at_target["addBlock"] <= COPIED + 8
        assert COPIED <= at_target["rename2"] <= COPIED + 8
        assert DELETED <= at_target["delete"] <= DELETED + 8
        # HDFS answers "not yet" where a DataNode's report is still under way
        again = at_target["complete"] - COPIED
        budget = 4 * COPIED + DELETED + self.CONSTANT + self.LOOKS
        assert sum(at_target.values()) - max(0, again) <= budget
        assert at_target["recoverLease"] <= self.LOOKS / 2

    def test_list_and_ask_only_for_directories_and_never_recursively(
        self, calls: tuple[Counter[str], Counter[str]]
    ) -> None:
        at_source, at_target = calls
        assert at_source["getListing"] + at_source["getFileInfo"] <= 4
        assert at_target["getListing"] + at_target["getFileInfo"] <= 20
        assert at_target["mkdirs"] == 0
        asked = {"getBlockLocations", "getFileInfo", "getListing", "getServerDefaults"}
        asked.add("complete")  # of the test's own files, once hdfs-native slept
        # the source is no replica: it has no marker
        assert set(at_source) <= {
            *asked,
            "fileNotFoundException",
        }


def test_a_sync_with_nothing_to_do_costs_a_constant(two: Clusters, here: str) -> None:
    sides = Sides(side_of(two.a), side_of(two.b))
    checkpoint = put_checkpoint(sides.source, two.a.uri + here, 1, FILES)
    sync(checkpoint, two.b.uri + here, sides)
    with untimed(), two.a.counted() as at_source, two.b.counted() as at_target:
        assert sync(checkpoint, two.b.uri + here, sides).plan.empty
    for calls in (at_source, at_target):  # of what was written before, once hdfs-native slept
        del calls["complete"]
    assert sum(at_source.values()) <= 4
    assert sum(at_target.values()) <= 12
    assert at_target["create"] == 0  # not even for the lease


def test_the_source_is_never_written_to(two: Clusters, here: str) -> None:
    sides = Sides(side_of(two.a), side_of(two.b))
    checkpoint = put_checkpoint(sides.source, two.a.uri + here, 1, FILES)
    tracing = Tracing(sides.source.storage(two.a.uri + here))
    with serving("hdfs", tracing), two.a.counted() as at_source:
        diff(SyncRequest(checkpoint, f"file:/nowhere/{uuid.uuid4().hex}", sides=sides))
    assert {verb for verb, _ in tracing.calls} <= READING
    with two.a.counted() as at_source:
        sync(checkpoint, two.b.uri + here, sides)
    assert not {
        "create",
        "delete",
        "rename",
        "rename2",
        "mkdirs",
        "setTimes",
        "append",
    } & set(at_source)  # `complete` may be of the test's own files: what is written is created


@pytest.mark.parametrize("client", ["native", "hadoop"])
def test_files_are_written_with_the_replication_and_block_size_asked_for(
    two: Clusters, here: str, client: str
) -> None:
    target = side_of(
        two.b, hdfs_client=client, write=WriteSettings(replication=2, block_size=1 << 20)
    )
    sides = Sides(side_of(two.a, hdfs_client=client), target)
    sync(
        put_checkpoint(sides.source, two.a.uri + here, 1, {"shared/a": 100}),
        two.b.uri + here,
        sides,
    )
    written = two.b.status(f"{here}/{JOB}/shared/a")
    assert (written["replication"], written["blockSize"]) == (2, 1 << 20)


def test_by_default_the_target_clusters_own_defaults_hold(
    two: Clusters, here: str, tmp_path: Path
) -> None:
    source = write_checkpoint(tmp_path, 1, {"shared/a": 100})
    (source.parent / "shared" / "a").chmod(0o600)
    sync(f"file:{source}", two.b.uri + here, Sides(Side(), side_of(two.b)))
    written = two.b.status(f"{here}/{JOB}/shared/a")
    assert (written["replication"], written["permission"]) == (1, "644")


def test_permission_bits_and_times_are_carried_over_on_request(
    two: Clusters, here: str, tmp_path: Path
) -> None:
    source = write_checkpoint(tmp_path, 1, {"shared/a": 100})
    file = source.parent / "shared" / "a"
    file.chmod(0o640)
    os.utime(file, (1_500_000_000, 1_500_000_000))
    sync(f"file:{source}", two.b.uri + here, Sides(Side(), side_of(two.b), preserve=True))
    written = two.b.status(f"{here}/{JOB}/shared/a")
    assert (written["permission"], written["modificationTime"]) == ("640", 1_500_000_000_000)


@pytest.mark.rest
def test_a_replica_on_hdfs_goes_back_to_local_disk_and_to_s3(
    two: Clusters, here: str, tmp_path: Path, s3: Any
) -> None:
    s3.make_bucket("replicas")
    given = {"key": "test", "secret": "test", "endpoint_url": s3.endpoint, "region": "us-east-1"}
    object_store = Side((("s3:", tuple(given.items())),))
    source = write_checkpoint(tmp_path / "dcA", 1, FILES)
    on_hdfs, on_s3 = two.b.uri + here, f"s3://replicas{here}"
    sync(f"file:{source}", on_hdfs, Sides(Side(), side_of(two.b)))
    sync(f"{on_hdfs}/{JOB}", on_s3, Sides(side_of(two.b), object_store))
    sync(f"{on_s3}/{JOB}/chk-1", f"file:{tmp_path}/dcB", Sides(object_store, Side()))
    for replica, side in (
        (on_hdfs, side_of(two.b)),
        (on_s3, object_store),
        (f"file:{tmp_path}/dcB", Side()),
    ):
        assert_restorable(f"{replica}/{JOB}", side)
    for name in FILES:
        assert (tmp_path / "dcB" / JOB / name).read_bytes() == (source.parent / name).read_bytes()


@pytest.fixture(scope="module")
def pairs(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Mapping[str, tuple[HdfsCluster, Path]]]:
    made = HdfsCluster.start_many(
        [HdfsCluster(datanodes=1, nameservice="nameservice1") for _ in "ab"]
    )
    directory = tmp_path_factory.mktemp("conf")
    yield {
        name: (cluster, cluster.write_conf_dir(directory / name))
        for name, cluster in zip("ab", made, strict=True)
    }
    for cluster in made:
        cluster.close()


class TestTwoClustersOfOneName:
    """Every vendor calls it `nameservice1`."""

    @pytest.mark.parametrize(
        ("runner", "client"),
        [
            ("inline", "native"),
            parts.rest("inline", "hadoop"),
            parts.rest("spark", "native"),
            parts.rest("spark", "hadoop"),
        ],
    )
    def test_are_distinguished_by_their_configuration(
        self, pairs: Mapping[str, tuple[HdfsCluster, Path]], here: str, client: str, runner: str
    ) -> None:
        """The environment names another default filesystem, which nothing asks.

        Executors get what they need with the batch.
        """
        (a, conf_a), (b, conf_b) = pairs["a"], pairs["b"]
        checkpoint = put_checkpoint(
            side_of(a), f"hdfs://nameservice1{here}", 1, {"shared/a": 100, "shared/b": 9}
        )
        words = [
            "--source-conf",
            conf_a,
            "--target-conf",
            conf_b,
            "--hdfs-client",
            client,
            "--runner",
            runner,
        ]
        report = cli(
            "sync",
            checkpoint,
            f"hdfs://nameservice1{here}",
            *words,
            environment=self.misleading(conf_b),
        )
        assert report["replica"] == f"hdfs://nameservice1{here}/{JOB}"
        assert (report["copy"]["files"], report["runner"]) == (2, runner)
        assert b.names(f"{here}/{JOB}/shared") == ["a", "b"]
        assert ".cpreplicate" not in a.names(f"{here}/{JOB}")
        verified = cli(
            "verify",
            report["replica"],
            "--content",
            "--target-conf",
            conf_b,
            "--hdfs-client",
            client,
        )
        assert verified["restorable"]

    @staticmethod
    def misleading(directory: Path) -> dict[str, str]:
        """An environment such as a gateway node has: its own cluster, and a default filesystem that
        is not there.
        """
        core = directory.parent / "environment"
        core.mkdir(exist_ok=True)
        (core / "core-site.xml").write_text(
            "<configuration><property><name>fs.defaultFS</name><value>hdfs://localhost:1</value></property></configuration>"
        )
        return {"HADOOP_CONF_DIR": str(core), "HADOOP_HOME": "/nonexistent"}

    @pytest.mark.rest
    def test_are_two_sources_of_one_archive_unless_the_operator_declares_them_one(
        self, pairs: Mapping[str, tuple[HdfsCluster, Path]], here: str
    ) -> None:
        """The text of both sources is the same, so the message shows the addresses of their
        NameNodes.
        """
        (a, conf_a), (b, conf_b) = pairs["a"], pairs["b"]
        root, archive = f"hdfs://nameservice1{here}", f"hdfs://nameservice1{here}/archive"
        into = ("--target-conf", conf_b, "--runner", "inline")
        cli(
            "sync",
            put_checkpoint(side_of(a), root, 1, {"shared/a": 100}),
            archive,
            "--source-conf",
            conf_a,
            *into,
        )
        second = put_checkpoint(side_of(b), root, 2, {"shared/a": 100, "shared/b": 9})
        before = b.tree(here)
        failed = run_cli("sync", second, archive, "--source-conf", conf_b, *into)
        assert failed.returncode == 6
        for text in (*a.namenodes, *b.namenodes, f"{root}/{JOB}", "--same-source", "TARGET_ROOT"):
            assert text in failed.stderr
        assert b.tree(here) == before
        cli("sync", second, archive, "--source-conf", conf_b, *into, "--same-source")
        assert not cli("sync", second, archive, "--source-conf", conf_b, *into)["committed"]

    def test_survive_a_failover_of_both_between_two_syncs(
        self, pairs: Mapping[str, tuple[HdfsCluster, Path]], here: str
    ) -> None:
        sides = Sides(side_of(pairs["a"][0]), side_of(pairs["b"][0]))
        root = f"hdfs://nameservice1{here}"
        sync(put_checkpoint(sides.source, root, 1, FILES), root, sides)
        pairs["a"][0].failover()
        pairs["b"][0].failover()
        sync(put_checkpoint(sides.source, root, 2, NEXT), root, sides)
        assert_restorable(f"{root}/{JOB}", sides.target)

    def test_are_one_where_their_configuration_leads_to_one(
        self, pairs: Mapping[str, tuple[HdfsCluster, Path]], here: str
    ) -> None:
        conf = pairs["a"][1]
        checkpoint = put_checkpoint(
            side_of(pairs["a"][0]), f"hdfs://nameservice1{here}", 1, {"shared/a": 100}
        )
        failed = run_cli(
            "sync",
            checkpoint,
            f"hdfs://nameservice1{here}",
            "--source-conf",
            conf,
            "--target-conf",
            conf,
        )
        assert failed.returncode == 6
        assert "would be in its own source" in failed.stderr


def test_the_configuration_file_defines_how_each_cluster_is_reached(
    two: Clusters, here: str, tmp_path: Path
) -> None:
    checkpoint = put_checkpoint(side_of(two.a), two.a.uri + here, 1, {"shared/a": 100})
    two.b.write_conf_dir(tmp_path / "b")
    config = tmp_path / "cpreplicate.toml"
    config.write_text(f"""
        [sync]
        replication = 2
        [storage."hdfs://dcB"]
        conf-dir = "{tmp_path}/b"
        "dfs.nameservices" = "dcB"
        "dfs.ha.namenodes.dcB" = "nn0"
        "dfs.namenode.rpc-address.dcB.nn0" = "{two.b.namenodes[0]}"
    """)
    report = cli("--config", config, "sync", checkpoint, f"hdfs://dcB{here}")
    assert report["replica"] == f"hdfs://dcB{here}/{JOB}"
    assert two.b.status(f"{here}/{JOB}/shared/a")["replication"] == 2


def test_a_cluster_that_is_not_known_is_an_error_before_anything_is_written(
    here: str, tmp_path: Path
) -> None:
    source = write_checkpoint(tmp_path, 1, {"shared/a": 1})
    failed = run_cli("sync", source, f"hdfs://unknown{here}")
    assert failed.returncode == 2
    assert "--target-conf" in failed.stderr
    assert len(failed.stderr.splitlines()) == 1


def test_hdfs3_is_explained(here: str) -> None:
    failed = run_cli("sync", f"hdfs://a{here}", f"hdfs://b{here}", "--hdfs-client", "hdfs3")
    assert failed.returncode == 2
    assert "hdfs-native" in failed.stderr
    assert "3.10" in failed.stderr


def test_a_namenode_that_does_not_answer_is_reported_within_the_given_time(
    here: str, tmp_path: Path
) -> None:
    source = write_checkpoint(tmp_path, 1, {"shared/a": 1})
    side = Side(retry_for=0.5)
    with pytest.raises(Transient, match="hdfs://localhost:1/"):
        sync(f"file:{source}", f"hdfs://localhost:1{here}", Sides(Side(), side))


def run_cli(
    *words: Any, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cpreplicate", *map(str, words)]
    env = {**os.environ, **(environment or {})}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE, env=env, check=False
    )


def cli(*words: Any, environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    done = run_cli(*words, "--output", "json", environment=environment)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.rest
def test_the_calls_to_a_cluster_stay_below_their_limit_also_from_several_executors(
    two: Clusters, here: str
) -> None:
    limit = 80.0
    checkpoint = put_checkpoint(side_of(two.a), two.a.uri + here, 1, FILES)
    limits = new_limits(limit, None)
    sides = Sides(side_of(two.a, limits=limits), side_of(two.b, limits=limits))
    started = time.monotonic()
    with two.b.counted() as at_target:
        report = sync_operation.sync(
            SyncRequest(
                checkpoint,
                two.b.uri + here,
                sides=sides,
                execution=ExecutionOptions(runner="spark", master="local[2]"),
            ),
            silent,
        )
    took = time.monotonic() - started
    # "not yet" is not ours to plan
    planned = sum(at_target.values()) - max(0, at_target["complete"] - at_target["create"])
    assert report.runner == "spark"
    assert len(report.plan.copies) == len(FILES)
    assert planned <= limit * took * 1.1
    assert took >= 4 * len(FILES) / limit
