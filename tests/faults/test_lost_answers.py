"""Answers of a NameNode that are lost on their way back: the call was carried out, and the client
does not know it. The sync goes on, and what it left is removed by the next run or a sweep.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.sync.sync import sync
from cpreplicate.operations.upkeep.sweep import SweepRequest, sweep
from cpreplicate.operations.verify.verify import ALL, verify
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import TEMPORARY, Side, Sides
from cpreplicate.storage.wrappers import retry
from tests.support.hdfs import HdfsCluster
from tests.support.jobs import JOB, write_checkpoint
from tests.support.parts import rest
from tests.support.s3 import FaultyProxy

pytestmark = pytest.mark.xdist_group("hdfs")

FILES = {f"shared/{number}": 1000 + number for number in range(4)}
NEXT = {"shared/0": 1000, "shared/new": 500}
# Bytes of answers that arrive before a connection breaks; a first sync takes some 5,000.
CUTS = range(300, 5_100, 600)
INLINE = ExecutionOptions(runner="inline")


@pytest.fixture(scope="module")
def cluster() -> Iterator[HdfsCluster]:
    with HdfsCluster(datanodes=1) as started:
        yield started


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "PAUSES", retry.Pauses(first=0.05, longest=0.1))


@pytest.mark.rest
@pytest.mark.parametrize("client", ["native", rest("hadoop")])
def test_a_sync_that_lost_answers_leaves_nothing_that_stays(
    cluster: HdfsCluster, tmp_path: Path, client: str
) -> None:
    direct = Sides(Side(), side_of(cluster))
    write_checkpoint(tmp_path, 1, FILES)
    roots = {cut: f"/lost/{client}/{cut}" for cut in CUTS}
    for cut, path in roots.items():
        with FaultyProxy(cluster.namenodes[0], http=False) as proxy:
            proxy.cut_response(1, cut)
            through = Sides(Side(), side_of(cluster, hdfs_client=client))
            assert replicate(tmp_path, f"hdfs://{proxy.address}{path}", through), cut
    write_checkpoint(tmp_path, 2, NEXT)
    for cut, path in roots.items():
        root = f"{cluster.uri}{path}"
        assert replicate(tmp_path, root, direct), cut
        request = SweepRequest(f"{root}/{JOB}", min_age=0.0, sides=direct, execution=INLINE)
        sweep(request, silent)
        assert temporaries(direct.target, root) == [], cut
        found = verify(f"{root}/{JOB}", "chk-2", ALL, silent, direct.target)
        assert found.restorable, (cut, found)


def side_of(cluster: HdfsCluster, **settings: Any) -> Side:
    """Return a side of the cluster; it is reached wherever a URI leads."""
    options = {**cluster.conf, "dfs.replication": "1"}
    del options["fs.defaultFS"]
    return Side((("", tuple(options.items())),), **settings)


def replicate(source: Path, root: str, sides: Sides) -> bool:
    """Sync the newest checkpoint, and return whether it was committed."""
    request = SyncRequest(f"file:{source}/{JOB}", root, sides=sides, execution=INLINE)
    return sync(request, silent).committed


def temporaries(side: Side, directory: str) -> list[str]:
    """Return the temporary files below a directory."""
    found: list[str] = []
    for child in side.storage(directory).list(directory):
        if child.is_directory:
            found += temporaries(side, child.uri)
        elif child.name.startswith(TEMPORARY):
            found.append(child.uri)
    return found


def silent(_line: str) -> None:
    pass
