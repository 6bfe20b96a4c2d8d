"""The metrics file of runs from cron."""

import os
import stat

import pytest

from cpreplicate.core.lag import Newest
from cpreplicate.operations.jobs.observation import Observation
from cpreplicate.output.textfile import MetricsFile, NotOurs, Try, read

REPLICA = "hdfs://dcB/flink/replicas/55d1"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "metrics.prom"


def file(path, operation="sync", warn=pytest.fail, **options):
    return MetricsFile(str(path), operation, warn, **options)


def tried(replica=REPLICA, apply=lambda job: job.unchanged(100.0)):
    return Try(replica.rpartition("/")[2], replica, apply)


def full(job: Observation) -> None:
    """Set every field that has a metric."""
    job.unchanged(100.5)
    job.failed(7, "not reachable", 200.25)
    job.source_newest, job.replica_newest = Newest(42, 90.125), Newest(40, 70.5)
    job.files.update(copied=3, kept=4, deleted=5)
    job.bytes.update(copied=1 << 50)
    job.seconds.update({"copy": 1.5})
    job.readiness = "foreign"
    job.is_sealed, job.is_lease_held, job.is_restorable, job.orphan_bytes = True, False, True, 7


def test_what_is_read_back_is_what_was_written(path):
    file(path).record([tried(apply=full)])
    expected = Observation("55d1", replica=REPLICA)
    full(expected)
    expected.last_error = None  # it is no metric
    assert read(str(path)) == [expected]


@pytest.mark.parametrize("readiness", ["ready", "lease", "link", "no_marker", "foreign"])
def test_readiness_and_its_reason_are_read_back(path, readiness):
    file(path).record([tried(apply=lambda job: setattr(job, "readiness", readiness))])
    assert [job.readiness for job in read(str(path))] == [readiness]


def test_counters_go_on_from_those_in_the_file(path):
    for _ in range(3):
        file(path).record([tried(apply=full)])
    (job,) = read(str(path))
    assert (job.tries, job.failures[7], job.files["copied"]) == (6, 3, 9)


def test_a_file_appears_at_once_and_others_may_read_it(path):
    previous = os.umask(0o022)
    try:
        file(path).record([tried()])
    finally:
        os.umask(previous)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert [entry.name for entry in path.parent.iterdir()] == ["metrics.prom"]


def test_jobs_that_left_a_fleet_disappear(path):
    file(path, is_fleet=True).record([tried("a:/r/1"), tried("a:/r/2")])
    file(path, is_fleet=True).record([tried("a:/r/2"), tried("a:/r/3")])
    assert [(job.name, job.tries) for job in read(str(path))] == [("2", 2), ("3", 1)]


def test_a_run_that_fails_before_its_jobs_are_known_fails_each_job_of_the_file(path):
    def fail(job):
        job.failed(2, "a mistake in the file", 300.0)

    file(path, is_fleet=True).record_failure_of_all("jobs.toml", fail)
    assert [(job.name, job.replica, job.failures[2]) for job in read(str(path))] == [
        ("jobs.toml", "", 1)
    ]
    file(path, is_fleet=True).record([tried("a:/r/1"), tried("a:/r/2")])
    file(path, is_fleet=True).record_failure_of_all("jobs.toml", fail)
    jobs = read(str(path))
    assert [(job.name, job.tries, job.failures[2]) for job in jobs] == [("1", 2, 1), ("2", 2, 1)]


@pytest.mark.parametrize(
    ("operation", "replica"), [("sync", "hdfs://dcB/flink/replicas/66e2"), ("sweep", REPLICA)]
)
def test_two_commands_that_share_a_file_replace_each_other_with_a_warning(path, operation, replica):
    warnings: list[str] = []
    file(path).record([tried()])
    file(path, operation, warnings.append).record([tried(replica)])
    assert [(job.operation, job.replica) for job in read(str(path))] == [(operation, replica)]
    assert warnings == [
        f"{path} held metrics of another command, sync of {REPLICA}: they were replaced. Give each"
        " command a --metrics-file of its own"
    ]


@pytest.mark.parametrize(
    "text",
    [
        "node_load1 0.5\n",
        "no metrics\n",
        'cpreplicate_tries_total{a="b", ="x"} 1\n',
        'cpreplicate_tries_total{operation="sync"} 1\n',
        'cpreplicate_tries_total{operation="x",flink_job="a",replica="b"} 1\n',
        'cpreplicate_tries_total{operation="sync",flink_job="a",replica="b"} NaN\n',
        'cpreplicate_tries_total{operation="sync",flink_job="a",replica="b"} +Inf\n',
        "\x00\ud800".encode("utf-8", "surrogatepass").decode("latin1"),
    ],
)
def test_a_file_that_cpreplicate_did_not_write_stays_as_it_is(path, text):
    path.write_text(text)
    warnings: list[str] = []
    with pytest.raises(NotOurs):
        read(str(path))
    file(path, warn=warnings.append).record([tried()])
    assert path.read_text() == text
    (warning,) = warnings
    assert "holds what cpreplicate did not write" in warning


def test_an_empty_file_is_replaced(path):
    path.write_text("")
    file(path).record([tried()])
    assert read(str(path))[0].tries == 1


def test_a_pipe_is_not_waited_for(path):
    os.mkfifo(path)
    warnings: list[str] = []
    file(path, warn=warnings.append).record([tried()])
    (warning,) = warnings
    assert f"{path} holds what cpreplicate did not write (it is a pipe)" in warning


def test_a_file_that_cannot_be_written_is_a_warning(tmp_path):
    warnings: list[str] = []
    file(tmp_path / "absent" / "m.prom", warn=warnings.append).record([tried()])
    assert warnings == [
        f"the metrics were not written to {tmp_path}/absent/m.prom: No such file or directory"
    ]
