"""The source is walked only if the replica may be in it under another name."""

from __future__ import annotations

from pathlib import Path

import pytest

from cpreplicate.operations.sync.diff import check
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import Side
from tests.support.jobs import JOB, write_checkpoint
from tests.support.memory import MemoryStorage
from tests.support.registry import serving
from tests.support.replicas import FILES, synced
from tests.support.tracing import Tracing


def listed_at_source(root: Path, target_root: str) -> set[str]:
    """The directories of the source that are listed before its first sync, by name."""
    source = f"file:{root}/dcA/{JOB}/chk-1"
    execution = ExecutionOptions(runner="inline")
    tracing = Tracing(Side().storage("file:/"))
    with serving("file", tracing), serving("memory", MemoryStorage()):
        check(SyncRequest(source, target_root, execution=execution))
    listed = [Path(uri.removeprefix("file:")) for verb, uri in tracing.calls if verb == "list"]
    return {path.name for path in listed if path.is_relative_to(root / "dcA")}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_checkpoint(tmp_path / "dcA", 1, FILES)
    return tmp_path


def test_the_source_is_not_walked_if_the_storage_of_the_target_identifies_no_files(
    root: Path,
) -> None:
    assert listed_at_source(root, "memory:/dcB") == set()


def test_the_source_is_not_walked_if_the_replica_exists(root: Path) -> None:
    synced(root, {1: FILES})
    assert listed_at_source(root, f"file:{root}/dcB") == set()


def test_the_source_is_not_walked_if_one_mount_holds_source_and_target(root: Path) -> None:
    assert listed_at_source(root, f"file:{root}/dcB") <= {JOB, "chk-1"}


def test_the_source_is_walked_if_another_mount_holds_the_target(root: Path) -> None:
    """Where shared memory is mounted: as root or not, every Linux has this mount."""
    assert {JOB, "shared", "chk-1"} <= listed_at_source(root, "file:/dev/shm/cpreplicate-no-such")
