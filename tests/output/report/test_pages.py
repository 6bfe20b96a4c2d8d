"""The pages of results that are no plan: each begins with the answer in one sentence."""

from dataclasses import replace
from importlib import import_module
from typing import get_type_hints

import pytest

from cpreplicate.core.lag import Newest
from cpreplicate.core.positions.model import PartFile, Positions
from cpreplicate.operations.inspect.overview import Overview
from cpreplicate.operations.jobs.fleet import FleetReport, JobReplication
from cpreplicate.operations.jobs.observation import Observation
from cpreplicate.operations.kafka.positions import CheckpointPositions
from cpreplicate.operations.replicas.points import Point, Points, ReplicaPoints
from cpreplicate.operations.replicas.replica_status import FleetStatus, ReplicaStatus
from cpreplicate.operations.sync.report import SyncCheck
from cpreplicate.operations.verify.verify import Verification, Verifications
from cpreplicate.output.report import PAGES, page_of
from tests.output.report.test_plan import HISTORY, chart, table
from tests.support.reports import handles_of, plan_of, report_of

WHOLE = Verification("hdfs://b/job", "chk-7", 7, 3, 3072, (), (), (), ())
POINTS = (Point("chk-7", 7, 70.0, 3, 40, 3), Point("chk-6", 6, 60.0, 3, 39, 2))


def job(name, status, **fields):
    return JobReplication(name, status, f"hdfs://a/{name}", "hdfs://b", 0, **fields)


def replica(name, completed, newest, **fields):
    at_replica, at_source = Newest(6, completed), Newest(7, newest)
    observed = Observation(
        name, replica=f"hdfs://b/{name}", replica_newest=at_replica, source_newest=at_source
    )
    return ReplicaStatus(name, observed, name, "chk-6", **fields)


@pytest.mark.parametrize(("class_name", "module"), PAGES.items())
def test_the_module_of_a_class_makes_the_page_of_that_class(class_name, module):
    page = import_module(f"cpreplicate.output.report.pages.{module}").page
    taken, *_ = get_type_hints(page).values()
    assert taken.__name__ == class_name


def test_inspect_names_the_largest_operator():
    page = page_of(handles_of({"Window": [90, 90], "Sink": [10, 10]}))
    assert page.answer == (
        "chk-7 holds 4 files, 200 B, of 2 operators; the largest is Window with 90 % of the state."
    )
    assert page.tone == "good"


def part_files() -> CheckpointPositions:
    files = (
        PartFile("op", "in-progress", "hdfs://a/out/part-0", "hdfs://a/out/.part-0.7", 10),
        PartFile("op", "pending", "hdfs://a/out/part-1", "hdfs://a/out/.part-1.8", 20),
    )
    return CheckpointPositions(Positions(part_files=files), False, {"op": "out: Writer"})


def test_inspect_and_diff_name_part_files_outside():
    handles = handles_of({"Window": [90, 90]})
    inspection = replace(handles.inspection, positions=part_files())
    page = page_of(replace(handles, inspection=inspection))
    assert page.tone == "notice"
    outside = [text for name, text in page.facts if name == "outside"]
    assert [text.split(" of ")[0] for text in outside] == [
        "1 part file in progress (10 bytes)",
        "1 part file pending (20 bytes)",
    ]
    found = table(page, "Part files outside")
    assert found["sink"] == ["out: Writer", "out: Writer"]
    assert found["part file"] == ["hdfs://a/out/.part-0.7", "hdfs://a/out/.part-1.8"]
    notes = page_of(replace(report_of(plan_of()), positions=part_files())).notes
    assert any(each.startswith("1 part file in progress (10 bytes) of out: W") for each in notes)


def test_inspect_marks_a_skewed_subtask():
    page = page_of(handles_of({"Window": [10, 10, 10, 31], "Sink": [5, 5]}))
    assert page.answer.endswith(
        "The largest subtask of Window has 3.1 times the median, more than 3."
    )
    assert page.tone == "notice"
    assert chart(page, "Subtasks of Window")["3"] == {"bytes of the subtask": 31}


@pytest.mark.parametrize("sizes", [[10, 10, 10, 30], [100], []])
def test_a_ratio_of_three_and_a_single_subtask_are_not_skewed(sizes):
    assert "times the median" not in page_of(handles_of({"Window": sizes})).answer


def test_a_checkpoint_without_operators_has_a_page():
    assert page_of(handles_of({})).answer.startswith("chk-7 holds 0 files, 0 B")


def test_a_number_of_a_subtask_that_flink_cannot_have_takes_no_memory():
    handles = handles_of({"Window": [10, 20]})
    handles.subtask[1] = 2**31 - 2
    operator = replace(handles.inspection.operators[0], subtasks=2**31 - 1)
    inspection = replace(handles.inspection, operators=(operator,))
    assert page_of(replace(handles, inspection=inspection)).answer.startswith("chk-7 holds 2")


