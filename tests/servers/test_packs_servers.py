"""Packs on real servers: how many calls and requests they save, and that nothing else changes."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from cpreplicate.core.packs import PackOptions
from cpreplicate.operations.sync.report import Report
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.sync.sync import sync
from cpreplicate.operations.verify import verify
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import Side, Sides
from tests.support import parts
from tests.support.hdfs import Clusters, HdfsCluster
from tests.support.jobs import JOB, put_checkpoint, write_checkpoint
from tests.support.s3 import FaultyProxy, S3Server, side_options
from tests.support.untimed import untimed

pytestmark = pytest.mark.rest

MANY = {f"shared/{number:04}": 500 + number for number in range(2000)}
SOME = {f"shared/{number:03}": 3000 + number for number in range(60)}
NEXT = {name: size for name, size in SOME.items() if name >= "shared/045"} | {
    f"shared/new-{number:03}": 2000 + number for number in range(20)
}
PACKED = PackOptions("on", 1 << 20)


def packed_sync(source: str, target: str, sides: Sides, runner: str = "inline") -> Report:
    execution = ExecutionOptions(runner=runner, master="local[2]" if runner == "spark" else None)
    request = SyncRequest(source, target, sides=sides, packing=PACKED, execution=execution)
    return sync(request, lambda _line: None)


def assert_whole(replica: str, side: Side, files: int) -> None:
    """Every file is there, and every byte has the recorded CRC32C."""
    result = verify.verify(replica, None, verify.ALL, lambda _line: None, side)
    assert result.restorable, result
    assert (result.files, result.compared) == (files, files)


@pytest.mark.s3
def test_two_thousand_files_cost_s3_at_most_forty_requests(tmp_path: Path) -> None:
    """Of these, up to six look for a replica of each name that it may have (ADR 0017)."""
    checkpoint = write_checkpoint(tmp_path, 1, MANY)
    with S3Server() as server, FaultyProxy(server.endpoint) as proxy:
        bucket = server.make_bucket("replicas")
        target = Side((("", tuple(side_options(proxy.endpoint).items())),))
        with untimed():
            report = packed_sync(f"file:{checkpoint}", f"{bucket}/flink", Sides(target=target))
        assert report.committed
        assert len(proxy.requests) <= 40, proxy.requests
        assert_whole(f"{bucket}/flink/{JOB}", target, len(MANY))


def side_of(cluster: HdfsCluster) -> Side:
    return Side((("", tuple(cluster.conf.items())),))


@pytest.mark.xdist_group("hdfs-sync")
@pytest.mark.parametrize("runner", [parts.rest("inline"), "spark"])
def test_packs_between_hdfs_clusters_are_kept_repacked_and_deleted(
    clusters: Clusters, runner: str
) -> None:
    here = f"/test/{uuid.uuid4().hex}"
    sides = Sides(side_of(clusters.a), side_of(clusters.b))
    source, target = f"{clusters.a.uri}{here}", f"{clusters.b.uri}{here}"
    first = put_checkpoint(sides.source, source, 1, SOME)
    with clusters.b.counted() as calls:
        packed_sync(first, target, sides, runner)
    assert calls["create"] < len(SOME) / 2, calls
    replica = f"{target}/{JOB}"
    assert_whole(replica, sides.target, len(SOME))
    before = {status.name for status in sides.target.storage(replica).list(f"{replica}/packed")}
    report = packed_sync(put_checkpoint(sides.source, source, 2, NEXT), target, sides, runner)
    assert len(report.plan.copies) == 20
    assert len(report.plan.repacks) == 15  # of 60 members: less than half of the pack's bytes
    after = {status.name for status in sides.target.storage(replica).list(f"{replica}/packed")}
    assert before.isdisjoint(after)
    assert_whole(replica, sides.target, len(NEXT))


@pytest.mark.xdist_group("hdfs-sync")
def test_two_thousand_packed_files_cost_the_namenode_few_calls(
    clusters: Clusters, tmp_path: Path
) -> None:
    checkpoint = write_checkpoint(tmp_path, 1, MANY)
    target = side_of(clusters.b)
    root = f"{clusters.b.uri}/test/{uuid.uuid4().hex}"
    with untimed(), clusters.b.counted() as calls:
        packed_sync(f"file:{checkpoint}", root, Sides(target=target))
    assert sum(calls.values()) <= 0.05 * len(MANY), calls
    assert_whole(f"{root}/{JOB}", target, len(MANY))
