"""`fleet`: replicate many jobs in one run, each by the protocol of `sync`, on shared executors.

One task for each job checks whether it has changed. A job with nothing to do costs that task only.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, replace
from typing import Literal

from cpreplicate.core import uri
from cpreplicate.core.notify import Notify, named
from cpreplicate.core.placement import CHECKPOINT_NAME, JOB_ID
from cpreplicate.errors import (
    CpreplicateError,
    NoJob,
    NotThere,
    Sealed,
    SourceBroken,
    UsageError,
    exit_code_of,
)
from cpreplicate.operations.jobs.job import Job, is_standby
from cpreplicate.operations.log_context import begin_job
from cpreplicate.operations.sync.diff import check
from cpreplicate.operations.sync.report import Report, SyncCheck
from cpreplicate.operations.sync.request import replica_root
from cpreplicate.operations.sync.sync import sync
from cpreplicate.runners import (
    ExecutionOptions,
    Runner,
    SharedRunner,
    choose_runner,
    seconds_by_spark,
)
from cpreplicate.storage import FileStatus, Side, Sides, Transient

ResultStatus = Literal["replicated", "current", "empty", "skipped", "planned", "failed"]
_SOME_FAILED = 3
_UNREACHED = Transient.exit_code
# Seconds for a call when a job is first looked at. Where it takes longer, the job is looked at
# again after the others have been replicated.
_FIRST_LOOK = 5.0


@dataclass(frozen=True)
class FleetSettings:
    """How the jobs of a fleet are divided.

    With `auto`, the first `checked_inline` jobs are checked by threads: the time that takes shows
    whether Spark is worth its start for the others. `at_once` jobs are replicated at the same time:
    most of that they wait for executors.
    """

    checked_inline: int = 200
    at_once: int = 16


@dataclass(frozen=True)
class JobResult:
    """The result of one job: `planned` with `--dry-run`.

    If it failed, `exit_code` and `error` are those with which `sync` would end, and `is_sealed` is
    whether the seal of its replica was the reason.
    """

    name: str
    source: str
    target_root: str
    priority: int
    status: ResultStatus
    check: SyncCheck | None = None
    report: Report | None = None
    exit_code: int = 0
    error: str | None = None
    is_sealed: bool = False


@dataclass(frozen=True)
class FleetReport:
    """The results of all jobs, in the order of the configuration."""

    jobs: tuple[JobResult, ...]
    runner: str
    seconds: float

    @property
    def exit_code(self) -> int:
        """0 if no job failed, the exit code of the failed jobs if they agree, else 3."""
        codes = {job.exit_code for job in self.jobs if job.status == "failed"}
        return codes.pop() if len(codes) == 1 else _SOME_FAILED if codes else 0

    def count(self, status: ResultStatus) -> int:
        """Return how many jobs have this status."""
        return sum(job.status == status for job in self.jobs)


def jobs_under(root: str, side: Side) -> list[str]:
    """Return the directories under a root that have a job's id as their name, in order.

    Costs one listing. Raises `NotThere` if there is none, `NoJob` if the root is a job's directory
    itself, or a file.
    """
    children = _children(root, side)
    directories = [
        child for child in children if child.is_directory and JOB_ID.fullmatch(child.name)
    ]
    if not directories:
        if any(CHECKPOINT_NAME.fullmatch(child.name) for child in children):
            raise NoJob(
                f"no job's directory lies below the root {root}: it is one itself, and holds"
                f" checkpoints. Give {uri.parent(root)} as the root, or this directory as SOURCE"
            )
        raise NotThere(
            f"no job's directory, named by 32 hexadecimal digits, lies below the root {root}. Check"
            " the path of the root"
        )
    return sorted(uri.join(root, child.name) for child in directories)


def _children(root: str, side: Side) -> Sequence[FileStatus]:
    try:
        return side.storage(root).list(root)
    except NotADirectoryError as error:
        raise NoJob(
            f"the root {root} is a file, or lies below one. Check the path of the root"
        ) from error


def replicate_fleet(
    jobs: Sequence[Job],
    execution: ExecutionOptions,
    sides: Sides,
    notify: Notify,
    dry_run: bool = False,
    settings: FleetSettings = FleetSettings(),  # it is immutable
) -> FleetReport:
    """Replicate the jobs that have changed, important ones first, and return the result of each.

    A job that fails does not end the others. Raises `UsageError` if two jobs would share a replica.
    """
    started = time.monotonic()
    _refuse_shared_replicas(jobs)
    levels = {
        priority: level
        for level, priority in enumerate(sorted({job.priority for job in jobs}, reverse=True))
    }
    with ExitStack() as runners:
        runner, checked = _check_all(
            jobs,
            execution,
            _Check(sides, dry_run, is_first_look=True),
            len(levels),
            runners,
            settings.checked_inline,
        )
        results = _results(jobs, checked)
        unreached = [index for index, job in enumerate(results) if job.exit_code == _UNREACHED]
        changed = _changed(jobs, checked)
        unsure = f", {len(unreached)} are asked again later" if unreached else ""
        notify(f"{len(changed)} of {len(jobs)} jobs have changed{unsure}")

        def replicate_changed() -> None:
            nonlocal runner
            if not changed or dry_run:
                return
            sums = [result for result in checked if isinstance(result, SyncCheck)]
            runner = runners.enter_context(_copier(runner, execution, sides, sums, len(levels)))
            by_priority = [jobs[index] for index in changed]
            done = _replicate(by_priority, levels, runner, notify, settings.at_once)
            for index, job in zip(changed, done, strict=True):
                results[index] = replace(job, check=results[index].check)

        replicate_changed()
        if unreached:
            at_leisure = _Check(sides, dry_run)
            again = _check([jobs[index] for index in unreached], runner, at_leisure)
            for index, result in zip(unreached, again, strict=True):
                checked[index], results[index] = result, _settled(jobs[index], result)
            changed = [index for index in _changed(jobs, checked) if index in unreached]
            replicate_changed()
    return FleetReport(tuple(results), runner.name, time.monotonic() - started)


def _impatient(sides: Sides) -> Sides:
    """Return sides for a first look at each job: silent storages must not hold up other jobs."""
    source, target = (
        replace(side, retry_for=0.0, patience=_FIRST_LOOK) for side in (sides.source, sides.target)
    )
    return sides._replace(source=source, target=target)


def _results(jobs: Sequence[Job], checked: Sequence[SyncCheck | JobResult]) -> list[JobResult]:
    return [_settled(job, result) for job, result in zip(jobs, checked, strict=True)]


def _changed(jobs: Sequence[Job], checked: Sequence[SyncCheck | JobResult]) -> list[int]:
    """Return the jobs that have changed by their index, important ones first."""
    changed = [
        index
        for index, result in enumerate(checked)
        if isinstance(result, SyncCheck) and not result.is_current
    ]
    return sorted(changed, key=lambda index: (-jobs[index].priority, jobs[index].name))


class _Check:
    """Checks one job, in a task of the runner; see `sync.check`.

    Returns a failure instead of raising it, since it concerns that job only.
    """

    def __init__(self, sides: Sides, is_dry_run: bool, is_first_look: bool = False) -> None:
        self.sides, self._is_dry_run = sides, is_dry_run
        self._is_first_look = is_first_look

    def limited(self, runner: Runner) -> _Check:
        """Return a check that observes the limits of a runner."""
        return _Check(runner.limited(self.sides), self._is_dry_run, self._is_first_look)

    def __call__(self, job: Job) -> SyncCheck | JobResult:
        sides = _impatient(self.sides) if self._is_first_look else self.sides
        try:
            if job.is_discovered and is_standby(job.request.source, sides.source):
                return _ended(job, "skipped")
            return check(replace(job.request, sides=sides), self._is_dry_run)
        except SourceBroken as error:  # there is a checkpoint
            return _failed(job, error)
        except NotThere as error:
            return _ended(job, "empty") if job.is_discovered else _failed(job, error)
        except Exception as error:  # noqa: BLE001  # it concerns this job only
            return _failed(job, error)


def _settled(job: Job, checked: SyncCheck | JobResult) -> JobResult:
    if isinstance(checked, JobResult):
        return checked
    return replace(_ended(job, "current" if checked.is_current else "planned"), check=checked)


def _check_all(
    jobs: Sequence[Job],
    execution: ExecutionOptions,
    check_one: _Check,
    levels: int,
    runners: ExitStack,
    checked_inline: int,
) -> tuple[Runner, list[SyncCheck | JobResult]]:
    """Check every job, and return the runner that did and the results.

    With `auto`, threads check them, unless the first jobs show that Spark would be faster.
    """
    few = jobs[:checked_inline] if execution.runner == "auto" else jobs
    first = "spark" if execution.runner == "spark" else "inline"
    show = execution.show if execution.runner == first else None  # else another runner may copy
    runner = runners.enter_context(
        choose_runner(replace(execution, runner=first, show=show), 0, 0, check_one.sides, levels)
    )
    began = time.monotonic()
    checked = _check(few, runner, check_one)
    if rest := jobs[len(few) :]:
        inline = (time.monotonic() - began) / len(few) * len(rest)
        if (by_spark := seconds_by_spark(execution, inline)) < inline:
            reason = (
                f"auto, {len(rest)} more jobs to check: inline about {inline:.0f} s, Spark about"
                f" {by_spark:.0f} s"
            )
            runner = runners.enter_context(
                choose_runner(
                    replace(execution, runner="spark"), 0, 0, check_one.sides, levels, reason
                )
            )
        checked += _check(rest, runner, check_one)
    return runner, checked


def _check(jobs: Sequence[Job], runner: Runner, check_one: _Check) -> list[SyncCheck | JobResult]:
    bare = [
        replace(job, request=replace(job.request, sides=Sides(), execution=ExecutionOptions()))
        for job in jobs
    ]
    uris = [path for job in jobs for path in (job.request.source, job.request.target_root)]
    return runner.map(check_one.limited(runner), bare, uris)


def _copier(
    planner: Runner,
    execution: ExecutionOptions,
    sides: Sides,
    checked: Sequence[SyncCheck],
    levels: int,
) -> AbstractContextManager[Runner]:
    """Return Spark if it has started, else the runner that is best for all jobs together."""
    if planner.name == "spark" or execution.runner == "inline":
        return nullcontext(planner)
    return choose_runner(
        execution,
        sum(job.files for job in checked),
        sum(job.bytes for job in checked),
        sides,
        levels,
    )


def _replicate(
    jobs: Sequence[Job],
    levels: dict[int, int],
    runner: Runner,
    notify: Notify,
    at_once: int,
) -> list[JobResult]:
    pool = ThreadPoolExecutor(at_once, "job")
    try:
        waiting = [
            pool.submit(_one, job, SharedRunner(runner, levels[job.priority]), notify)
            for job in jobs
        ]
        return [future.result() for future in waiting]
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        runner.cancel()
        raise
    finally:
        pool.shutdown()


def _one(job: Job, runner: SharedRunner, notify: Notify) -> JobResult:
    begin_job(job.name)
    try:
        report = sync(job.request, named(job.name, notify), runner)
    except Exception as error:  # noqa: BLE001  # it concerns this job only
        notify(f"{job.name}: {error}")
        return _failed(job, error)
    return replace(_ended(job, "replicated"), report=report)


def _ended(job: Job, status: ResultStatus) -> JobResult:
    return JobResult(job.name, job.request.source, job.request.target_root, job.priority, status)


def _failed(job: Job, error: Exception) -> JobResult:
    known = isinstance(error, (CpreplicateError, OSError))
    text = str(error) if known else f"unexpected {type(error).__name__}: {error}"
    return replace(
        _ended(job, "failed"),
        exit_code=exit_code_of(error),
        error=" ".join(text.split()),
        is_sealed=isinstance(error, Sealed),
    )


def _refuse_shared_replicas(jobs: Sequence[Job]) -> None:
    seen: dict[str, str] = {}
    for job in jobs:
        replica = replica_root(job.request.source, job.request.target_root)
        if seen.setdefault(replica, job.name) != job.name:
            raise UsageError(
                f"the jobs {seen[replica]} and {job.name} would share the replica {replica}."
                " Nothing was done. Give one of them another target"
            )
