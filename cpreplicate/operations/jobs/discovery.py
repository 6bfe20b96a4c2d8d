"""The jobs of a service that a listing of a root, or a configuration, names."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

from cpreplicate.core import uri
from cpreplicate.core.clock import MACHINE, Clock
from cpreplicate.core.notify import Notify
from cpreplicate.core.shard import WHOLE, Shard
from cpreplicate.errors import CpreplicateError, NoJob, NotThere, UsageError, described
from cpreplicate.operations.jobs.coverage import Coverage
from cpreplicate.operations.jobs.inquiries import Inquiries
from cpreplicate.operations.jobs.job import Job, jobs_under
from cpreplicate.operations.jobs.repeated_lines import RepeatedLines
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.storage import Side

_PATIENCE = 5.0  # seconds for which the others wait for a root


class JobsUnder:
    """The jobs whose directories are below a root, the source of `template`; new ones included."""

    def __init__(
        self, template: SyncRequest, notify: Notify, shard: Shard = WHOLE, clock: Clock = MACHINE
    ) -> None:
        self._root, self._template, self._notify = template.source, template, notify
        self._repeated = RepeatedLines(notify, clock)
        self._shard = shard
        self.target_roots = frozenset((template.target_root,))
        self._known: set[str] = set()
        self.coverage = Coverage(clock=clock)
        self.coverage.expect([self._root])

    def jobs(self) -> list[Job]:
        """See `Discovery`. Costs one listing. A root without jobs has none yet, or is lost.

        Raises `NoJob` if the root can never be one.
        """
        sources = self._sources()
        found = [self._served(source) for source in sources]
        jobs = [job for job in found if job.is_in(self._shard)]
        for job in jobs:
            if job.request.source not in self._known:
                self._notify(f"{job.name}: following {job.request.source}")
        self._known = set(sources)
        return jobs

    def _sources(self) -> list[str]:
        try:
            sources = jobs_under(self._root, self._template.sides.source)
        except Exception as error:
            self.coverage.failed(self._root, described(error))
            is_waiting = isinstance(error, NotThere) and not isinstance(error, NoJob)
            if self._known or not is_waiting:
                raise
            self._repeated(f"{error}. Waiting for jobs")
            return []
        self.coverage.answered(self._root)
        return sources

    def _served(self, source: str) -> Job:
        request = replace(self._template, source=source)
        return Job(uri.name(source), request, is_discovered=True)


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

    One without jobs is reported. While one is lost or cannot be listed, the jobs found there last
    are kept.
    One that takes longer than `patience` seconds is waited for no longer.
    """

    def __init__(
        self, side: Side, notify: Notify, patience: float = _PATIENCE, clock: Clock = MACHINE
    ) -> None:
        self._side, self._notify = side, notify
        self._inquiries = Inquiries(patience, clock)
        self._known: dict[str, list[str]] = {}
        self._problems: dict[str, str] = {}
        self.coverage = Coverage(clock=clock)

    def look(self, roots: Iterable[str]) -> None:
        """List the roots, all at the same time."""
        questions = {root: partial(self._list, root) for root in roots}
        self.coverage.expect(questions)
        self._inquiries.ask(questions)

    def jobs_under(self, root: str) -> list[str]:
        """Return the directories of the jobs below a root that were found last."""
        return self._known.get(root, [])

    def _list(self, root: str) -> None:
        problem = ""
        try:
            self._known[root] = jobs_under(root, self._side)
        except Exception as error:  # noqa: BLE001  # it concerns this root only
            is_waiting = isinstance(error, NotThere) and not self._known.get(root)
            before = f"The jobs found below {root} before are followed"
            problem = f"{described(error)}. {'Waiting for jobs' if is_waiting else before}"
            self.coverage.failed(root, problem)
        else:
            self.coverage.answered(root)
        if problem and problem != self._problems.get(root):
            self._notify(problem)
        self._problems[root] = problem


class FleetJobs:
    """The jobs of a configuration, which is read again on request."""

    def __init__(
        self, read: Callable[[], Callable[[], list[Job]]], notify: Notify, shard: Shard = WHOLE
    ) -> None:
        self._read, self._notify, self._shard = read, notify, shard
        self._configured = read()
        self.target_roots: frozenset[str] = frozenset()
        self._is_stale = False

    def reload(self) -> None:
        """Read the configuration before the next discovery; callable from a signal handler."""
        self._is_stale = True

    def jobs(self) -> list[Job]:
        """See `Discovery`. A mistake in the configuration is reported; the last one stays valid."""
        if self._is_stale:
            self._is_stale = False
            try:
                self._configured = self._read()
                self._notify("the configuration was read again")
            except Exception as error:  # noqa: BLE001  # the jobs known before are followed
                self._notify(f"{described(error)}. The configuration read before stays valid")
        jobs = self._configured()
        self.target_roots = frozenset(job.request.target_root for job in jobs)
        return [job for job in jobs if job.is_in(self._shard)]
