"""`fleet` runs every second in both directions while real Flink jobs run, retain, are cancelled and
restarted in both clusters.

Whatever Flink retains is left alone, also where TARGET_ROOT is its own directory; and what can be
replicated is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support import checker, parts
from tests.support.datacentres import DataCentre, Fleet, Guard, Report, was_subsumed
from tests.support.flink import Flink, Job, RunResult
from tests.support.jobs import JOB as SYNTHETIC
from tests.support.jobs import write_checkpoint

pytestmark = pytest.mark.xdist_group("flink")

JOB = Job(retained=2)
FIXED = replace(JOB, job_id="c0ffee00" * 4)  # as `$internal.pipeline.job-id` sets it
# how often the fleet runs beside Flink in each test, in rounds of a second or more
MANY = 60

with_flink = pytest.mark.parametrize("flink", ["2"], indirect=True, ids=["flink-2.3"])


@pytest.fixture
def a(tmp_path: Path) -> DataCentre:
    return DataCentre(tmp_path / "dcA")


@pytest.fixture
def b(tmp_path: Path) -> DataCentre:
    return DataCentre(tmp_path / "dcB")


@pytest.mark.parametrize(("rounds", "restored"), [parts.rest(4, 2), parts.nightly(MANY, 4)])
@with_flink
def test_jobs_with_new_ids_are_replicated_in_both_directions_into_flinks_own_directories(
    flink: Flink, tmp_path: Path, a: DataCentre, b: DataCentre, rounds: int, restored: int
) -> None:
    """Of the four runs, two of each job, the last `restored` ones are restored."""
    roots = [(a.checkpoints, b.checkpoints), (b.checkpoints, a.checkpoints)]
    with Guard() as guard, Fleet(tmp_path, roots) as fleet:
        clusters = Clusters(flink, a, b, JOB, guard, fleet)
        runs = [*clusters.run(), *clusters.run()]
        fleet.next_round()  # takes the last checkpoints, if they were not replicated yet
        last = fleet.next_round().jobs
        replicas = [
            there.checkpoints / run.job_id for run, there in zip(runs, (b, a, b, a), strict=True)
        ]
        assert {job["source"]: job["status"] for job in last} == {
            **{f"file:{run.directory}": "current" for run in runs},
            **{f"file:{replica}": "skipped" for replica in replicas},
        }
        assert [error for each in fleet.rounds for error in errors(each.jobs)] == []
        assert_all_is_there(guard, runs)
        assert_what_is_kept_restores(flink, tmp_path, runs[-restored:])
        for run, replica in list(zip(runs, replicas, strict=True))[-restored:]:
            assert_restores(flink, tmp_path, replica / run.newest.name)
        wait_for_rounds(fleet, rounds)
        assert guard.retained()
    assert guard.faults == []


@pytest.mark.parametrize("rounds", [parts.rest(4), parts.nightly(MANY)])
@with_flink
def test_one_fixed_id_in_both_clusters_is_refused_in_flinks_directories_and_replicated_beside(
    flink: Flink, tmp_path: Path, a: DataCentre, b: DataCentre, rounds: int
) -> None:
    shared = [(a.checkpoints, b.checkpoints), (b.checkpoints, a.checkpoints)]
    beside = [(a.checkpoints, b.replicas), (b.checkpoints, a.replicas)]
    with Guard() as guard, Fleet(tmp_path, [*shared, *beside]) as fleet:
        clusters = Clusters(flink, a, b, FIXED, guard, fleet)
        runs = [*clusters.run(), *clusters.run()]
        fleet.next_round()  # takes the last checkpoints, if they were not replicated yet
        last = fleet.next_round().jobs
        for each in fleet.rounds:
            refused = into(each.jobs, [to for _, to in shared])
            assert len(refused) == 2
            assert {job["exit_code"] for job in refused if not is_moved_on(job)} <= {6}
            assert errors(into(each.jobs, [to for _, to in beside])) == []
        assert [job["exit_code"] for job in into(last, [to for _, to in shared])] == [6, 6]
        assert [job["status"] for job in into(last, [to for _, to in beside])] == ["current"] * 2
        assert_all_is_there(guard, runs)
        assert_what_is_kept_restores(flink, tmp_path, runs)
        for run, there in zip(runs[2:], (b, a), strict=True):
            assert_restores(flink, tmp_path, there.replicas / run.job_id / run.newest.name)
        wait_for_rounds(fleet, rounds)
        assert guard.retained()
    assert guard.faults == []
    assert not [path for _, to in shared for path in to.rglob("*cpreplicate*")]


@pytest.mark.parametrize(
    "damage", [Path.unlink, lambda path: path.write_bytes(b"other")], ids=["missing", "changed"]
)
def test_the_guard_finds_out_a_file_that_a_retained_checkpoint_lost(
    tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    write_checkpoint(tmp_path, 1, {"shared/a": 10, "shared/b": 10})
    guard = Guard(patience=0.0)
    guard.follow(tmp_path / SYNTHETIC)
    assert guard.retained() == [tmp_path / SYNTHETIC / "chk-1"]
    assert guard.faults == []
    damage(tmp_path / SYNTHETIC / "shared" / "b")
    guard.retained()
    assert "shared/b" in guard.faults[0]


class Clusters:
    """A job of each data centre; both run at once, from what they retained before."""

    def __init__(
        self, flink: Flink, a: DataCentre, b: DataCentre, job: Job, guard: Guard, fleet: Fleet
    ) -> None:
        self._flink, self._job, self._guard, self._fleet = flink, job, guard, fleet
        self._directories = (a.checkpoints, b.checkpoints)
        self._retained: list[Path | None] = [None, None]

    def run(self) -> list[RunResult]:
        """Run both until each was replicated three times, and cancel them."""
        with ExitStack() as stack:
            started = [
                stack.enter_context(
                    self._flink.start(root, self._job, interval_ms=1000, restore=restore)
                )
                for root, restore in zip(self._directories, self._retained, strict=True)
            ]
            for running in started:
                self._guard.follow(running.so_far.directory)
            self._fleet.start()
            for running in started:
                self._fleet.wait_for_replications(running.so_far.directory, 3)
            runs = [running.stop() for running in started]
        for run, restored in zip(runs, self._retained, strict=True):
            assert run.exact if restored else run.failure is None, run.failure
        self._retained = [run.newest for run in runs]
        return runs


def into(jobs: Sequence[Report], targets: Sequence[Path]) -> list[Report]:
    return [job for job in jobs if job["target_root"] in [f"file:{target}" for target in targets]]


def is_moved_on(job: Report) -> bool:
    """Whether the checkpoint was subsumed meanwhile."""
    return job["exit_code"] == 12 or (job["exit_code"] == 10 and was_subsumed(job["error"]))


def errors(jobs: Sequence[Report]) -> list[str]:
    """Failures but that of a checkpoint that was subsumed meanwhile."""
    return [job["error"] for job in jobs if job["exit_code"] != 0 and not is_moved_on(job)]


def kept_of(runs: Sequence[RunResult]) -> list[Path]:
    return [checkpoint for run in runs for checkpoint in run.checkpoints[-JOB.retained :]]


def assert_all_is_there(guard: Guard, runs: Sequence[RunResult]) -> None:
    """What Flink retained is there, as it was when it was completed."""
    assert set(kept_of(runs)) <= set(guard.retained())


def assert_what_is_kept_restores(flink: Flink, scratch: Path, runs: Sequence[RunResult]) -> None:
    for checkpoint in kept_of(runs):
        assert_restores(flink, scratch, checkpoint)


def assert_restores(flink: Flink, scratch: Path, checkpoint: Path) -> None:
    if (checkpoint.parent / ".cpreplicate").exists():
        assert checker.faults(checkpoint.parent) == []
    run = flink.run(scratch / "restored", restore=checkpoint, checkpoints=0)
    assert run.exact, f"{checkpoint}: {run.failure}"


def wait_for_rounds(fleet: Fleet, rounds: int) -> None:
    while len(fleet.rounds) < rounds:
        fleet.next_round()
