"""The name of a job, where it is known, is recorded in its replica, and what that costs."""

import json
import shutil

import pytest

from cpreplicate.operations.handover import promote, unseal
from cpreplicate.operations.handover.promote import PromoteRequest
from cpreplicate.operations.replicas.replicas import replicas_below
from cpreplicate.operations.replicas.status import status
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.sync.sync import sync
from cpreplicate.operations.upkeep import sweep
from cpreplicate.operations.verify.verify import ALL, verify
from cpreplicate.protocol.job_record import JobRecord, read_job_record
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import Side, Sides
from tests.support import checker, frozen
from tests.support.jobs import JOB, NEXT_JOB, put_restored, write_checkpoint
from tests.support.registry import serving
from tests.support.replicas import FILES, NEXT
from tests.support.tracing import Tracing


@pytest.fixture
def root(tmp_path):
    write_checkpoint(tmp_path / "dcA", 1, FILES)
    return tmp_path


def replicate(root, name=None, job=JOB, **options):
    request = SyncRequest(
        f"file:{root}/dcA/{job}",
        f"file:{root}/dcB",
        execution=ExecutionOptions(runner="inline"),
        name=name,
        **options,
    )
    return sync(request, lambda _line: None)


def recorded(root, job=JOB):
    return read_job_record(Side(), f"file:{root}/dcB/{job}")


def completed(root, number=1):
    return (root / "dcA" / JOB / f"chk-{number}" / "_metadata").stat().st_mtime


def test_the_first_sync_records_the_name_since_its_checkpoint(root):
    replicate(root, "orders")
    assert recorded(root) == JobRecord("orders", completed(root))
    assert checker.faults(root / "dcB" / JOB) == []


def test_without_a_name_nothing_is_recorded(root):
    replicate(root)
    assert recorded(root) is None
    assert not (root / "dcB" / JOB / ".cpreplicate" / "job.json").exists()


def test_a_name_that_comes_later_is_recorded_though_nothing_is_to_be_copied(root):
    replicate(root)
    report = replicate(root, "orders")
    assert (report.plan.empty, report.committed) == (True, False)
    assert recorded(root).name == "orders"


def test_a_new_name_replaces_the_former_one(root):
    replicate(root, "orders")
    write_checkpoint(root / "dcA", 2, NEXT)
    replicate(root, "orders-v2")
    assert recorded(root) == JobRecord("orders-v2", completed(root, 2))


def test_a_sync_without_a_name_keeps_the_one_that_is_recorded(root):
    replicate(root, "orders")
    write_checkpoint(root / "dcA", 2, NEXT)
    replicate(root)
    assert recorded(root).name == "orders"


def test_the_same_name_costs_a_read_and_no_write(root):
    replicate(root, "orders")
    with serving("file", tracing := Tracing(Side().storage("file:/"))):
        replicate(root, "orders")
    assert sum("job.json" in place for _verb, place in tracing.calls) == 1
    assert tracing.changes() == []


def test_a_job_that_was_restored_records_which_jobs_it_follows(root):
    replicate(root, "orders")
    put_restored(Side(), f"file:{root}/dcA", 2, {"shared/n": 70}, {"shared/a": 100})
    replicate(root, "orders", NEXT_JOB)
    assert recorded(root, NEXT_JOB).follows == (JOB,)
    shutil.rmtree(root / "dcA" / NEXT_JOB)
    put_restored(Side(), f"file:{root}/dcA", 3, {"shared/o": 70}, {})
    replicate(root, "orders", NEXT_JOB)
    assert recorded(root, NEXT_JOB).follows == (JOB,)


def test_sweep_promote_and_unseal_accept_the_record_and_leave_it(root):
    replicate(root, "orders")
    replica = f"file:{root}/dcB/{JOB}"
    before = recorded(root)
    swept = sweep.sweep(sweep.SweepRequest(replica, min_age=0.0), lambda _line: None)
    assert swept.deletes == ()
    promoted = promote.promote(PromoteRequest(replica), lambda _line: None)
    assert promoted.warnings == ()
    unseal.unseal(unseal.UnsealRequest(replica, None))
    assert verify(replica, None, ALL, lambda _line: None, Side()).restorable
    assert recorded(root) == before


@pytest.mark.parametrize("damage", [b"", b"\x00" * 100, b'{"name": 7}'])
def test_a_damaged_record_stops_nothing_and_the_next_sync_replaces_it(root, damage):
    replicate(root, "orders")
    (root / "dcB" / JOB / ".cpreplicate" / "job.json").write_bytes(damage)
    replicate(root)
    assert recorded(root) is None
    replicate(root, "orders")
    assert recorded(root).name == "orders"


def test_status_has_the_recorded_name(root):
    replicate(root, "orders")
    sides = Sides()
    rows = status(replicas_below(f"file:{root}/dcB", (), sides), sides).replicas
    assert [row.recorded.name for row in rows] == ["orders"]


@pytest.mark.xdist_group("frozen")
@pytest.mark.parametrize("state", ["plain", "adopted", "two-kept", "packed"])
def test_a_replica_of_an_earlier_version_gets_a_name_with_its_next_sync(state):
    with frozen.unpacked(f"0.2.0/{state}"):
        marker = json.loads((frozen.REPLICA / ".cpreplicate" / "replica.json").read_text())
        request = SyncRequest(
            f"file:{frozen.SOURCE}",
            f"file:{frozen.TARGET_ROOT}",
            remaps=(frozen.REMAP,),
            execution=ExecutionOptions(runner="inline"),
            name="orders",
        )
        sync(request, lambda _line: None)
        known = read_job_record(Side(), f"file:{frozen.REPLICA}")
        assert known.name == "orders"
        after = json.loads((frozen.REPLICA / ".cpreplicate" / "replica.json").read_text())
        assert after == marker
