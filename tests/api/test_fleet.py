"""Many jobs as another program replicates them."""

import threading

import pytest

from cpreplicate import (
    Cancellation,
    ExecutionOptions,
    FleetJob,
    Place,
    SyncOptions,
    errors,
    fleet,
    jobs_below,
)
from cpreplicate.runners.progress import Snapshot
from tests.support.jobs import metadata_of, pattern
from tests.support.replicas import FILES

pytestmark = pytest.mark.usefixtures("still_source")
INLINE = ExecutionOptions(runner="inline")
JOBS = ("a" * 32, "b" * 32)


@pytest.fixture
def sources(tmp_path):
    return [written(tmp_path / "dcA" / job) for job in JOBS]


def written(job):
    """Write a checkpoint of a job, and return the job's directory."""
    for name, length in FILES.items():
        (job / name).parent.mkdir(parents=True, exist_ok=True)
        (job / name).write_bytes(pattern(name, length))
    places = {f"file:{job}/{name}": length for name, length in FILES.items()}
    (job / "chk-1" / "_metadata").write_bytes(metadata_of(1, places))
    return job


def outcomes(report):
    return [job.outcome for job in report.jobs]


def test_jobs_are_replicated_and_a_failure_is_in_its_row(sources, tmp_path):
    target = tmp_path / "dcB"
    jobs = [FleetJob(source, target, SyncOptions(keep=2)) for source in sources]
    assert outcomes(fleet(jobs, dry_run=True, execution=INLINE)) == ["planned"] * 2
    assert not target.exists()
    seen: list[Snapshot] = []
    jobs.append(FleetJob(tmp_path / "dcA" / ("c" * 32), target))
    report = fleet(jobs, execution=INLINE, on_progress=seen.append)
    assert outcomes(report) == ["replicated", "replicated", "failed"]
    assert report.exit_code == report.jobs[2].exit_code == errors.NotThere.exit_code
    assert seen
    assert outcomes(fleet(jobs[:2], execution=INLINE)) == ["current"] * 2


@pytest.mark.usefixtures("sources")
def test_the_jobs_below_a_root_are_found(tmp_path):
    (tmp_path / "dcA" / ("c" * 32)).mkdir()  # a job without a checkpoint
    options = SyncOptions(keep=3)
    jobs = jobs_below(Place(tmp_path / "dcA"), tmp_path / "dcB", options)
    assert all(job.options == options for job in jobs)
    assert outcomes(fleet(jobs, execution=INLINE)) == ["replicated", "replicated", "empty"]
    with pytest.raises(errors.NotThere):
        jobs_below(tmp_path / "absent", tmp_path / "dcB")


def test_a_fleet_that_is_cancelled_raises_and_can_be_resumed(sources, tmp_path):
    cancellation, begun = Cancellation(), threading.Event()
    jobs = [FleetJob(source, tmp_path / "dcB") for source in sources]
    raised: list[errors.Cancelled] = []

    def run():
        try:
            fleet(
                jobs,
                bandwidth=10.0,
                execution=INLINE,
                on_progress=lambda _seen: begun.set(),
                cancellation=cancellation,
            )
        except errors.Cancelled as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    begun.wait()
    cancellation.cancel()
    thread.join()
    assert len(raised) == 1
    assert not list(tmp_path.glob("dcB/*/.cpreplicate/lease"))
    assert outcomes(fleet(jobs, execution=INLINE)) == ["replicated"] * 2


def test_places_that_are_reached_in_different_ways_are_refused(sources, tmp_path):
    target = tmp_path / "dcB"
    jobs = [FleetJob(sources[0], target), FleetJob(Place(sources[1], retry_for=1), target)]
    with pytest.raises(errors.UsageError, match="the sources of the jobs are reached"):
        fleet(jobs)


@pytest.mark.parametrize("given", [(), "jobs.toml", [("a", "b")]], ids=str)
def test_what_are_no_jobs_is_a_usage_error(given):
    with pytest.raises(errors.UsageError, match="the option jobs of the API is "):
        fleet(given)


@pytest.mark.parametrize(
    "wrong",
    [
        {"source": 5},
        {"target": None},
        {"options": {"keep": 2}},
        {"priority": "high"},
        {"is_found": "yes"},
        {"options": SyncOptions(bandwidth="10MB/s")},
    ],
    ids=str,
)
def test_a_wrong_job_is_a_usage_error(wrong):
    with pytest.raises(errors.UsageError):
        FleetJob(**{"source": "/a", "target": "/b", **wrong})
