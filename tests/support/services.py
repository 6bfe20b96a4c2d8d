"""`cpreplicate watch` as a service: a process that follows jobs, and what it reports."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from tests.support.ports import free_port
from tests.support.waiting import PATIENCE

Report = dict[str, Any]
STOP_SECONDS = PATIENCE


class ServiceError(Exception):
    """The service ended, or did not do in time what was waited for."""


class FollowService:
    """A running `cpreplicate watch`; `port` is that of its metrics."""

    def __init__(self, process: subprocess.Popen[bytes], scratch: Path, port: int) -> None:
        self._process, self._scratch, self._port = process, scratch, port

    def reports(self) -> list[Report]:
        """What it printed on stdout: an object for each checkpoint that it replicated."""
        lines = (self._scratch / "stdout").read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def messages(self) -> str:
        """What it printed on stderr."""
        return (self._scratch / "stderr").read_text()

    def replicated(self) -> dict[str, Report]:
        """The reports by the URI of the checkpoint at the source."""
        return {str(report["source"]): report for report in self.reports()}

    def wait_until(
        self, condition: Callable[[], bool], otherwise: str, seconds: float = PATIENCE
    ) -> None:
        """Wait for a condition. Raise `ServiceError` if the service ends or it is not in time."""
        deadline = time.monotonic() + seconds
        while not condition():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise ServiceError(f"{otherwise}\n{self.messages()}")
            time.sleep(0.05)

    def wait_for(self, checkpoint: str, seconds: float = PATIENCE) -> Report:
        """Wait until that checkpoint, a URI, was replicated; its report."""
        condition = lambda: checkpoint in self.replicated()  # noqa: E731
        self.wait_until(condition, f"{checkpoint} was not replicated", seconds)
        return self.replicated()[checkpoint]

    def wait_for_message(self, text: str, seconds: float = PATIENCE) -> None:
        """Wait until it has printed a text on stderr."""
        self.wait_until(lambda: text in self.messages(), f"{text!r} was not printed", seconds)

    def metric(self, name: str, replica: str | None = None) -> float | None:
        """The value of a metric of the job with that replica, or of the service; None without."""
        with urllib.request.urlopen(
            f"http://127.0.0.1:{self._port}/metrics", timeout=PATIENCE
        ) as page:
            families = text_string_to_metric_families(page.read().decode())
        samples = (sample for family in families for sample in family.samples)
        values = [
            sample.value
            for sample in samples
            if sample.name == name and sample.labels.get("replica") == replica
        ]
        return values[0] if values else None

    def wait_for_no_lag(self, replica: str, seconds: float = PATIENCE) -> None:
        """Wait until the metrics report that a replica is up to date."""
        condition = lambda: self.metric("cpreplicate_replica_lag_seconds", replica) == 0  # noqa: E731
        self.wait_until(condition, f"{replica} lags", seconds)

    def peak(self) -> int:
        """The most resident memory that it had, in bytes."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(re.findall(r"VmHWM:\s*(\d+) kB", status)[0]) * 1024

    def stop(self) -> float:
        """Stop it by SIGTERM, and return the seconds that this took."""
        began = time.monotonic()
        self._process.terminate()
        self._process.wait(STOP_SECONDS)
        return time.monotonic() - began


@contextlib.contextmanager
def following(scratch: Path, *words: object, interval: str = "0.2s") -> Iterator[FollowService]:
    """Run `cpreplicate watch` with these words, until the block ends."""
    scratch.mkdir(parents=True)
    port = free_port()
    fixed = ("--metrics", str(port), "--interval", interval, "--runner", "inline")
    command = [sys.executable, "-m", "cpreplicate", "watch", *map(str, words), *fixed]
    environment = {name: os.environ[name] for name in os.environ if not name.startswith("HADOOP_")}
    with (scratch / "stdout").open("wb") as output, (scratch / "stderr").open("wb") as errors:
        process = subprocess.Popen(
            [*command, "--output", "json"], stdout=output, stderr=errors, env=environment
        )
        try:
            yield FollowService(process, scratch, port)
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(STOP_SECONDS)
            process.kill()
            process.wait()
