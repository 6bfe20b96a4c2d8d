"""`fleet`: replicate many jobs in one run, each by the protocol of `sync`, on shared executors.

One task for each job checks whether it has changed. A job with nothing to do costs that task only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, NamedTuple, cast

from cpreplicate.core.clock import MACHINE, Clock
from cpreplicate.core.log_context import begin_job
from cpreplicate.core.notify import Notify, named
from cpreplicate.core.plan import total
from cpreplicate.core.shard import WHOLE, Shard
from cpreplicate.core.short_repr import short_repr
from cpreplicate.core.sizes import counted, plural
from cpreplicate.errors import (
    NotThere,
    Obstacle,
    Sealed,
    SourceBroken,
    UsageError,
    described,
    obstacle_of,
)
from cpreplicate.operations.change.job_result import JobResult, JobResults, failed
from cpreplicate.operations.jobs.job import Job, JobKey, is_standby, levels_of, marked
from cpreplicate.operations.jobs.spread import (
    Made,
    Spread,
    SpreadRunner,
    is_whole,
    make_all,
    refuse_without_spark,
)
from cpreplicate.operations.sync.diff import check
from cpreplicate.operations.sync.place import known_root, likely_root
from cpreplicate.operations.sync.report import Report, SyncCheck
from cpreplicate.operations.sync.sync import sync
from cpreplicate.runners import (
    ExecutionOptions,
    NeedsSpark,
    Runner,
    RunnerStopped,
    SharedRunner,
    choose_runner,
    seconds_by_spark,
)
from cpreplicate.runners.choose import RunnerChoice, runner_choice
from cpreplicate.storage import Sides, Transient
from cpreplicate.storage.waiting.admission import admitted

ReplicationOutcome = Literal["replicated", "current", "empty", "skipped", "planned", "failed"]
_UNREACHED = Transient.exit_code
# Seconds for a call when a job is first looked at. Where it takes longer, the job is looked at
# again after the others have been replicated.
_FIRST_LOOK = 5.0


@dataclass(frozen=True)
class FleetSettings:
    """How the jobs of a fleet are divided.

    With `auto`, the first `checked_inline` jobs are checked by threads: the time that takes shows
    whether Spark is worth its start for the others. `at_once` jobs are replicated by this process
    at the same time: most of that they wait for executors. `spread` is what these get.
    """

    checked_inline: int = 200
    at_once: int = 16
    spread: Spread = "files"


class Amount(NamedTuple):
    """How many files, and their bytes."""

    files: int
    bytes: int

    @staticmethod
    def of(parts: Iterable[Amount]) -> Amount:
        """Return the sum of some amounts."""
        amounts = list(parts)
        return Amount(sum(each.files for each in amounts), sum(each.bytes for each in amounts))


_NOTHING = Amount(0, 0)


@short_repr("name", "outcome", "replica", "error")
@dataclass(frozen=True)
class JobReplication(JobResult[ReplicationOutcome]):
    """The result of one job: `planned` with `--dry-run`.

    If it failed, `is_sealed` is whether the seal of its replica was the reason, and `obstacle` what
    else in it is in the way of `promote`, too. `replica` is the URI of its replica, the likely one
    as long as that is not known.
    """

    source: str
    target_root: str
    priority: int
    check: SyncCheck | None = None
    report: Report | None = None
    is_sealed: bool = False
    obstacle: Obstacle | None = None
    replica: str = ""

    @property
    def own(self) -> tuple[str, ...]:
        return self.name, self.source, self.replica

    @property
    def copies(self) -> Amount:
        """What was copied, or is to be."""
        if self.report is not None:
            return Amount(len(self.report.plan.copies), total(self.report.plan.copies))
        check = self._planned
        return _NOTHING if check is None else Amount(check.files - check.deletes, check.bytes)

    @property
    def deletes(self) -> Amount:
        """What was deleted, or is to be. What is left to `sweep` is part of it."""
        if self.report is not None:
            return Amount(len(self.report.plan.deletes), total(self.report.plan.deletes))
        check = self._planned
        return _NOTHING if check is None else Amount(check.deletes, check.delete_bytes)

    @property
    def _planned(self) -> SyncCheck | None:
        return self.check if self.outcome == "planned" else None


@short_repr("jobs", "exit_code", "seconds")
@dataclass(frozen=True)
class FleetReport(JobResults[JobReplication]):
    """The results of all jobs, in the order of the configuration.

    `elsewhere` is how many more jobs are in other shards than `shard`, and were left to these.
    `expected` is the runner that would copy, and how long that may take, of a dry run.
    """

    runner: str
    seconds: float
    shard: Shard = WHOLE
    elsewhere: int = 0
    expected: RunnerChoice | None = None

    @property
    def copies(self) -> Amount:
        """What was copied of all jobs, or is to be."""
        return Amount.of(job.copies for job in self.jobs)

    @property
    def deletes(self) -> Amount:
        """What was deleted of all jobs, or is to be."""
        return Amount.of(job.deletes for job in self.jobs)

    @property
    def exit_code(self) -> int:
        """0 if no job failed, the exit code of the failed jobs if they agree, else 3."""
        codes = {job.exit_code for job in self.jobs if job.exit_code}
        return codes.pop() if len(codes) == 1 else super().exit_code


def replicate_fleet(
    jobs: Sequence[Job],
    execution: ExecutionOptions,
    sides: Sides,
    notify: Notify,
    dry_run: bool = False,
    settings: FleetSettings = FleetSettings(),  # it is immutable
    clock: Clock = MACHINE,
) -> FleetReport:
    """Replicate the jobs that have changed, important ones first, and return the result of each.

    A job that fails does not end the others. Raises `UsageError` if two jobs would share a replica,
    or if jobs are to be spread without Spark.
    """
    started = clock.monotonic()
    refuse_without_spark(settings.spread, execution)
    _refuse_shared_replicas(jobs)
    jobs = marked(jobs)
    with ExitStack() as runners:
        fleet = _Fleet(jobs, execution, sides, notify, settings, clock, runners)
        fleet.check(_Check(sides, dry_run, is_first_look=True))
        changed, unreached = fleet.changed(range(len(jobs))), fleet.unreached()
        again = counted(len(unreached), "is", "are")
        unsure = f", {again} asked again later" if unreached else ""
        have = plural(len(changed), "has", "have")
        notify(f"{len(changed)} of {counted(len(jobs), 'job')} {have} changed{unsure}")
        if not dry_run:
            fleet.replicate(changed)
        fleet.check_again(unreached, _Check(sides, dry_run))
        if not dry_run:
            fleet.replicate(fleet.changed(unreached))
    report = FleetReport(tuple(fleet.results), fleet.runner.name, clock.monotonic() - started)
    return replace(report, expected=_expected(report, execution, sides)) if dry_run else report


def _expected(report: FleetReport, execution: ExecutionOptions, sides: Sides) -> RunnerChoice:
    """Return which runner would copy what is planned, and how long that may take."""
    (copies, size), (deletes, _) = report.copies, report.deletes
    return runner_choice(execution, copies + deletes, size, sides.target.limits.bandwidth)


class _Fleet:
    """The jobs of a run by their index, what became of each, and the runner used last.

    `runners` ends the runners that are begun.
    """

    runner: Runner

    def __init__(
        self,
        jobs: Sequence[Job],
        execution: ExecutionOptions,
        sides: Sides,
        notify: Notify,
        settings: FleetSettings,
        clock: Clock,
        runners: ExitStack,
    ) -> None:
        self._jobs, self._execution, self._sides = jobs, execution, sides
        self._notify, self._settings, self._runners = notify, settings, runners
        self._clock = clock
        self._levels = levels_of(jobs)
        self._checked: list[SyncCheck | JobReplication] = []
        self.results: list[JobReplication] = []

    def check(self, check_one: _Check) -> None:
        """Check every job. With `auto`, threads do, unless Spark proves to be faster."""
        execution = self._execution
        few = self._jobs
        if execution.runner == "auto":
            few = self._jobs[: self._settings.checked_inline]
        first = "spark" if execution.runner == "spark" else "inline"
        # another runner may copy
        show = execution.show if execution.runner == first else None
        self._begin(replace(execution, runner=first, show=show))
        began = self._clock.monotonic()
        self._checked = _check(few, self.runner, check_one)
        if rest := self._jobs[len(few) :]:
            self._choose_again(len(rest), (self._clock.monotonic() - began) / len(few) * len(rest))
            self._checked += _check(rest, self.runner, check_one)
        self.results = [
            _settled(job, result) for job, result in zip(self._jobs, self._checked, strict=True)
        ]

    def _choose_again(self, count: int, inline: float) -> None:
        """Begin Spark if it checks so many more jobs in less than the seconds of threads."""
        by_spark = seconds_by_spark(self._execution, inline)
        if by_spark < inline:
            reason = (
                f"auto, {counted(count, 'more job')} to check: inline about {inline:.0f} s, Spark"
                f" about {by_spark:.0f} s"
            )
            self._begin(replace(self._execution, runner="spark"), reason=reason)

    def _begin(
        self, execution: ExecutionOptions, files: int = 0, size: int = 0, reason: str = "asked for"
    ) -> None:
        runner = choose_runner(execution, files, size, self._sides, len(self._levels), reason)
        self.runner = self._runners.enter_context(runner)

    def unreached(self) -> list[int]:
        """Return the jobs whose storages did not answer."""
        results = enumerate(self.results)
        return [index for index, job in results if job.exit_code == _UNREACHED]

    def changed(self, among: Collection[int]) -> list[int]:
        """Return those of some jobs that have changed, important ones first."""
        checked, jobs = self._checked, self._jobs
        changed = [
            index
            for index in among
            if isinstance(result := checked[index], SyncCheck) and not result.is_current
        ]
        return sorted(changed, key=lambda index: (-jobs[index].priority, jobs[index].name))

    def check_again(self, indices: Sequence[int], check_one: _Check) -> None:
        """Check some jobs again, and let them take their time."""
        again = _check([self._jobs[index] for index in indices], self.runner, check_one)
        for index, result in zip(indices, again, strict=True):
            self._checked[index] = result
            self.results[index] = _settled(self._jobs[index], result)

    def replicate(self, indices: Sequence[int]) -> None:
        """Replicate some jobs, several at the same time. Spark does if it has begun."""
        if not indices:
            return
        if self.runner.name != "spark" and self._execution.runner != "inline":
            sums = [result for result in self._checked if isinstance(result, SyncCheck)]
            files, size = sum(job.files for job in sums), sum(job.bytes for job in sums)
            self._begin(self._execution, files, size)
        jobs = [self._jobs[index] for index in indices]
        done = self._spread(indices) if self._settings.spread == "jobs" else self._replicated(jobs)
        for index, job in zip(indices, done, strict=True):
            before = self.results[index]
            replica = job.report.plan.replica if job.report is not None else before.replica
            self.results[index] = replace(job, check=before.check, replica=replica)

    def _spread(self, indices: Sequence[int]) -> list[JobReplication]:
        """Have executors replicate what is small, while the driver does what is large."""
        amounts = {index: self._amount(index) for index in indices}
        whole = [each for each in indices if is_whole(self._jobs[each].request, *amounts[each])]
        results: dict[int, JobReplication] = {}
        has_grown: list[int] = []

        def made(index: int, result: Made) -> None:
            job = self._jobs[index]
            begin_job(job.name)
            try:
                for line in result.lines:
                    named(job.name, self._notify)(line)
                if isinstance(result.error, NeedsSpark):
                    has_grown.append(index)
                else:
                    results[index] = _of_made(job, result, self._notify)
            except Exception as error:  # noqa: BLE001  # it concerns this job only
                results[index] = _failed(job, error)

        def by_driver(chosen: Sequence[int]) -> None:
            done = self._replicated([self._jobs[index] for index in chosen])
            results.update(zip(chosen, done, strict=True))

        def by_executors(level: int) -> None:
            chosen = [each for each in whole if self._level(each) == level]
            make_all(
                cast(SpreadRunner, self.runner),
                [(self._jobs[each].name, self._jobs[each].request) for each in chosen],
                lambda number, result: made(chosen[number], result),
                level,
                [amounts[each] for each in chosen],
                self._execution.streams,
            )

        levels = sorted({self._level(each) for each in whole})
        large = [each for each in indices if each not in set(whole)]
        self._together(
            [*(partial(by_executors, level) for level in levels), partial(by_driver, large)]
        )
        by_driver(has_grown)
        return [results[index] for index in indices]

    def _level(self, index: int) -> int:
        return self._levels[self._jobs[index].priority]

    def _amount(self, index: int) -> tuple[int, int]:
        """Return the files and bytes that are to be copied or deleted of a job, by its check."""
        checked = self._checked[index]
        return (checked.files, checked.bytes) if isinstance(checked, SyncCheck) else (0, 0)

    def _together(self, calls: Sequence[Callable[[], None]]) -> None:
        """Make calls at the same time, in the context of the caller, whose cancellation ends them.

        What interrupts this thread, or ends one of them, ends all.
        """
        pool = ThreadPoolExecutor(max(1, len(calls)), "fleet")
        try:
            waiting = [pool.submit(copy_context().run, call) for call in calls]
            for future in as_completed(waiting):
                future.result()
        except BaseException:
            self.runner.cancel()
            raise
        finally:
            pool.shutdown()

    def _replicated(self, jobs: Sequence[Job]) -> list[JobReplication]:
        pool = ThreadPoolExecutor(self._settings.at_once, "job")
        try:
            shares = [SharedRunner(self.runner, self._levels[job.priority]) for job in jobs]
            # in the context of the caller, whose cancellation ends them
            waiting = [
                pool.submit(copy_context().run, _one, job, share, self._notify)
                for job, share in zip(jobs, shares, strict=True)
            ]
            return [future.result() for future in waiting]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            self.runner.cancel()
            raise
        finally:
            pool.shutdown()


def _impatient(sides: Sides) -> Sides:
    """Return sides for a first look at each job: silent storages must not hold up other jobs."""
    source, target = (
        replace(side, retry_for=0.0, patience=_FIRST_LOOK) for side in (sides.source, sides.target)
    )
    return sides._replace(source=source, target=target)


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

    def __call__(self, job: Job) -> SyncCheck | JobReplication:
        sides = _impatient(self.sides) if self._is_first_look else self.sides
        try:
            if job.is_discovered and is_standby(job.request.source, sides.source):
                return _ended(job, "skipped")
            return check(replace(job.request, sides=sides), self._is_dry_run)
        except SourceBroken as error:  # there is a checkpoint
            return _located(_failed(job, error), job, sides)
        except NotThere as error:
            ended = _ended(job, "empty") if job.is_discovered else _failed(job, error)
            return _located(ended, job, sides)
        except RunnerStopped:  # it concerns all of them
            raise
        except Exception as error:  # noqa: BLE001  # it concerns this job only
            return _located(_failed(job, error), job, sides)


def _located(result: JobReplication, job: Job, sides: Sides) -> JobReplication:
    """Return the result of a job with the replica that it has."""
    return replace(result, replica=known_root(replace(job.request, sides=sides)))


def _settled(job: Job, checked: SyncCheck | JobReplication) -> JobReplication:
    if isinstance(checked, JobReplication):
        return checked
    ended = _ended(job, "current" if checked.is_current else "planned")
    return replace(ended, check=checked, replica=checked.replica)


def _check(
    jobs: Sequence[Job], runner: Runner, check_one: _Check
) -> list[SyncCheck | JobReplication]:
    bare = [
        replace(job, request=replace(job.request, sides=Sides(), execution=ExecutionOptions()))
        for job in jobs
    ]
    uris = [path for job in jobs for path in (job.request.source, job.request.target_root)]
    return runner.map(check_one.limited(runner), bare, uris)


def _one(job: Job, runner: SharedRunner, notify: Notify) -> JobReplication:
    begin_job(job.name)
    try:
        with admitted():
            report = sync(job.request, named(job.name, notify), runner)
    except RunnerStopped:  # it concerns all of them
        raise
    except Exception as error:  # noqa: BLE001  # it concerns this job only
        notify(f"{job.name}: {described(error)}")
        return _failed(job, error)
    return replace(_ended(job, "replicated"), report=report)


def _of_made(job: Job, made: Made, notify: Notify) -> JobReplication:
    """Return the result of a job that an executor replicated."""
    if made.error is not None:
        notify(f"{job.name}: {described(made.error)}")
        return _failed(job, made.error)
    return replace(_ended(job, "replicated"), report=made.report)


def _ended(job: Job, outcome: ReplicationOutcome) -> JobReplication:
    request = job.request
    return JobReplication(
        job.name,
        outcome,
        request.source,
        request.target_root,
        job.priority,
        replica=likely_root(request),
    )


def _failed(job: Job, error: Exception) -> JobReplication:
    result = failed(_ended(job, "failed"), "failed", error)
    return replace(result, is_sealed=isinstance(error, Sealed), obstacle=obstacle_of(error))


def _refuse_shared_replicas(jobs: Sequence[Job]) -> None:
    seen: dict[JobKey, str] = {}
    for job in jobs:
        if seen.setdefault(job.key, job.name) != job.name:
            raise UsageError(
                f"the jobs {seen[job.key]} and {job.name} would share a replica: both have the"
                f" source {job.key.source} and the target {job.key.target_root}. Nothing was done."
                " Give one of them another target"
            )
