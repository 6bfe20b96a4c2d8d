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
from cpreplicate.operations.upkeep.relocate import RelocateRequest, relocate
from cpreplicate.operations.verify.verify import ALL, NOTHING, Sample, record, verify
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


def verified(replica, content=ALL, checkpoint=None, notify=silent):
    side = Side()
    found = verify(f"file:{replica}", checkpoint, content, silent, side)
    record(found, content, side, notify)


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


def was_found_damaged_and_only_its_lengths_were_looked_at_since(replica):
    was_found_damaged(replica)
    verified(replica, NOTHING)


def was_found_damaged_and_another_sample_was_compared_since(replica):
    was_found_damaged(replica)
    verified(replica, Sample(0.01, 7))


def was_found_damaged_and_relocated(replica):
    was_found_damaged(replica)
    for _ in range(2):  # the second one changes nothing
        relocate(RelocateRequest(f"file:{replica}", paths="absolute"), silent)


def was_found_damaged_and_synced_with_other_paths(replica):
    was_found_damaged(replica)
    synced_again(replica, paths="absolute")


def was_found_damaged_and_what_was_lacking_besides_was_copied(replica):
    was_found_damaged(replica)
    (replica / "shared" / "a").unlink()
    synced_again(replica)


def was_found_lacking_and_what_was_lacking_was_copied(replica):
    was_found_lacking(replica)
    synced_again(replica)


def was_found_lacking_and_then_whole(replica):
    content = (replica / "shared" / "c").read_bytes()
    was_found_lacking(replica)
    (replica / "shared" / "c").write_bytes(content)
    verified(replica)


def synced_again(replica, **options):
    root = replica.parent.parent
    places = (f"file:{root}/dcA/{JOB}", f"file:{root}/dcB")
    sync(SyncRequest(*places, execution=ExecutionOptions(runner="inline"), **options), silent)


def was_found_damaged_and_repaired(replica):
    was_found_damaged(replica)
    synced_again(replica, check_content=True)


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
    was_found_lacking_and_what_was_lacking_was_copied,
    was_found_lacking_and_then_whole,
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
    *(
        STILL_DAMAGED := [
            was_found_damaged_and_only_its_lengths_were_looked_at_since,
            was_found_damaged_and_another_sample_was_compared_since,
            was_found_damaged_and_relocated,
            was_found_damaged_and_synced_with_other_paths,
            was_found_damaged_and_what_was_lacking_besides_was_copied,
        ]
    ),
]
VERIFIED = [
    *STILL_DAMAGED,
    was_found_lacking_and_what_was_lacking_was_copied,
    was_found_lacking_and_then_whole,
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


def test_a_recorded_failure_stays_when_another_checkpoint_passes_until_it_is_gone(tmp_path):
    replica = synced(tmp_path, {1: FILES, 2: NEXT}, keep=2)
    lacking = next(path for path in NEXT if path not in FILES)
    (replica / lacking).rename(tmp_path / "aside")
    verified(replica, NOTHING)
    verified(replica, NOTHING, "chk-1")
    assert "chk-2" in row(replica).unready
    recorded = json.loads(own(replica, "verified.json").read_text())
    assert (recorded["checkpoint"], recorded["is_restorable"]) == ("chk-1", True)
    assert [each["checkpoint"] for each in recorded["failed"]] == ["chk-2"]
    (tmp_path / "aside").rename(replica / lacking)
    verified(replica, NOTHING)
    assert row(replica).unready is None
    assert json.loads(own(replica, "verified.json").read_text())["failed"] == []


def test_a_verification_that_clears_no_recorded_damage_names_what_does(tmp_path):
    replica = synced(tmp_path, {1: FILES})
    was_found_damaged(replica)
    lines: list[str] = []
    verified(replica, NOTHING, notify=lines.append)
    (line,) = lines
    assert "the recorded damage of chk-1 stays recorded" in line
    assert "--content" in line


def test_the_damage_of_a_checkpoint_whose_number_another_one_has_is_not_its_own(tmp_path):
    replica = synced(tmp_path, {1: FILES})
    was_found_damaged(replica)
    path = own(replica, "verified.json")
    recorded = json.loads(path.read_text())
    path.write_text(json.dumps({**recorded, "completed": recorded["completed"] - 60}))
    assert row(replica).unready is None


def test_a_replica_lags_as_when_it_was_looked_at_however_late_others_are_known(tmp_path):
    """A source of another job may not answer for a minute."""
    synced(tmp_path, {1: FILES})
    write_checkpoint(tmp_path / "dcA", 2, NEXT)
    ref = ReplicaRef(f"file:{tmp_path}/dcB/{JOB}", f"file:{tmp_path}/dcA/{JOB}")
    (row,) = status([ref], Sides()).replicas
    looked, later = row.looked, row.looked + 3600.0
    assert row.lag(later) == row.lag(looked)
    assert row.age(later) == row.age(looked)
    assert not row.is_lagging(1800.0, later)
