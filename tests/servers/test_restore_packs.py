"""Stock Flink restores a packed replica exactly, with the source gone; and so it does the
checkpoints that follow, and replicas of many rounds.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.servers.test_restore import (
    MAKERS,
    Maker,
    Source,
    Sources,
    assert_restores_twice,
    at,
    cli,
    moved_away,
    one_job,
    run_sync,
    snapshot,
    sync,
)
from tests.support import parts
from tests.support.flink import ClaimMode, Flink, Job

pytestmark = [pytest.mark.xdist_group("flink-packs"), pytest.mark.rest]

PACKED = ("--pack", "on", "--pack-below", "1GiB")
FOLLOW_UPS = 3  # checkpoints between the two restores: by then Flink has subsumed the first ones


class SavepointSource(Source):
    """A job of which the savepoint is replicated that it took last."""

    @property
    def checkpoint(self) -> Path:
        return self.run.savepoint


def native_savepoint(flink: Flink, side: Path) -> Source:
    run = flink.run(side / "ckpt", checkpoints=2, savepoint=side / "savepoints")
    assert run.failure is None
    return SavepointSource(side, run, Job())


PACKED_MAKERS: dict[str, Maker] = {
    **MAKERS,
    "native savepoint": native_savepoint,
    "forst": one_job(Job(backend="forst")),
    "forst disaggregated": one_job(Job(backend="forst", disaggregated=True)),
}


@pytest.fixture(scope="module")
def sources(flink: Flink, tmp_path_factory: pytest.TempPathFactory) -> Sources:
    directory = tmp_path_factory.mktemp(f"packed-{flink.version}")
    return Sources(flink, directory, PACKED_MAKERS)


@dataclass(frozen=True)
class Case:
    """What is packed, and how it is restored."""

    source: str
    claim_mode: ClaimMode
    paths: str = "auto"
    parallelism: int = 2
    file_merging: bool = False
    runner: str = "inline"

    def __str__(self) -> str:
        merging = "-restored-with-file-merging" if self.file_merging else ""
        rescaled = f"-on-{self.parallelism}" if self.parallelism != 2 else ""
        return f"{self.source}-{self.claim_mode}{rescaled}{merging}".replace(" ", "-")


CASES = [
    Case("rocksdb", "NO_CLAIM", runner="spark"),
    Case("rocksdb", "CLAIM", "absolute", parallelism=4),
    Case("rocksdb", "NO_CLAIM", file_merging=True),
    Case("hashmap", "NO_CLAIM"),
    Case("hashmap", "CLAIM", "absolute"),
    Case("three jobs", "NO_CLAIM"),
    Case("three jobs", "CLAIM", "absolute"),
    Case("file merging", "NO_CLAIM"),
    Case("file merging", "CLAIM", "absolute", file_merging=True),
    Case("native savepoint", "NO_CLAIM"),
    Case("native savepoint", "CLAIM", "absolute"),
    Case("unaligned", "NO_CLAIM", parallelism=1),
    Case("unaligned", "CLAIM", "absolute"),
    Case("changelog", "CLAIM"),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_packed_replica_is_restored_exactly_with_the_source_gone_and_so_is_its_follow_up(
    flink: Flink, sources: Sources, tmp_path: Path, case: Case
) -> None:
    assert_packed_replica_is_restored(flink, sources, tmp_path, case)


# Flink 1 has no ForSt. Of 2.0.1 and 2.1.1, no artifact of it is published.
FORST_CASES = [
    Case("forst", "NO_CLAIM"),
    Case("forst", "CLAIM", "absolute"),
    Case("forst disaggregated", "NO_CLAIM"),
    Case("forst disaggregated", "CLAIM", "absolute"),
]


@pytest.mark.parametrize("flink", ["2"], ids=["flink-2.3"], indirect=True)
@pytest.mark.parametrize("case", FORST_CASES, ids=str)
def test_a_packed_replica_of_a_forst_job_is_restored_exactly(
    flink: Flink, sources: Sources, tmp_path: Path, case: Case
) -> None:
    assert_packed_replica_is_restored(flink, sources, tmp_path, case)


# Each writes its own checkpoints: 2.0 has version 5 of `_metadata` and cannot read that of 2.3.
EARLIER_CASES = [
    Case("rocksdb", "NO_CLAIM", file_merging=True),
    Case("rocksdb", "CLAIM", "absolute"),
    Case("hashmap", "NO_CLAIM"),
    Case("three jobs", "CLAIM", "absolute"),
    Case("file merging", "NO_CLAIM"),
    parts.rest(Case("native savepoint", "NO_CLAIM")),
    Case("unaligned", "CLAIM", "absolute"),
    Case("changelog", "CLAIM"),
]


@pytest.mark.parametrize("flink", ["2.0", "2.1"], ids=["flink-2.0", "flink-2.1"], indirect=True)
@pytest.mark.parametrize("case", EARLIER_CASES, ids=str)
def test_a_packed_replica_is_restored_exactly_by_the_releases_of_flink_2_before(
    flink: Flink, sources: Sources, tmp_path: Path, case: Case
) -> None:
    assert_packed_replica_is_restored(flink, sources, tmp_path, case)


def assert_packed_replica_is_restored(
    flink: Flink, sources: Sources, tmp_path: Path, case: Case
) -> None:
    source = sources(case.source)
    before = snapshot(source.side)
    options = ("--paths", case.paths, "--runner", case.runner)
    replica = sync(source.checkpoint, tmp_path / "ckpt", *PACKED, *options)
    has_packs = (replica.parent / "packed").is_dir()
    assert has_packs or source.job.file_merging  # merged files are copied as they are
    job = replace(
        at(tmp_path, source.job), parallelism=case.parallelism, file_merging=case.file_merging
    )
    with moved_away(source.side):
        assert_restores_twice(flink, replica, job, case.claim_mode, FOLLOW_UPS)
    assert snapshot(source.side) == before


UNPACKED = [
    Case("rocksdb", "NO_CLAIM", "relative"),
    Case("three jobs", "CLAIM", "absolute"),
    Case("changelog", "CLAIM"),
]


@pytest.mark.parametrize("case", UNPACKED, ids=str)
def test_an_unpacked_replica_is_restored_exactly_with_the_source_gone_and_so_is_its_follow_up(
    flink: Flink, sources: Sources, tmp_path: Path, case: Case
) -> None:
    source = sources(case.source)
    replica = sync(source.checkpoint, tmp_path / "ckpt", *PACKED, "--paths", case.paths)
    options = ("--unpack", "--paths", case.paths, "--output", "json")
    unpacked = json.loads(cli("relocate", replica.parent, *options).stdout)["unpacked"]
    assert unpacked["files"] > unpacked["packs"] > 0
    assert not (replica.parent / "packed").exists()
    assert not any(row.get("type") == 15 for row in flink.refs(replica))
    with moved_away(source.side):
        assert_restores_twice(flink, replica, at(tmp_path, source.job), case.claim_mode, FOLLOW_UPS)


@pytest.mark.parametrize(("times", "least"), [(4, 2), parts.nightly(10, 6)])
def test_a_replica_packed_many_times_over_is_restored_exactly(
    flink: Flink, tmp_path: Path, times: int, least: int
) -> None:
    side, target = tmp_path / "a", tmp_path / "b" / "ckpt"
    reports: list[Any] = []
    with flink.start(side / "ckpt", interval_ms=300) as job:
        while len(reports) < times - 1 or count_committed(reports) < least - 1:
            directory = job.wait_for_checkpoints(2).directory
            reports.append(run_sync(directory, target, *PACKED, codes=(0, 12)))
        stopped = job.stop()
    reports.append(run_sync(stopped.directory, target, *PACKED))
    replica = target / stopped.job_id / stopped.newest.name
    committed = [report for report in reports if report and report["committed"]]
    assert len(committed) >= least
    kept = [report["keep"]["files"] + report["repack"]["files"] for report in committed[1:]]
    assert all(kept)
    verified = cli("verify", replica.parent, "--content", "--output", "json")
    assert json.loads(verified.stdout)["restorable"] is True
    with moved_away(side):
        assert_restores_twice(flink, replica, Job(), "NO_CLAIM", FOLLOW_UPS)


def count_committed(reports: list[Any]) -> int:
    """Count the syncs that committed: the others found that the source had moved on."""
    return sum(bool(report and report["committed"]) for report in reports)
