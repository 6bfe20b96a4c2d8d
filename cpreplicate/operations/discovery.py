"""Where a service learns of its jobs: Flink's REST API, a listing of a root, or a configuration."""

from __future__ import annotations

import difflib
import fnmatch
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from cpreplicate.core import uri
from cpreplicate.core.lag import Newest
from cpreplicate.core.shard import WHOLE, Shard
from cpreplicate.errors import CpreplicateError, NoJob, NotThere, UsageError
from cpreplicate.flink import CompletedCheckpoint, FlinkRest, RunningJob
from cpreplicate.operations.fleet import Member, jobs_under
from cpreplicate.operations.served_job import Checkpoint, ServedJob
from cpreplicate.operations.sync_plan import SyncRequest
from cpreplicate.operations.watch import Sparing
from cpreplicate.storage import Side, Transient

Notify = Callable[[str], None]
# Seconds for which a job that a JobManager no longer reports is followed by its directory: its last
# checkpoint may have completed since it was asked.
_LINGER = 120.0
_SHOWN = 5  # names of jobs in a message
_ASKED = 16  # JobManagers at the same time: those that do not answer hold up few others


@dataclass(frozen=True)
class Chosen:
    """Which jobs of a JobManager are followed: those of these names, or `every` one.

    Names match `include` if there are any, and no `exclude`; both are patterns as of a shell.
    """

    names: frozenset[str] = frozenset()
    every: bool = False
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def has(self, name: str) -> bool:
        """Return whether a job of this name is followed."""
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in self.exclude):
            return False
        if self.include and any(fnmatch.fnmatchcase(name, pattern) for pattern in self.include):
            return True
        return name in self.names or (self.every and not self.include)


@dataclass
class _Seen:
    """A job that a JobManager reported: where it writes, and when it was reported last."""

    job: ServedJob
    root: str
    reported: float


@dataclass
class _JobManager:
    """A JobManager, and its jobs. `problem` is why it could not be asked the last time.

    `names` are those of all jobs that it reported then, also of those that are not followed.
    """

    rest: FlinkRest
    seen: dict[str, _Seen] = field(default_factory=dict)
    names: frozenset[str] = frozenset()
    problem: str | None = None


