"""What came of each job, for the commands that change many replicas."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from cpreplicate.errors import described, exit_code_of

Outcome = TypeVar("Outcome", bound=str)
Result = TypeVar("Result", bound="JobResult[Any]")
SOME_FAILED = 3


@dataclass(frozen=True)
class JobResult(Generic[Outcome]):
    """What came of one job, by its name.

    If it failed, `exit_code` and `error` are those with which the command would end that does the
    same for this job alone.
    """

    name: str
    outcome: Outcome
    exit_code: int = field(default=0, kw_only=True)
    error: str | None = field(default=None, kw_only=True)


def failed(job: Result, outcome: str, error: Exception) -> Result:
    """Return the result of a job that an exception ended."""
    text = " ".join(described(error).split())
    return replace(job, outcome=outcome, exit_code=exit_code_of(error), error=text)


@dataclass(frozen=True)
class JobResults(Generic[Result]):
    """The results of all jobs."""

    jobs: tuple[Result, ...]

    @property
    def exit_code(self) -> int:
        """0 if no job failed, else 3."""
        return SOME_FAILED if any(job.exit_code for job in self.jobs) else 0

    def counts(self, outcomes: Iterable[str]) -> dict[str, int]:
        """Return how many jobs have each outcome."""
        return {outcome: self.count(outcome) for outcome in outcomes}

    def count(self, outcome: str) -> int:
        """Return how many jobs have an outcome."""
        return sum(job.outcome == outcome for job in self.jobs)
