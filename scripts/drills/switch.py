"""One job that loses A, goes on in B, and goes home: the drill of docs/drill.md."""

from __future__ import annotations

import random
import time
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from scripts.drills.sites import DrillFailed, Side, Start, cpreplicate, kill, refuse_inexact, show
from tests.support.flink import Flink, Job, RunningJob, RunResult
from tests.support.hdfs import HdfsCluster
from tests.support.services import FollowService, following

_INTERVAL = 1.0  # seconds from the beginning of a checkpoint to that of the next one
_MOMENT = (1.0, 5.0)  # seconds from three replicated checkpoints to the kill
_GRACE = "4s"  # of the service: the source is gone, so what it waits for does not come
_JOB = Job(name="drill", rest_refresh_ms=100)
_SECONDS = "{:.1f}"
HEADINGS = (
    "drill",
    "lag s",
    "behind",
    "gap s",
    "copy s",
    "stop s",
    "promote s",
    "running s",
    "files",
    "promote calls",
    "calls/checkpoint",
    "home promote s",
    "home running s",
)


class Loss(NamedTuple):
    """What was lost when A was killed, and what was allowed to be; `copy` is the longest one.

    `gap` is the time between the last two checkpoints: on a busy machine more than the interval
    of the job. Times are seconds.
    """

    lag: float
    behind: int
    gap: float
    copy: float

    @property
    def allowed(self) -> float:
        return max(_INTERVAL, self.gap) + self.copy


class Switch(NamedTuple):
    """What a switch took in seconds, files of the replica, and NameNode calls of `promote`."""

    stop: float
    promote: float
    start: float
    files: int
    calls: int

    @property
    def running(self) -> float:
        """From the decision to switch until every task runs."""
        return self.stop + self.promote + self.start


class Row(NamedTuple):
    """The result of a drill."""

    loss: Loss
    away: Switch
    home: Switch
    calls_per_checkpoint: float

    def cells(self, number: int) -> list[str]:
        """Return the texts of its row in the table."""
        loss, away, home = self.loss, self.away, self.home
        seconds = [loss.gap, loss.copy, away.stop, away.promote, away.running]
        return [
            str(number),
            _SECONDS.format(loss.lag),
            str(loss.behind),
            *map(_SECONDS.format, seconds),
            str(away.files),
            str(away.calls),
            f"{self.calls_per_checkpoint:.0f}",
            _SECONDS.format(home.promote),
            _SECONDS.format(home.running),
        ]


class Drill:
    """One job that goes to the other data centre and home again, any number of times.

    It runs at A when a drill begins and when it ends. All that was started ends with the context.
    """

    def __init__(self, flink: Flink, scratch: Path, chance: random.Random) -> None:
        self._flink, self._scratch, self._chance = flink, scratch, chance
        self._a_stack, self._b_stack, self._job_stack = ExitStack(), ExitStack(), ExitStack()
        self._urls = scratch / "jobmanagers"
        self._services = 0

    def __enter__(self) -> Drill:
        try:
            self._b = Side(self._b_stack.enter_context(HdfsCluster()))
            self._a = self._fresh_a()
            self._job = self._start(self._a)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        with self._b_stack, self._a_stack, self._job_stack:
            pass

    def run(self) -> Row:
        """Lose A, go on at B, and go home to a fresh A."""
        began = self._b.calls()
        with self._follow(self._b) as service:
            result = self._lose_a(service)
            stop = service.stop()
            replicated = service.replicated()
            calls = self._b.calls() - began
        show(service)
        away, checkpoint = self._switch(self._b, result, stop)
        loss = _loss(result, replicated, checkpoint)
        self._a = self._fresh_a()
        with self._follow(self._a) as service:
            result = self._stop_job(service)
            stop = service.stop()
        show(service)
        refuse_inexact(self._flink.run(self._b.checkpoints, restore=result.newest_uri))
        home, checkpoint = self._switch(self._a, result, stop)
        if checkpoint != result.newest_uri:
            raise DrillFailed(f"{checkpoint} was promoted, not the last one, {result.newest_uri}")
        return Row(loss, away, home, calls / len(replicated))

    def _fresh_a(self) -> Side:
        self._a_stack.close()
        return Side(self._a_stack.enter_context(HdfsCluster()))

    def _follow(self, target: Side) -> AbstractContextManager[FollowService]:
        """Run the service; it learns from the JobManager where the job writes."""
        self._services += 1
        words = (target.replicas, "--flink-file", self._urls, "--job-name", _JOB.name)
        return following(self._scratch / f"service-{self._services}", *words, "--grace", _GRACE)

    def _lose_a(self, service: FollowService) -> RunResult:
        """Kill A's HDFS and the job, a random time after the service has caught up."""
        enough = lambda: len(service.reports()) >= 3  # noqa: E731  # one line
        service.wait_until(enough, "the service replicated no three checkpoints")
        time.sleep(self._chance.uniform(*_MOMENT))
        kill([self._a.hdfs.pid, self._job.pid])
        result = self._job.kill()
        self._a_stack.close()
        return result

    def _stop_job(self, service: FollowService) -> RunResult:
        """Stop the job with its last checkpoint, which the service replicates."""
        service.wait_until(lambda: bool(service.reports()), "the service replicated nothing")
        self._job.take_checkpoints(1)
        result = self._job.stop()
        self._job_stack.close()
        service.wait_for(result.newest_uri)
        service.wait_for_no_lag(f"{self._a.replicas}/{result.job_id}")
        return result

    def _switch(self, side: Side, result: RunResult, stop: float) -> tuple[Switch, str]:
        """Promote the replica of a job and start it there.

        Return what that took, and the URI at the source of the checkpoint that was promoted.
        """
        before = side.calls()
        replica = f"{side.replicas}/{result.job_id}"
        began = time.monotonic()
        promoted = cpreplicate(["promote", replica])
        seconds = time.monotonic() - began
        calls = side.calls() - before
        started = time.time()
        chosen = Start.of(promoted)
        self._job = self._start(side, chosen)
        start = self._job.so_far.started - started
        files = int(promoted["verification"]["files"])
        checkpoint = f"{result.directory_uri}/{chosen.name}"
        return Switch(stop, seconds, start, files, calls), checkpoint

    def _start(self, side: Side, start: Start | None = None) -> RunningJob:
        """Start the job, from a replica or from nothing, and report where its JobManager is."""
        self._job_stack.close()
        options = start.options if start else {}
        interval_ms = round(_INTERVAL * 1000)
        context = self._flink.start(side.checkpoints, _JOB, interval_ms=interval_ms, **options)
        job = self._job_stack.enter_context(context)
        if start is not None:
            refuse_inexact(job.so_far)
        self._urls.write_text(f"{job.so_far.rest_url}\n")
        return job


def _loss(result: RunResult, replicated: dict[str, Any], checkpoint: str) -> Loss:
    """Return what was lost of a killed job of which `checkpoint` was promoted."""
    completed = result.completed
    times = sorted(completed.values())
    newer = [time for time in times if time > completed.get(checkpoint, times[-1])]
    lag = newer[-1] - completed[checkpoint] if newer else 0.0
    copies = [float(report["seconds"]) for report in replicated.values()]
    # the first copy brings everything
    return Loss(lag, len(newer), times[-1] - times[-2], max(copies[1:]))


def complaints(rows: list[Row]) -> list[str]:
    """Return which drills lost more than is allowed."""
    return [
        f"drill {number}: {row.loss.lag:.2f} s were lost, {row.loss.allowed:.2f} s are allowed"
        for number, row in enumerate(rows, 1)
        if row.loss.lag > row.loss.allowed
    ]
