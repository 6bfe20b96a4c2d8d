"""The jobs of a service that Flink's REST API reports."""

from __future__ import annotations

import fnmatch
import math
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial

from cpreplicate.core import lag, uri
from cpreplicate.core.clock import MACHINE, Clock
from cpreplicate.core.notify import Notify
from cpreplicate.core.placement import JOB_ID
from cpreplicate.core.shard import WHOLE, Shard
from cpreplicate.errors import described
from cpreplicate.flink import CompletedCheckpoint, FlinkRest, RunningJob
from cpreplicate.operations.jobs.chosen import Chosen, pattern_word, why_waiting
from cpreplicate.operations.jobs.coverage import Coverage
from cpreplicate.operations.jobs.followed_before import Remembered
from cpreplicate.operations.jobs.inquiries import Inquiries
from cpreplicate.operations.jobs.job import Checkpoint, Job
from cpreplicate.operations.jobs.pace import Pace
from cpreplicate.operations.jobs.repeated_lines import RepeatedLines
from cpreplicate.operations.sync.request import SyncRequest, is_outside_roots
from cpreplicate.protocol.savepoints import LastSavepoint

# Seconds for which a job that a JobManager no longer reports is followed by its directory: its last
# checkpoint may have completed since it was asked.
_LINGER = 120.0
_PATIENCE = 5.0  # seconds for which the others wait for a JobManager, or for a root
# Seconds after which a JobManager that does not answer for a job is asked for no more jobs: the
# others are followed by their directories until it is asked again.
_UNREAD = 100  # jobs of a JobManager that are named because nobody can follow them
_ROUND = 20.0
_MOST_NAME = 300  # characters of a job's name that are shown


@dataclass
class _Seen:
    """A job that a JobManager reported: where it writes, and when it was reported last.

    `root` is None if that was refused so far. `began` is when it was reported first. `is_before`:
    only its replica shows that a service followed it before this one started.
    """

    job: Job
    root: str | None
    reported: float
    began: float = -math.inf
    is_before: bool = False


@dataclass
class _JobManager:
    """A JobManager, and its jobs. `problem` is why it could not be asked the last time.

    `names` are those of all jobs that it reported then, by their ids, also of those that are not
    followed.
    `failed`: when it did not answer the question for a job's checkpoint. `unread`: why jobs that it
    reports cannot be followed at all, by the names under which `coverage` knows them. `paces`: when
    each job is to be asked for. `was_asked`: it has answered once, or failed. `is_left`: it is
    asked no more.
    """

    rest: FlinkRest
    seen: dict[str, _Seen] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    failed: dict[str, float] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)
    paces: dict[str, Pace] = field(default_factory=dict)
    problem: str | None = None
    was_asked: bool = False
    is_left: bool = False


