"""What a sync that changes one file waits for, where each call takes a round trip."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from cpreplicate.core import clock
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.sync.sync import sync
from cpreplicate.operations.verify.verify import ALL, verify
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import Side, Sides
from cpreplicate.storage.wrappers.retry import Retrying
from tests.support.far import Call, FarHdfs, counted, rounds
from tests.support.faults import Faulty
from tests.support.jobs import JOB, put_checkpoint
from tests.support.registry import serving

ROUND_TRIP = 0.1  # seconds
TRIES = 5  # on a busy machine, a thread may begin its call later than a round trip
FILES = {f"shared/{number:03}": 3000 + number for number in range(20)}
MOST_CALLS, MOST_ROUNDS = 53, 39


class Still(clock.Clock):
    """A clock that stands still."""

    def __init__(self) -> None:
        self._now = super().now()

    def now(self) -> float:
        return self._now

    def monotonic(self) -> float:
        return 0.0


def silent(_line: str) -> None:
    pass


def began(calls: list[Call], path: str) -> float:
    """Return when a file began to appear."""
    return min(call.began for call in calls if call.name == "rename2" and path in call.uri)


def ended(calls: list[Call], path: str) -> float:
    """Return when a file had appeared."""
    return max(call.ended for call in calls if call.name == "rename2" and path in call.uri)


def sync_calls(directory: Path, source: str) -> list[Call]:
    """Return the calls of a sync that copies one file of twenty, and deletes another."""
    far = FarHdfs(directory)
    changed = {**dict(list(FILES.items())[1:]), "shared/new": 64 << 10}

    def replicate(place: str) -> None:
        execution = ExecutionOptions(runner="inline")
        sync(SyncRequest(place, "hdfs://b/target", sides=Sides(), execution=execution), silent)

    with serving("hdfs", Retrying(far, 60.0)):
        put_checkpoint(Side(), "hdfs://a/source", 1, FILES)
        replicate(f"hdfs://a/source/{JOB}")
        put_checkpoint(Side(), "hdfs://a/source", 2, changed)
        far.date_back()
        far.round_trip = ROUND_TRIP
        far.calls.clear()
        replicate(f"hdfs://a/source/{JOB}{source}")
        calls = list(far.calls)
        far.round_trip = 0.0
        report = verify(f"hdfs://b/target/{JOB}", None, ALL, silent, Side())
    assert report.restorable
    assert ended(calls, "/copied-") < began(calls, "/shared/new"), "it is recorded before"
    assert (report.checkpoint_id, report.files) == (2, len(changed))
    return calls


@pytest.mark.parametrize("source", ["/chk-2", ""], ids=["checkpoint", "job"])
def test_the_round_trips_of_a_sync_that_changes_one_file(tmp_path, source, monkeypatch):
    # a check of the lease counts for a second, however long that takes here
    monkeypatch.setattr(clock, "MACHINE", Still())
    for number in range(TRIES):
        calls = sync_calls(tmp_path / str(number), source)
        count = counted(calls, "hdfs://b")
        if count.total() <= MOST_CALLS and rounds(calls) <= MOST_ROUNDS:
            return
    pytest.fail(f"{count}, and {rounds(calls)} round trips, one after the other")


def test_no_copy_appears_whose_journal_could_not_be_written(tmp_path):
    far = FarHdfs(tmp_path)
    execution = ExecutionOptions(runner="inline")

    def full(_verb: str, uri: str) -> OSError | None:
        return OSError(errno.ENOSPC, "no space", uri) if "/copied-" in uri else None

    def replicate() -> None:
        source = f"hdfs://a/source/{JOB}"
        sync(SyncRequest(source, "hdfs://b/target", sides=Sides(), execution=execution), silent)

    with serving("hdfs", far):
        put_checkpoint(Side(), "hdfs://a/source", 1, FILES)
        replicate()
        put_checkpoint(Side(), "hdfs://a/source", 2, {**FILES, "shared/new": 9})
    far.calls.clear()
    with serving("hdfs", Faulty(far, full)), pytest.raises(OSError, match="no space"):
        replicate()
    assert not [call for call in far.calls if call.name == "rename2" and "lease" not in call.uri]
    with serving("hdfs", far):
        replicate()
        assert verify(f"hdfs://b/target/{JOB}", None, ALL, silent, Side()).checkpoint_id == 2
