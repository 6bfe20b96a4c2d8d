"""Stock Flink restores a replica exactly, with the source gone; and so it does the checkpoints that
follow.

Each job proves its own state: what every key, list, union and broadcast state must hold is a pure
function of the source offsets in the checkpoint (`tests/flink`, `RateLimiter.java`).
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.support import parts
from tests.support.datacentres import was_subsumed
from tests.support.flink import ClaimMode, Event, Flink, Job, RunResult, state_rows
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.xdist_group("flink")

CLI_SECONDS = PATIENCE


@dataclass(frozen=True)
class Source:
    """A job of data centre A, stopped, and what it left."""

    side: Path
    run: RunResult
    job: Job

    @property
    def checkpoint(self) -> Path:
        return self.run.newest


Maker = Callable[[Flink, Path], Source]


class Sources:
    """Jobs of data centre A, each run once and only ever read."""

    def __init__(
        self, flink: Flink, directory: Path, makers: Mapping[str, Maker] | None = None
    ) -> None:
        self._flink = flink
        self._directory = directory
        self._makers = makers or MAKERS
        self._made: dict[str, Source] = {}

    def __call__(self, name: str) -> Source:
        if name not in self._made:
            side = self._directory / name / "a"
            self._made[name] = self._makers[name](self._flink, side)
        return self._made[name]


def one_job(job: Job) -> Maker:
    def make(flink: Flink, side: Path) -> Source:
        here = replace(job, changelog=side / "dstl") if job.changelog else job
        run = flink.run(side / "ckpt", here)
        assert run.failure is None
        return Source(side, run, here)

    return make


def three_jobs(flink: Flink, side: Path) -> Source:
    """Each claims what the one before left, so that the third references files of the first."""
    first = run = flink.run(side / "ckpt", checkpoints=2)
    for _ in range(2):
        run = flink.run(side / "ckpt", checkpoints=2, restore=run.newest, claim_mode="CLAIM")
        assert run.exact, run.failure
    assert any(
        first.job_id in row["path"] for row in flink.refs(run.newest) if row.get("type") == 2
    )
    return Source(side, run, Job())


MAKERS: dict[str, Maker] = {
    "rocksdb": one_job(Job()),
    "hashmap": one_job(Job(backend="hashmap")),
    "three jobs": three_jobs,
    "file merging": one_job(Job(file_merging=True)),
    "file merging across checkpoints": one_job(Job(file_merging_across=True)),
    "unaligned": one_job(Job(unaligned=True)),
    "changelog": one_job(Job(changelog=Path("in the side"))),
}


@pytest.fixture(scope="module")
def sources(flink: Flink, tmp_path_factory: pytest.TempPathFactory) -> Sources:
    return Sources(flink, tmp_path_factory.mktemp(f"flink-{flink.version}"))


@dataclass(frozen=True)
class Case:
    """One way to replicate and restore."""

    source: str
    paths: str
    claim_mode: ClaimMode
    runner: str = "inline"
    parallelism: int = 2

    def __str__(self) -> str:
        rescaled = f"-on-{self.parallelism}" if self.parallelism != 2 else ""
        return f"{self.source}-{self.paths}-{self.claim_mode}{rescaled}".replace(" ", "-")


CASES = [
    Case("rocksdb", "relative", "NO_CLAIM"),
    parts.rest(Case("rocksdb", "absolute", "CLAIM")),
    parts.rest(Case("rocksdb", "auto", "NO_CLAIM", parallelism=4)),
    parts.rest(Case("rocksdb", "absolute", "CLAIM", parallelism=1)),
    parts.rest(Case("hashmap", "auto", "NO_CLAIM")),
    parts.rest(Case("three jobs", "relative", "NO_CLAIM", runner="spark")),
    parts.rest(Case("three jobs", "absolute", "CLAIM")),
    parts.rest(Case("file merging", "auto", "NO_CLAIM")),
    parts.rest(Case("file merging", "absolute", "CLAIM")),
    parts.rest(Case("file merging across checkpoints", "absolute", "CLAIM")),
    parts.rest(Case("unaligned", "relative", "NO_CLAIM")),
    parts.rest(Case("unaligned", "absolute", "CLAIM")),
    # by the default paths: test_are_avoided_by_the_default_where_only_claim_restores
    parts.rest(Case("changelog", "absolute", "CLAIM")),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_replica_is_restored_exactly_with_the_source_gone_and_so_is_its_follow_up(
    flink: Flink, sources: Sources, tmp_path: Path, case: Case
) -> None:
    source = sources(case.source)
    before = snapshot(source.side)
    replica = sync(
        source.checkpoint, tmp_path / "ckpt", "--paths", case.paths, "--runner", case.runner
    )
    assert_stands_alone(flink.refs(replica), replica)
    with moved_away(source.side):
        job = replace(at(tmp_path, source.job), parallelism=case.parallelism)
        assert_restores_twice(flink, replica, job, case.claim_mode)
    assert snapshot(source.side) == before


@pytest.mark.rest
def test_unaligned_checkpoints_do_hold_records_in_flight(
    flink: Flink, sources: Sources, tmp_path: Path
) -> None:
    source = sources("unaligned")
    channels = [
        row for row in flink.refs(source.checkpoint) if row.get("kind", "").startswith("chan-")
    ]
    restored = flink.run(tmp_path / "ckpt", source.job, restore=source.checkpoint, checkpoints=0)
    assert channels
    assert restored.restored["inFlight"] > 0


@pytest.mark.rest
def test_a_replica_kept_up_while_the_job_runs_is_restored_exactly(
    flink: Flink, tmp_path: Path
) -> None:
    side, target = tmp_path / "a", tmp_path / "b" / "ckpt"
    reports: list[Any] = []
    with flink.start(side / "ckpt", interval_ms=300) as job:
        # a sync of which the source moved on does not count: on a busy machine these are many
        while len(reports) < 4 or sum(bool(each and each["committed"]) for each in reports) < 3:
            directory = job.wait_for_checkpoints(2).directory
            reports.append(run_sync(directory, target, codes=(0, 12)))
        stopped = job.stop()
    reports.append(run_sync(stopped.directory, target))
    replica = target / stopped.job_id / stopped.newest.name
    committed = [report for report in reports if report and report["committed"]]
    assert len(committed) >= 3
    assert all(report["keep"]["files"] > 0 for report in committed[1:])
    # files of a sync of which the source moved on may be left to `sweep`, in their directory
    published = (target / stopped.job_id).glob("chk-*/_metadata")
    assert [path.parent.name for path in published] == [stopped.newest.name]
    with moved_away(side):
        assert_restores_twice(flink, replica, Job(), "NO_CLAIM")


@pytest.mark.parametrize("options", [parts.rest(()), ("--pack", "on")], ids=["plain", "packed"])
def test_a_replica_follows_a_job_across_a_restart_with_files_of_the_earlier_jobs_replica(
    flink: Flink, tmp_path: Path, options: tuple[str, ...]
) -> None:
    side, target = tmp_path / "a", tmp_path / "b" / "ckpt"
    first = flink.run(side / "ckpt", checkpoints=2)
    sync(first.newest, target, *options)
    second = flink.run(side / "ckpt", checkpoints=3, restore=first.newest, claim_mode="CLAIM")
    earlier = [row for row in flink.refs(second.newest) if first.job_id in row.get("path", "")]
    with moved_away(first.directory):  # what is shared with it comes from its replica
        report = run_sync(second.directory, target, *options)
    copied = report["copied_within_target"]["files"]
    assert copied == len({row["path"] for row in earlier}) > 0
    replica = target / second.job_id / second.newest.name
    with moved_away(side):
        shutil.rmtree(target / first.job_id)  # each job's replica stands alone
        assert_restores_twice(flink, replica, Job(), "NO_CLAIM")


@pytest.mark.rest
@pytest.mark.parametrize("flink", ["1"], indirect=True)
def test_a_replica_written_by_1_20_is_restored_exactly_by_2_3(
    flink: Flink, sources: Sources, tmp_path: Path
) -> None:
    assert flink.version == "1"
    source = sources("rocksdb")
    replica = sync(source.checkpoint, tmp_path / "ckpt")
    with moved_away(source.side), Flink("2") as newer:
        assert_restores_twice(newer, replica, source.job, "NO_CLAIM")


@pytest.mark.rest
class TestAJobThatClaimsItsReplica:
    """CLAIM makes Flink the owner of what it restored from: it deletes what it no longer needs."""

    @pytest.mark.parametrize(
        "name",
        parts.cases(
            ["rocksdb", "file merging", "file merging across checkpoints", "changelog"],
            main=["changelog"],
        ),
    )
    def test_leaves_every_file_of_the_source_untouched_when_it_deletes_the_claimed_checkpoint(
        self, flink: Flink, sources: Sources, tmp_path: Path, name: str
    ) -> None:
        source = sources(name)
        before = snapshot(source.side)
        replica = sync(source.checkpoint, tmp_path / "ckpt", "--paths", "absolute")
        root, claimed = replica.parent.parent, replica / "_metadata"
        job = at(tmp_path, source.job)
        run = flink.run(root, job, restore=replica, claim_mode="CLAIM", until_gone=claimed)
        assert run.exact, run.failure
        assert not claimed.exists()
        assert snapshot(source.side) == before


class TestRelativePathsWithClaim:
    """Flink completes such checkpoints but cannot restore them.

    So the default and the advice avoid them.
    """

    @pytest.mark.rest
    def test_lose_the_follow_up_in_stock_flink(
        self, flink: Flink, sources: Sources, tmp_path: Path
    ) -> None:
        replica = sync(sources("rocksdb").checkpoint, tmp_path / "ckpt", "--paths", "relative")
        first = flink.run(tmp_path / "ckpt", restore=replica, claim_mode="CLAIM", checkpoints=2)
        second = flink.run(tmp_path / "ckpt", restore=first.newest, checkpoints=0)
        assert first.exact
        # which of the racing subtasks Flink blames differs from run to run
        assert second.failure is not None
        assert missing_files(flink.refs(first.newest))

    @pytest.mark.rest
    def test_are_avoided_by_the_default_where_only_claim_restores(
        self, flink: Flink, sources: Sources, tmp_path: Path
    ) -> None:
        source = sources("changelog")
        report = run_sync(source.checkpoint, tmp_path / "ckpt")
        assert report["paths"] == "absolute"
        assert report["restore"]["claim_mode"] == "CLAIM"
        with moved_away(source.side):
            replica = Path(report["replica"].removeprefix("file:")) / source.checkpoint.name
            assert_restores_twice(flink, replica, at(tmp_path, source.job), "CLAIM")

    def test_are_not_in_the_printed_restore_command(self, sources: Sources, tmp_path: Path) -> None:
        checkpoint = sources("rocksdb").checkpoint
        report = run_sync(checkpoint, tmp_path / "json", "--paths", "relative")
        text = cli(
            "sync", checkpoint, tmp_path / "text", "--paths", "relative", "--runner", "inline"
        ).stdout
        assert report["restore"]["claim_mode"] == "NO_CLAIM"
        assert "NO_CLAIM" in report["restore"]["command"]
        assert "NO_CLAIM" in text


@pytest.mark.rest
def test_one_file_under_two_spellings_is_refused_by_flink_but_restored_from_the_replica(
    flink: Flink, sources: Sources, tmp_path: Path
) -> None:
    source, shared = with_a_shared_file(flink, sources, tmp_path / "more")
    checkpoint = with_two_spellings(shared, flink.refs(shared), tmp_path / "spelled")
    refused = flink.run(
        tmp_path / "c", source.job, restore=checkpoint, claim_mode="CLAIM", checkpoints=0
    )
    assert "StateObjects underlying same key should be equal" in (refused.failure or "")
    replica = sync(checkpoint, tmp_path / "ckpt")
    assert_stands_alone(flink.refs(replica), replica)
    with moved_away(source.side):
        assert_restores_twice(flink, replica, at(tmp_path, source.job), "CLAIM")


@pytest.mark.parametrize(
    "name",
    parts.cases(MAKERS, {"rocksdb"}),
    ids=lambda name: name.replace(" ", "-"),
)
def test_inspect_reads_in_every_checkpoint_what_flinks_own_loader_reads(
    flink: Flink, sources: Sources, name: str
) -> None:
    for checkpoint in sources(name).run.retained:
        output = cli("inspect", checkpoint, "--refs", "--output", "ndjson").stdout
        rows = [json.loads(line) for line in output.splitlines()]
        assert rows == state_rows(flink.refs(checkpoint))


class TestAPromotedReplica:
    @pytest.mark.rest
    def test_is_claimed_by_the_job_and_kept_from_the_sync_that_nobody_stopped(
        self, flink: Flink, sources: Sources, tmp_path: Path
    ) -> None:
        source = sources("three jobs")
        replica = sync(source.checkpoint, tmp_path / "ckpt")
        output = json.loads(cli("promote", replica.parent, "--output", "json").stdout)
        assert output["restore"]["command"].startswith(f"flink run -s file:{replica} ")
        assert_stands_alone(flink.refs(replica), replica)
        refused = cli(
            "sync", source.checkpoint, tmp_path / "ckpt", "--runner", "inline", codes=(6,)
        )
        assert "is sealed by" in refused.stderr
        with moved_away(source.side):
            assert_restores_twice(flink, replica, at(tmp_path, source.job), "CLAIM")


@pytest.mark.rest
class TestAReplicaThatWasMovedByOtherMeans:
    def test_is_restored_exactly_once_it_is_relocated(
        self, flink: Flink, sources: Sources, tmp_path: Path
    ) -> None:
        source = sources("file merging")
        replica = sync(source.checkpoint, tmp_path / "b" / "ckpt")
        (tmp_path / "b").rename(tmp_path / "c")
        moved = tmp_path / "c" / replica.relative_to(tmp_path / "b")
        assert "relocate" in cli("verify", moved.parent, codes=(4,)).stdout
        cli("relocate", moved.parent, "--paths", "absolute")
        assert_stands_alone(flink.refs(moved), moved)
        with moved_away(source.side):
            assert_restores_twice(flink, moved, source.job, "CLAIM")


@pytest.mark.rest
class TestTheHarness:
    """What proves the replicas exact must find out what is not."""

    @pytest.mark.parametrize(
        ("kind", "why"), [("op-managed", "state of checkpoint"), ("keyed", "was counted")]
    )
    def test_finds_out_state_of_an_older_checkpoint(
        self, flink: Flink, sources: Sources, tmp_path: Path, kind: str, why: str
    ) -> None:
        run = sources("hashmap").run
        older, newest = run.retained[-2:]
        copy = tmp_path / "copy" / newest.name
        shutil.copytree(newest, copy)
        files = zip(
            relative_files(flink.refs(older), kind),
            relative_files(flink.refs(newest), kind),
            strict=True,
        )
        for old, new in files:
            shutil.copyfile(older / old, copy / new)
        found = flink.run(tmp_path / "ckpt", Job(backend="hashmap"), restore=copy, checkpoints=0)
        assert why in (found.failure or "")

    def test_finds_out_a_missing_file(self, flink: Flink, sources: Sources, tmp_path: Path) -> None:
        source = sources("rocksdb")
        with moved_away(source.checkpoint.parent / "shared"):
            found = flink.run(tmp_path / "ckpt", restore=source.checkpoint, checkpoints=0)
        assert "FileNotFoundException" in (found.failure or "")


def assert_restores_twice(
    flink: Flink, replica: Path, job: Job, claim_mode: ClaimMode, checkpoints: int = 2
) -> None:
    """The job goes on from the replica for some checkpoints, and from the newest of these again."""
    root = replica.parent.parent
    first = flink.run(root, job, restore=replica, claim_mode=claim_mode, checkpoints=checkpoints)
    assert first.exact, first.failure
    second = flink.run(root, job, restore=first.newest, claim_mode=claim_mode, checkpoints=1)
    assert second.exact, second.failure


def assert_stands_alone(refs: Sequence[Event], checkpoint: Path) -> None:
    """Every file and directory that Flink reads in a replica is in it, under one spelling."""
    root = f"file:{checkpoint.parent}/"
    paths = [row["path"] for row in refs if "path" in row]
    directories = [
        row[name] for row in refs for name in ("taskOwnedDir", "sharedDir") if name in row
    ]
    assert [path for path in paths + directories if not path.startswith(root)] == []
    assert [path for path in paths if not Path(path.removeprefix("file:")).exists()] == []
    spellings = {(row["path"], row["type"], row.get("relative")) for row in refs if "path" in row}
    assert len(spellings) == len(set(paths))


def at(side: Path, job: Job) -> Job:
    """The same job in another data centre: its changelog is written there."""
    return replace(job, changelog=side / "dstl") if job.changelog else job


def missing_files(refs: Sequence[Event]) -> list[str]:
    """The files that a checkpoint references and that are not there."""
    files = {str(row["path"]).removeprefix("file:") for row in refs if row.get("path")}
    return sorted(file for file in files if not Path(file).exists())


def relative_files(refs: Sequence[Event], kind: str) -> list[str]:
    return [
        row["relative"]
        for row in refs
        if row.get("kind", "").startswith(kind) and "relative" in row
    ]


def sync(source: Path, target_root: Path, *options: str) -> Path:
    """Replicates; gives the checkpoint in the replica."""
    report = run_sync(source, target_root, *options)
    assert report["committed"]
    replica = target_root / source_job(source)
    assert report["replica"] == f"file:{replica}"
    return replica / f"chk-{report['checkpoint_id']}"


def source_job(source: Path) -> str:
    return source.parent.name if source.name.startswith("chk-") else source.name


def run_sync(
    source: Path, target_root: Path, *options: str, codes: Sequence[int] = (0,)
) -> dict[str, Any]:
    """The report of a sync; empty if it ended with another of the codes that are allowed.

    If 12 is one of them, so is that of a checkpoint that Flink was deleting.
    """
    runner = () if "--runner" in options else ("--runner", "inline")
    words = ("sync", source, target_root, *options, *runner, "--output", "json")
    done = cli(*words, codes=(*codes, 10) if 12 in codes else codes)
    assert done.returncode != 10 or was_subsumed(done.stdout + done.stderr), done.stderr
    report: dict[str, Any] = json.loads(done.stdout) if done.returncode == 0 else {}
    return report


def cli(*words: str | Path, codes: Sequence[int] = (0,)) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cpreplicate", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=CLI_SECONDS, check=False)
    assert done.returncode in codes, (
        f"{command} ended with {done.returncode}\n{done.stdout}{done.stderr}"
    )
    return done


def snapshot(directory: Path) -> dict[str, tuple[int, int]]:
    """Every file below a directory with its size and the time of its last change."""
    files = (path for path in directory.rglob("*") if path.is_file())
    stats = {str(path.relative_to(directory)): path.stat() for path in files}
    return {name: (stat.st_size, stat.st_mtime_ns) for name, stat in stats.items()}


@contextlib.contextmanager
def moved_away(directory: Path) -> Iterator[None]:
    """Nothing is at `directory` in this block."""
    away = directory.with_name(directory.name + " moved away")
    directory.rename(away)
    try:
        yield
        assert not directory.exists(), f"something was written to the source: {snapshot(directory)}"
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        away.rename(directory)


def with_a_shared_file(flink: Flink, sources: Sources, side: Path) -> tuple[Source, Path]:
    """A job with changelog state, and a checkpoint of it in which two subtasks share a file:
    whether they do is timing.
    """
    for attempt in range(5):
        source = (
            MAKERS["changelog"](flink, side / f"{attempt}" / "a")
            if attempt
            else sources("changelog")
        )
        for checkpoint in source.run.retained:
            if shared_files(flink.refs(checkpoint)):
                return source, checkpoint
    raise AssertionError("no subtasks shared a file in five jobs")


def with_two_spellings(checkpoint: Path, refs: Sequence[Event], side: Path) -> Path:
    """A copy of a checkpoint that names a file of several references once relatively, else
    absolutely.
    """
    copy = side / checkpoint.parent.name / checkpoint.name
    shutil.copytree(checkpoint, copy)
    row = shared_files(refs)[0]
    path = row["path"].removeprefix("file:")
    absolute = b"\x02" + struct.pack(">q", row["size"]) + utf(row["path"])
    relative = b"\x06" + utf(os.path.relpath(path, copy)) + struct.pack(">q", row["size"])
    metadata = copy / "_metadata"
    content = metadata.read_bytes()
    assert content.count(absolute) > 1
    metadata.write_bytes(content.replace(absolute, relative, 1))
    return copy


def shared_files(refs: Sequence[Event]) -> list[Event]:
    paths = [row["path"] for row in refs if row.get("type") == 2]
    return [row for row in refs if row.get("type") == 2 and paths.count(row["path"]) > 1]


def utf(text: str) -> bytes:
    return struct.pack(">H", len(text.encode())) + text.encode()
