"""Replicas as another program hands them over, and takes them back."""

import os
import shutil
from datetime import datetime, timezone

import pytest

from cpreplicate import SyncOptions, errors, promote, sync, to_dict, unseal
from cpreplicate.runners import ExecutionOptions
from tests.operations.jobs.test_flink_jobs import answering
from tests.support.encoder import OperatorEntry, Tree, encode
from tests.support.jobs import JOB, write_checkpoint
from tests.support.kafka_jobs import inline, subtask
from tests.support.kafka_states import WRITER, stream
from tests.support.replicas import NEXT
from tests.support.sink_states import Part, bucket

pytestmark = pytest.mark.usefixtures("still_source")
INLINE = ExecutionOptions(runner="inline")
OPTIONS = SyncOptions(keep=2, execution=INLINE)


@pytest.fixture
def replica(places, tmp_path):
    source, target = places
    sync(source, target, OPTIONS)
    return tmp_path / "dcB" / JOB


def test_a_replica_is_promoted_and_unsealed_again(places, replica):
    tried = promote(replica, dry_run=True, execution=INLINE)
    assert (tried.is_promoted, tried.sealed) == (False, None)
    promotion = promote(str(replica), content="100%", max_lag="24h", execution=INLINE)
    assert promotion.is_promoted
    assert promotion.starting is not None
    assert f"{replica}/chk-1" in promotion.starting.restore.command
    with pytest.raises(errors.Sealed):
        sync(places[0], places[1], OPTIONS)
    assert unseal(replica, no_job_uses_it=True, dry_run=True).is_dry_run
    assert unseal(replica, no_job_uses_it=True).sealed
    assert sync(places[0], places[1], OPTIONS).committed  # its paths are relative again


def test_a_replica_is_promoted_as_of_a_time(places, replica, tmp_path):
    between = datetime.now(timezone.utc)
    metadata = write_checkpoint(tmp_path / "dcA", 2, NEXT) / "_metadata"
    os.utime(metadata, (between.timestamp() + 60, between.timestamp() + 60))
    sync(places[0], places[1], OPTIONS)
    assert promote(replica, as_of=between, dry_run=True, execution=INLINE).checkpoint == "chk-1"
    text = between.isoformat(timespec="microseconds")
    assert promote(replica, as_of=text, dry_run=True, execution=INLINE).checkpoint == "chk-1"
    assert promote(replica, dry_run=True, execution=INLINE).checkpoint == "chk-2"


def test_a_promotion_that_lags_more_than_allowed_changes_nothing(places, replica, tmp_path):
    write_checkpoint(tmp_path / "dcA", 2, NEXT)
    with pytest.raises(errors.Lagging):
        promote(replica, max_lag=0, execution=INLINE)
    assert sync(places[0], places[1], OPTIONS).committed


def test_a_replica_whose_files_are_missing_is_not_promoted(replica):
    next(iter((replica / "shared").iterdir())).unlink()
    promotion = promote(replica, execution=INLINE)
    assert (promotion.is_promoted, promotion.verification.restorable) == (False, False)
    with pytest.raises(errors.NotThere, match="not sealed"):
        unseal(replica, no_job_uses_it=True)


def test_a_program_promotes_with_the_part_files_of_sinks_as_the_command_does(tmp_path):
    out = tmp_path / "out" / "part-1"
    part = Part(str(out), f"{out}.inprogress", 10, is_local=True)
    states = stream({WRITER: [bucket(3, part, path=f"file:{out.parent}")]})
    sink = OperatorEntry(
        bytes([9]) * 16, 1, 16, (subtask(0, states, inline(states.data)),), None, "out: Writer"
    )
    directory = tmp_path / "dcA" / JOB / "chk-1"
    directory.mkdir(parents=True)
    (directory / "_metadata").write_bytes(encode(Tree(6, (sink,), 1)).data)
    sync(directory.parent, tmp_path / "dcB", OPTIONS)
    replica = tmp_path / "dcB" / JOB
    with pytest.raises(errors.PartFilesMissing) as refused:
        promote(replica, with_files=True, execution=INLINE)
    assert [each["presence"] for each in to_dict(refused.value.report)["files"]] == ["missing"]
    read_by_none = promote(
        replica, with_files=True, not_read=["out: Writer"], dry_run=True, execution=INLINE
    )
    assert read_by_none.verification.restorable
    out.parent.mkdir()
    (out.parent / "part-1.inprogress").write_bytes(b"x" * 10)
    assert promote(replica, with_files=True, execution=INLINE).is_promoted


def test_a_program_asks_a_jobmanager_for_the_savepoint_of_a_job_that_was_stopped(replica, tmp_path):
    shutil.rmtree(tmp_path / "dcA" / JOB / "chk-1")
    last = {"id": 9, "external_path": "file:/far/savepoint-0123", "latest_ack_timestamp": 2000}
    answers = {f"/jobs/{JOB}/checkpoints": {"latest": {"completed": None, "savepoint": last}}}
    with (
        answering(answers) as (address, _),
        pytest.raises(errors.Refused, match="file:/far/savepoint-0123, completed"),
    ):
        promote(replica, flink=[f"http://{address}"], execution=INLINE)
    assert promote(replica, allow_older=True, execution=INLINE).is_promoted


def test_unseal_needs_the_job_or_that_there_is_none(places, replica):
    promote(replica, execution=INLINE)
    with pytest.raises(errors.UsageError, match="no_job_uses_it"):
        unseal(replica)
    with pytest.raises(errors.UsageError, match="no_job_uses_it"):
        unseal(replica, places[0], no_job_uses_it=True)
    with pytest.raises(errors.Refused, match="is the source of"):
        unseal(replica, places[0])


def test_a_checkpoint_and_a_time_are_not_chosen_both(replica):
    with pytest.raises(errors.UsageError, match="give one"):
        promote(replica, "chk-1", as_of=0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"as_of": "yesterday"},
        {"as_of": datetime(2026, 1, 1)},  # without a zone: that is wrong
        {"max_lag": "15 parsecs"},
        {"content": 2},
        {"dry_run": "yes"},
        {"lock_wait": -1},
        {"execution": "inline"},
        {"source": 5},
        {"on_message": "print"},
        {"cancellation": True},
    ],
    ids=str,
)
def test_a_wrong_value_is_a_usage_error(replica, wrong):
    (name,) = wrong
    with pytest.raises(errors.UsageError, match=f"the option {name} of the API is "):
        promote(replica, **wrong)
