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
from cpreplicate.operations.sync import Looked, Report, Say, look, sync
from cpreplicate.operations.sync_plan import Request
from cpreplicate.protocol import ownership, seal
from cpreplicate.protocol.replica import Replica
from cpreplicate.runners import Engine, Runner, SharedRunner, choose_runner, seconds_by_spark
from cpreplicate.storage import Site, Sites

Status = Literal["replicated", "current", "empty", "skipped", "planned", "failed"]
_FEW = (
    200  # jobs whose looks are not worth starting Spark, and tell whether those of the others are
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
    request: Request
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
    looked: Looked | None = None
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


def jobs_under(root: str, site: Site) -> list[str]:
    """The directories of jobs under a root: those named by a job's id, in order.

    One listing. Raises `NotThere` if none is.
    """
    found = [
        child
        for child in site.storage(root).list(root)
        if child.is_directory and JOB_ID.fullmatch(child.name)
    ]
    if not found:
        raise NotThere(
            f"below the root {root} lies no job's directory, named by 32 hexadecimal digits; is it"
            " the right one?"
        )
    return sorted(uri.join(root, child.name) for child in found)


def replicate_fleet(
    members: Sequence[Member], engine: Engine, sites: Sites, say: Say, dry_run: bool = False
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
        runner, looked = _looks(members, engine, sites, len(levels), runners)
        changed = [
            at for at, each in enumerate(looked) if isinstance(each, Looked) and not each.is_current
        ]
        say(f"{len(changed)} of {len(members)} jobs have changed")
        results = [_settled(member, each) for member, each in zip(members, looked, strict=True)]
        if changed and not dry_run:
            changed.sort(key=lambda at: (-members[at].priority, members[at].name))
            sums = [each for each in looked if isinstance(each, Looked)]
            runner = runners.enter_context(_copier(runner, engine, sites, sums, len(levels)))
            if engine.explain:
                say(f"runner: {runner.name} ({runner.reason})")
            done = _replicate([members[at] for at in changed], levels, runner, say)
            for at, result in zip(changed, done, strict=True):
                results[at] = replace(result, looked=results[at].looked)
    return FleetReport(tuple(results), runner.name, time.monotonic() - started)


class _Look:
    """A look at one job, wherever there is a slot.

    What fails is told, not raised, since it is that job's alone.
    """

    def __init__(self, sites: Sites) -> None:
        self._sites = sites

    def __call__(self, member: Member) -> Looked | JobResult:
        try:
            if member.is_discovered and _is_standby(member.request.source, self._sites.source):
                return _ended(member, "skipped")
            return look(replace(member.request, sites=self._sites))
        except NotThere as error:
            return _ended(member, "empty") if member.is_discovered else _failed(member, error)
        except Exception as error:  # whatever it is, it is this job's
            return _failed(member, error)


def _is_standby(source: str, site: Site) -> bool:
    """Return whether a directory below a root is a replica, and not one that was promoted and that
    a job writes to by now.
    """
    replica = Replica(source, site)
    if not ownership.is_replica(replica):
        return False
    return not seal.is_sealed(replica) or not ownership.examine(replica).unrecorded


def _settled(member: Member, looked: Looked | JobResult) -> JobResult:
    if isinstance(looked, JobResult):
        return looked
    return replace(_ended(member, "current" if looked.is_current else "planned"), looked=looked)


def _looks(
    members: Sequence[Member], engine: Engine, sites: Sites, levels: int, runners: ExitStack
) -> tuple[Runner, list[Looked | JobResult]]:
    """A look at every job.

    With `auto` by threads, unless the first of them tell that Spark would be through sooner.
    """
    few = members[:_FEW] if engine.runner == "auto" else members
    first = "spark" if engine.runner == "spark" else "inline"
    show = engine.show if engine.runner == first else None  # else another runner may copy
    runner = runners.enter_context(
        choose_runner(replace(engine, runner=first, show=show), 0, 0, sites, levels)
    )
    began = time.monotonic()
    looked = _look_at(few, runner, sites)
    if rest := members[len(few) :]:
        inline = (time.monotonic() - began) / len(few) * len(rest)
        if (by_spark := seconds_by_spark(engine, inline)) < inline:
            reason = (
                f"auto, {len(rest)} more jobs to look at: inline about {inline:.0f} s, Spark about"
                f" {by_spark:.0f} s"
            )
            runner = runners.enter_context(
                choose_runner(replace(engine, runner="spark"), 0, 0, sites, levels, reason)
            )
        looked += _look_at(rest, runner, sites)
    return runner, looked


def _look_at(members: Sequence[Member], runner: Runner, sites: Sites) -> list[Looked | JobResult]:
    bare = [
        replace(member, request=replace(member.request, sites=Sites(), show=None))
        for member in members
    ]
    places = [
        place for member in members for place in (member.request.source, member.request.target_root)
    ]
    return runner.map(_Look(runner.limited(sites)), bare, places)


def _copier(
    planner: Runner, engine: Engine, sites: Sites, looked: Sequence[Looked], levels: int
) -> AbstractContextManager[Runner]:
    """Spark, once it has started; else as it is worth for all of them together."""
    if planner.name == "spark" or engine.runner == "inline":
        return nullcontext(planner)
    return choose_runner(
        engine,
        sum(each.files for each in looked),
        sum(each.bytes for each in looked),
        sites,
        levels,
    )


def _replicate(
    members: Sequence[Member], levels: dict[int, int], runner: Runner, say: Say
) -> list[JobResult]:
    pool = ThreadPoolExecutor(_AT_ONCE, "job")
    try:
        waiting = [
            pool.submit(_one, member, SharedRunner(runner, levels[member.priority]), say)
            for member in members
        ]
        return [future.result() for future in waiting]
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        runner.cancel()
        raise
    finally:
        pool.shutdown()


def _one(member: Member, runner: Runner, say: Say) -> JobResult:
    try:
        report = sync(member.request, _named(member.name, say), runner)
    except Exception as error:  # whatever it is, it is this job's
        say(f"{member.name}: {error}")
        return _failed(member, error)
    return replace(_ended(member, "replicated"), report=report)


def _named(name: str, say: Say) -> Callable[[str], None]:
    return lambda line: say(f"{name}: {line}")


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
