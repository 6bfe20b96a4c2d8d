"""`watch`: keep a standby replica that follows each completed checkpoint of a running job."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from cpreplicate.core import uri
from cpreplicate.core.notify import Notify
from cpreplicate.core.placement import CHECKPOINT_NAME, METADATA
from cpreplicate.errors import (
    CopyFailed,
    CpreplicateError,
    LeaseHeld,
    MetadataError,
    Misplaced,
    NoJob,
    NotThere,
    SourceMovedOn,
    UsageError,
)
from cpreplicate.operations.sync.put_off import Backlog
from cpreplicate.operations.sync.report import Report
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.sync.sync import sync
from cpreplicate.protocol.source import find
from cpreplicate.storage import FileStatus

Show = Callable[[Report], object]


# Failures that end no watch: the next checkpoint may succeed.
_PASSING = (CopyFailed, LeaseHeld, MetadataError, NotThere, SourceMovedOn, OSError)


# Failures of the first try that the next checkpoint would meet, too.
_LASTING = (Misplaced, NoJob)


_UNCHANGED = 60.0  # seconds before a line is reported again that was reported before


class Sparing:
    """Reports lines to `notify`, but the same line at most once a minute."""

    def __init__(self, notify: Notify, clock: Callable[[], float] = time.monotonic) -> None:
        self._notify, self._clock = notify, clock
        self._reported: dict[str, float] = {}
        self._lock = threading.Lock()  # several jobs may fail at once

    def __call__(self, line: str) -> None:
        now = self._clock()
        with self._lock:
            self._reported = {
                reported: since
                for reported, since in self._reported.items()
                if now - since < _UNCHANGED
            }
            is_new = line not in self._reported
            self._reported.setdefault(line, now)
        if is_new:
            self._notify(line)

    def forget(self) -> None:
        """Report every line again, also one that was reported just now."""
        self._reported = {}


class _NeverThere(NotThere):
    """The job's directory did not exist when the watch began."""


def refuse_no_job(request: SyncRequest) -> None:
    """Raise if SOURCE can never be the directory of a job: waiting for a checkpoint has no end.

    Raises `UsageError` for a checkpoint, and `NoJob` for a file or the root of jobs. Costs a
    listing. A directory that is not there, or cannot be read at the first try, passes.
    """
    _refuse_checkpoint(request.source)
    try:
        find(request.source, replace(request.sides.source, retry_for=0.0), request.allow_older)
    except (NoJob, UsageError):
        raise
    except (CpreplicateError, OSError):
        return  # the watch itself reports it, and may wait until it is mended


def _refuse_checkpoint(source: str) -> None:
    directory = uri.parent(source) if uri.name(source) == METADATA else source
    if CHECKPOINT_NAME.fullmatch(uri.name(directory)):
        raise UsageError(f"{source} is one checkpoint. watch takes the directory of its job")


@dataclass
class _Job:
    """The job that is watched.

    It may have no completed checkpoint yet. Its directory must exist, unless it `may_come`.
    """

    request: SyncRequest
    may_come: bool
    notify: Notify
    had_checkpoint: bool = False
    was_there: bool = False
    reported: str = ""

    def newest(self) -> tuple[str, FileStatus | None] | None:
        """Return the newest completed checkpoint and the status of its `_metadata`.

        Returns None until the first checkpoint completes. A job that is started from scratch uses
        a number a second time: then the status is another one.
        """
        try:
            side = self.request.sides.source
            checkpoint = find(self.request.source, side, self.request.allow_older).checkpoint
        except NotThere as error:
            if self.had_checkpoint or isinstance(error, NoJob):
                raise
            self._wait()
            return None
        self.had_checkpoint = True
        metadata_uri = uri.join(checkpoint, METADATA)
        return checkpoint, side.storage(metadata_uri).stat(metadata_uri)

    def _wait(self) -> None:
        """Report once what the watch waits for.

        Flink creates the directory when a job starts, long before its first checkpoint.
        """
        source = self.request.source
        is_there = self.request.sides.source.storage(source).stat(source) is not None
        if not (is_there or self.was_there or self.may_come):
            raise _NeverThere(
                f"{source} is not there. Check the name of the job's directory, or give"
                " --wait-for-source to wait for a job that has not started yet"
            )
        self.was_there |= is_there
        state = (
            "holds no completed checkpoint yet. Waiting for the first one"
            if is_there
            else "is not there yet. Waiting for it"
        )
        if self.reported != state:
            self.reported = state
            self.notify(f"{source} {state}")


def watch(
    request: SyncRequest,
    interval: float,
    notify: Notify,
    show: Show,
    wait_for_source: bool = False,
    warn: Notify | None = None,
) -> None:
    """Sync each checkpoint that completes, until an exception ends the watch.

    Every `interval` seconds the newest checkpoint is looked for. A failure is reported, and the
    newest checkpoint is tried next. A failure that another checkpoint would meet, too, is raised:
    `Refused`, `UsageError`, and before the first success a job's directory that does not exist
    (unless `wait_for_source`), a SOURCE that can never be one, and a missing `--remap`. `warn`
    reports failures; `notify` does by default.
    """
    _refuse_checkpoint(request.source)
    notify = sparing = Sparing(notify)
    failures = Sparing(warn) if warn is not None else sparing
    job, backlog = _Job(request, wait_for_source, notify), Backlog(request)
    done: tuple[str, FileStatus | None] | None = None
    while True:
        until = time.monotonic() + interval
        try:
            newest = job.newest()
            if newest is not None and newest != done:
                report = sync(replace(request, source=newest[0]), notify)
                done = newest
                sparing.forget()
                failures.forget()
                backlog.add(report)
                show(report)
            backlog.work_off(until, failures)
        except _PASSING as error:
            is_first = done is None
            if isinstance(error, _NeverThere) or (is_first and isinstance(error, _LASTING)):
                raise
            failures(f"{error}. Trying the newest checkpoint again in {interval:g} s")
        time.sleep(max(0.0, until - time.monotonic()))
