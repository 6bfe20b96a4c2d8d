"""Deletes that were put off are made later, unless a checkpoint needs the file again."""

import time

from cpreplicate.operations.sync import sync as sync_operation
from cpreplicate.operations.sync.put_off import Backlog
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.runners import ExecutionOptions
from tests.support import checker
from tests.support.jobs import JOB, write_checkpoint
from tests.support.replicas import FILES, NEXT
from tests.support.waiting import PATIENCE


def test_what_was_put_off_and_is_needed_again_is_not_deleted(tmp_path):
    write_checkpoint(tmp_path / "dcA", 1, FILES)
    replica = tmp_path / "dcB" / JOB
    request = SyncRequest(
        f"file:{tmp_path}/dcA/{JOB}",
        f"file:{tmp_path}/dcB",
        async_deletes=True,
        execution=ExecutionOptions(runner="inline"),
    )
    backlog = Backlog(request)
    for number, files in enumerate([NEXT, FILES], start=2):
        backlog.add(sync_operation.sync(request, lambda _line: None))
        write_checkpoint(tmp_path / "dcA", number, files)
    backlog.add(sync_operation.sync(request, lambda _line: None))
    assert "shared/a" in backlog.targets
    backlog.work_off(time.monotonic() + PATIENCE, lambda _line: None)
    assert backlog.targets == []
    assert (replica / "shared" / "a").exists()
    assert not (replica / "shared" / "y").exists()
    assert checker.faults(replica) == []


def test_what_another_program_replaced_since_is_not_deleted(tmp_path):
    write_checkpoint(tmp_path / "dcA", 1, FILES)
    replica = tmp_path / "dcB" / JOB
    request = SyncRequest(
        f"file:{tmp_path}/dcA/{JOB}",
        f"file:{tmp_path}/dcB",
        async_deletes=True,
        execution=ExecutionOptions(runner="inline"),
    )
    backlog = Backlog(request)
    sync_operation.sync(request, lambda _line: None)
    write_checkpoint(tmp_path / "dcA", 2, NEXT)
    backlog.add(sync_operation.sync(request, lambda _line: None))
    (replica / "shared" / "a").write_bytes(b"theirs")
    lines: list[str] = []
    backlog.work_off(time.monotonic() + PATIENCE, lines.append)
    assert (replica / "shared" / "a").read_bytes() == b"theirs"
    assert not (replica / "shared" / "b").exists()
    assert any("has another length" in line and "shared/a" in line for line in lines)
