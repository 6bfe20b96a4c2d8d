"""Several jobs are switched at the same time, each by the story of one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from threading import Event

from cpreplicate.core.notify import Notify, named
from cpreplicate.operations.change.job_result import JobResults, failed
from cpreplicate.operations.change.log_context import begin_job
from cpreplicate.operations.handover.switch.request import Clusters, JobSwitch, SwitchRequest
from cpreplicate.operations.handover.switch.switch import switch

_AT_ONCE = 16


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
) -> SwitchOfAll:
    """Switch jobs, many at the same time.

    What fails for one is in its result. `stops_on_error`: once one failed, those that still run are
    not stopped any more. A single job runs in this thread, and what it raises is raised.
    """
    started, is_halted = time.monotonic(), Event()

    def one(job: str) -> JobSwitch:
        begin_job(job)
        try:
            with _connected(connect) as clusters:
                return switch(replace(request, job=job), clusters, named(job, notify), is_halted)
        except Exception as error:  # noqa: BLE001  # it concerns this job only
            if stops_on_error:
                is_halted.set()
            return failed(JobSwitch(job, "failed"), "failed", error)

    if len(jobs) == 1:
        with _connected(connect) as clusters:
            done = [switch(replace(request, job=jobs[0]), clusters, notify)]
    else:
        with ThreadPoolExecutor(min(_AT_ONCE, len(jobs)), "switch") as pool:
            done = list(pool.map(one, jobs))
    return SwitchOfAll(tuple(done), time.monotonic() - started)


@contextmanager
def _connected(connect: Callable[[], Clusters]) -> Iterator[Clusters]:
    clusters = connect()
    try:
        yield clusters
    finally:
        clusters.origin.close()
        if clusters.target is not None:
            clusters.target.close()
