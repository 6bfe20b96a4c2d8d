"""What a failed try of a job means to the service: wait, try again, or end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from cpreplicate.core import uri
from cpreplicate.core.lag import Newest
from cpreplicate.core.notify import Notify
from cpreplicate.core.placement import CHECKPOINT_NAME, METADATA, job_root
from cpreplicate.errors import (
    CpreplicateError,
    LeaseHeld,
    Misplaced,
    NoJob,
    NotThere,
    Refused,
    SourceBroken,
    UsageError,
)
from cpreplicate.operations.jobs.job import Job
from cpreplicate.operations.sync.request import SyncRequest

_ALWAYS_FINAL = (UsageError, Refused)
_FINAL_AT_FIRST = (Misplaced, NoJob)
"""Failures of the first try that the next checkpoint would meet, too."""


class Policy(Protocol):
    """What failures mean."""

    def is_waiting(self, job: Job, seen: Newest | None, error: Exception) -> bool:
        """Return whether a job failed only because it has no completed checkpoint now.

        `seen` is the newest one that was seen before. May report what is waited for.
        """

    def final(self, error: Exception, is_first: bool) -> Exception | None:
        """Return the error with which the service ends, None if the job is tried again.

        `is_first`: the job was not replicated before.
        """


class KeepTrying:
    """The policy for many jobs: no failure ends the service."""

    def is_waiting(self, job: Job, seen: Newest | None, error: Exception) -> bool:
        """See `Policy`."""
        if not isinstance(error, NotThere) or not job.is_discovered:
            return False
        return job.has_ended or seen is None or has_ended(job, error)

    def final(self, error: Exception, is_first: bool) -> Exception | None:  # noqa: ARG002  # none is
        """See `Policy`."""
        return None


class OneJob:
    """The discovery of `watch SOURCE`, and its policy.

    Failures that another checkpoint would meet, too, end it: wrong usage and refusals; and before
    the first success a SOURCE that can never be the directory of a job, a missing `--remap`, and a
    directory that does not exist, unless it `may_come`. Raises `UsageError` if the source is one
    checkpoint.
    """

    coverage = None  # it looks nowhere

    def __init__(self, request: SyncRequest, may_come: bool, notify: Notify) -> None:
        _refuse_checkpoint(request.source)
        self._job = Job(request.name or uri.name(job_root(request.source)), request)
        self.target_roots = (request.target_root,)
        self._may_come, self._notify = may_come, notify
        self._was_there = self._is_missing = False
        self._reported = ""

    def jobs(self) -> Sequence[Job]:
        """See `Discovery`."""
        return [self._job]

    def is_waiting(self, job: Job, seen: Newest | None, error: Exception) -> bool:
        """See `Policy`. Also reports who holds the lease; each line once.

        Flink creates the directory when a job starts, long before its first checkpoint.
        """
        if isinstance(error, LeaseHeld):
            self._report(f"{error}. Waiting for it")
        is_empty = isinstance(error, NotThere) and not isinstance(error, (NoJob, SourceBroken))
        if seen is not None or not is_empty:
            return seen is not None and has_ended(job, error)
        source = job.request.source
        try:
            is_there = job.request.sides.source.storage(source).stat(source) is not None
        except (CpreplicateError, OSError):
            return False  # it is not known, and asked again
        self._was_there |= is_there
        self._is_missing = not (self._was_there or self._may_come)
        if not self._is_missing:
            self._report(
                f"{source} holds no completed checkpoint yet. Waiting for the first one"
                if is_there
                else f"{source} is not there yet. Waiting for it"
            )
        return not self._is_missing

    def _report(self, line: str) -> None:
        if line != self._reported:
            self._reported = line
            self._notify(line)

    def final(self, error: Exception, is_first: bool) -> Exception | None:
        """See `Policy`."""
        if isinstance(error, _ALWAYS_FINAL) or (is_first and isinstance(error, _FINAL_AT_FIRST)):
            return error
        if is_first and self._is_missing and isinstance(error, NotThere):
            return NotThere(
                f"{self._job.request.source} is not there. Check the name of the job's directory,"
                " or give --wait-for-source to wait for a job that has not started yet"
            )
        return None


def has_ended(job: Job, error: Exception) -> bool:
    """Return whether a job that had checkpoints has ended the ordinary way, with all deleted.

    Flink leaves its directory, without checkpoints. A job that a JobManager reports as running has
    not ended, and one whose directory is gone may be lost.
    """
    if job.newest is not None or not isinstance(error, NotThere):
        return False
    if isinstance(error, (NoJob, SourceBroken)):
        return False
    source = job.request.source
    try:
        return job.request.sides.source.storage(source).stat(source) is not None
    except (CpreplicateError, OSError):
        return False


def _refuse_checkpoint(source: str) -> None:
    directory = uri.parent(source) if uri.name(source) == METADATA else source
    if CHECKPOINT_NAME.fullmatch(uri.name(directory)):
        raise UsageError(f"{source} is one checkpoint. watch takes the directory of its job")
