"""A point in time is promoted: nothing is deleted, and later syncs go on as before."""

import os
import re
import shlex

import pytest
from click.testing import CliRunner

from cpreplicate.cli.commands.replication import cli
from cpreplicate.core.packs import PackOptions
from cpreplicate.errors import NotThere, Refused, UsageError
from cpreplicate.operations.handover import promote
from cpreplicate.operations.handover.promote import PromoteRequest
from cpreplicate.operations.handover.unseal import UnsealRequest, unseal
from cpreplicate.operations.sync import sync
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.verify.verify import ALL, NOTHING, verify
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import Side
from tests.support import checker
from tests.support.jobs import JOB, write_checkpoint
from tests.support.replicas import FILES, NEXT, paths

LATER = {"shared/h": 800, "shared/y": 60, "shared/z": 5, "chk-3/x": 50}
HOUR = 3600
NOON = 20_000 * 24 * HOUR + 12 * HOUR  # of 2024-10-04
NOTHING_BY_NOON = "no checkpoint that was completed by 2024-10-04T11:59:59"


def complete(root, number, files, packing):
    """Complete a checkpoint so many hours after noon, and sync it."""
    directory = write_checkpoint(root / "dcA", number, files)
    os.utime(directory / "_metadata", (NOON + number * HOUR + 0.7,) * 2)
    request = SyncRequest(
        f"file:{directory}",
        f"file:{root}/dcB",
        keep=3,
        packing=packing,
        execution=ExecutionOptions(runner="inline"),
    )
    return sync.sync(request, lambda _line: None)


@pytest.fixture(params=["off", "on"])
def packing(request):
    return PackOptions(request.param, 700)


@pytest.fixture
def replica(tmp_path, packing):
    for number, files in ((1, FILES), (2, NEXT)):
        complete(tmp_path, number, files, packing)
    return tmp_path / "dcB" / JOB


def run(replica, **options):
    return promote.promote(PromoteRequest(f"file:{replica}", **options), lambda _line: None)


@pytest.mark.parametrize(
    ("hours", "name"), [(1, "chk-1"), (1.9, "chk-1"), (2, "chk-2"), (1000, "chk-2")]
)
def test_the_newest_checkpoint_that_was_completed_by_a_time_is_promoted(replica, hours, name):
    done = run(replica, as_of=NOON + hours * HOUR)
    assert (done.checkpoint, done.starting.checkpoint) == (name, f"file:{replica}/{name}")
    assert f"for {name}" in done.sealed


def test_if_none_was_completed_by_then_the_nearest_are_named_and_nothing_is_done(replica):
    before = paths(replica)
    with pytest.raises(NotThere, match=NOTHING_BY_NOON) as error:
        run(replica, as_of=NOON - 1)
    assert "chk-1 (2024-10-04T13:00:00+00:00), chk-2 (2024-10-04T14:00:00" in str(error.value)
    assert paths(replica) == before


def test_a_time_and_a_name_are_not_given_together(replica):
    with pytest.raises(UsageError):
        run(replica, as_of=NOON, checkpoint="chk-1")


def test_an_older_point_is_promoted_without_a_change_of_any_other(replica):
    before = {path: (replica / path).read_bytes() for path in paths(replica)}
    done = run(replica, checkpoint="chk-1", content=ALL)
    changed = {"chk-1/_metadata", ".cpreplicate/chk-1.json", ".cpreplicate/chk-1.parquet"}
    for path, content in before.items():
        assert path in changed or (replica / path).read_bytes() == content
    assert checker.faults(replica) == []
    (warning,) = [each for each in done.warnings if "newer" in each]
    assert warning.startswith(f"chk-2 is newer than chk-1, and stays in file:{replica}. ")


def test_promoting_again_returns_the_point_that_was_promoted(replica):
    first = run(replica, checkpoint="chk-1")
    assert run(replica) == first
    assert run(replica, as_of=NOON + HOUR) == first
    assert verify(f"file:{replica}", None, NOTHING, print, Side()).checkpoint_id == 1


def test_another_point_is_promoted_only_after_the_replica_was_unsealed(replica):
    run(replica)
    for options in ({"checkpoint": "chk-1"}, {"as_of": NOON + HOUR}):
        with pytest.raises(Refused, match=r"for chk-2, not for chk-1: a job may run from chk-2"):
            run(replica, **options)
    assert "not for chk-1" in verify(f"file:{replica}", "chk-1", NOTHING, print, Side()).refused
    with pytest.raises(Refused) as refused:
        run(replica, checkpoint="chk-1")
    (advice,) = re.findall("`cpreplicate (.*)`", str(refused.value))
    assert CliRunner().invoke(cli, shlex.split(advice)).exit_code == 0
    assert run(replica, checkpoint="chk-1").checkpoint == "chk-1"
    assert checker.faults(replica) == []


def test_after_it_was_unsealed_the_next_sync_keeps_every_point_whole(replica, tmp_path, packing):
    run(replica, checkpoint="chk-1")
    unseal(UnsealRequest(f"file:{replica}", None))
    assert complete(tmp_path, 2, NEXT, packing).plan.empty
    assert complete(tmp_path, 3, LATER, packing).committed
    for name in ("chk-1", "chk-2", "chk-3"):
        assert verify(f"file:{replica}", name, ALL, lambda _line: None, Side()).restorable
    assert checker.faults(replica) == []
    complete(tmp_path, 4, LATER, packing)
    assert not (replica / "chk-1" / "_metadata").exists()
    assert checker.faults(replica) == []


def test_a_job_that_went_on_from_an_older_point_lets_the_replica_be_unsealed(replica, tmp_path):
    """Flink numbers its checkpoints from the one that it restored on."""
    run(replica, checkpoint="chk-1")
    job = f"file:{tmp_path}/own/{JOB}"
    write_checkpoint(tmp_path / "own", 1, {"shared/own": 10})
    with pytest.raises(Refused, match="no checkpoint that was completed since"):
        unseal(UnsealRequest(f"file:{replica}", job))
    write_checkpoint(tmp_path / "own", 2, {"shared/own": 10})
    assert "for chk-1" in unseal(UnsealRequest(f"file:{replica}", job)).sealed
