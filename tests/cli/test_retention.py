"""Points in time on the command line: what is kept, listed and promoted."""

import json
import os

import pytest

from tests.support.commandline import printed as run
from tests.support.jobs import JOB, write_checkpoint
from tests.support.replicas import DAY

HOUR = 3600
MIDNIGHT = 20_000 * DAY  # of 2024-10-04


@pytest.fixture
def replicate(tmp_path):
    """Sync a checkpoint for each time, with options of retention; the names that are then held."""

    def all_of(times, *words, **environment):
        for number, time in enumerate(times, 1):
            directory = write_checkpoint(tmp_path / "dcA", number, {f"chk-{number}/x": 10})
            os.utime(directory / "_metadata", (time,) * 2)
            places = (tmp_path / "dcA" / JOB, tmp_path / "dcB")
            run("sync", *places, "--runner", "inline", *words, **environment).check_returncode()
        return sorted(each.name for each in (tmp_path / "dcB" / JOB).glob("chk-*"))

    return all_of


HALF_HOURS = [MIDNIGHT + HOUR * number / 2 for number in range(1, 7)]


@pytest.mark.parametrize(
    ("words", "numbers"),
    [
        ((), [6]),
        (("--keep", "2"), [5, 6]),
        (("--keep-within", "61m"), [4, 5, 6]),
        (("--keep-hourly", "2"), [5, 6]),
        (("--keep-hourly", "3"), [3, 5, 6]),
        (("--keep-daily", "1"), [6]),
        (("--keep", "2", "--keep-hourly", "3"), [3, 5, 6]),
    ],
)
def test_the_options_of_retention_keep_points_counted_from_the_newest(replicate, words, numbers):
    assert replicate(HALF_HOURS, *words) == [f"chk-{number}" for number in numbers]


def test_retention_may_be_set_by_the_environment(replicate):
    held = replicate(HALF_HOURS[-3:], CPREPLICATE_SYNC_KEEP_WITHIN="31m")
    assert held == ["chk-2", "chk-3"]


@pytest.mark.parametrize(
    "words", [("--keep-within", "long"), ("--keep-hourly", "-1"), ("--keep-daily", "x")]
)
def test_a_wrong_value_of_retention_is_a_mistake_of_usage(tmp_path, words):
    done = run("sync", tmp_path / "a", tmp_path / "b", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert words[0] in done.stderr


@pytest.mark.parametrize(
    ("time", "name"),
    [
        ("2024-10-04T01:30Z", "chk-3"),
        ("2024-10-04 01:59:59", "chk-3"),
        ("2024-10-04T04:30+02:00", "chk-5"),
    ],
)
def test_the_newest_checkpoint_as_of_a_time_is_promoted(replicate, tmp_path, time, name):
    replicate(HALF_HOURS, "--keep", "9")
    done = run("promote", tmp_path / "dcB" / JOB, "--as-of", time, "--output", "json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["checkpoint"] == name


def test_the_time_that_list_prints_of_a_checkpoint_promotes_it(replicate, tmp_path):
    replicate(HALF_HOURS, "--keep", "9")
    replica = tmp_path / "dcB" / JOB
    listed = json.loads(run("list", replica, "--output", "json").stdout)["replicas"][0]["points"]
    assert len(listed) == len(HALF_HOURS)
    for point in listed:
        words = ("--as-of", point["completed"], "--dry-run", "--output", "json")
        done = run("promote", replica, *words)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["checkpoint"] == point["checkpoint"]


def test_no_checkpoint_by_a_time_is_not_there(replicate, tmp_path):
    replicate(HALF_HOURS[:1])
    done = run("promote", tmp_path / "dcB" / JOB, "--as-of", "2024-10-03T00:00Z")
    assert (done.returncode, done.stdout) == (10, "")
    assert "chk-1 (2024-10-04T00:30:00" in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("--as-of", "yesterday"),
        ("--as-of", "2024-10-04"),
        ("--as-of", "2024-13-04T00:00Z"),
        ("--as-of", "2024-10-04T00:00Z", "--checkpoint", "chk-1"),
    ],
)
def test_a_time_that_is_none_and_a_second_choice_are_mistakes_of_usage(tmp_path, words):
    done = run("promote", tmp_path / "replica", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert "--as-of" in done.stderr


def test_what_promote_returns_starts_a_job_in_each_way(replicate, tmp_path):
    replicate(HALF_HOURS[:1])
    words = ("promote", tmp_path / "dcB" / JOB)
    restore = json.loads(run(*words, "--output", "json").stdout)["restore"]
    checkpoint = f"file:{tmp_path}/dcB/{JOB}/chk-1"
    assert restore["arguments"][0:4] == ["flink", "run", "-s", checkpoint]
    assert restore["arguments"][-1] == "JAR"
    job = restore["deployment"]["spec"]["job"]
    assert job["initialSavepointPath"] == checkpoint
    assert restore["snapshot"]["spec"]["savepoint"]["disposeOnDelete"] is False
    assert f"savepointRedeployNonce: {job['savepointRedeployNonce']}" in run(*words).stdout


def test_the_name_of_a_job_is_recorded_by_sync(replicate, tmp_path):
    replicate(HALF_HOURS[:1], "--name", "orders")
    record = json.loads((tmp_path / "dcB" / JOB / ".cpreplicate" / "job.json").read_text())
    assert record["name"] == "orders"


@pytest.mark.parametrize("name", [" orders", "a\nb", "x" * 301])
def test_what_is_no_name_of_a_job_is_a_usage_error(tmp_path, name):
    done = run("sync", tmp_path / "dcA", tmp_path / "dcB", "--name", name)
    assert done.returncode == 2
    assert "expected the name of a job" in done.stderr


def test_the_name_of_one_job_is_not_given_to_many(tmp_path):
    done = run("watch", "--jobs-under", tmp_path, tmp_path / "dcB", "--name", "orders")
    assert done.returncode == 2
    assert "--name is of one job" in done.stderr


def test_list_shows_the_points_of_a_job_by_its_name(replicate, tmp_path):
    replicate(HALF_HOURS[:2], "--keep", "2", "--name", "orders")
    done = run("list", tmp_path / "dcB", "--job", "orders", "--output", "json")
    assert done.returncode == 0
    assert "the job orders has the id" in done.stderr
    (replica,) = json.loads(done.stdout)["replicas"]
    assert replica["job"] == JOB
    points = [
        (point["checkpoint"], point["completed"], point["added_bytes"])
        for point in replica["points"]
    ]
    assert points == [
        ("chk-2", "2024-10-04T01:00:00.000Z", 10),
        ("chk-1", "2024-10-04T00:30:00.000Z", 10),
    ]
    rows = run("list", tmp_path / "dcB").stdout.splitlines()
    assert rows[0] == f"{JOB}: 2 checkpoints, 20 B together"
    assert [row.split()[0] for row in rows[2:4]] == ["chk-2", "chk-1"]


def test_list_ends_with_10_where_no_replica_is_and_names_similar_jobs(replicate, tmp_path):
    (tmp_path / "empty").mkdir()
    assert run("list", tmp_path / "empty").returncode == 10
    replicate(HALF_HOURS[:1], "--name", "orders")
    done = run("list", tmp_path / "dcB", "--job", "ordres")
    assert done.returncode == 10
    assert "'orders'" in done.stderr
