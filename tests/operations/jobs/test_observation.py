"""What an observation holds after tries of a job."""

import math
import os

import pytest

from cpreplicate.cli.running.metrics_file import sync_metrics
from cpreplicate.core.lag import UNNUMBERED, Newest
from cpreplicate.errors import Obstructed, Refused, Sealed, obstacle_of
from cpreplicate.operations.handover.promote import PromoteRequest, promote
from cpreplicate.operations.jobs.observation import Observation
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.sync.sync import sync
from cpreplicate.output.textfile import read
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import Side
from tests.support.jobs import JOB, write_checkpoint
from tests.support.registry import serving
from tests.support.replicas import FILES, NEXT
from tests.support.tracing import Tracing


def silent(_line: str) -> None:
    """These tests do not read progress messages."""


@pytest.fixture
def request_of(tmp_path):
    def request_of(number, files, **options):
        write_checkpoint(tmp_path / "dcA", number, files)
        return SyncRequest(
            f"file:{tmp_path}/dcA/{JOB}",
            f"file:{tmp_path}/dcB",
            execution=ExecutionOptions(runner="inline"),
            **options,
        )

    return request_of


def test_files_bytes_and_seconds_of_each_sync_add_up(request_of, tmp_path):
    job = Observation("orders")
    job.succeeded(sync(request_of(1, FILES), silent), 100.0)
    assert job.files == {"copied": len(FILES), "kept": 0, "deleted": 0}
    assert job.bytes["copied"] == sum(FILES.values())

    report = sync(request_of(2, NEXT), silent)
    job.succeeded(report, 200.0)
    kept = FILES.keys() & NEXT.keys()
    assert job.files == {
        "copied": len(FILES) + len(NEXT) - len(kept),
        "kept": len(kept),
        "deleted": len(FILES) - len(kept),
    }
    assert job.bytes["deleted"] == sum(FILES[name] for name in FILES.keys() - kept)
    assert set(job.seconds) == {"read", "copy", "delete", "other"}
    assert (job.tries, job.last_success, job.last_exit_code) == (2, 200.0, 0)
    assert job.sync_durations[math.inf] == 2
    assert job.sync_seconds == pytest.approx(sum(job.seconds.values()), rel=0.05)
    assert job.replica == f"file:{tmp_path}/dcB/{JOB}"
    assert (job.is_sealed, job.is_lease_held) == (False, False)


def test_the_phases_of_a_sync_are_its_whole_time(request_of):
    report = sync(request_of(1, FILES), silent)
    assert sum(report.phases.values()) == pytest.approx(report.seconds, rel=0.05)
    assert all(seconds >= 0 for seconds in report.phases.values())


def test_a_sync_with_nothing_to_do_counts_as_a_success_and_no_files(request_of):
    job, request = Observation("orders"), request_of(1, FILES)
    sync(request, silent)
    job.succeeded(sync(request, silent), 100.0)
    assert (job.tries, job.last_success) == (1, 100.0)
    assert not any(job.files.values())
    assert set(job.seconds) == {"read"}


def test_deletes_that_were_put_off_do_not_count(request_of):
    job = Observation("orders")
    sync(request_of(1, FILES), silent)
    job.succeeded(sync(request_of(2, NEXT, async_deletes=True), silent), 100.0)
    assert job.files["deleted"] == 0


def test_after_a_sync_the_replica_has_what_the_source_had(request_of):
    job = Observation("orders", source_newest=Newest(1, 90.0))
    job.succeeded(sync(request_of(1, FILES), silent), 100.0)
    assert job.lag(110.0) == 0
    assert job.replica_newest.checkpoint_id == 1


def test_a_failure_keeps_the_last_success_and_counts_by_exit_code():
    job = Observation("orders")
    job.unchanged(100.0)
    job.failed(11, "the lease is held", 200.0)
    job.failed(7, "not reachable", 300.0)
    job.failed(7, "not reachable", 400.0)
    assert (job.tries, job.last_try, job.last_success) == (4, 400.0, 100.0)
    assert job.failures == {7: 2, 11: 1}
    assert (job.last_exit_code, job.last_error) == (7, "not reachable")


def test_a_lease_of_another_process_is_seen_until_the_next_try():
    job = Observation("orders")
    job.failed(11, "the lease is held", 200.0)
    assert job.is_lease_held
    job.failed(7, "not reachable", 300.0)
    assert job.is_lease_held is False


def test_a_sealed_replica_stays_sealed_until_a_try_succeeds(request_of, tmp_path):
    job, request = Observation("orders"), request_of(1, FILES)
    sync(request, silent)
    promote(PromoteRequest(f"file:{tmp_path}/dcB/{JOB}", side=Side()), silent)
    with pytest.raises(Sealed) as refused:
        sync(request, silent)
    job.failed(refused.value.exit_code, str(refused.value), 100.0, is_sealed=True)
    job.failed(7, "not reachable", 200.0)
    assert job.is_sealed
    job.unchanged(300.0)
    assert job.is_sealed is False


