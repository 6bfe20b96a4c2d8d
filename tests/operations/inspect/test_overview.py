"""What a page shows beside a result: it illustrates, and never fails."""

import shutil
from dataclasses import replace

import pytest

from cpreplicate.operations.inspect import overview
from cpreplicate.operations.sync.diff import diff
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.storage import Side, Sides
from tests.support.jobs import JOB, write_checkpoint
from tests.support.replicas import FILES, synced


@pytest.fixture
def plan(tmp_path):
    """The plan of a sync of the third checkpoint to a replica that has two."""
    synced(tmp_path, {1: FILES, 2: FILES}, keep=2)
    write_checkpoint(tmp_path / "dcA", 3, {**FILES, "shared/new": 10})
    return diff(SyncRequest(f"file:{tmp_path}/dcA/{JOB}", f"file:{tmp_path}/dcB")).plan


def test_a_plan_has_the_operators_of_its_source_and_the_history_of_its_replica(plan):
    found = overview.of_plan(plan, False, Sides(), ())
    assert found.handles.inspection.checkpoint_id == 3
    (history,) = found.history.replicas
    assert [point.checkpoint for point in history.points] == ["chk-2", "chk-1"]
    assert found.problems == ()


def test_a_committed_checkpoint_is_read_in_the_replica(plan, tmp_path):
    shutil.rmtree(tmp_path / "dcA")
    earlier = replace(plan, checkpoint="chk-2")
    committed = overview.of_plan(earlier, True, Sides(), ())
    assert committed.handles.inspection.checkpoint_id == 2
    assert committed.problems == ()


def test_what_cannot_be_read_is_a_problem_and_no_error(plan, tmp_path):
    shutil.rmtree(tmp_path / "dcA")
    found = overview.of_plan(plan, False, Sides(), ())
    assert found.handles is None
    assert found.history.replicas
    (problem,) = found.problems
    assert problem.startswith("the operators are not shown: ")


def test_the_history_of_a_place_without_a_replica_is_empty(tmp_path):
    found = overview.of_replica(f"file:{tmp_path}/none", Side())
    assert found.history.replicas == ()
    assert found.handles is None
