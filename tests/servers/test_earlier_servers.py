"""Files of an earlier job on real servers: they come from its replica, and nothing is asked of the
source for them.
"""

from __future__ import annotations

import uuid

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
from tests.support.jobs import JOB, NEXT_JOB, put_checkpoint, put_restored
from tests.support.s3 import FaultyProxy, S3Server, side_options

pytestmark = pytest.mark.rest

EARLIER = {f"shared/{number:03}": 3000 + number for number in range(60)} | {"shared/big": 5 << 20}
OWN = {f"shared/new-{number}": 2000 + number for number in range(5)}
PACKINGS = {"plain": PackOptions("off", 1 << 20), "packed": PackOptions("on", 1 << 20)}


def sync_of(
    source: str, target: str, sides: Sides, packing: str = "plain", runner: str = "inline"
) -> Report:
    execution = ExecutionOptions(runner=runner, master="local[2]" if runner == "spark" else None)
    request = SyncRequest(
        source, target, sides=sides, packing=PACKINGS[packing], execution=execution
    )
    return sync(request, lambda _line: None)


def assert_whole(report: Report, side: Side) -> None:
    """Every file is there with its recorded CRC32C, and all earlier ones came from the target."""
    assert len(report.plan.reused_copies) == len(EARLIER)
    result = verify.verify(report.plan.replica, None, verify.ALL, lambda _line: None, side)
    assert result.restorable, result
    assert result.compared == len(EARLIER) + len(OWN)


def side_of(cluster: HdfsCluster, client: str = "native") -> Side:
    return Side((("", tuple(cluster.conf.items())),), client)


@pytest.mark.xdist_group("hdfs-sync")
@pytest.mark.parametrize(
    ("packing", "runner", "client"),
    [
        parts.rest("plain", "inline", "native"),
        ("packed", "inline", "native"),
        parts.rest("plain", "inline", "hadoop"),
        parts.rest("plain", "spark", "native"),
        parts.rest("packed", "spark", "native"),
    ],
)
def test_the_source_cluster_is_asked_nothing_for_files_of_an_earlier_job(
    clusters: Clusters, packing: str, runner: str, client: str
) -> None:
    here = f"/test/{uuid.uuid4().hex}"
    sides = Sides(side_of(clusters.a, client), side_of(clusters.b, client))
    source, target = f"{clusters.a.uri}{here}", f"{clusters.b.uri}{here}"
    put_checkpoint(sides.source, source, 1, EARLIER)
    sync_of(f"{source}/{JOB}", target, sides, packing)
    checkpoint = put_restored(sides.source, source, 2, OWN, EARLIER)
    storage = sides.source.storage(source)
    for name in EARLIER:
        storage.delete(f"{source}/{JOB}/{name}")
    before = clusters.b.tree(f"{here}/{JOB}")
    with clusters.a.counted() as at_source:
        report = sync_of(checkpoint, target, sides, packing, runner)
    assert_whole(report, sides.target)
    assert len(OWN) <= at_source["getBlockLocations"] <= len(OWN) + 4
    assert sum(at_source.values()) <= len(OWN) + 42
    assert clusters.b.tree(f"{here}/{JOB}") == before


@pytest.mark.s3
@pytest.mark.parametrize("packing", ["plain", parts.rest("packed")])
def test_s3_copies_files_of_an_earlier_job_by_one_request_each(packing: str) -> None:
    with S3Server() as server, FaultyProxy(server.endpoint) as proxy:
        bucket = server.make_bucket("jobs")
        side = Side((("", tuple(side_options(proxy.endpoint).items())),))
        sides = Sides(side, side)
        source, target = f"{bucket}/checkpoints", f"{bucket}/replicas"
        put_checkpoint(side, source, 1, EARLIER)
        sync_of(f"{source}/{JOB}", target, sides)
        put_restored(side, source, 2, OWN, EARLIER)
        proxy.heal()
        report = sync_of(f"{source}/{NEXT_JOB}", target, sides, packing)
        requests = list(proxy.requests)
        assert_whole(report, side)
    read = [line for line in requests if line.startswith(f"GET /jobs/replicas/{JOB}/shared/")]
    assert not [line for line in requests if f"/checkpoints/{JOB}/" in line]
    copied = [line for line in requests if line.startswith(f"PUT /jobs/replicas/{NEXT_JOB}/for")]
    if packing == "plain":
        assert (len(copied), len(read)) == (len(EARLIER), 0)
    else:  # what becomes a member of a pack passes through this process
        assert len(copied) == 1