def test_inspect_lists_every_state_handle():
    handles = handles_of({"Window": [1, 2], "Sink": [3]})
    listed = table(page_of(handles), "State handles")
    assert listed["operator"] == ["Window", "Window", "Sink"]
    assert listed["subtask"] == [0, 1, 0]
    assert listed["size"] == [1, 2, 3]
    assert listed["position"] == [None] * 3
    assert listed["path"] == handles.paths


def test_operators_of_one_name_are_told_apart():
    handles = handles_of({"Map": [1], "Other": [2]})
    same = tuple(replace(each, name="Map") for each in handles.inspection.operators)
    inspection = replace(handles.inspection, operators=same)
    found = table(page_of(replace(handles, inspection=inspection)), "Operators")
    assert len(set(found["operator"])) == 2


def test_verify_states_that_a_checkpoint_can_be_restored():
    page = page_of(Verifications((WHOLE,)), Overview(history=HISTORY))
    assert page.answer == (
        "chk-7 can be restored: all of 3 files, 3.0 KiB, are there and long enough;"
        " their content was not compared (--content)."
    )
    assert page.tone == "good"
    assert "Kept checkpoints" in [each.title for each in page.charts]


def test_verify_counts_the_faults_and_lists_their_files():
    damaged = replace(WHOLE, missing=("shared/a",), corrupt=("shared/b",), repair="sync A B")
    page = page_of(Verifications((damaged,)))
    assert page.answer == "chk-7 cannot be restored: 1 missing and 1 corrupt of 3 files."
    assert page.tone == "bad"
    assert table(page, "Faults") == {
        "checkpoint": ["chk-7", "chk-7"],
        "fault": ["missing", "corrupt"],
        "file": ["shared/a", "shared/b"],
    }
    assert page.notes == ("Repair the replica with the options of its syncs: sync A B",)


def test_verify_of_several_checkpoints_names_the_damaged_one():
    found = (WHOLE, replace(WHOLE, checkpoint="chk-6", short=("shared/a",)))
    page = page_of(Verifications(found))
    assert page.answer == ("1 of 2 checkpoints cannot be restored; chk-6: 1 too short of 3 files.")


def test_fleet_counts_jobs_and_bytes_and_lists_what_failed():
    report = report_of(plan_of(copies={"shared/a": 2048}), committed=True, runner="spark")
    jobs = (
        job("orders", "replicated", report=report),
        job("users", "current"),
        job("carts", "failed", exit_code=10, error="it is not there"),
    )
    page = page_of(FleetReport(jobs, "spark", 3.0))
    assert page.answer == (
        "Of 3 jobs, 1 replicated, 1 current and 1 failed; 2.0 KiB were copied; it took 3.0 s."
    )
    assert page.tone == "bad"
    assert page.notes == ("carts: exit 10: it is not there",)
    assert table(page, "Jobs")["files copied"] == [None, 1, None], "what failed is first"


def test_the_plan_of_a_fleet_has_what_is_to_be_copied():
    check = SyncCheck("file:/replicas/a", "chk-7", False, 2, 2048)
    page = page_of(FleetReport((job("orders", "planned", check=check),), "inline", 0.2))
    assert page.answer == ("Of 1 job, 1 to be replicated; 2.0 KiB are to be copied; it took 0.2 s.")


def test_status_names_the_longest_lag_and_what_is_not_ready():
    rows = (
        replica("orders", completed=100.0, newest=160.0),
        replica("users", completed=100.0, newest=160.0, warnings=("a link",), refusal="a link"),
    )
    page = page_of(FleetStatus(rows, now=220.0, max_lag=60.0))
    assert page.answer.startswith(
        "2 replicas: 1 ready to be promoted, 1 not; 2 of them lag more than 1 min 00 s;"
        " the longest lag is 2 min 00 s ("
    )
    assert page.tone == "bad"
    assert "users: warning: a link" in page.notes
    assert table(page, "Replicas")["ready"] == ["no", "yes"], "the broken one is first"


def test_status_without_problems_is_good():
    page = page_of(FleetStatus((replica("orders", 160.0, 160.0),), now=220.0))
    assert page.tone == "good"


def test_list_counts_checkpoints_and_names_the_newest():
    rows = (
        ReplicaPoints("orders", "hdfs://b/orders", POINTS, 42),
        ReplicaPoints("users", "hdfs://b/users", error="no right to read"),
    )
    page = page_of(Points(rows))
    assert page.answer == (
        "2 replicas hold 2 checkpoints, 42 B together; 1 cannot be read;"
        " the newest is chk-7 of orders, completed 1970-01-01T00:01:10.000Z."
    )
    assert page.tone == "bad"
    assert page.notes == ("users cannot be read: no right to read",)


@pytest.mark.parametrize(
    "result", [Points(()), FleetReport((), "inline", 0.1), FleetStatus((), 0.0)]
)
def test_an_empty_result_has_a_page(result):
    assert page_of(result).answer.endswith(".")
