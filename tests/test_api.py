"""The API as another program uses it."""

import subprocess
import sys
import threading

import pytest

import cpreplicate
from cpreplicate import Cancellation, Checkpoint, Place, SyncOptions, errors, plan, status, sync
from cpreplicate.core.retention import Retention
from cpreplicate.runners import ExecutionOptions
from cpreplicate.runners.progress import Snapshot
from tests.support.jobs import JOB, write_checkpoint
from tests.support.replicas import FILES, NEXT

pytestmark = pytest.mark.usefixtures("still_source")
INLINE = ExecutionOptions(runner="inline")
OPTIONS = SyncOptions(keep=2, execution=INLINE)


@pytest.fixture
def places(tmp_path):
    write_checkpoint(tmp_path / "dcA", 1, FILES)
    return Checkpoint(f"{tmp_path}/dcA/{JOB}"), Place(f"file:{tmp_path}/dcB")


def test_a_plan_changes_nothing_and_a_sync_carries_it_out(places, tmp_path):
    source, target = places
    planned = plan(source, target, OPTIONS)
    assert not (tmp_path / "dcB").exists()
    messages: list[str] = []
    report = sync(source, target, OPTIONS, on_message=messages.append)
    assert report.committed
    assert len(report.plan.copies) == len(planned.plan.copies) == len(FILES)
    assert not sync(source, target, OPTIONS).committed
    write_checkpoint(tmp_path / "dcA", 2, NEXT)
    assert sync(source, target, OPTIONS).plan.checkpoint == "chk-2"


def test_verify_and_status_see_the_replica(places):
    source, target = places
    sync(source, target, OPTIONS)
    verification = cpreplicate.verify(Place(f"{target.url}/{JOB}"), content=1.0, execution=INLINE)
    assert (verification.restorable, verification.compared) == (True, len(FILES))
    (row,) = status(target, [source], max_lag=60.0).replicas
    assert row.observed.replica_newest is not None
    assert row.observed.replica_newest.checkpoint_id == 1


def test_a_checkpoint_is_inspected(places):
    inspection = places[0].inspect()
    assert (inspection.checkpoint_id, inspection.files) == (1, len(FILES))


def test_the_errors_are_those_of_the_command_line(places, tmp_path):
    _, target = places
    with pytest.raises(errors.NotThere):
        sync(Checkpoint(f"{tmp_path}/absent"), target, OPTIONS)
    with pytest.raises(errors.NotThere):
        status(target)
    with pytest.raises(errors.UsageError):
        plan(Checkpoint("gopher://a/b"), target)


@pytest.mark.parametrize("url", ["s3://key:secret@bucket/a", "hdfs//dcB/a", "file://data/a"])
def test_a_place_that_is_another_one_than_meant_is_refused(places, url):
    with pytest.raises(errors.UsageError) as raised:
        plan(places[0], Place(url))
    assert "secret" not in str(raised.value)


def test_progress_is_reported_to_a_callback(places):
    source, target = places
    seen: list[Snapshot] = []
    sync(source, target, OPTIONS, on_progress=seen.append)
    assert seen
    assert seen[-1].files == seen[-1].files_total == len(FILES)


def test_what_is_cancelled_before_it_begins_changes_nothing(places, tmp_path):
    source, target = places
    cancellation = Cancellation()
    cancellation.cancel()
    for begin in (plan, sync):
        with pytest.raises(errors.Cancelled):
            begin(source, target, OPTIONS, cancellation=cancellation)
    assert not (tmp_path / "dcB").exists()


def test_a_run_that_is_cancelled_releases_its_lease_and_can_be_resumed(places, tmp_path):
    source, target = places
    cancellation, begun = Cancellation(), threading.Event()
    slowly = SyncOptions(bandwidth=10.0, execution=INLINE)
    raised: list[errors.Cancelled] = []

    def run():
        try:
            sync(
                source,
                target,
                slowly,
                cancellation=cancellation,
                on_progress=lambda _seen: begun.set(),
            )
        except errors.Cancelled as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    begun.wait()
    with pytest.raises(errors.LeaseHeld):  # also of another thread of this process
        sync(source, target, OPTIONS)
    cancellation.cancel()
    thread.join()
    assert len(raised) == 1
    assert not (tmp_path / "dcB" / JOB / "chk-1" / "_metadata").exists()
    assert not (tmp_path / "dcB" / JOB / ".cpreplicate" / "lease").exists()
    assert sync(source, target, OPTIONS).committed


def test_an_import_of_the_package_imports_only_its_version():
    program = "import sys, cpreplicate; print([m for m in sys.modules if 'cpreplicate.' in m])"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "['cpreplicate.version']\n"


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'replicate'"):
        cpreplicate.replicate  # noqa: B018  # the access is what is tried


def test_points_in_time_are_kept_as_by_the_command_line(places):
    source, target = places
    options = SyncOptions(keep=Retention(last=1, hourly=3), execution=INLINE)
    assert sync(source, target, options).committed