class FlinkJobs:
    """The jobs that JobManagers report, each followed under its name.

    `urls` is called for the JobManagers each time: a file that lists them may have changed. While
    one cannot be reached, its jobs are followed by the listings of their directories. One that
    takes longer than `patience` seconds is waited for no longer: what it reports counts when it is
    there. `ended` is called for the ids of jobs that have ended, as an operator states: it counts
    for those that no JobManager reports. What a service followed before, and is not reported any
    more, is followed as if this one had seen it.
    """

    def __init__(
        self,
        urls: Callable[[], Sequence[str]],
        connect: Callable[[str], FlinkRest],
        chosen: Chosen,
        template: SyncRequest,
        notify: Notify,
        clock: Clock = MACHINE,
        shard: Shard = WHOLE,
        patience: float = _PATIENCE,
        ended: Callable[[], Collection[str]] = tuple,
    ) -> None:
        self._read_ended, self._ended = ended, frozenset[str]()
        self._shard, self.target_roots = shard, frozenset((template.target_root,))
        self._urls, self._connect, self._chosen = urls, connect, chosen
        self._template, self._notify, self._clock = template, notify, clock
        self._repeated = RepeatedLines(notify, clock)
        self._remembered, self._began = Remembered(template, self._repeated), clock.monotonic()
        self._inquiries = Inquiries(patience, clock)
        self.coverage = Coverage(chosen.words, clock)
        self._lock = threading.Lock()  # JobManagers are asked in threads
        self._managers: dict[str, _JobManager] = {}
        self._urls_read: Sequence[str] = ()
        self._missing: set[tuple[str, bool]] = set()

    def jobs(self) -> list[Job]:
        """See `Discovery`. A JobManager that cannot be asked is reported once, until it can."""
        self._choose_managers()
        self._choose_ended()
        asked = {url: self._managers[url] for url in self._urls_read if url in self._managers}
        self._inquiries.ask(
            {
                **{url: partial(self._ask_or_lose_sight, each) for url, each in asked.items()},
                **self._remembered.questions(),
            }
        )
        self._take_over()
        with self._lock:
            managers = list(self._managers.values())
            jobs = [seen.job for manager in managers for seen in manager.seen.values()]
        self._remembered.keep([job.key for job in jobs])
        names = {job.name for job in jobs}
        self.coverage.matched(self._chosen.matched(names))
        self._report_missing(names)
        return [job for job in jobs if job.is_in(self._shard)]

    def _ask_or_lose_sight(self, manager: _JobManager) -> None:
        try:
            self._ask(manager)
        except Exception as error:  # noqa: BLE001  # it concerns this JobManager only
            self._lose_sight(manager, described(error))
        else:
            self.coverage.answered(manager.rest.url)
            if manager.problem is not None:
                self._notify(f"{manager.rest.url} answers again")
            manager.problem = None
        manager.was_asked = True

    def _take_over(self) -> None:
        """Follow what was followed before this service, and is not reported to it."""
        asked = {each.rest.url: each for each in self._managers.values() if each.was_asked}
        urls = [each.rest.url for each in self._managers.values()]
        for before in self._remembered.take(urls, asked):
            request = replace(self._template, source=before.source, name=before.name)
            job = Job(before.name, request, is_discovered=True)
            is_chosen = self._chosen.has(before.name) and job.is_in(self._shard)
            if not is_chosen or is_outside_roots(before.source, self._template):
                continue
            seen = _Seen(job, before.source, self._began, is_before=True)
            with self._lock:
                is_new = asked[before.url].seen.setdefault(before.job_id, seen) is seen
            if is_new:
                self._notify(
                    f"{job.name}: the job {before.job_id}, which {before.url} reported before, is"
                    f" followed by its directory, {before.source}"
                )

    def _choose_managers(self) -> None:
        try:
            self._urls_read = tuple(dict.fromkeys(self._urls()))
        except Exception as error:
            if not self._urls_read:
                raise
            self._repeated(f"{described(error)}. The URLs read before are used")
        if not self._urls_read:
            self._repeated("no URL of a JobManager is given. Waiting for one in --flink-file")
        self._connect_to_new()
        for url in self._managers.keys() - set(self._urls_read):
            self._leave(url)

        self._expect()

    def _choose_ended(self) -> None:
        try:
            self._ended = frozenset(each.lower() for each in self._read_ended())
        except Exception as error:  # noqa: BLE001  # what was read before still holds
            self._repeated(f"{described(error)}. The ids read before count as ended")
        if wrong := sorted(each for each in self._ended if not JOB_ID.fullmatch(each)):
            self._repeated(
                f"{_shown(wrong[0])} is listed as ended, and is no id of a job, which has 32"
                " hexadecimal digits"
            )

    def _expect(self) -> None:
        """Let `coverage` know the JobManagers; what is no URL is named by its number."""
        numbered = enumerate(self._urls_read, 1)
        broken = [_number(number) for number, url in numbered if url not in self._managers]
        managers = [self._managers[url] for url in self._urls_read if url in self._managers]
        unread = [name for manager in managers for name in tuple(manager.unread)]
        self.coverage.expect([*(manager.rest.url for manager in managers), *unread, *broken])
        for name in broken:
            self.coverage.failed(name, f"{name} is none of a JobManager")

    def _connect_to_new(self) -> None:
        """Connect to the JobManagers that are new, and report what is no URL without its text."""
        broken: list[int] = []
        problem = ""
        for number, url in enumerate(self._urls_read, 1):
            known = self._managers.get(url)
            if known is not None and not known.is_left:
                continue
            try:
                seen = known.seen if known is not None else {}
                self._managers[url] = _JobManager(self._connect(url), seen)
            except Exception as error:  # noqa: BLE001  # it concerns this one only
                broken.append(number)
                problem = problem or described(error)
        if broken:
            self._repeated(
                f"{len(broken)} of {len(self._urls_read)} URLs of JobManagers are left out, the"
                f" first is number {broken[0]}: {problem}"
            )

    def _leave(self, url: str) -> None:
        """Ask a JobManager no more; its jobs are followed for a while like those that are gone."""
        manager = self._managers.pop(url)
        with self._lock:
            manager.is_left = True
        manager.rest.close()
        self._drop_gone(manager, set(), self._clock.monotonic())
        if manager.seen:
            self._managers[url] = manager  # behind those that are asked

    def _ask(self, manager: _JobManager) -> None:
        began, overview = self._clock.monotonic(), manager.rest.jobs()
        every_job = (*overview.jobs, *overview.guessed)
        self.coverage.answered(manager.rest.url, is_all=False)
        manager.names = {job.job_id: _shown(job.name) for job in every_job}
        for text in (*overview.problems, *overview.unclear.values()):
            self._repeated(text)
        reported = [job for job in every_job if self._chosen.has(job.name)]
        ids = {job.job_id for job in reported}
        left_out = overview.unclear.keys() - ids  # perhaps as nobody knows the name
        self._drop_gone(manager, ids | left_out, began)
        self._follow_by_directory(manager, left_out, began)
        manager.failed = {job: at for job, at in manager.failed.items() if job in ids}
        manager.paces = {job: pace for job, pace in manager.paces.items() if job in ids}
        reported = [job for job in reported if not self._is_as_before(manager, job, began)]
        # those that failed last: they may take all the time that there is
        reported.sort(key=lambda job: manager.failed.get(job.job_id, -math.inf))
        unread = {_unread(manager, "jobs without a valid id"): text for text in overview.problems}
        nameless = {job.job_id for job in overview.guessed if job.name == job.job_id} & left_out
        for job_id in sorted(nameless - manager.seen.keys())[:_UNREAD]:
            unread[_unread(manager, f"the job {job_id} without a name")] = overview.unclear[job_id]
        for index, job in enumerate(reported):
            problem = self._ask_of(manager, job)
            if problem is not None and job.job_id not in manager.seen and len(unread) < _UNREAD:
                unread[_unread(manager, f"the job {_shown(job.name)}, {job.job_id}")] = problem
            if problem is not None and self._clock.monotonic() - began > _ROUND:
                left = {each.job_id for each in reported[index + 1 :]}
                self._follow_by_directory(manager, left, self._clock.monotonic())
                unread = {**manager.unread, **unread}  # the rest was not asked
                break
        self._set_unread(manager, unread)

    def _is_as_before(self, manager: _JobManager, job: RunningJob, now: float) -> bool:
        """Return whether a job is not asked for, and count what is known as seen now.

        Its next checkpoint is not due, and the overview reports the same of it.
        """
        pace, seen = manager.paces.get(job.job_id), manager.seen.get(job.job_id)
        if pace is None or seen is None or job.job_id in manager.failed:
            return False
        if seen.job.newest is None or seen.job.refusal is not None or pace.is_due(job, now):
            return False
        with self._lock:
            seen.job, seen.reported = replace(seen.job, looked=self._clock.now()), now
        return True

    def _set_unread(self, manager: _JobManager, unread: dict[str, str]) -> None:
        """Record which jobs are reported and followed by nobody: they have no lag that shows it."""
        manager.unread = unread
        self.coverage.expect_also(unread)
        for name, problem in unread.items():
            self.coverage.failed(name, problem)

    def _ask_of(self, manager: _JobManager, job: RunningJob) -> str | None:
        """Ask for the newest checkpoint of a job; return why that could not be answered, if so."""
        now, looked = self._clock.monotonic(), self._clock.now()
        try:
            checkpoint, restored, savepoint = manager.rest.checkpoints(job.job_id)
            if checkpoint is not None:
                self._see(manager, job, checkpoint, now, looked)
                manager.paces.setdefault(job.job_id, Pace()).saw(job, checkpoint, now)
            else:
                # recovered, and without a checkpoint since: its directory has the newest one
                self._follow_restored(manager, job, restored, now)
            if job.has_ended and savepoint is not None:
                self._name_savepoint(manager, job.job_id, savepoint)
        except Exception as error:  # noqa: BLE001  # it concerns this job only
            problem = described(error)
            self._repeated(f"{_shown(job.name)}: {problem}")
            self._follow_by_directory(manager, {job.job_id}, now)
            manager.failed[job.job_id] = now
            return problem
        # it may have too many jobs for an interval
        self.coverage.answered(manager.rest.url, is_all=False)
        manager.failed.pop(job.job_id, None)
        return None

    def _follow_restored(
        self, manager: _JobManager, job: RunningJob, restored: str | None, now: float
    ) -> None:
        """Follow a job by the directory of the checkpoint that it was restored from, if it is its.

        One of a former id is replicated under that id.
        """
        if job.job_id in manager.seen or restored is None:
            self._follow_by_directory(manager, {job.job_id}, now)
            self._note_end(manager, job)
            return
        path = uri.remap(restored, self._template.remaps)
        root, name = uri.parent(path), _shown(job.name)
        if uri.name(root) != job.job_id:
            self._repeated(
                f"{name}: the job {job.job_id} was restored from {path}, and has completed no"
                " checkpoint since. It is followed when it has"
            )
        elif is_outside_roots(path, self._template):
            self._repeated(f"{name}: {_outside(job, path)}")
        else:
            request = replace(self._template, source=root, name=job.name)
            request = replace(request, reported_by=_reporter(manager, job))
            served = Job(name, request, is_discovered=True, has_ended=job.has_ended)
            self._begin(manager, job, _Seen(served, root, now))

    def _note_end(self, manager: _JobManager, job: RunningJob) -> None:
        """Take over whether a job that is followed by its directory has ended, as is reported."""
        with self._lock:
            seen = manager.seen.get(job.job_id)
            if seen is None or manager.is_left or seen.job.has_ended == job.has_ended:
                return
            request = replace(seen.job.request, reported_by=_reporter(manager, job))
            served = replace(seen.job, request=request, has_ended=job.has_ended)
            seen.job = served
        if served.refusal is None and served.is_in(self._shard):
            self._note(served)

    def _note(self, served: Job) -> None:
        note = self._remembered.ended if served.has_ended else self._remembered.runs
        note(served)

    def _name_savepoint(
        self, manager: _JobManager, job_id: str, savepoint: CompletedCheckpoint
    ) -> None:
        path = uri.remap(savepoint.path, self._template.remaps)
        named = LastSavepoint(path, savepoint.completed, is_reported=True)
        with self._lock:
            if (seen := manager.seen.get(job_id)) is not None:
                seen.job = replace(seen.job, savepoint=named)

    def _begin(self, manager: _JobManager, job: RunningJob, seen: _Seen) -> None:
        """Take over what is seen of a job, and report where that is new."""
        with self._lock:
            before = manager.seen.get(job.job_id)
            if manager.is_left:
                return
            seen.began = before.began if before is not None else seen.reported
            manager.seen[job.job_id] = seen
        served, root = seen.job, seen.root
        if served.refusal or not served.is_in(self._shard) or root is None:
            return
        self._note(served)
        if before is None or before.is_before:
            self._notify(f"{served.name}: following the job {job.job_id}, which writes to {root}")
        elif before.root not in (None, root):
            self._notify(_changed(served.name, job.job_id, before.root, root))

    def _follow_by_directory(
        self, manager: _JobManager, job_ids: Iterable[str], now: float
    ) -> None:
        """Forget what is the newest checkpoint of jobs that are reported: it may be older."""
        with self._lock:
            for job_id in job_ids:
                if (seen := manager.seen.get(job_id)) is not None:
                    seen.job, seen.reported = replace(seen.job, newest=None, is_lost=False), now

    def _see(
        self,
        manager: _JobManager,
        job: RunningJob,
        checkpoint: CompletedCheckpoint,
        now: float,
        looked: float,
    ) -> None:
        path = uri.remap(checkpoint.path, self._template.remaps)
        root, name = uri.parent(path), _shown(job.name)
        if refusal := self._refusal(job, checkpoint, path):
            self._repeated(f"{name}: {refusal}")
            # its own replica, and not that of the job whose directory it may be
            root = uri.join(uri.parent(root), job.job_id)
        reported_by = _reporter(manager, job)
        request = replace(self._template, source=root, name=job.name, reported_by=reported_by)
        number, acknowledged = checkpoint.checkpoint_id, checkpoint.completed
        newest = Checkpoint(path, lag.reported(number, acknowledged))
        # the checkpoints of a job that ended may be deleted: its directory has those that are left
        reported = None if job.has_ended or refusal else newest
        served = Job(
            name,
            request,
            is_discovered=True,
            newest=reported,
            refusal=refusal,
            has_ended=job.has_ended,
            looked=looked,
        )
        before = manager.seen.get(job.job_id)
        former = before.root if before is not None else None
        self._begin(manager, job, _Seen(served, former if refusal else root, now))

    def _refusal(self, job: RunningJob, checkpoint: CompletedCheckpoint, path: str) -> str | None:
        """Return why what a JobManager reports of a job is not believed, if it is not."""
        directory = uri.parent(path)
        if uri.name(path) != f"chk-{checkpoint.checkpoint_id}":
            return (
                f"{path} is reported as checkpoint {checkpoint.checkpoint_id} of the job"
                f" {job.job_id}, and is not named so. Nothing was done. Check the URL of the"
                " JobManager"
            )
        if JOB_ID.fullmatch(uri.name(directory)) and uri.name(directory) != job.job_id:
            return (
                f"the job {job.job_id} reports {path}, in the directory of another job. Nothing was"
                " done. Check the URL of the JobManager, and whom it belongs to"
            )
        if is_outside_roots(path, self._template):
            return _outside(job, path)
        return None

    def _drop_gone(self, manager: _JobManager, reported: Set[str], now: float) -> None:
        """Follow jobs that are not reported any more: for a while, or as long as they may run."""
        ended, dropped, lost = [], [], []
        with self._lock:
            for job_id in manager.seen.keys() - reported:
                seen = manager.seen[job_id]
                seen.job = replace(seen.job, newest=None)
                if now - seen.reported < _LINGER:
                    continue
                if self._has_ended(manager, job_id, seen):
                    dropped.append((job_id, manager.seen.pop(job_id).job))
                    if not manager.is_left and seen.job.refusal is None:
                        ended.append(seen.job)
                elif not seen.job.is_lost:
                    seen.job = replace(seen.job, is_lost=True)
                    lost.append((job_id, seen.job))
        for job in ended:
            if job.is_in(self._shard):
                self._remembered.ended(job)
        for job_id, job in dropped:
            if job.is_in(self._shard):
                self._notify(f"{job.name}: the job {job_id} is gone")
        for job_id, job in lost:
            if job.is_in(self._shard):
                self._notify(_lost(job, job_id, manager.rest.url))

    def _has_ended(self, manager: _JobManager, job_id: str, seen: _Seen) -> bool:
        """Return whether a job that is not reported any more has ended, as was reported or stated.

        It was restarted if a job of its name is reported that was not there before.
        """
        if manager.is_left or seen.job.has_ended or seen.job.refusal is not None:
            return True
        if job_id in self._ended:
            return True
        managers = list(self._managers.values())
        began = {id_: each.began for one in managers for id_, each in one.seen.items()}
        others = {
            id_ for one in managers for id_, name in one.names.items() if name == seen.job.name
        }
        return any(began.get(each, math.inf) >= seen.reported for each in others - {job_id})

    def _lose_sight(self, manager: _JobManager, problem: str) -> None:
        if manager.is_left:
            return
        if problem != manager.problem:
            self._notify(f"{problem}. Its jobs are followed by their directories meanwhile")
        manager.problem = problem
        self.coverage.failed(manager.rest.url, problem)
        with self._lock:
            for seen in manager.seen.values():
                seen.job = replace(seen.job, newest=None)

    def _report_missing(self, names: set[str]) -> None:
        """Report once, until that changes, what was chosen and is followed by no job."""
        managers = self._managers.values()
        running = frozenset[str]().union(*(each.names.values() for each in managers))
        missing = {(name, name in running or not running) for name in self._chosen.names - names}
        missing |= {
            (pattern_word(pattern), False)
            for pattern in self._chosen.include
            if running and not fnmatch.filter(running, pattern)
        }
        is_asked = any(each.problem is None for each in self._managers.values())
        if self._chosen.every and is_asked and not running:
            missing.add(("--all-jobs", True))
        for name, is_there in sorted(missing - self._missing):
            self._notify(f"{name}: {why_waiting(name, is_there, running)}")
        self._missing = missing


