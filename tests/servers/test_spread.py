"""`fleet --spread jobs` over a real Spark cluster of two workers."""

import contextlib
import json
import os
import shutil
import signal
import time

import pytest

from tests.support import checker, jobs
from tests.support.killing import started
from tests.support.waiting import wait_until

pytestmark = pytest.mark.xdist_group("spark-cluster")

IDS = [f"{number:031x}e" for number in range(1, 13)]
FILES = {f"shared/{number}": 20_000 for number in range(4)}
NEXT = {"shared/0": 20_000, "shared/next": 30_000}
BANDWIDTH = 200_000  # bytes a second
SLOWLY = ("--bandwidth", f"{BANDWIDTH // 4}B/s")  # there is time to look, if this process waits


@pytest.fixture
def place(tmp_path):
    for job in IDS:
        write(tmp_path, job, 1, FILES)
    (tmp_path / "fleet.toml").write_text(
        f'[[root]]\nsource = "{tmp_path}/dcA"\ntarget = "{tmp_path}/dcB"\n'
    )
    return tmp_path


def write(place, job, number, files):
    jobs.JOB = job
    try:
        return jobs.write_checkpoint(place / "dcA", number, files)
    finally:
        jobs.JOB = "0123456789abcdef0123456789abcdef"


def fleet(cluster, place, *words):
    by = ("--runner", "spark", "--master", cluster.master, "--spread", "jobs")
    return started("fleet", place / "fleet.toml", "--output", "json", *by, *words)


def ended(run):
    """Return the exit code of a fleet, and the status of each job."""
    code = run.ended()
    return code, {job["name"]: job["status"] for job in json.loads(run.output())["jobs"]}


def assert_whole(place, ids=IDS):
    assert [checker.faults(place / "dcB" / job) for job in ids] == [[]] * len(ids)
    assert all(list((place / "dcB" / job).glob("chk-*/_metadata")) for job in ids)


def written(place):
    """Return how many bytes of the files are in the replicas, whole or not."""
    lengths = []
    for file in (place / "dcB").glob("*/shared/*"):
        with contextlib.suppress(FileNotFoundError):  # it got its name just now
            lengths.append(file.stat().st_size)
    return sum(lengths)


def committed(place):
    return list((place / "dcB").glob("*/chk-*/_metadata"))


def owners(place):
    """Return the processes that hold a lease now."""
    found = set()
    for lease in (place / "dcB").glob("*/.cpreplicate/lease"):
        try:
            found.add(json.loads(lease.read_text())["pid"])
        except (OSError, ValueError):  # it was given back just now
            continue
    return found


def test_executors_make_the_syncs_of_a_fleet_then_those_of_what_changed_and_a_failure_is_its_own(
    cluster, place
):
    limit = ("--bandwidth", f"{2 * BANDWIDTH}B/s")  # so that there is a middle
    with fleet(cluster, place, *limit) as first:
        wait_until(lambda: owners(place) or first.code is not None)
        assert first.pid not in owners(place)
        assert ended(first) == (0, dict.fromkeys(IDS, "replicated"))
    assert_whole(place)
    assert len(committed(place)) == len(IDS)
    broken = write(place, IDS[0], 2, NEXT)
    write(place, IDS[1], 2, NEXT)
    (broken.parent / "shared" / "next").unlink()
    with fleet(cluster, place) as second:
        expected = {**dict.fromkeys(IDS, "current"), IDS[0]: "failed", IDS[1]: "replicated"}
        assert ended(second) == (10, expected), second.messages()
    assert (place / "dcB" / IDS[1] / "chk-2" / "_metadata").exists()
    assert_whole(place)


@pytest.mark.rest
def test_a_worker_that_dies_in_the_midst_fails_no_job_and_damages_no_replica(cluster, place):
    with fleet(cluster, place, *SLOWLY) as run:
        wait_until(lambda: len(owners(place)) > 1 or run.code is not None)
        assert run.code is None
        cluster.kill_worker(cluster.workers[0])
        code, statuses = ended(run)
        assert (code, statuses) == (0, dict.fromkeys(IDS, "replicated")), run.messages()
    assert_whole(place)


@pytest.mark.rest
def test_what_a_killed_driver_left_is_completed_by_the_next_run(cluster, place):
    with fleet(cluster, place, *SLOWLY) as run:
        wait_until(lambda: owners(place) or run.code is not None)
        assert run.kill()
    wait_until(lambda: not any(cluster.executors().values()))
    assert len(committed(place)) < len(IDS)
    with fleet(cluster, place) as again:
        assert ended(again)[0] == 0, again.messages()
    assert_whole(place)


@pytest.mark.rest
def test_an_interrupt_ends_with_130_and_leaves_no_lease(cluster, place):
    with fleet(cluster, place, *SLOWLY) as run:
        wait_until(lambda: owners(place) or run.code is not None)
        os.kill(run.pid, signal.SIGINT)
        assert run.ended() == 130, run.messages()
        assert "Traceback" not in run.messages()
    assert owners(place) == set()
    assert len(committed(place)) < len(IDS)


@pytest.mark.rest
def test_the_bandwidth_is_that_of_all_executors_together(cluster, place):
    size = sum(FILES.values()) * len(IDS)
    with fleet(cluster, place, "--bandwidth", f"{BANDWIDTH}B/s") as run:
        wait_until(lambda: owners(place) or run.code is not None)
        began = time.monotonic()
        left = size - written(place)  # what was copied before we looked
        assert ended(run) == (0, dict.fromkeys(IDS, "replicated"))
    assert time.monotonic() - began > 0.7 * left / BANDWIDTH


@pytest.mark.rest
def test_a_service_has_executors_make_its_syncs_and_goes_on_when_one_dies(cluster, place):
    with fleet(cluster, place, "--every", "1s", "--bandwidth", f"{4 * BANDWIDTH}B/s") as service:
        wait_until(lambda: owners(place) or service.code is not None)
        assert service.pid not in owners(place)
        wait_until(lambda: len(committed(place)) == len(IDS) or service.code is not None)
        assert service.code is None, service.messages()
        cluster.kill_worker(cluster.workers[0])
        for job in IDS:
            shutil.rmtree(place / "dcA" / job / "chk-1")
            write(place, job, 2, NEXT)
        wait_until(lambda: len(list((place / "dcB").glob("*/chk-2/_metadata"))) == len(IDS))
        os.kill(service.pid, signal.SIGTERM)
        assert service.ended() == 143
    assert_whole(place)
