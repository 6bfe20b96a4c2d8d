"""What Airflow does after each exit code of cpreplicate. Imports nothing of Airflow."""

from __future__ import annotations

from enum import Enum


class Outcome(Enum):
    """What becomes of a task."""

    SUCCESS = "success"
    RETRY = "retry"  # an ordinary failure: the task's own `retries` decide
    SKIP = "skip"
    FAIL = "fail"  # another try changes nothing


NOT_RESTORABLE = 4
_NOT_THERE = 10
_OUTCOMES = {
    0: Outcome.SUCCESS,
    2: Outcome.FAIL,  # usage
    3: Outcome.RETRY,  # some copies failed
    NOT_RESTORABLE: Outcome.FAIL,  # verify found missing, truncated or corrupt files
    5: Outcome.FAIL,  # metadata not understood
    6: Outcome.FAIL,  # refused for safety
    7: Outcome.RETRY,  # a storage or a service could not be reached
    _NOT_THERE: Outcome.FAIL,
    11: Outcome.RETRY,  # lease held by another run
    12: Outcome.RETRY,  # the checkpoint was subsumed: the next run takes the newest one
    20: Outcome.SUCCESS,  # diff --exit-code: there are differences
    21: Outcome.RETRY,  # status --max-lag: a replica lags
    22: Outcome.FAIL,  # switch: the job runs where it ran
    23: Outcome.FAIL,  # switch: a person has to act
    129: Outcome.RETRY,  # stopped by a signal: the next run resumes
    130: Outcome.RETRY,
    143: Outcome.RETRY,
}


def outcome(code: int, skip_not_there: bool = False) -> Outcome:
    """Return what becomes of a task whose run ended with `code`; unknown codes are tried again.

    With `skip_not_there`, a source that does not exist skips the task: a job that has no completed
    checkpoint yet. An incomplete source ends with the same code, so do not use it for jobs that
    have run.
    """
    if skip_not_there and code == _NOT_THERE:
        return Outcome.SKIP
    return _OUTCOMES.get(code, Outcome.RETRY)