class FlinkJobs:
    """The jobs that JobManagers report, each followed under its name.

    `urls` is called for the JobManagers each time: a file that lists them may have changed. While
    one cannot be reached, its jobs are followed by the listings of their directories.
    """

    def __init__(
        self,
        urls: Callable[[], Sequence[str]],
        connect: Callable[[str], FlinkRest],
        chosen: Chosen,
        template: SyncRequest,
        notify: Notify,
        clock: Callable[[], float] = time.monotonic,
        shard: Shard = WHOLE,
    ) -> None:
        self._shard = shard
        self._urls, self._connect, self._chosen = urls, connect, chosen
        self._template, self._notify, self._clock = template, notify, clock
        self._sparing = Sparing(notify, clock)
        self._managers: dict[str, _JobManager] = {}
        self._urls_read: Sequence[str] = ()
        self._missing: set[tuple[str, bool]] = set()

    def jobs(self) -> list[ServedJob]:
        """See `Discovery`. A JobManager that cannot be asked is reported once, until it can."""
        self._choose_managers()
        managers = [self._managers[url] for url in self._urls_read]
        with ThreadPoolExecutor(_ASKED, "ask") as pool:
            list(pool.map(self._ask_or_lose_sight, managers))
        jobs = [seen.job for manager in self._managers.values() for seen in manager.seen.values()]
        self._report_missing({job.member.name for job in jobs})
        return [job for job in jobs if job.is_in(self._shard)]

    def _ask_or_lose_sight(self, manager: _JobManager) -> None:
        try:
            self._ask(manager)
        except (CpreplicateError, OSError) as error:
            self._lose_sight(manager, str(error))
        else:
            if manager.problem is not None:
                self._notify(f"{manager.rest.url} answers again")
            manager.problem = None

    def _choose_managers(self) -> None:
        try:
            self._urls_read = tuple(dict.fromkeys(self._urls()))
        except (CpreplicateError, OSError) as error:
            if not self._urls_read:
                raise
            self._sparing(f"{error}. The URLs read before are used")
        for url in self._urls_read:
            if url not in self._managers:
                self._managers[url] = _JobManager(self._connect(url))
        for url in self._managers.keys() - set(self._urls_read):
            self._leave(url)

    def _leave(self, url: str) -> None:
        """Ask a JobManager no more; its jobs are followed for a while like those that are gone."""
        manager = self._managers.pop(url)
        manager.rest.close()
        self._drop_gone(manager, set(), self._clock())
        if manager.seen:
            self._managers[url] = manager  # behind those that are asked

    def _ask(self, manager: _JobManager) -> None:
        now = self._clock()
        every = manager.rest.jobs()
        manager.names = frozenset(job.name for job in every)
        reported = [job for job in every if self._chosen.has(job.name)]
        for job in reported:
            try:
                checkpoint = manager.rest.newest_checkpoint(job.job_id)
            except Transient:
                raise
            except (CpreplicateError, OSError) as error:
                self._sparing(f"{job.name}: {error}")
                checkpoint = None
            if checkpoint is not None:
                self._see(manager, job, checkpoint, now)
            elif (seen := manager.seen.get(job.job_id)) is not None:
                # recovered, and without a checkpoint since: its directory has the newest one
                seen.job, seen.reported = replace(seen.job, newest=None), now
        self._drop_gone(manager, {job.job_id for job in reported}, now)

    def _see(
        self, manager: _JobManager, job: RunningJob, checkpoint: CompletedCheckpoint, now: float
    ) -> None:
        path = uri.remap(checkpoint.path, self._template.remaps)
        root = uri.parent(path)
        before = manager.seen.get(job.job_id)
        request = replace(self._template, source=root)
        newest = Checkpoint(path, Newest(checkpoint.checkpoint_id, checkpoint.completed))
        # the checkpoints of a job that ended may be deleted: its directory has those that are left
        reported = None if job.has_ended else newest
        member = Member(job.name, request, is_discovered=True)
        served = ServedJob(member, reported, has_ended=job.has_ended)
        if before is None and served.is_in(self._shard):
            self._notify(f"{job.name}: following the job {job.job_id}, which writes to {root}")
        if before is not None and before.root != root and not self._template.same_source:
            refusal = (
                f"source changed: the job {job.job_id} wrote to {before.root} and now writes to"
                f" {root}. Nothing was done. If it is the same job, give --same-source"
            )
            # its replica stays the one of the directory that was followed before
            manager.seen[job.job_id] = _Seen(replace(served, refusal=refusal), before.root, now)
            return
        manager.seen[job.job_id] = _Seen(served, root, now)

    def _drop_gone(self, manager: _JobManager, reported: set[str], now: float) -> None:
        for job_id in manager.seen.keys() - reported:
            seen = manager.seen[job_id]
            if now - seen.reported < _LINGER:
                seen.job = replace(seen.job, newest=None)
                continue
            if seen.job.is_in(self._shard):
                self._notify(f"{seen.job.member.name}: the job {job_id} is gone")
            del manager.seen[job_id]

    def _lose_sight(self, manager: _JobManager, problem: str) -> None:
        if problem != manager.problem:
            self._notify(f"{problem}. Its jobs are followed by their directories meanwhile")
        manager.problem = problem
        for seen in manager.seen.values():
            seen.job = replace(seen.job, newest=None)

    def _report_missing(self, names: set[str]) -> None:
        """Report once, until that changes, what was chosen and is followed by no job."""
        running = frozenset[str]().union(*(each.names for each in self._managers.values()))
        missing = {(name, name in running or not running) for name in self._chosen.names - names}
        missing |= {
            (f"--include {pattern}", False)
            for pattern in self._chosen.include
            if running and not fnmatch.filter(running, pattern)
        }
        is_asked = any(each.problem is None for each in self._managers.values())
        if self._chosen.every and is_asked and not running:
            missing.add(("--all-jobs", True))
        for name, is_there in sorted(missing - self._missing):
            self._notify(f"{name}: {_waiting(name, is_there, running)}")
        self._missing = missing


