"""What a sync that changes one file asks an HDFS that is far away. Its trips: `make bench`."""

from __future__ import annotations

import errno

import pytest

from cpreplicate.core import clock
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.sync.sync import sync
from cpreplicate.operations.verify.verify import ALL, verify
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import Side, Sides
from tests.support.far import FILES, Call, FarHdfs, calls_of_sync, counted
from tests.support.faults import Faulty
from tests.support.jobs import JOB, put_checkpoint
from tests.support.registry import serving

MOST_CALLS = 53


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


@pytest.mark.parametrize("source", ["/chk-2", ""], ids=["checkpoint", "job"])
def test_the_calls_of_a_sync_that_changes_one_file(tmp_path, source, monkeypatch):
    # a check of the lease counts for a second, however long that takes here
    monkeypatch.setattr(clock, "MACHINE", Still())
    calls = calls_of_sync(tmp_path, source)
    assert ended(calls, "/copied-") < began(calls, "/shared/new"), "it is recorded before"
    count = counted(calls, "hdfs://b")
    assert count.total() <= MOST_CALLS, count


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
