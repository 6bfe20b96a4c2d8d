"""What came of each job of a command that changes many replicas."""

from cpreplicate.errors import LeaseHeld
from cpreplicate.operations.change.job_result import JobResult, JobResults, failed

DONE = JobResult("orders", "done")


def test_a_job_that_an_exception_ended_has_its_exit_code_and_its_message_in_one_line():
    result = failed(DONE, "failed", LeaseHeld("held by\n  another run"))
    assert result == JobResult(
        "orders", "failed", exit_code=LeaseHeld.exit_code, error="held by another run"
    )


def test_one_job_that_failed_ends_the_command_with_3():
    bad = failed(DONE, "failed", LeaseHeld("held"))
    assert JobResults((DONE, DONE)).exit_code == 0
    assert JobResults((DONE, bad)).exit_code == 3
    assert JobResults((DONE, bad)).counts(["done", "failed", "left"]) == {
        "done": 1,
        "failed": 1,
        "left": 0,
    }