def test_a_sweep_or_verify_does_not_see_seal_or_lease():
    for operation in ("sweep", "verify"):
        job = Observation("orders", operation=operation)
        job.unchanged(100.0)
        job.failed(11, "the lease is held", 200.0)
        assert (job.is_sealed, job.is_lease_held) == (None, None)


def _mark_of_nobody(replica):
    (replica / ".cpreplicate/replica.json").unlink()


def _checkpoint_of_another(replica):
    (replica / "chk-9").mkdir()
    (replica / "chk-9/_metadata").write_bytes((replica / "chk-1/_metadata").read_bytes())


def _link(replica):
    (replica / "shared").rename(replica.parent / "elsewhere")
    (replica / "shared").symlink_to(replica.parent / "elsewhere")


OBSTACLES = {"no_marker": _mark_of_nobody, "foreign": _checkpoint_of_another, "link": _link}


@pytest.mark.parametrize("obstacle", OBSTACLES)
def test_what_is_in_the_way_of_promote_makes_a_replica_unready(request_of, tmp_path, obstacle):
    job, request = Observation("orders"), request_of(1, FILES)
    job.succeeded(sync(request, silent), 100.0)
    assert job.readiness == "ready"
    OBSTACLES[obstacle](tmp_path / "dcB" / JOB)
    with pytest.raises(Refused):
        promote(PromoteRequest(f"file:{tmp_path}/dcB/{JOB}", side=Side()), silent)
    with pytest.raises(Obstructed) as refused:
        sync(request, silent)
    job.failed(6, str(refused.value), 200.0, obstacle=obstacle_of(refused.value))
    assert job.readiness == obstacle
    job.failed(10, "the source is gone", 300.0)
    assert job.readiness == obstacle


def test_a_checkpoint_of_a_job_in_a_sealed_replica_is_in_nobodys_way(request_of, tmp_path):
    request = request_of(1, FILES)
    sync(request, silent)
    promote(PromoteRequest(f"file:{tmp_path}/dcB/{JOB}", side=Side()), silent)
    _checkpoint_of_another(tmp_path / "dcB" / JOB)
    with pytest.raises(Refused) as refused:
        sync(request, silent)
    assert obstacle_of(refused.value) is None


def test_only_a_lease_of_another_process_makes_a_replica_unready():
    job = Observation("orders", readiness="ready")
    job.held(100.0)
    assert job.readiness == "lease"
    job.failed(7, "not reachable", 200.0)
    assert job.readiness is None  # nobody looked since
    job.failed(11, "the lease is held", 300.0)
    assert job.readiness == "lease"
    job.failed(6, "sealed", 400.0, is_sealed=True)
    assert job.readiness == "ready"


def test_readiness_costs_no_call(request_of, tmp_path):
    request = request_of(1, FILES)
    sync(request, silent)

    def calls(path):
        with serving("file", tracing := Tracing(Side().storage("file:/"))):
            with sync_metrics(path, request) as record:
                record(sync(request, silent))
            return sorted(tracing.calls)

    without = calls(None)
    assert without
    assert calls(str(tmp_path / "sync.prom")) == without
    (job,) = read(str(tmp_path / "sync.prom"))
    assert job.readiness == "ready"


@pytest.mark.parametrize("undated", [0, -1])
def test_a_checkpoint_that_no_storage_dates_is_as_old_as_its_replication(
    request_of, tmp_path, undated
):
    """Its age would be that of the epoch."""
    request = request_of(1, FILES)
    os.utime(tmp_path / "dcA" / JOB / "chk-1" / "_metadata", (undated, undated))
    job = Observation("orders")
    job.succeeded(sync(request, silent), 100.0)
    assert (job.replica_newest, job.lag(500.0)) == (Newest(1, 100.0), 0)
    job.succeeded(sync(request, silent), 200.0)
    assert job.replica_newest == Newest(1, 100.0)
    job.saw(Newest(2, 0.0), 300.0)
    assert (job.lag(500.0), job.behind()) == (400.0, 1)


def test_who_finds_the_lease_of_another_knows_nothing_of_a_failure_any_more():
    job = Observation("orders")
    job.failed(10, "incomplete", 100.0)
    job.held(200.0)
    assert (job.last_error, job.last_exit_code, job.is_lease_held) == (None, None, True)


def test_a_savepoint_that_was_replicated_is_not_behind():
    job = Observation("orders", replica_newest=Newest(7, 100.0))
    job.saw(Newest(UNNUMBERED, 100.0), 200.0)
    assert (job.behind(), job.lag(500.0)) == (0, 0)
