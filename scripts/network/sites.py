"""Machines with real servers, a checkpoint, and runs of cpreplicate on one of them."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from scripts.bench.clusters import NAMED
from scripts.network.machines import Machine, Network
from scripts.network.servers import Hdfs, Run, Spark
from tests.support.jobs import JOB

MACHINES = ("driver", "worker-1", "worker-2", "hdfs-a", "hdfs-b")


class Ended(NamedTuple):
    """How a sync ended, and what was left."""

    code: int
    seconds: float
    messages: str
    left: tuple[str, ...]


class Site:
    """The machines with their servers and the checkpoint; `sync` starts a run on the driver."""

    def __init__(self, network: Network, directory: Path) -> None:
        self.network, self.directory = network, directory
        self._resources = contextlib.ExitStack()
        self._runs = 0

    def __enter__(self) -> Site:
        enter = self._resources.enter_context
        try:
            names = self.network
            self.source, self.target = (
                Hdfs(names[name], self.directory) for name in ("hdfs-a", "hdfs-b")
            )
            for cluster in Hdfs.start_many([self.source, self.target]):
                self._resources.callback(cluster.close)
            self.workers = [names["worker-1"], names["worker-2"]]
            self.spark = enter(Spark(self.workers[0], self.workers, self.directory))
            self.checkpoints = f"{self.source.uri}/checkpoints"
            self.helper("write", self.checkpoints)
        except BaseException:
            self._resources.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._resources.close()

    @property
    def driver(self) -> Machine:
        """The machine on which cpreplicate runs."""
        return self.network["driver"]

    def helper(self, action: str, root: str) -> list[str]:
        """Run `scripts/network/checkpoint.py` on the driver, and return its lines."""
        words = (sys.executable, "-m", "scripts.network.checkpoint", action, root)
        return self.driver.run(*words).splitlines()

    @contextlib.contextmanager
    def sync(self, root: str, *words: str, runner: str = "spark") -> Iterator[Run]:
        """Start a sync; kill it if the block raises."""
        conf = ("--source-conf", NAMED, "--target-conf", NAMED)
        where = (f"{self.checkpoints}/{JOB}", root)
        # the executors are what is cut off: the driver leaves all copies to them
        alone = ("--conf", "spark.cpreplicate.driverCopies=false")
        spark = ("--master", self.spark.url, *alone) if runner == "spark" else ()
        output = ("--output", "json", "--progress", "ndjson", "--runner", runner)
        self._runs += 1
        run = Run(
            self.driver, self.directory, self._runs, "sync", *where, *conf, *output, *spark, *words
        )
        try:
            yield run
        finally:
            run.kill()

    def result(self, run: Run, root: str, since: float) -> Ended:
        """Wait until a run has ended, and return how."""
        code = run.ended()
        seconds = time.monotonic() - since
        return Ended(code, seconds, run.messages(), tuple(self.helper("lease", root)))
