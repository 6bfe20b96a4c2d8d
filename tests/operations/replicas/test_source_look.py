"""A source is asked for seconds at most, and what is not known is never 0."""

import threading

import pytest

from cpreplicate.core.lag import Newest
from cpreplicate.operations.replicas import source_look
from cpreplicate.operations.replicas.replicas import replicas_below
from cpreplicate.operations.replicas.source_look import Behind, SourceLook, ask, source_of
from cpreplicate.operations.replicas.status import status
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.sync.sync import sync
from cpreplicate.protocol.replica import Replica
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import Side, Sides
from cpreplicate.storage.base import NoAnswer
from cpreplicate.storage.wrappers.base import StorageWrapper
from tests.support.jobs import JOB, write_checkpoint
from tests.support.registry import serving
from tests.support.replicas import FILES, NEXT, synced
from tests.support.waiting import PATIENCE


def behind(own, newest, now=500.0, is_known=True):
    return Behind("file:/dcA", SourceLook(newest, None, is_known), own, now)


def test_the_number_decides_and_the_age_of_the_replica_is_the_lag():
    ahead = behind(Newest(3, 100.0), Newest(5, 90.0))
    assert (ahead.checkpoints, ahead.seconds) == (2, 400.0)
    same = behind(Newest(5, 100.0), Newest(5, 100.0))
    assert (same.checkpoints, same.seconds, same.exceeds(0.0)) == (0, 0.0, False)


def test_a_number_that_was_used_twice_is_told_apart_by_times_of_the_source_only():
    assert behind(Newest(5, 100.0), Newest(5, 300.0)).checkpoints == 1
    assert behind(Newest(5, 100.0, is_dated=False), Newest(5, 300.0)).checkpoints == 0


def test_a_lag_that_is_not_known_is_at_most_the_age():
    unknown = behind(Newest(3, 100.0), None, is_known=False)
    assert (unknown.checkpoints, unknown.seconds) == (None, None)
    assert (unknown.exceeds(399.0), unknown.exceeds(400.0)) == (True, False)
    undated = behind(Newest(3, 0.0, is_dated=False), Newest(5, 0.0, is_dated=False))
    assert (undated.checkpoints, undated.seconds, undated.exceeds(1e12)) == (2, None, True)


def test_the_source_that_a_replica_records_is_asked(tmp_path):
    place = synced(tmp_path, {1: FILES})
    write_checkpoint(tmp_path / "dcA", 4, NEXT)
    replica = Replica(f"file:{place}", Side())
    seen = source_of(replica, Side())
    assert seen.source == f"file:{tmp_path}/dcA/{JOB}"
    assert seen.behind(1, 100.0).checkpoints == 3
    unasked = source_of(replica, None)
    assert (unasked.behind(1, 100.0).checkpoints, unasked.look.error) == (None, "it was not asked")


def test_a_name_that_leads_elsewhere_by_now_is_not_the_source(tmp_path):
    write_checkpoint(tmp_path / "here", 1, FILES)
    (tmp_path / "there").mkdir()
    (tmp_path / "cp").symlink_to("here")
    source, target = f"file:{tmp_path}/cp/{JOB}", f"file:{tmp_path}/dcB"
    sync(SyncRequest(source, target, execution=ExecutionOptions(runner="inline")), print)
    (tmp_path / "cp").unlink()
    (tmp_path / "cp").symlink_to("there")
    replica = Replica(f"{target}/{JOB}", Side())
    seen = source_of(replica, Side()).look
    assert (seen.is_known, seen.is_gone) == (False, False)
    assert seen.error is not None
    assert "--source-conf" in seen.error
    (row,) = status(replicas_below(target, [], Sides()), Sides()).replicas
    assert (row.is_source_known, row.source_error) == (False, seen.error)


def test_a_damaged_marker_names_no_source(tmp_path):
    place = synced(tmp_path, {1: FILES})
    (place / ".cpreplicate" / "replica.json").write_text("{")
    seen = source_of(Replica(f"file:{place}", Side()), Side())
    assert (seen.source, seen.look.is_known) == (None, False)


def test_a_savepoint_has_the_number_that_its_replica_holds(tmp_path):
    checkpoint = write_checkpoint(tmp_path / "dcA", 7, FILES)
    savepoint = tmp_path / "savepoint-012345-abcdef"
    checkpoint.rename(savepoint)
    look = ask(f"file:{savepoint}", Side())
    assert look.beside(7).newest.checkpoint_id == 7


def test_many_sources_are_asked_at_the_same_time(tmp_path):
    write_checkpoint(tmp_path / "dcA", 1, FILES)
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(ask(f"file:{tmp_path}/dcA/{JOB}", Side())))
        for _ in range(20)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {each.newest.checkpoint_id for each in found} == {1}


def test_a_source_that_does_not_answer_is_left_behind(tmp_path, monkeypatch):
    """As a directory on a mount whose server is gone: the call itself never returns."""
    released = threading.Event()

    class Hanging(StorageWrapper):
        def before(self, _verb, _uri):
            assert released.wait(PATIENCE)

    monkeypatch.setattr(source_look, "_DEADLINE", 0.1)
    with serving("file", Hanging(Side().storage("file:/"))):
        try:
            with pytest.raises(NoAnswer, match=r"has not answered for 0\.1 s"):
                ask(f"file:{tmp_path}", Side())
        finally:
            released.set()
