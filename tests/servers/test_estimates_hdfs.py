"""Estimated calls to real NameNodes, compared with those that were made."""

from __future__ import annotations

import uuid

import pytest

from cpreplicate.core.packs import PackMode, PackOptions
from cpreplicate.operations.sync.diff import diff
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.sync.sync import sync
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import Side, Sides
from tests.support.hdfs import Clusters, HdfsCluster
from tests.support.jobs import JOB, put_checkpoint

FIRST = {f"shared/{number:03}": 1000 for number in range(400)}
NEXT = {name: size for name, size in FIRST.items() if name >= "shared/100"} | {
    f"shared/new-{number:03}": 1000 for number in range(100)
}
FACTOR, CONSTANT = 1.25, 25  # the NameNode answers `complete` with "not yet" now and then


def side_of(cluster: HdfsCluster) -> Side:
    return Side((("", tuple(cluster.conf.items())),))


def assert_near(estimated: int | None, made: int) -> None:
    assert estimated is not None
    assert abs(estimated - made) <= (FACTOR - 1) * made + CONSTANT


@pytest.mark.xdist_group("hdfs-sync")
@pytest.mark.parametrize("mode", ["off", "on"])
def test_the_calls_of_a_run_are_estimated(clusters: Clusters, mode: PackMode) -> None:
    here = f"/test/{uuid.uuid4().hex}"
    sides = Sides(side_of(clusters.a), side_of(clusters.b))
    source = f"{clusters.a.uri}{here}"
    request = SyncRequest(
        f"{source}/{JOB}",
        f"{clusters.b.uri}{here}",
        sides=sides,
        packing=PackOptions(mode, 1 << 20),
        execution=ExecutionOptions(runner="inline"),
    )
    for number, files in enumerate((FIRST, NEXT), 1):
        put_checkpoint(sides.source, source, number, files)
        estimates = diff(request).estimates
        assert estimates is not None
        with clusters.a.counted() as at_source, clusters.b.counted() as at_target:
            sync(request, lambda _line: None)
        assert_near(estimates.planned.source_calls, sum(at_source.values()))
        again = at_target["complete"] - at_target["create"]  # where the answer was "not yet"
        assert_near(estimates.planned.target_calls, sum(at_target.values()) - again)
        assert estimates.packed is not None
        unpacked, packed = estimates.unpacked.target_calls, estimates.packed.target_calls
        assert packed is not None
        assert unpacked is not None
        assert packed < unpacked
