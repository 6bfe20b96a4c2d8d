"""The record of a checkpoint keeps when the checkpoint was completed at the source."""

import json
import os

import pytest

from cpreplicate.errors import Refused
from cpreplicate.operations.handover.promote import PromoteRequest, promote
from cpreplicate.operations.sync import sync
from cpreplicate.operations.sync.diff import check, diff
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.upkeep import relocate
from cpreplicate.operations.upkeep.relocate import RelocateRequest
from cpreplicate.operations.verify.verify import NOTHING
from cpreplicate.protocol.checkpoint_record import read_record, write_record
from cpreplicate.protocol.digest import Digest
from cpreplicate.protocol.replica import Replica
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import Side
from tests.support.jobs import JOB, write_checkpoint
from tests.support.replicas import FILES, NEXT, held

COMPLETED = {1: 1_700_000_000.25, 2: 1_700_000_060.5}


def ignore(_line):
    pass


def checkpoint(root, number, files=FILES):
    directory = write_checkpoint(root / "dcA", number, files)
    os.utime(directory / "_metadata", (COMPLETED[number],) * 2)
    return directory


def request(root, source=JOB, **options):
    execution = ExecutionOptions(runner="inline")
    return SyncRequest(
        f"file:{root}/dcA/{source}", f"file:{root}/dcB", execution=execution, **options
    )


def recorded(root, name="chk-1"):
    record = read_record(Replica(f"file:{root}/dcB/{JOB}", Side()), name)
    assert record is not None
    return record.completed


def record_file(root, name="chk-1"):
    return root / "dcB" / JOB / ".cpreplicate" / f"{name}.json"


@pytest.fixture
def root(tmp_path):
    checkpoint(tmp_path, 1)
    sync.sync(request(tmp_path), ignore)
    return tmp_path


def test_a_sync_records_and_reports_when_the_checkpoint_was_completed(tmp_path):
    checkpoint(tmp_path, 1)
    assert diff(request(tmp_path)).completed == COMPLETED[1]
    assert check(request(tmp_path)).completed == COMPLETED[1]
    assert sync.sync(request(tmp_path), ignore).completed == COMPLETED[1]
    assert recorded(tmp_path) == COMPLETED[1]


def test_a_sync_with_nothing_to_do_reports_it_too(root):
    report = sync.sync(request(root), ignore)
    assert (report.committed, report.completed) == (False, COMPLETED[1])
    assert check(request(root)).completed == COMPLETED[1]


def test_a_checkpoint_that_is_named_and_a_savepoint_are_dated_by_their_metadata(tmp_path):
    shared = {"shared/a": 100}
    savepoint = checkpoint(tmp_path, 1, shared).rename(tmp_path / "dcA" / JOB / "savepoint-1")
    report = sync.sync(request(tmp_path, f"{JOB}/{savepoint.name}"), ignore)
    assert report.completed == COMPLETED[1]
    checkpoint(tmp_path, 2, NEXT)
    report = sync.sync(request(tmp_path, f"{JOB}/chk-2"), ignore)
    assert report.completed == recorded(tmp_path, "chk-2") == COMPLETED[2]


def test_each_kept_checkpoint_has_its_own_time(root):
    checkpoint(root, 2, NEXT)
    sync.sync(request(root, keep=2), ignore)
    assert recorded(root, "chk-1") == COMPLETED[1]
    assert recorded(root, "chk-2") == COMPLETED[2]


def test_other_paths_relocate_and_promote_keep_the_time(root):
    sync.sync(request(root, paths="absolute"), ignore)
    assert recorded(root) == COMPLETED[1]
    replica = f"file:{root}/dcB/{JOB}"
    relocate.relocate(RelocateRequest(replica, "relative"), ignore)
    assert recorded(root) == COMPLETED[1]
    promote(PromoteRequest(replica, None, NOTHING, 0.0, Side()), ignore)
    assert recorded(root) == COMPLETED[1]


def test_an_adopted_checkpoint_has_no_time_and_the_one_beside_it_has(tmp_path):
    write_checkpoint(tmp_path / "dcB", 1, FILES)
    checkpoint(tmp_path, 2, FILES)
    sync.sync(request(tmp_path, adopt=True), ignore)
    assert recorded(tmp_path, "chk-1") is None
    assert recorded(tmp_path, "chk-2") == COMPLETED[2]


@pytest.mark.parametrize("value", [None, "soon", [1], float("nan"), float("inf"), 10**400])
def test_a_record_of_an_older_version_or_with_a_malformed_time_stays_readable(root, value):
    fields = json.loads(record_file(root).read_text())
    del fields["completed"]
    if value is not None:
        fields["completed"] = value
    record_file(root).write_text(json.dumps(fields))
    assert recorded(root) is None
    assert check(request(root)).is_current


def test_what_an_older_version_reads_of_a_record_is_there(root):
    fields = json.loads(record_file(root).read_text())
    assert fields["format"] == 1
    assert {"sequence", "digests", "adopted"} <= fields.keys()


class TestARecordWithOtherDigests:
    """A run that was held up wrote its own over that of the run which took its lease over."""

    @pytest.fixture
    def late(self, root):
        replica = Replica(f"file:{root}/dcB/{JOB}", Side())
        record = read_record(replica, "chk-1")
        assert record is not None
        with held(root / "dcB" / JOB) as changed:
            write_record(changed, "chk-1", record._replace(digests=(Digest(1, 2),)))
        return root

    def test_is_replaced_by_the_manifest_of_the_metadata_that_is_there(self, late):
        report = sync.sync(request(late), ignore)
        assert (report.plan.empty, report.completed) == (True, COMPLETED[1])
        checkpoint(late, 2, NEXT)
        assert sync.sync(request(late), ignore).plan.dropped == ("chk-1",)

    def test_and_a_metadata_that_no_manifest_describes_belong_to_another_program(self, late):
        metadata = late / "dcB" / JOB / "chk-1" / "_metadata"
        metadata.write_bytes(metadata.read_bytes() + b" ")
        with pytest.raises(Refused):
            sync.sync(request(late), ignore)
