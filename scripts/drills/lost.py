"""Ten jobs lose A, go on in B, and lose B, too: the commands of docs/lost.md on real Flink."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import NamedTuple

from scripts.drills.page import PAGE, Page
from scripts.drills.sites import DrillFailed, Result, Side, Start, kill, refuse_inexact
from tests.support.flink import Flink, Job, RunningJob
from tests.support.hdfs import HdfsCluster
from tests.support.services import FollowService, following

STATUS = "status --retry-for 5s hdfs://dcB/flink/replicas"
LOOK = "promote --all --dry-run --max-lag 15m hdfs://dcB/flink/replicas"
PROMOTE_ALL = "promote --all --yes --lock-wait 3m hdfs://dcB/flink/replicas"
PROMOTE_ONE = "promote hdfs://dcB/flink/replicas --job orders"
POINTS = "list hdfs://dcB/flink/replicas --job orders"
UNSEAL_ONE = "unseal hdfs://dcB/flink/replicas --replica-of orders --no-job-uses-it"
AS_OF = "promote hdfs://dcB/flink/replicas --job orders --as-of 2026-11-24T03:00Z"
SECOND_LOSS = "promote --all --yes --lock-wait 3m hdfs://dcC/flink/replicas"
TAKE_BACK = "unseal --all --sealed-after TIME --no-job-uses-it --yes hdfs://dcB/flink/replicas"
_ONE = "orders"
_OTHERS = ("payments", "invoices", "returns", "prices", "stock", "fraud", "clicks", "users", "ads")
_NAMES = (_ONE, *_OTHERS)
_INTERVAL_MS = 10_000
_NEVER = 0  # milliseconds: such a job completes no checkpoint by itself
_POINTS = 3  # that each replica holds before A is lost: one of them is yesterday's
_GRACE = "4s"  # of the services: the source is gone, so what they wait for does not come

HEADINGS = (
    "jobs",
    "service MiB",
    "look s",
    "promote s",
    "calls/job",
    "running s",
    "second promote s",
)


class Took(NamedTuple):
    """What a drill of `jobs` jobs took in seconds.

    `memory` is the most that a service had, in bytes. `look` is the dry run, `calls` are those of
    B's NameNode in `promote --all` for each job, `running` is from the begin of that until all jobs
    run in B. `second` is `promote --all` in C.
    """

    jobs: int
    memory: int
    look: float
    promote: float
    calls: float
    running: float
    second: float

    def cells(self) -> list[str]:
        """Return the texts of its row in the table."""
        took = (self.look, self.promote, self.running, self.second)
        look, promote, running, second = (f"{seconds:.1f}" for seconds in took)
        memory = f"{self.memory / 2**20:.0f}"
        return [str(self.jobs), memory, look, promote, f"{self.calls:.0f}", running, second]


class Followed(NamedTuple):
    """What a service did: the checkpoint that it committed last of each job, and its memory."""

    newest: dict[str, str]
    memory: int


class Losses:
    """Ten jobs at A, of which B and C hold replicas. What was started ends with the context."""

    def __init__(self, flink: Flink, scratch: Path) -> None:
        self._flink, self._scratch = flink, scratch
        self._sites, self._running = ExitStack(), ExitStack()

    def __enter__(self) -> Losses:
        clusters = HdfsCluster.start_many(HdfsCluster() for _ in range(3))
        for cluster in clusters:
            self._sites.callback(cluster.close)
        self._a, self._b, self._c = map(Side, clusters)
        places = {"hdfs://dcB/flink": self._b.root, "hdfs://dcC/flink": self._c.root}
        self._page = Page(PAGE.read_text(), places)
        return self

    def __exit__(self, *_: object) -> None:
        with self._sites, self._running:
            pass

    def run(self) -> Took:
        """Lose A, promote all jobs in B and start them, lose B, and promote and start them in C."""
        in_b, in_c = self._until_a_is_lost()
        _refuse_unready(self._page.run(STATUS))
        began = time.monotonic()
        _compare(self._page.run(LOOK), in_b.newest, "can_be_promoted")
        look = time.monotonic() - began
        self._take_back()
        before, began = self._b.calls(), time.monotonic()
        starts = _promoted(self._page.run(PROMOTE_ALL), in_b.newest)
        promote, calls = time.monotonic() - began, self._b.calls() - before
        jobs = self._start_all(self._b, starts, _NEVER)
        running = time.monotonic() - began
        starts[_ONE], jobs[_ONE] = self._yesterday(jobs[_ONE], starts[_ONE])
        self._lose_b(jobs, starts)
        began = time.monotonic()
        starts = _promoted(self._page.run(SECOND_LOSS), in_c.newest)
        second = time.monotonic() - began
        named = ", ".join(f"{name} {start.name}" for name, start in starts.items())
        print(f"    next, in C: {named}", flush=True)
        self._start_all(self._c, starts, _INTERVAL_MS)
        if self._page.left():
            raise DrillFailed(f"commands of {PAGE.name} were not run: {self._page.left()}")
        memory = max(in_b.memory, in_c.memory)
        return Took(len(_NAMES), memory, look, promote, calls / len(_NAMES), running, second)

    def _until_a_is_lost(self) -> tuple[Followed, Followed]:
        """Replicate ten jobs to B and C, and kill them with A. Return what is in B and in C."""
        jobs = self._start_all(self._a, {}, _INTERVAL_MS)
        addresses = self._scratch / "jobmanagers"
        addresses.write_text("".join(f"{job.so_far.rest_url}\n" for job in jobs.values()))
        with self._follow(self._b, addresses) as to_b, self._follow(self._c, addresses) as to_c:
            services = (to_b, to_c)
            for service in services:
                service.wait_until(partial(_has_points, service), "some jobs have no points")
            _lose(self._a, jobs)
            memory = [service.peak() for service in services]
            for service in services:
                service.stop()
        return _followed(to_b, memory[0]), _followed(to_c, memory[1])

    def _follow(self, side: Side, addresses: Path) -> AbstractContextManager[FollowService]:
        words = (side.replicas, "--flink-file", addresses, "--all-jobs", "--keep-within", "1h")
        scratch = self._scratch / f"service-{side.hdfs.pid}"
        return following(scratch, *words, "--grace", _GRACE, interval="1s")

    def _take_back(self) -> None:
        """Promote all jobs and unseal them again, as if A had come back."""
        began = datetime.now(timezone.utc).isoformat(timespec="seconds")
        self._page.run(PROMOTE_ALL)
        unsealed = self._page.run(TAKE_BACK, began)["jobs"]
        if sorted(job["name"] for job in unsealed) != sorted(_NAMES):
            raise DrillFailed(f"not all jobs were unsealed: {unsealed}")

    def _yesterday(self, job: RunningJob, promoted: Start) -> tuple[Start, RunningJob]:
        """Start a job from an older point than the one that it was started from, and return it."""
        same = Start.of(self._page.run(PROMOTE_ONE))
        if same != promoted:
            raise DrillFailed(f"promote printed {promoted}, and then {same}")
        job.kill()
        points = self._page.run(POINTS)["replicas"][0]["points"]
        point = points[len(points) // 2]
        self._page.run(UNSEAL_ONE)
        start = Start.of(self._page.run(AS_OF, point["completed"]))
        if start.name != point["checkpoint"] or start.name == promoted.name:
            raise DrillFailed(f"{start.name} was promoted as of {point}")
        print(f"    {_ONE} goes back from {promoted.name} to {start.name}", flush=True)
        return start, self._start(self._b, _ONE, start, _NEVER)

    def _lose_b(self, jobs: Mapping[str, RunningJob], starts: Mapping[str, Start]) -> None:
        """Lose the jobs in B before their first checkpoint there, then the replicas in B, too.

        In between, `promote --all` must print again how each was started.
        """
        same = self._page.run(PROMOTE_ALL)
        _compare(same, {name: start.name for name, start in starts.items()}, "sealed_before")
        _lose(self._b, jobs)
        own = [name for name, job in jobs.items() if job.so_far.completed]
        if own:
            raise DrillFailed(f"{own} completed checkpoints in B before it was lost")

    def _start_all(
        self, side: Side, starts: Mapping[str, Start], interval_ms: int
    ) -> dict[str, RunningJob]:
        """Start all jobs at once, and return when each runs with its state exact."""
        self._running.close()
        with ThreadPoolExecutor(len(_NAMES)) as pool:
            start = lambda name: self._start(side, name, starts.get(name), interval_ms)  # noqa: E731  # one line
            return dict(zip(_NAMES, pool.map(start, _NAMES), strict=True))

    def _start(self, side: Side, name: str, start: Start | None, interval_ms: int) -> RunningJob:
        # small: ten of them share two cores
        job = Job(name=name, parallelism=1, rest_refresh_ms=1000, keys=100, slow_micros=1000)
        context = self._flink.start(
            side.checkpoints,
            job,
            interval_ms=interval_ms,
            takes_first=False,
            **start.options if start else {},
        )
        running = self._running.enter_context(context)
        if start is not None:
            refuse_inexact(running.so_far)
        return running


def _lose(side: Side, jobs: Mapping[str, RunningJob]) -> None:
    """Kill the HDFS of a data centre and the jobs there."""
    kill([side.hdfs.pid, *(job.pid for job in jobs.values())])
    for job in jobs.values():
        job.kill()
    side.hdfs.close()


def _has_points(service: FollowService) -> bool:
    points = Counter(report["job"] for report in service.reports())
    return all(points[name] >= _POINTS for name in _NAMES)


def _followed(service: FollowService, memory: int) -> Followed:
    newest = {report["job"]: f"chk-{report['checkpoint_id']}" for report in service.reports()}
    return Followed(newest, memory)


def _refuse_unready(status: Result) -> None:
    """Raise `DrillFailed` unless each job has a replica of its name that is ready."""
    ready = {replica["name"] for replica in status["replicas"] if replica["ready"]}
    if ready != set(_NAMES):
        raise DrillFailed(f"only {sorted(ready)} are ready: {status}")


def _promoted(report: Result, newest: Mapping[str, str]) -> dict[str, Start]:
    """Return how each job is started, by name, if that is from its newest checkpoint."""
    _compare(report, newest, "promoted")
    return {job["name"]: Start.of(job["promotion"]) for job in report["jobs"]}


def _compare(report: Result, checkpoints: Mapping[str, str], outcome: str) -> None:
    """Raise `DrillFailed` unless each job has this outcome and its checkpoint."""
    jobs = report["jobs"]
    found = {job["name"]: (job["outcome"], job["promotion"]["checkpoint"]) for job in jobs}
    expected = {name: (outcome, checkpoint) for name, checkpoint in checkpoints.items()}
    if found != expected:
        raise DrillFailed(f"promote --all returned {found}, expected are {expected}")
