"""Several jobs are switched at the same time, each by the story of one."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from threading import Event

from cpreplicate.core.log_context import begin_job
from cpreplicate.core.notify import Notify, named
from cpreplicate.errors import NotThere
from cpreplicate.operations.change.job_result import JobResults, failed
from cpreplicate.operations.handover.switch.earlier import records
from cpreplicate.operations.handover.switch.request import (
    Clusters,
    JobSwitch,
    Programs,
    SwitchRequest,
)
from cpreplicate.operations.handover.switch.switch import switch


@dataclass(frozen=True)
class SwitchOfAll(JobResults[JobSwitch]):
    """What became of each job, in the order in which they were given."""

    seconds: float


def switch_all(
    jobs: Sequence[str],
    request: SwitchRequest,
    connect: Callable[[], Clusters],
    notify: Notify,
    stops_on_error: bool,
    at_once: int = 16,
    programs: Mapping[str, Programs] | None = None,
) -> SwitchOfAll:
    """Switch jobs in the order given, so many at the same time.

    A job has the programs of the request, unless `programs` has its own.

    What fails for one is in its result. `stops_on_error`: once one failed, those that still run are
    not stopped any more. A single job runs in this thread, and what it raises is raised.
    """
    started, is_halted = time.monotonic(), Event()

    def asked(job: str) -> SwitchRequest:
        own = (programs or {}).get(job)
        return replace(request, job=job, **({} if own is None else own._asdict()))

    def one(job: str) -> JobSwitch:
        begin_job(job)
        try:
            with connected(connect) as clusters:
                return switch(asked(job), clusters, named(job, notify), is_halted)
        except Exception as error:  # noqa: BLE001  # it concerns this job only
            if stops_on_error:
                is_halted.set()
            return failed(JobSwitch(job, "failed"), "failed", error)

    if len(jobs) == 1:
        with connected(connect) as clusters:
            done = [switch(asked(jobs[0]), clusters, notify)]
    else:
        with ThreadPoolExecutor(min(at_once, len(jobs)), "switch") as pool:
            done = list(pool.map(one, jobs))
    return SwitchOfAll(tuple(done), time.monotonic() - started)


def every_job(request: SwitchRequest, clusters: Clusters) -> tuple[str, ...]:
    """Return all jobs of the origin: those that a switch has begun to move, and those that run.

    They are named, or by their id where several have a name. Raises `NotThere` without any.
    """
    sync, origin = request.sync, clusters.origin
    begun = [
        record.name
        for _, record in records(sync.target_root, sync.sides.target)
        if record.is_open and not record.is_left_to_operator and record.origin == origin.url
    ]
    running = [] if request.take_back else [job for job in origin.jobs().jobs if not job.has_ended]
    counts = Counter(job.name for job in running)
    names = sorted(job.name if counts[job.name] == 1 else job.job_id for job in running)
    if not (begun or names):
        raise NotThere(
            f"no job runs at {origin.url}, and no switch from there into {sync.target_root} is"
            " open. Nothing was done"
        )
    return tuple(dict.fromkeys((*begun, *names)))


@contextmanager
def connected(connect: Callable[[], Clusters]) -> Iterator[Clusters]:
    """Have clients of both clusters while the block lasts."""
    clusters = connect()
    try:
        yield clusters
    finally:
        clusters.origin.close()
        if clusters.target is not None:
            clusters.target.close()
