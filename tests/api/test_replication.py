"""Plans and syncs as another program begins them."""

import threading

import pytest

from cpreplicate import (
    Cancellation,
    Checkpoint,
    ExecutionOptions,
    Retention,
    SyncOptions,
    errors,
    plan,
    status,
    sync,
)
from cpreplicate.runners.progress import Snapshot
from tests.support.jobs import JOB, write_checkpoint
from tests.support.replicas import FILES, NEXT

pytestmark = pytest.mark.usefixtures("still_source")
INLINE = ExecutionOptions(runner="inline")
OPTIONS = SyncOptions(keep=2, execution=INLINE)


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


def test_the_errors_are_those_of_the_command_line(places, tmp_path):
    _, target = places
    with pytest.raises(errors.NotThere):
        sync(Checkpoint(f"{tmp_path}/absent"), target, OPTIONS)
    with pytest.raises(errors.NotThere):
        status(target)
    with pytest.raises(errors.UsageError):
        plan(Checkpoint("gopher://a/b"), target)


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


def test_points_in_time_are_kept_as_by_the_command_line(places):
    source, target = places
    options = SyncOptions(keep=Retention(last=1, hourly=3), execution=INLINE)
    assert sync(source, target, options).committed


@pytest.mark.parametrize(
    "wrong",
    [
        {"paths": "absolut"},
        {"pack": "yes"},
        {"keep": 0},
        {"keep": "2"},
        {"source_roots": "/x"},
        {"lock_wait": -1},
        {"keep": True},
        {"max_delete": "some"},
        {"max_delete": True},
        {"adopt": "yes"},
        {"remap": [("a", "b")]},
        {"source_roots": [5]},
        {"execution": "inline"},
        {"lock_wait": "a while"},
        {"bandwidth": "fast"},
        {"max_rps": "many"},
        {"name": 7},
        {"bandwidth": 0},
        {"bandwidth": -1},
        {"bandwidth": float("nan")},
        {"max_rps": float("inf")},
        {"name": "a\nb"},
    ],
    ids=str,
)
def test_an_option_that_the_command_line_would_refuse_is_a_usage_error(wrong):
    (name,) = wrong
    with pytest.raises(errors.UsageError, match=f"the option {name} of the API"):
        SyncOptions(**wrong)


@pytest.mark.usefixtures("places")
def test_amounts_and_places_may_be_texts(tmp_path):
    options = SyncOptions(
        keep=Retention(last=2, within="24h"),
        bandwidth="500 MB/s",
        max_delete="20%",
        lock_wait="5m",
        source_roots=[tmp_path / "dcA"],
        execution=ExecutionOptions(runner="inline", batch_bytes="10 MiB", engine_timeout="1m"),
    )
    assert options.execution.batch_bytes == 10 * 2**20
    assert sync(f"{tmp_path}/dcA/{JOB}", tmp_path / "dcB", options).committed
    assert not plan(tmp_path / "dcA" / JOB, f"file:{tmp_path}/dcB", options).plan.copies


@pytest.mark.parametrize(
    "wrong",
    [
        {"source": 5},
        {"target": None},
        {"options": {"keep": 2}},
        {"on_message": "print"},
        {"on_progress": 5},
        {"cancellation": "later"},
    ],
    ids=str,
)
def test_an_argument_of_a_wrong_type_is_a_usage_error(places, wrong):
    (name,) = wrong
    given = {"source": places[0], "target": places[1], **wrong}
    with pytest.raises(errors.UsageError, match=f"the option {name} of the API is "):
        sync(**given)


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        (Retention, {"within": "soon"}),
        (Retention, {"last": "3"}),
        (Retention, {"daily": -1}),
        (ExecutionOptions, {"runner": "threads"}),
        (ExecutionOptions, {"batch_bytes": "big"}),
        (ExecutionOptions, {"parallelism": 0}),
        (ExecutionOptions, {"conf": "a=b"}),
    ],
    ids=str,
)
def test_wrong_options_are_usage_errors(kind, wrong):
    (name,) = wrong
    with pytest.raises(errors.UsageError, match=f"the option {name} of the API is "):
        kind(**wrong)


def test_a_progress_callback_that_raises_is_reported_once_and_the_sync_goes_on(places):
    source, target = places
    messages: list[str] = []

    def fails(_seen: Snapshot) -> None:
        raise ValueError("of the caller")

    report = sync(source, target, OPTIONS, on_progress=fails, on_message=messages.append)
    assert report.committed
    raised = [line for line in messages if "on_progress" in line]
    assert raised == ["on_progress raised ValueError: of the caller. It is not called again"]
