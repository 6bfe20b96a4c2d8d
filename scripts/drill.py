"""The switch-over drill of docs/drill.md, on two HDFS clusters and real Flink: `make drill`.

A job checkpoints every second at A, and the service replicates it to B. At a random moment A's HDFS
and the job are killed. The job goes on at B from the replica, the service replicates it to a fresh
A, and the job goes home. Prints a row a drill; ends with 1 if a restored state is not exact, or if
more was lost than one interval and the time of one copy.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.bench.measured import end_tidily, environment
from tests.support.flink import VERSIONS, Flink, FlinkError, Job, RunningJob, RunResult, Version
from tests.support.hdfs import HdfsCluster, HdfsError
from tests.support.services import FollowService, ServiceError, following

_INTERVAL = 1.0  # seconds from the beginning of a checkpoint to that of the next one
_MOMENT = (1.0, 5.0)  # seconds from three replicated checkpoints to the kill
_PROMOTE_SECONDS = 60
_GRACE = "4s"  # of the service: the source is gone, so what it waits for does not come
_JOB = Job(name="drill", rest_refresh_ms=100)
_SECONDS = "{:.1f}"
_HEADINGS = (
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


class DrillFailed(Exception):
    """A restored state is not exact, or a replica is not what it must be."""


@dataclass(frozen=True)
class Side:
    """A data centre: its HDFS, Flink's directory there, and the directory of the replicas."""

    hdfs: HdfsCluster

    @property
    def checkpoints(self) -> str:
        return f"{self.hdfs.uri}/flink/checkpoints"

    @property
    def replicas(self) -> str:
        return f"{self.hdfs.uri}/flink/replicas"

    def calls(self) -> int:
        """The calls of clients that its NameNode has answered."""
        return sum(self.hdfs.rpc_counts().values())


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
        return _INTERVAL + self.copy


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
        self._show(service)
        away, checkpoint = self._switch(self._b, result, stop)
        loss = _loss(result, replicated, checkpoint)
        self._a = self._fresh_a()
        with self._follow(self._a) as service:
            result = self._stop_job(service)
            stop = service.stop()
        self._show(service)
        self._refuse_inexact(self._flink.run(self._b.checkpoints, restore=result.newest_uri))
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
        enough = lambda: len(service.reports()) >= 3  # noqa: E731
        service.wait_until(enough, "the service replicated no three checkpoints")
        time.sleep(self._chance.uniform(*_MOMENT))
        for pid in (self._a.hdfs.pid, self._job.pid):
            os.kill(pid, signal.SIGKILL)
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
        promoted = _promote(replica)
        seconds = time.monotonic() - began
        calls = side.calls() - before
        started = time.time()
        self._job = self._start(side, promoted["restore"])
        start = self._job.so_far.started - started
        files = int(promoted["verification"]["files"])
        name = str(promoted["checkpoint"]).rpartition("/")[2]
        checkpoint = f"{result.directory_uri}/{name}"
        return Switch(stop, seconds, start, files, calls), checkpoint

    def _start(self, side: Side, restore: dict[str, Any] | None = None) -> RunningJob:
        """Start the job, from a replica or from nothing, and report where its JobManager is."""
        self._job_stack.close()
        options: dict[str, Any] = {}
        if restore is not None:
            options["restore"] = restore["rest"]["savepointPath"]
            options["claim_mode"] = restore["claim_mode"]
        interval_ms = round(_INTERVAL * 1000)
        context = self._flink.start(side.checkpoints, _JOB, interval_ms=interval_ms, **options)
        job = self._job_stack.enter_context(context)
        if restore is not None:
            self._refuse_inexact(job.so_far)
        self._urls.write_text(f"{job.so_far.rest_url}\n")
        return job

    @staticmethod
    def _refuse_inexact(result: RunResult) -> None:
        if not result.exact:
            raise DrillFailed(f"the restored state is not exact: {result.failure}")

    @staticmethod
    def _show(service: FollowService) -> None:
        """Print what the service reported, as an operator reads it."""
        for line in service.messages().splitlines():
            print(f"    {line}", flush=True)


def _loss(result: RunResult, replicated: dict[str, Any], checkpoint: str) -> Loss:
    """Return what was lost of a killed job of which `checkpoint` was promoted."""
    completed = result.completed
    times = sorted(completed.values())
    newer = [time for time in times if time > completed.get(checkpoint, times[-1])]
    lag = newer[-1] - completed[checkpoint] if newer else 0.0
    copies = [float(report["seconds"]) for report in replicated.values()]
    # the first copy brings everything
    return Loss(lag, len(newer), times[-1] - times[-2], max(copies[1:]))


def _promote(replica: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "cpreplicate", "promote", replica, "--output", "json"]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=_PROMOTE_SECONDS,
        env=environment(),
        check=False,
    )
    if done.returncode != 0:
        raise DrillFailed(f"promote ended with {done.returncode}\n{done.stdout}{done.stderr}")
    return dict(json.loads(done.stdout))


def _table(rows: list[Row]) -> str:
    lines = [_HEADINGS, ("---:",) * len(_HEADINGS)]
    lines += [tuple(row.cells(number)) for number, row in enumerate(rows, 1)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _drill(version: Version, count: int, chance: random.Random) -> list[Row]:
    """Run the drills on one version of Flink, and print their table also if one fails."""
    rows: list[Row] = []
    print(f"Flink {VERSIONS[version]}: {count} drills", flush=True)
    with tempfile.TemporaryDirectory(prefix="cpreplicate-drill-") as scratch:
        try:
            with Flink(version) as flink, Drill(flink, Path(scratch), chance) as drill:
                for number in range(1, count + 1):
                    print(f"  drill {number}", flush=True)
                    began = time.monotonic()
                    rows.append(drill.run())
                    print(f"  drill {number}: {time.monotonic() - began:.0f} s", flush=True)
        finally:
            print(f"\nFlink {VERSIONS[version]}\n\n{_table(rows)}\n", flush=True)
    return rows


def _complaints(rows: list[Row]) -> list[str]:
    return [
        f"drill {number}: {row.loss.lag:.2f} s were lost, {row.loss.allowed:.2f} s are allowed"
        for number, row in enumerate(rows, 1)
        if row.loss.lag > row.loss.allowed
    ]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    releases = {release: version for version, release in VERSIONS.items()}
    parser.add_argument("--drills", type=int, default=10, metavar="N", help="in a row; default 10")
    parser.add_argument(
        "--flink-version",
        action="append",
        choices=sorted(releases),
        help="repeatable; default 1.20.5 and 2.3.0",
    )
    parser.add_argument("--seed", type=int, help="of the random moments; default: a new one")
    options = parser.parse_args()
    chosen = options.flink_version or [VERSIONS["1"], VERSIONS["2"]]
    options.versions = [releases[release] for release in chosen]
    return options


def main() -> int:
    """Run the drills; 1 if one failed."""
    options = _options()
    end_tidily()
    seed = random.randrange(1 << 30) if options.seed is None else options.seed
    print(f"seed {seed}")
    chance = random.Random(seed)
    complaints: list[str] = []
    try:
        for version in options.versions:
            complaints += _complaints(_drill(version, options.drills, chance))
    except (DrillFailed, FlinkError, HdfsError, ServiceError) as error:
        complaints.append(f"the drill failed: {error}")
    except KeyboardInterrupt:
        complaints.append("interrupted")
    print("\n".join(complaints), file=sys.stderr)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