def _reporter(manager: _JobManager, job: RunningJob) -> str | None:
    """Return who reports a job that has not ended, for the next service."""
    return None if job.has_ended else manager.rest.url


def _outside(job: RunningJob, path: str) -> str:
    return (
        f"the job {job.job_id} reports {path}, which is outside the source's roots. Nothing was"
        " read from there. If the job writes there, name the directory with --source-root"
    )


def _lost(job: Job, job_id: str, url: str) -> str:
    return (
        f"{job.name}: {url} answers without the job {job_id}, and has not reported its end. It is"
        f" followed by its directory, {job.request.source}. If it has ended, write its id into"
        " --ended-file"
    )


def _changed(name: str, job_id: str, former: str | None, root: str) -> str:
    return (
        f"{name}: source changed: the job {job_id} wrote to {former} and now writes to {root},"
        " which has a replica of its own. If both are names of one directory, restart the service"
        " with --same-source"
    )


def _unread(manager: _JobManager, what: str) -> str:
    """Return the name of what a JobManager reports and nobody can follow."""
    return f"{manager.rest.url} ({what})"


def _number(number: int) -> str:
    """Return the name of what is no URL: its text may be a password."""
    return f"URL number {number}"


def _shown(name: str) -> str:
    """Return the name of a job, shortened if it is longer than anybody reads."""
    return name if len(name) <= _MOST_NAME else f"{name[:_MOST_NAME]}…"
