"""`ready`: what `status` sees of a replica ends as `promote` does, in each state."""

import json
import shutil

import pytest

from cpreplicate.errors import CpreplicateError
from cpreplicate.operations.handover.promote import PromoteRequest, promote
from cpreplicate.operations.replicas.replicas import ReplicaRef, replicas_below
from cpreplicate.operations.replicas.status import status
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.sync.sync import sync
from cpreplicate.operations.verify.verify import ALL, NOTHING, record, verify
from cpreplicate.protocol import json_files
from cpreplicate.protocol.lease import SECONDS, acquire
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import Side, Sides
from tests.support import frozen
from tests.support.jobs import JOB, write_checkpoint
from tests.support.replicas import FILES, NEXT, synced


def silent(_line):
    """Said to nobody."""


def row(replica):
    sides = Sides()
    (found,) = status([ReplicaRef(f"file:{replica}")], sides).replicas
    return found


def is_promoted(replica, content=NOTHING):
    """Whether `promote` succeeds, which reads this content."""
    try:
        request = PromoteRequest(f"file:{replica}", content=content)
        return promote(request, silent).starting is not None
    except CpreplicateError:
        return False


def verified(replica):
    side = Side()
    record(verify(f"file:{replica}", None, ALL, silent, side), 1.0, side)


def own(replica, name):
    return replica / ".cpreplicate" / name


def is_plain(_replica):
    """Nothing is wrong."""


def is_sealed(replica):
    promote(PromoteRequest(f"file:{replica}"), silent)


def is_sealed_and_a_job_writes_there(replica):
    is_sealed(replica)
    shutil.copytree(replica / "chk-1", replica / "chk-9")


def is_sealed_and_the_marker_is_lost(replica):
    is_sealed(replica)
    own(replica, "replica.json").unlink()


def has_a_checkpoint_of_a_job(replica):
    shutil.copytree(replica / "chk-1", replica / "chk-9")


def has_another_metadata(replica):
    with (replica / "chk-1" / "_metadata").open("ab") as file:
        file.write(b"x")


def has_lost_its_marker(replica):
    own(replica, "replica.json").unlink()


def has_a_damaged_marker(replica):
    own(replica, "replica.json").write_text("{}")


def has_lost_a_record(replica):
    own(replica, "chk-1.json").unlink()


def has_lost_record_and_manifest(replica):
    has_lost_a_record(replica)
    own(replica, "chk-1.parquet").unlink()


def has_lost_its_manifest(replica):
    own(replica, "chk-1.parquet").unlink()


def has_no_checkpoint(replica):
    shutil.rmtree(replica / "chk-1")


def has_a_link(replica):
    (replica / "shared").rename(replica / "elsewhere")
    (replica / "shared").symlink_to(replica / "elsewhere")


def has_a_link_and_is_sealed(replica):
    is_sealed(replica)
    has_a_link(replica)


def was_found_damaged(replica):
    content = (replica / "shared" / "c").read_bytes()
    (replica / "shared" / "c").write_bytes(b"x" * len(content))
    verified(replica)


def was_found_lacking(replica):
    (replica / "shared" / "c").unlink()
    verified(replica)


def was_found_whole(replica):
    verified(replica)


def was_found_damaged_and_repaired(replica):
    was_found_damaged(replica)
    root = replica.parent.parent
    request = SyncRequest(
        f"file:{root}/dcA/{JOB}",
        f"file:{root}/dcB",
        check_content=True,
        execution=ExecutionOptions(runner="inline"),
    )
    sync(request, silent)


def was_found_damaged_and_has_a_newer_checkpoint(replica):
    was_found_lacking(replica)
    root = replica.parent.parent
    write_checkpoint(root / "dcA", 2, NEXT)
    sync(
        SyncRequest(
            f"file:{root}/dcA/{JOB}",
            f"file:{root}/dcB",
            execution=ExecutionOptions(runner="inline"),
        ),
        silent,
    )


def was_left_by_a_run_that_died(replica):
    lease = {"token": "x", "host": "another", "owner": "x", "expires": 5.0, "heartbeat": 1.0}
    past = json_files.now() - 10 * SECONDS
    content = {**lease, "expires": past, "heartbeat": past, "started": past}
    own(replica, "lease").write_text(json.dumps(content))


READY = [
    is_plain,
    is_sealed,
    is_sealed_and_a_job_writes_there,
    has_lost_a_record,
    has_lost_its_manifest,
    was_found_whole,
    was_found_damaged_and_repaired,
    was_found_damaged_and_has_a_newer_checkpoint,
]
UNREADY = [
    has_a_checkpoint_of_a_job,
    has_another_metadata,
    has_lost_its_marker,
    has_a_damaged_marker,
    has_lost_record_and_manifest,
    has_no_checkpoint,
    has_a_link,
    has_a_link_and_is_sealed,
    was_found_damaged,
    was_found_lacking,
]
VERIFIED = [
    was_found_whole,
    was_found_damaged,
    was_found_lacking,
    was_found_damaged_and_repaired,
    was_found_damaged_and_has_a_newer_checkpoint,
]
OTHERS = [is_sealed_and_the_marker_is_lost, was_left_by_a_run_that_died]


@pytest.mark.parametrize("state", [*READY, *UNREADY, *OTHERS])
def test_a_replica_is_ready_if_promote_succeeds(tmp_path, state):
    replica = synced(tmp_path, {1: FILES})
    state(replica)
    reason = row(replica).unready
    content = ALL if state in VERIFIED else NOTHING  # as much as was verified
    assert (reason is None) == is_promoted(replica, content), reason
    if state not in OTHERS:
        assert (reason is None) == (state in READY)


@pytest.mark.parametrize("adds", [is_plain, has_no_checkpoint])
def test_a_replica_with_adopted_checkpoints_only_is_not_ready(tmp_path, adds):
    write_checkpoint(tmp_path / "dcB", 7, {"shared/old": 10})
    replica = synced(tmp_path, {1: FILES}, adopt=True)
    adds(replica)
    reason = row(replica).unready
    assert (reason is None) == is_promoted(replica) == (adds is is_plain)


def test_a_replica_whose_lease_is_held_is_not_ready_and_its_holder_is_named(tmp_path):
    replica = synced(tmp_path, {1: FILES})
    with acquire(f"file:{replica}", Side()):
        assert "holds its lease" in row(replica).unready
        assert not is_promoted(replica)
    assert row(replica).unready is None
    assert is_promoted(replica)


def test_a_job_without_a_replica_is_not_ready(tmp_path):
    write_checkpoint(tmp_path / "dcA", 1, FILES)
    sides = Sides()
    replicas = replicas_below(f"file:{tmp_path}/dcB", [f"file:{tmp_path}/dcA/{JOB}"], sides)
    (found,) = status(replicas, sides).replicas
    assert found.unready == "there is no replica"


@pytest.mark.xdist_group("frozen")
@pytest.mark.parametrize("state", frozen.archives())
def test_a_replica_of_an_earlier_version_is_ready_if_promote_succeeds(state):
    with frozen.unpacked(state) as replica:
        reason = row(replica).unready
        assert (reason is None) == is_promoted(replica), reason
