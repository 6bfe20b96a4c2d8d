"""`fleet` runs every second in both directions while real Flink jobs run, retain, are cancelled and restarted in both clusters.

Whatever Flink retains is left alone, also where TARGET_ROOT is its own directory; and what can be replicated is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support import checker
from tests.support.datacentres import DataCentre, Fleet, Guard, Report
from tests.support.flink import Flink, Job, RunResult
from tests.support.jobs import JOB as SYNTHETIC
from tests.support.jobs import write_checkpoint

pytestmark = pytest.mark.xdist_group("flink")

JOB = Job(retained=2)
FIXED = replace(JOB, job_id="0" * 32)  # as in application mode with high availability
SECONDS = 60  # that the fleet runs beside Flink in each test
CHECKPOINTS = 8  # of each job, a second apart

with_flink = pytest.mark.parametrize("flink", ["2"], indirect=True, ids=["flink-2.3"])


@pytest.fixture
def a(tmp_path: Path) -> DataCentre:
    return DataCentre(tmp_path / "dcA")


@pytest.fixture
def b(tmp_path: Path) -> DataCentre:
    return DataCentre(tmp_path / "dcB")


@with_flink
def test_jobs_with_new_ids_are_replicated_in_both_directions_into_flinks_own_directories(
    flink: Flink, tmp_path: Path, a: DataCentre, b: DataCentre
) -> None:
    a.checkpoints.mkdir(parents=True)
    b.checkpoints.mkdir(parents=True)
    with Guard() as guard, ExitStack() as stack:
        first = start_both(flink, a, b, JOB, guard)
        fleet = stack.enter_context(Fleet(tmp_path, [(a.checkpoints, b.checkpoints), (b.checkpoints, a.checkpoints)]))
        runs = [*first, *start_both(flink, a, b, JOB, guard, first)]
        last = fleet.next_round().jobs
        of_flink = {f"file:{run.directory}" for run in runs}
        replicas = [there.checkpoints / run.job_id for run, there in zip(runs, (b, a, b, a), strict=True)]
        assert {job["source"]: job["status"] for job in last} == {
            **dict.fromkeys(of_flink, "current"),
            **{f"file:{replica}": "skipped" for replica in replicas},
        }
        assert [error for each in fleet.rounds for error in errors(each.jobs)] == []
        assert_followed(fleet, of_flink, [b.checkpoints, a.checkpoints])
        assert_nothing_is_lost(flink, tmp_path, guard, runs)
        for run, replica in zip(runs, replicas, strict=True):
            assert_restores(flink, tmp_path, replica / run.newest.name)
        wait_for_seconds(fleet)
        assert guard.retained()
    assert guard.faults == []


@with_flink
def test_one_fixed_id_in_both_clusters_is_refused_in_flinks_own_directories_and_replicated_beside_them(
    flink: Flink, tmp_path: Path, a: DataCentre, b: DataCentre
) -> None:
    shared = [(a.checkpoints, b.checkpoints), (b.checkpoints, a.checkpoints)]
    beside = [(a.checkpoints, b.replicas), (b.checkpoints, a.replicas)]
    with Guard() as guard, ExitStack() as stack:
        first = start_both(flink, a, b, FIXED, guard)
        fleet = stack.enter_context(Fleet(tmp_path, [*shared, *beside]))
        runs = [*first, *start_both(flink, a, b, FIXED, guard, first)]
        last = fleet.next_round().jobs
        for each in fleet.rounds:
            assert [job["exit_code"] for job in into(each.jobs, [to for _, to in shared])] == [6, 6]
            assert errors(into(each.jobs, [to for _, to in beside])) == []
        assert [job["status"] for job in into(last, [to for _, to in beside])] == ["current"] * 2
        assert_followed(fleet, {f"file:{run.directory}" for run in runs}, [to for _, to in beside])
        assert_nothing_is_lost(flink, tmp_path, guard, runs)
        for run, there in zip(runs[2:], (b, a), strict=True):
            assert_restores(flink, tmp_path, there.replicas / run.job_id / run.newest.name)
        wait_for_seconds(fleet)
        assert guard.retained()
    assert guard.faults == []
    assert not [path for _, to in shared for path in to.rglob("*cpreplicate*")]


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"other")], ids=["missing", "changed"])
def test_the_guard_finds_out_a_file_that_a_retained_checkpoint_lost(tmp_path: Path, damage: Callable[[Path], object]) -> None:
    write_checkpoint(tmp_path, 1, {"shared/a": 10, "shared/b": 10})
    guard = Guard(patience=0.0)
    guard.follow(tmp_path / SYNTHETIC)
    assert guard.retained() == [tmp_path / SYNTHETIC / "chk-1"]
    assert guard.faults == []
    damage(tmp_path / SYNTHETIC / "shared" / "b")
    guard.retained()
    assert "shared/b" in guard.faults[0]


def start_both(
    flink: Flink, a: DataCentre, b: DataCentre, job: Job, guard: Guard, before: Sequence[RunResult] = ()
) -> list[RunResult]:
    """Run the job in both clusters at once, from what they retained before, and cancel it."""
    restore = [run.newest for run in before] or [None, None]
    with (
        flink.start(a.checkpoints, job, interval_ms=1000, restore=restore[0]) as at_a,
        flink.start(b.checkpoints, job, interval_ms=1000, restore=restore[1]) as at_b,
    ):
        for running in (at_a, at_b):
            guard.follow(running.so_far.directory)
        for running in (at_a, at_b):
            running.wait_for_checkpoints(CHECKPOINTS)
        runs = [at_a.stop(), at_b.stop()]
    for run in runs:
        assert run.exact if before else run.failure is None, run.failure
    return runs


def into(jobs: Sequence[Report], targets: Sequence[Path]) -> list[Report]:
    return [job for job in jobs if job["target_root"] in [f"file:{target}" for target in targets]]


def errors(jobs: Sequence[Report]) -> list[str]:
    """Failures but that of a checkpoint that was subsumed meanwhile (12)."""
    return [job["error"] for job in jobs if job["exit_code"] not in (0, 12)]


def assert_followed(fleet: Fleet, sources: set[str], targets: Sequence[Path]) -> None:
    """Each job was replicated more than once, so also while it ran."""
    done = [job["source"] for each in fleet.rounds for job in into(each.jobs, targets) if job["status"] == "replicated"]
    assert {source for source in sources if done.count(source) < 2} == set()


def assert_nothing_is_lost(flink: Flink, scratch: Path, guard: Guard, runs: Sequence[RunResult]) -> None:
    """What Flink retained is there, as it was when it was completed, and restores."""
    kept = [checkpoint for run in runs for checkpoint in run.checkpoints[-JOB.retained :]]
    assert set(kept) <= set(guard.retained())
    for checkpoint in kept:
        assert_restores(flink, scratch, checkpoint)


def assert_restores(flink: Flink, scratch: Path, checkpoint: Path) -> None:
    if (checkpoint.parent / ".cpreplicate").exists():
        assert checker.faults(checkpoint.parent) == []
    run = flink.run(scratch / "restored", restore=checkpoint, checkpoints=0)
    assert run.exact, f"{checkpoint}: {run.failure}"


def wait_for_seconds(fleet: Fleet) -> None:
    while fleet.seconds < SECONDS:
        fleet.next_round()
