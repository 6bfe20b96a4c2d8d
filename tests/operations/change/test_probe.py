"""A dry run tries what the command does, ends as it would, and leaves nothing."""

import errno

import pytest

from cpreplicate.errors import LeaseHeld, exit_code_of
from cpreplicate.operations.change.probe import try_change
from cpreplicate.operations.handover.promote import PromoteRequest, promote
from cpreplicate.operations.handover.unseal import UnsealRequest, unseal
from cpreplicate.operations.kafka.rebase import RebaseRequest, forget, rebase
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.sync.sync import sync
from cpreplicate.operations.upkeep.sweep import SweepRequest, check, sweep
from cpreplicate.protocol.lease import acquire
from cpreplicate.protocol.replica import Replica
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import Side, Transient
from tests.support.doctor import tree
from tests.support.faults import Faulty
from tests.support.jobs import JOB
from tests.support.kafka_jobs import put_kafka_checkpoint
from tests.support.kafka_states import Split, Transaction
from tests.support.registry import serving
from tests.support.replicas import FILES, synced

CHANGES = ("put", "create_exclusive", "publish", "move", "delete", "take_over", "withdraw")


def quiet(_line):
    """Report nothing."""


@pytest.fixture
def replica(tmp_path):
    """A replica with a derived checkpoint, which takes part in each command."""
    put_kafka_checkpoint(tmp_path / "dcA", 1, [Split("orders", 0, 7)], [Transaction("tx", 70)])
    source, target = f"file:{tmp_path}/dcA/{JOB}", f"file:{tmp_path}/dcB"
    sync(SyncRequest(source, target, execution=ExecutionOptions(runner="inline")), quiet)
    place = f"{target}/{JOB}"
    rebase(RebaseRequest(place, name="derived", drops_pending=True), quiet)
    return tmp_path / "dcB" / JOB


def of_unseal(place, dry_run):
    return unseal(UnsealRequest(place, None, Side(), dry_run))


def of_sweep(place, dry_run):
    return check(SweepRequest(place)) if dry_run else sweep(SweepRequest(place), quiet)


def of_rebase(place, dry_run):
    return rebase(RebaseRequest(place, drops_pending=True, dry_run=dry_run), quiet)


def of_forget(place, dry_run):
    return forget(place, "derived", Side(), dry_run, 0.0, quiet)


def of_promote(place, dry_run):
    return promote(PromoteRequest(place, dry_run=dry_run), quiet)


COMMANDS = [of_unseal, of_sweep, of_rebase, of_forget, of_promote]
ERRORS = {
    "no right": PermissionError(errno.EACCES, "Permission denied"),
    "read-only": OSError(errno.EROFS, "Read-only file system"),
    "safe mode": Transient(errno.EIO, "Name node is in safe mode"),
}


def prepared(command, replica):
    """A replica that the command would change."""
    if command is of_sweep:  # which refuses one that references no file
        return synced(replica.parent.parent / "files", {1: FILES})
    if command is of_unseal:
        of_promote(f"file:{replica}", False)
    return replica


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("kind", ERRORS)
def test_where_nothing_can_be_written_a_dry_run_ends_as_the_command(replica, command, kind):
    replica = prepared(command, replica)
    place = f"file:{replica}"
    error = ERRORS[kind]

    def deny(verb, uri):
        return type(error)(error.errno, error.strerror, uri) if verb in CHANGES else None

    before, codes = tree(replica), []
    with serving("file", Faulty(Side().storage("file:/"), deny)):
        for dry_run in (True, False):
            with pytest.raises(OSError, match=error.strerror) as refused:
                command(place, dry_run)
            codes.append(exit_code_of(refused.value))
    assert codes[0] == codes[1]
    assert tree(replica).keys() == before.keys()


@pytest.mark.parametrize("command", COMMANDS)
def test_where_all_can_be_written_a_dry_run_leaves_everything_as_it_was(replica, command):
    replica = prepared(command, replica)
    place = f"file:{replica}"
    before = {path: facts[:2] for path, facts in tree(replica).items()}
    command(place, True)
    assert {path: facts[:2] for path, facts in tree(replica).items()} == before
    command(place, False)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_lease_that_is_held_ends_a_dry_run_as_the_command(replica, command):
    replica = prepared(command, replica)
    place = f"file:{replica}"
    with acquire(place, Side()):
        for dry_run in (True, False):
            with pytest.raises(LeaseHeld):
                command(place, dry_run)


def test_what_was_written_is_removed_where_a_later_step_fails(tmp_path):
    place = synced(tmp_path, {1: FILES})

    def deny(verb, uri):
        return PermissionError(errno.EACCES, "denied", uri) if verb == "create_exclusive" else None

    before = tree(place).keys()
    with serving("file", Faulty(Side().storage("file:/"), deny)):
        replica = Replica(f"file:{place}", Side())
        with pytest.raises(PermissionError, match="sweep would fail: cannot create a lease"):
            try_change(replica, "sweep")
    assert tree(place).keys() == before
