"""`fleet`: many jobs in one run. Each is replicated by the protocol of `sync`, on executors that
all of them share.

What has changed is found out by a task a job, so that a job with nothing to do costs a task and
nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, replace
from typing import Literal

from cpreplicate.core import uri
from cpreplicate.core.placement import CHECKPOINT_NAME, JOB_ID
from cpreplicate.errors import CpreplicateError, NotThere, UsageError, exit_code_of
from cpreplicate.operations.sync import Notify, Report, SyncCheck, check, sync
from cpreplicate.operations.sync_plan import SyncRequest
from cpreplicate.protocol import replica_state, seal
from cpreplicate.protocol.marker import is_replica
from cpreplicate.protocol.replica import Replica
from cpreplicate.runners import (
    ExecutionOptions,
    Runner,
    SharedRunner,
    choose_runner,
    seconds_by_spark,
)
from cpreplicate.storage import Side, Sides

Status = Literal["replicated", "current", "empty", "skipped", "planned", "failed"]
_FEW = (
    200  # jobs whose checks are not worth starting Spark, and tell whether those of the others are
)
_AT_ONCE = 16  # jobs being replicated: most of their time is waiting for executors
_SOME_FAILED = 3


@dataclass(frozen=True)
class Member:
    """A job of the fleet. Of two, the one with the higher `priority` gets executors first.

    `is_discovered`: it was found below a root, so it may have no completed checkpoint yet, and may
    be a standby replica.
    """

    name: str
    request: SyncRequest
    priority: int = 0
    is_discovered: bool = False


@dataclass(frozen=True)
class JobResult:
    """What came of one job: `planned` with `--dry-run`.

    `exit_code` and `error` as `sync` would end with, if it failed.
    """

    name: str
    source: str
    target_root: str
    priority: int
    status: Status
    check: SyncCheck | None = None
    report: Report | None = None
    exit_code: int = 0
    error: str | None = None


@dataclass(frozen=True)
class FleetReport:
    """What came of all, in the order of the configuration."""

    jobs: tuple[JobResult, ...]
    runner: str
    seconds: float

    @property
    def exit_code(self) -> int:
        """0, the code of those that failed if they agree, else 3: some jobs were not replicated."""
        codes = {job.exit_code for job in self.jobs if job.status == "failed"}
        return codes.pop() if len(codes) == 1 else _SOME_FAILED if codes else 0

    def count(self, status: Status) -> int:
        """How many jobs ended so."""
        return sum(job.status == status for job in self.jobs)


def jobs_under(root: str, side: Side) -> list[str]:
    """The directories of jobs under a root: those named by a job's id, in order.

    One listing. Raises `NotThere` if none is.
    """
    found = [
        child
        for child in side.storage(root).list(root)
        if child.is_directory and JOB_ID.fullmatch(child.name)
    ]
    if not found:
        raise NotThere(
            f"below the root {root} lies no job's directory, named by 32 hexadecimal digits; is it"
            " the right one?"
        )
    return sorted(uri.join(root, child.name) for child in found)


def replicate_fleet(
    members: Sequence[Member],
    execution: ExecutionOptions,
    sides: Sides,
    notify: Notify,
    dry_run: bool = False,
) -> FleetReport:
    """Replicate what has changed, important jobs first. A job's failure is its own. Raises
    `UsageError` for a fleet of which two jobs would share a replica.
    """
    started = time.monotonic()
    _refuse_shared_replicas(members)
    levels = {
        priority: at
        for at, priority in enumerate(sorted({member.priority for member in members}, reverse=True))
    }
    with ExitStack() as runners:
        runner, checked = _check_all(members, execution, sides, len(levels), runners)
        changed = [
            at
            for at, each in enumerate(checked)
            if isinstance(each, SyncCheck) and not each.is_current
        ]
        notify(f"{len(changed)} of {len(members)} jobs have changed")
        results = [_settled(member, each) for member, each in zip(members, checked, strict=True)]
        if changed and not dry_run:
            changed.sort(key=lambda at: (-members[at].priority, members[at].name))
            sums = [each for each in checked if isinstance(each, SyncCheck)]
            runner = runners.enter_context(_copier(runner, execution, sides, sums, len(levels)))
            if execution.explain:
                notify(f"runner: {runner.name} ({runner.reason})")
            done = _replicate([members[at] for at in changed], levels, runner, notify)
            for at, result in zip(changed, done, strict=True):
                results[at] = replace(result, check=results[at].check)
    return FleetReport(tuple(results), runner.name, time.monotonic() - started)


class _Look:
    """Check one job, wherever there is a slot.

    What fails is told, not raised, since it is that job's alone.
    """

    def __init__(self, sides: Sides) -> None:
        self._sides = sides

    def __call__(self, member: Member) -> SyncCheck | JobResult:
        try:
            if member.is_discovered and _is_standby(member.request.source, self._sides.source):
                return _ended(member, "skipped")
            return check(replace(member.request, sides=self._sides))
        except NotThere as error:
            return _ended(member, "empty") if member.is_discovered else _failed(member, error)
        except Exception as error:  # noqa: BLE001  # whatever it is, it is this job's
            return _failed(member, error)


def _is_standby(source: str, side: Side) -> bool:
    """Return whether a directory below a root is a replica, and not one that was promoted and that
    a job writes to by now.
    """
    replica = Replica(source, side)
    if not is_replica(replica):
        return False
    return not seal.is_sealed(replica) or not replica_state.examine(replica).unrecorded


def _settled(member: Member, checked: SyncCheck | JobResult) -> JobResult:
    if isinstance(checked, JobResult):
        return checked
    return replace(_ended(member, "current" if checked.is_current else "planned"), check=checked)


def _check_all(
    members: Sequence[Member],
    execution: ExecutionOptions,
    sides: Sides,
    levels: int,
    runners: ExitStack,
) -> tuple[Runner, list[SyncCheck | JobResult]]:
    """Check every job.

    With `auto` by threads, unless the first of them tell that Spark would be through sooner.
    """
    few = members[:_FEW] if execution.runner == "auto" else members
    first = "spark" if execution.runner == "spark" else "inline"
    show = execution.show if execution.runner == first else None  # else another runner may copy
    runner = runners.enter_context(
        choose_runner(replace(execution, runner=first, show=show), 0, 0, sides, levels)
    )
    began = time.monotonic()
    checked = _check(few, runner, sides)
    if rest := members[len(few) :]:
        inline = (time.monotonic() - began) / len(few) * len(rest)
        if (by_spark := seconds_by_spark(execution, inline)) < inline:
            reason = (
                f"auto, {len(rest)} more jobs to check: inline about {inline:.0f} s, Spark about"
                f" {by_spark:.0f} s"
            )
            runner = runners.enter_context(
                choose_runner(replace(execution, runner="spark"), 0, 0, sides, levels, reason)
            )
        checked += _check(rest, runner, sides)
    return runner, checked


def _check(members: Sequence[Member], runner: Runner, sides: Sides) -> list[SyncCheck | JobResult]:
    bare = [
        replace(
            member, request=replace(member.request, sides=Sides(), execution=ExecutionOptions())
        )
        for member in members
    ]
    places = [
        place for member in members for place in (member.request.source, member.request.target_root)
    ]
    return runner.map(_Look(runner.limited(sides)), bare, places)


def _copier(
    planner: Runner,
    execution: ExecutionOptions,
    sides: Sides,
    checked: Sequence[SyncCheck],
    levels: int,
) -> AbstractContextManager[Runner]:
    """Spark, once it has started; else as it is worth for all of them together."""
    if planner.name == "spark" or execution.runner == "inline":
        return nullcontext(planner)
    return choose_runner(
        execution,
        sum(each.files for each in checked),
        sum(each.bytes for each in checked),
        sides,
        levels,
    )


def _replicate(
    members: Sequence[Member], levels: dict[int, int], runner: Runner, notify: Notify
) -> list[JobResult]:
    pool = ThreadPoolExecutor(_AT_ONCE, "job")
    try:
        waiting = [
            pool.submit(_one, member, SharedRunner(runner, levels[member.priority]), notify)
            for member in members
        ]
        return [future.result() for future in waiting]
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        runner.cancel()
        raise
    finally:
        pool.shutdown()


def _one(member: Member, runner: Runner, notify: Notify) -> JobResult:
    try:
        report = sync(member.request, _named(member.name, notify), runner)
    except Exception as error:  # noqa: BLE001  # whatever it is, it is this job's
        notify(f"{member.name}: {error}")
        return _failed(member, error)
    return replace(_ended(member, "replicated"), report=report)


def _named(name: str, notify: Notify) -> Callable[[str], None]:
    return lambda line: notify(f"{name}: {line}")


def _ended(member: Member, status: Status) -> JobResult:
    return JobResult(
        member.name, member.request.source, member.request.target_root, member.priority, status
    )


def _failed(member: Member, error: Exception) -> JobResult:
    known = isinstance(error, (CpreplicateError, OSError))
    text = str(error) if known else f"unexpected {type(error).__name__}: {error}"
    return replace(
        _ended(member, "failed"), exit_code=exit_code_of(error), error=" ".join(text.split())
    )


def _refuse_shared_replicas(members: Sequence[Member]) -> None:
    seen: dict[str, str] = {}
    for member in members:
        source = member.request.source.rstrip("/")
        job = uri.parent(source) if CHECKPOINT_NAME.fullmatch(uri.name(source)) else source
        replica = uri.join(member.request.target_root, uri.name(job))
        if seen.setdefault(replica, member.name) != member.name:
            raise UsageError(
                f"the jobs {seen[replica]} and {member.name} would share the replica {replica}"
            )
