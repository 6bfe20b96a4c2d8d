"""What came of each job, for the commands that change many replicas."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from cpreplicate.errors import described, exit_code_of

Outcome = TypeVar("Outcome", bound=str)
Result = TypeVar("Result", bound="JobResult[Any]")
T = TypeVar("T")
SOME_FAILED = 3
_ADVICE = re.compile(r"`[\w-]+ = [^`]*`")  # a line of the file, whose paths are the advice
_PATHS = re.compile(r"…?\S*/\S*(?:(?:; | and )(?:\S*/\S*|\d+ more))*")
_NUMBER = re.compile(r"\d+")
_VERBS = re.compile(r"(?<=N )(\w+ )?files? (?:is|are|has|have)\b")


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

    @property
    def own(self) -> tuple[str, ...]:
        """Its name and its places: the errors of two jobs of one cause differ in these."""
        return (self.name,)


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

    @property
    def causes(self) -> list[list[Result]]:
        """The jobs that failed, those of one cause together, the most frequent cause first."""
        failed = (job for job in self.jobs if job.exit_code)
        return grouped(failed, lambda job: (job.exit_code, cause(job.error or "", job.own)))

    def counts(self, outcomes: Iterable[str]) -> dict[str, int]:
        """Return how many jobs have each outcome."""
        return {outcome: self.count(outcome) for outcome in outcomes}

    def count(self, outcome: str) -> int:
        """Return how many jobs have an outcome."""
        return sum(job.outcome == outcome for job in self.jobs)


def grouped(items: Iterable[T], key: Callable[[T], Hashable]) -> list[list[T]]:
    """Return items with those of one key together, the most frequent key first."""
    groups: dict[Hashable, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return sorted(groups.values(), key=lambda each: -len(each))


def cause(text: str, own: Iterable[str]) -> str:
    """Return an error without what one job has alone: names, paths, numbers, and how many.

    Two have one cause if they differ in nothing else. `own` are the names and places of the job.
    """
    for each in sorted({*own} - {""}, key=len, reverse=True):
        text = text.replace(each, "…")
    advice = " ".join(_ADVICE.findall(text))
    text = _PATHS.sub("…", _ADVICE.sub("", text))
    return f"{_VERBS.sub('', _NUMBER.sub('N', text))} {advice}"
