"""Blocks of HDFS that are damaged on every DataNode: reads fail, and wrong bytes never come."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cpreplicate.errors import SourceDamaged
from cpreplicate.operations.sync import sync as sync_operation
from cpreplicate.operations.sync.report import Report
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.verify.verify import ALL, NOTHING, Verification, verify
from cpreplicate.protocol.manifest import SUFFIX
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import DamagedFile, Side, Sides, Unreachable
from tests.support.hdfs import HdfsCluster
from tests.support.jobs import JOB, write_checkpoint

pytestmark = [pytest.mark.hdfs, pytest.mark.xdist_group("damaged-blocks"), pytest.mark.rest]

FILES = {f"shared/{number}": 3000 + number for number in range(4)}
DAMAGED = "shared/2"


@pytest.fixture(scope="module")
def cluster() -> Iterator[HdfsCluster]:
    with HdfsCluster(datanodes=2, conf={"dfs.replication": "2"}) as started:
        yield started


class Replicated:
    """A job on `file:` with one checkpoint, and its replica on HDFS."""

    def __init__(self, cluster: HdfsCluster, source: Path, client: str) -> None:
        self._cluster, self._source = cluster, source
        filesystem, options = cluster.uri, dict(cluster.conf)
        if client == "webhdfs":
            filesystem, options = cluster.webhdfs_uri, {"user": cluster.superuser}
            client = "native"
        options["deadline"] = "1h"  # a busy server is no silent one
        self.side = Side((("", tuple(options.items())),), hdfs_client=client, retry_for=1.0)
        self.root = f"{filesystem}/{uuid.uuid4().hex}"
        self.replica = f"{self.root}/{JOB}"
        self.checkpoints = 0
        self.next()

    def next(self, **options: Any) -> Report:
        self.checkpoints += 1
        write_checkpoint(self._source, self.checkpoints, FILES)
        return self.sync(**options)

    def sync(self, **options: Any) -> Report:
        source = f"file:{self._source / JOB}"
        sides = Sides(Side(), self.side)
        execution = ExecutionOptions(runner="inline")
        request = SyncRequest(source, self.root, sides=sides, execution=execution, **options)
        return sync_operation.sync(request, lambda _line: None)

    def verify(self, content: bool = True) -> Verification:
        return verify(
            self.replica, None, ALL if content else NOTHING, lambda _line: None, self.side
        )

    def damage(self, path: str) -> None:
        storage = self.side.storage(self.replica)
        self._cluster.damage(storage.read(f"{self.replica}/{path}"))


@pytest.fixture(params=["native", "hadoop", "webhdfs"])
def replicated(request: pytest.FixtureRequest, cluster: HdfsCluster, tmp_path: Path) -> Replicated:
    return Replicated(cluster, tmp_path, request.param)


def test_a_damaged_file_is_named_and_copied_again(replicated: Replicated) -> None:
    replicated.damage(DAMAGED)
    found = replicated.verify()
    assert (found.corrupt, found.restorable) == ((DAMAGED,), False)
    assert "--check-content" in str(found.repair)
    replicated.sync(check_content=True)
    assert replicated.verify().restorable


@pytest.mark.parametrize("target", ["file", "hdfs"])
def test_a_damaged_file_of_the_source_is_named_and_nothing_is_committed(
    replicated: Replicated, tmp_path: Path, target: str
) -> None:
    replicated.damage(DAMAGED)
    root, side = (
        (f"file:{tmp_path}/dcC", Side())
        if target == "file"
        else (f"{replicated.root}-of-dcC", replicated.side)
    )
    request = SyncRequest(
        replicated.replica,
        root,
        sides=Sides(replicated.side, side),
        execution=ExecutionOptions(runner="inline"),
    )
    with pytest.raises(SourceDamaged, match=f"/{DAMAGED}: it is damaged or lost") as raised:
        sync_operation.sync(request, lambda _line: None)
    assert raised.value.exit_code == 4


def test_a_damaged_metadata_that_is_the_first_file_to_be_read_is_damage(
    replicated: Replicated,
) -> None:
    """No data arrived of another file by then: one beside it is read, to decide."""
    replicated.damage("chk-1/_metadata")
    fresh = replace(replicated.side, retry_for=0.5)  # a storage of its own
    with pytest.raises(DamagedFile, match=r"chk-1/_metadata: it is damaged or lost"):
        fresh.storage(replicated.replica).read(f"{replicated.replica}/chk-1/_metadata")


@pytest.mark.parametrize(
    "damaged", [".cpreplicate/chk-1.json", f".cpreplicate/chk-1{SUFFIX}", "chk-1/_metadata"]
)
def test_newer_checkpoints_go_on_when_a_file_of_the_former_is_damaged(
    replicated: Replicated, damaged: str
) -> None:
    replicated.damage(damaged)
    replicated.next()
    assert replicated.verify().restorable
    assert replicated.side.storage(replicated.replica).stat(f"{replicated.replica}/chk-1") is None


def test_a_damaged_metadata_is_no_restorable_checkpoint_and_is_written_again(
    replicated: Replicated,
) -> None:
    replicated.damage("chk-1/_metadata")
    assert replicated.verify(content=False).corrupt == ("chk-1/_metadata",)
    replicated.sync()
    assert replicated.verify().restorable


def test_a_damaged_metadata_without_its_manifest_is_named(replicated: Replicated) -> None:
    replicated.damage("chk-1/_metadata")
    replicated.side.storage(replicated.replica).delete(
        f"{replicated.replica}/.cpreplicate/chk-1{SUFFIX}"
    )
    with pytest.raises(DamagedFile, match=r"chk-1/_metadata: it is damaged or lost"):
        replicated.next()


def test_a_block_whose_datanodes_are_down_is_not_damaged(tmp_path: Path) -> None:
    with HdfsCluster(datanodes=1, conf={"dfs.replication": "1"}) as cluster:
        replicated = Replicated(cluster, tmp_path, "native")
        storage = replicated.side.storage(replicated.replica)
        cluster.stop_datanode(0)
        with pytest.raises(Unreachable):
            storage.read(f"{replicated.replica}/{DAMAGED}")
