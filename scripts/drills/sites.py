"""What the drills have in common: data centres, and commands of cpreplicate."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from scripts.bench.measured import environment
from tests.support.flink import ClaimMode, RunResult
from tests.support.hdfs import HdfsCluster
from tests.support.services import FollowService

Result = dict[str, Any]
_SECONDS = 120


class DrillFailed(Exception):
    """A restored state is not exact, or a replica is not what it must be."""


@dataclass(frozen=True)
class Side:
    """A data centre: its HDFS, Flink's directory there, and the directory of the replicas."""

    hdfs: HdfsCluster

    @property
    def root(self) -> str:
        return f"{self.hdfs.uri}/flink"

    @property
    def checkpoints(self) -> str:
        return f"{self.root}/checkpoints"

    @property
    def replicas(self) -> str:
        return f"{self.root}/replicas"

    def calls(self) -> int:
        """The calls of clients that its NameNode has answered."""
        return sum(self.hdfs.rpc_counts().values())


class Start(NamedTuple):
    """How a job is started from a checkpoint, as `promote` returned it."""

    checkpoint: str
    claim_mode: ClaimMode

    @classmethod
    def of(cls, promoted: Result) -> Start:
        """Return that of a result of `promote`."""
        restore = promoted["restore"]
        return cls(restore["rest"]["savepointPath"], restore["claim_mode"])

    @property
    def name(self) -> str:
        """The name of the checkpoint."""
        return self.checkpoint.rpartition("/")[2]

    @property
    def options(self) -> dict[str, Any]:
        """Return the arguments of `Flink.start`."""
        return {"restore": self.checkpoint, "claim_mode": self.claim_mode}


def cpreplicate(words: Sequence[str], allowed: Sequence[int] = (0,)) -> Result:
    """Run a command and return its JSON, {} if it prints none.

    Raises `DrillFailed` if it ends with an exit code that is not allowed.
    """
    command = [sys.executable, "-m", "cpreplicate", *words, "--output", "json"]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        env=environment(),
        check=False,
    )
    if done.returncode not in allowed:
        output = f"{done.stdout}{done.stderr}"
        raise DrillFailed(f"{' '.join(words)} ended with {done.returncode}\n{output}")
    return dict(json.loads(done.stdout or "{}"))


def kill(pids: Iterable[int]) -> None:
    """Kill processes, as a power failure does."""
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def refuse_inexact(result: RunResult) -> None:
    """Raise `DrillFailed` unless the restored state is proved to be that of the checkpoint."""
    if not result.exact:
        raise DrillFailed(f"the restored state is not exact: {result.failure}")


def show(service: FollowService) -> None:
    """Print what a service reported, as an operator reads it."""
    for line in service.messages().splitlines():
        print(f"    {line}", flush=True)


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of Markdown, with numbers in its columns."""
    lines = [headings, ["---:"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
