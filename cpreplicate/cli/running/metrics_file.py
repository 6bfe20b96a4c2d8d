"""`--metrics-file`: write the metrics of a run from cron, also of one that fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from cpreplicate.cli.running.report_file import refuse_in_replica
from cpreplicate.core import uri
from cpreplicate.errors import Refused, Sealed, TooManyDeletes, exit_code_of, obstacle_of

if TYPE_CHECKING:
    from cpreplicate.operations.jobs.fleet import FleetReport, JobReplication
    from cpreplicate.operations.jobs.observation import Observation, Operation
    from cpreplicate.operations.sync.report import Report
    from cpreplicate.operations.sync.request import SyncRequest
    from cpreplicate.operations.upkeep.sweep import Sweep
    from cpreplicate.output.textfile import Apply, MetricsFile, Try

_INTERRUPTED = 130
_DAMAGED = 4
_UNREACHABLE = 7


@contextmanager
def sync_metrics(path: str | None, request: SyncRequest) -> Iterator[Callable[[Report], None]]:
    """Write the metrics of a sync; yield the function that records its report.

    Like the other contexts here, it records a failure if the block raises. Without a path it does
    nothing.
    """
    from cpreplicate.operations.sync.place import known_root

    def see_newest(job: Observation) -> None:
        from cpreplicate.operations.jobs import observation

        observation.see_newest(job, request)

    with _job_metrics(path, "sync", partial(known_root, request), see_newest) as record:
        yield lambda report: record(
            lambda job: job.succeeded(report, time.time()), report.plan.replica
        )


@contextmanager
def sweep_metrics(path: str | None, replica: str) -> Iterator[Callable[[Sweep], None]]:
    """Write the metrics of a sweep; yield the function that records its report."""
    with _job_metrics(path, "sweep", lambda: replica) as record:
        yield lambda report: record(lambda job: _swept(job, report), replica)


@contextmanager
def verify_metrics(path: str | None, replica: str) -> Iterator[Callable[[bool, str | None], None]]:
    """Write the metrics of `verify`.

    Yield the function that records whether all can be restored, and why `promote` would refuse it.
    """
    with _job_metrics(path, "verify", lambda: replica) as record:
        yield lambda is_restorable, refused: record(
            lambda job: _verified(job, is_restorable, refused), replica
        )


@contextmanager
def fleet_metrics(path: str | None, name: str) -> Iterator[Callable[[FleetReport], None]]:
    """Write the metrics of a fleet; yield the function that records its report.

    If the block raises, each job in the file has failed, or `name` if it has none.
    """
    refuse_in_replica("--metrics-file", path)
    try:
        yield lambda report: None if path is None else _fleet_file(path).record(_tries_of(report))
    except BaseException as error:
        if path is not None:
            _fleet_file(path).record_failure_of_all(name, _failure(error))
        raise


@contextmanager
def _job_metrics(
    path: str | None, operation: Operation, likely: Callable[[], str], see: Apply | None = None
) -> Iterator[Callable[[Apply, str], None]]:
    """Write the metrics of one try; yield the function that records what came of which replica.

    After a failure, that is the `likely` one, and `see` may find out more, unless a storage could
    not be reached or the run was interrupted.
    """

    def record(apply: Apply, replica: str) -> None:
        if path is not None:
            from cpreplicate.output.textfile import Try

            attempt = Try(uri.name(replica), replica, apply)
            _file(path, operation).record([attempt])

    refuse_in_replica("--metrics-file", path)
    try:
        yield record
    except BaseException as error:
        if path is not None:
            record(_failure(error, see), likely())
        raise


def _swept(job: Observation, sweep: Sweep) -> None:
    job.unchanged(time.time())
    _see_orphans(job, sweep)
    if sweep.done:
        job.files["deleted"] += len(sweep.deletes)
        job.bytes["deleted"] += sweep.bytes


def _verified(job: Observation, is_restorable: bool, refused: str | None) -> None:
    if not is_restorable:
        job.failed(_DAMAGED, "the replica cannot be restored", time.time())
    elif refused is not None:
        job.failed(Refused.exit_code, refused, time.time())
    else:
        job.unchanged(time.time())
    job.is_restorable = is_restorable


def _tries_of(report: FleetReport) -> list[Try]:
    """Return what became of the jobs of a fleet, but of standby replicas below its roots."""
    from cpreplicate.output.textfile import Try

    return [
        Try(result.name, result.replica, _job_result(result))
        for result in report.jobs
        if result.outcome != "skipped"
    ]


def _file(path: str, operation: Operation, is_fleet: bool = False) -> MetricsFile:
    from cpreplicate.output.log import write_warning
    from cpreplicate.output.textfile import MetricsFile

    return MetricsFile(path, operation, write_warning, is_fleet)


def _fleet_file(path: str) -> MetricsFile:
    return _file(path, "sync", is_fleet=True)


def _job_result(result: JobReplication) -> Apply:
    from cpreplicate.operations.jobs.observation import newest_of

    def apply(job: Observation) -> None:
        now, check = time.time(), result.check
        # a failed check saw nothing of the source
        at_source = check and newest_of(check.checkpoint, check.completed)
        if result.outcome == "failed":
            error = result.error or ""
            job.failed(result.exit_code, error, now, result.is_sealed, result.obstacle)
            # without the replica's newest checkpoint, the lag would be infinite
            job.source_newest = at_source if job.replica_newest else None
        elif result.report is not None:
            job.succeeded(result.report, now)
        else:
            job.unchanged(now)
            job.readiness = "ready"  # the check looked at the replica
            job.source_newest = job.replica_newest = at_source

    return apply


def _failure(error: BaseException, see: Apply | None = None) -> Apply:
    code = _code(error)

    def apply(job: Observation) -> None:
        is_sealed, obstacle = isinstance(error, Sealed), obstacle_of(error)
        job.failed(code, str(error), time.time(), is_sealed, obstacle)
        job.source_newest = None
        if isinstance(error, TooManyDeletes):
            _see_orphans(job, error.report)
        if see is not None and isinstance(error, Exception) and code != _UNREACHABLE:
            see(job)

    return apply


def _see_orphans(job: Observation, sweep: Any) -> None:
    """See the orphans that a sweep found; the report of a sync has none."""
    if job.operation == "sweep":
        job.orphan_bytes = sum(orphan.bytes for orphan in sweep.found.orphans)


def _code(error: BaseException) -> int:
    """Return the exit code with which the command line will end."""
    if isinstance(error, (KeyboardInterrupt, click.Abort)):
        return _INTERRUPTED
    if isinstance(error, Exception):
        return exit_code_of(error)
    return int(getattr(error, "code", 1))  # of a signal