def _waiting(chosen: str, is_there: bool, running: Collection[str]) -> str:
    """Return why nothing is followed for a name or an option, and the most similar names of jobs.

    `is_there`: there is a job of this name, or it is not known which jobs there are.
    """
    if chosen == "--all-jobs":
        return "the JobManagers report no job yet. Waiting"
    if is_there:
        return "no job of this name has completed a checkpoint yet. Waiting"
    name = chosen.removeprefix("--include ")
    similar = difflib.get_close_matches(name, running, _SHOWN, cutoff=0.0)
    more = f" and {len(running) - len(similar)} more" if len(running) > len(similar) else ""
    listed = ", ".join(map(repr, similar))
    return f"no job has such a name. Waiting. The JobManagers have the jobs {listed}{more}"


class JobsUnder:
    """The jobs whose directories lie below a root, new ones included."""

    def __init__(
        self, root: str, template: SyncRequest, notify: Notify, shard: Shard = WHOLE
    ) -> None:
        self._root, self._template, self._notify = root, template, notify
        self._sparing = Sparing(notify)
        self._shard = shard
        self._known: set[str] = set()

    def jobs(self) -> list[ServedJob]:
        """See `Discovery`. Costs one listing. A root without jobs has none yet, or is lost.

        Raises `NoJob` if the root can never be one.
        """
        try:
            sources = jobs_under(self._root, self._template.sides.source)
        except NoJob:
            raise
        except NotThere as error:
            if self._known:
                raise
            sources = []
            self._sparing(f"{error}. Waiting for jobs")
        found = [self._served(source) for source in sources]
        jobs = [job for job in found if job.is_in(self._shard)]
        for job in jobs:
            if job.member.request.source not in self._known:
                self._notify(f"{job.member.name}: following {job.member.request.source}")
        self._known = set(sources)
        return jobs

    def _served(self, source: str) -> ServedJob:
        request = replace(self._template, source=source)
        return ServedJob(Member(uri.name(source), request, is_discovered=True))


def refuse_no_root(template: SyncRequest) -> None:
    """Raise `NoJob` if the source can never be a root of jobs. Costs one listing.

    A root that is not there yet, or cannot be read at the first try, passes.
    """
    try:
        jobs_under(template.source, replace(template.sides.source, retry_for=0.0))
    except (NoJob, UsageError):
        raise
    except (CpreplicateError, OSError):
        return  # the discovery reports it, and waits


class KnownRoots:
    """The jobs below the roots of a service: a root with a problem holds up no other job.

    One without jobs is reported. While one cannot be listed, the jobs found there last are kept.
    """

    def __init__(self, side: Side, notify: Notify) -> None:
        self._side, self._notify = side, notify
        self._known: dict[str, list[str]] = {}
        self._problems: dict[str, str] = {}

    def jobs_under(self, root: str) -> list[str]:
        """Return the directories of the jobs below a root; costs one listing."""
        problem = ""
        try:
            self._known[root] = jobs_under(root, self._side)
        except NotThere as error:
            self._known[root], problem = [], f"{error}. Waiting for jobs"
        except (CpreplicateError, OSError) as error:
            problem = f"{error}. The jobs found below {root} before are followed"
        if problem and problem != self._problems.get(root):
            self._notify(problem)
        self._problems[root] = problem
        return self._known.get(root, [])


class FleetJobs:
    """The jobs of a configuration, which is read again on request."""

    def __init__(
        self,
        read: Callable[[], Callable[[], Sequence[Member]]],
        notify: Notify,
        shard: Shard = WHOLE,
    ) -> None:
        self._read, self._notify, self._shard = read, notify, shard
        self._members = read()
        self._is_stale = False

    def reload(self) -> None:
        """Read the configuration before the next discovery; callable from a signal handler."""
        self._is_stale = True

    def jobs(self) -> list[ServedJob]:
        """See `Discovery`. A mistake in the configuration is reported; the last one stays valid."""
        if self._is_stale:
            self._is_stale = False
            try:
                self._members = self._read()
                self._notify("the configuration was read again")
            except CpreplicateError as error:
                self._notify(f"{error}. The configuration read before stays valid")
        jobs = [ServedJob(member) for member in self._members()]
        return [job for job in jobs if job.is_in(self._shard)]
