"""A fleet of jobs that come and go runs for long, while one fault follows another: `make soak`.

Half of the jobs are replicated to `file:`, half to an HDFS. Prints the slopes an hour of memory,
descriptors, threads, series of `/metrics` and files below the TARGET_ROOT of `file:`. Ends with 1
if the memory grows by more than `--limit` MiB an hour, or if the service ended by itself.

The first third warms up: pools fill, and modules are imported. After it, the memory has teeth, of
the syncs that are under way and of what waits for a collection: so the least of each part of the
time counts, and a slope is beyond the limit if it is by more than twice its standard error.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.bench.measured import end_tidily
from scripts.bench_fleet import job_id
from tests.support import jobs
from tests.support.hdfs import HdfsCluster
from tests.support.ports import free_port

_SAMPLE = 5.0  # seconds between two looks at the process
_PARTS = 20  # of the time after the warm-up: of each, the least of the memory counts
_WARM_UP = 1 / 3  # of the whole time
_FAULT = 20.0  # seconds that each fault lasts
_LIFE = 20  # checkpoints of a job, after which it ends, and one with another id comes
_SIZES = {"shared/a": 20_000, "shared/b": 2_000}
_MEBIBYTE = 1024.0


class Sample(NamedTuple):
    """What was seen of the service: memory in MiB, and numbers."""

    memory: float
    descriptors: int
    threads: int
    series: int
    files: int


class Jobs:
    """Jobs in two roots, that complete checkpoints in turn, and end after some."""

    def __init__(self, roots: Sequence[Path], count: int) -> None:
        self._numbers = itertools.count(1)
        self._running = [
            (roots[index % len(roots)], next(self._numbers), 0) for index in range(count)
        ]

    def write(self, index: int) -> Path:
        """Complete one more checkpoint of a job, or let it end and another one begin."""
        root, number, checkpoint = self._running[index]
        if checkpoint == _LIFE:
            shutil.rmtree(root / job_id(number), ignore_errors=True)
            number, checkpoint = next(self._numbers), 0
        checkpoint += 1
        self._running[index] = root, number, checkpoint
        jobs.JOB = job_id(number)
        files = {**_SIZES, f"shared/{checkpoint}": 5_000}
        written = jobs.write_checkpoint(root, checkpoint, files)
        shutil.rmtree(root / job_id(number) / f"chk-{checkpoint - 1}", ignore_errors=True)
        return written


class Soak:
    """The site of a run: sources, targets, the service, and what breaks."""

    def __init__(
        self, directory: Path, target: str, cluster: HdfsCluster | None, count: int
    ) -> None:
        self._directory, self._cluster, self._count = directory, cluster, count
        self._roots = [directory / "dcA", directory / "dcC"]
        for root in self._roots:
            root.mkdir()
        self._jobs, self._is_over = Jobs(self._roots, count), threading.Event()
        self._target, self._port = directory / "dcB", free_port()
        self._configuration = directory / "fleet.toml"
        self._text = "".join(
            f'[[root]]\nsource = "{root}"\ntarget = "{to}"\n'
            for root, to in zip(self._roots, (self._target, target), strict=True)
        )
        self._configuration.write_text(self._text)

    @contextlib.contextmanager
    def service(self) -> Iterator[subprocess.Popen[bytes]]:
        """Run the fleet until the context ends."""
        words = ("--every", "5s", "--runner", "inline", "--max-backoff", "5s", "--retry-for", "3s")
        shown = ("--metrics", str(self._port), "--progress", "none", "--output", "json")
        command = [sys.executable, "-m", "cpreplicate", "fleet", str(self._configuration)]
        environment = dict(os.environ)
        if self._cluster is not None:
            conf = self._cluster.write_conf_dir(self._directory / "conf")
            environment["HADOOP_CONF_DIR"] = str(conf)
        with (self._directory / "log").open("wb") as log:
            process = subprocess.Popen(
                [*command, *words, *shown], stdout=log, stderr=log, env=environment
            )
        try:
            yield process
        finally:
            self._is_over.set()
            process.terminate()
            process.wait()

    def churn(self) -> None:
        """Complete checkpoints until the soak is over, of each job one in about ten seconds."""
        for index in itertools.cycle(range(self._count)):
            if self._is_over.wait(10.0 / self._count):
                return
            with contextlib.suppress(OSError):  # a fault has its directory
                self._jobs.write(index)

    def faults(self, process: subprocess.Popen[bytes]) -> None:
        """Let one fault follow another until the soak is over."""
        kinds: list[Callable[[], contextlib.AbstractContextManager[None]]] = [
            self._damaged,
            self._missing,
            self._without_target,
            lambda: self._misconfigured(process),
        ]
        if self._cluster is not None:
            kinds += [self._safe, self._down]
        for kind in itertools.cycle(kinds):
            with kind():
                if self._is_over.wait(_FAULT):
                    return
            if self._is_over.wait(_FAULT):
                return

    @contextlib.contextmanager
    def _damaged(self) -> Iterator[None]:
        """Some checkpoints cannot be decoded."""
        for each in self._some(f"{'[0-9a-f]' * 32}/chk-*/_metadata"):
            each.write_bytes(b"damaged")
        yield

    @contextlib.contextmanager
    def _missing(self) -> Iterator[None]:
        """Some files that checkpoints reference are gone."""
        for each in self._some(f"{'[0-9a-f]' * 32}/shared/a"):
            each.unlink()
        yield

    def _some(self, pattern: str) -> list[Path]:
        found = [each for root in self._roots for each in root.glob(pattern)]
        return random.sample(found, min(len(found), 5))

    @contextlib.contextmanager
    def _without_target(self) -> Iterator[None]:
        """The TARGET_ROOT of `file:` is a file meanwhile."""
        aside = self._target.with_name("aside")
        with contextlib.suppress(OSError):
            self._target.rename(aside)
            self._target.write_text("in the way")
        yield
        with contextlib.suppress(OSError):
            self._target.unlink()
            aside.rename(self._target)

    @contextlib.contextmanager
    def _misconfigured(self, process: subprocess.Popen[bytes]) -> Iterator[None]:
        """The configuration has a mistake when it is read again."""
        self._configuration.write_text("[[jobb]]\n")
        process.send_signal(signal.SIGHUP)
        yield
        self._configuration.write_text(self._text)
        process.send_signal(signal.SIGHUP)

    @contextlib.contextmanager
    def _safe(self) -> Iterator[None]:
        """The NameNode is in safe mode."""
        assert self._cluster is not None
        self._cluster.safemode(True)
        yield
        self._cluster.safemode(False)

    @contextlib.contextmanager
    def _down(self) -> Iterator[None]:
        """Nobody listens at the NameNode."""
        assert self._cluster is not None
        self._cluster.stop_namenode(0)
        yield
        self._cluster.start_namenode(0)

    def sample(self, process: subprocess.Popen[bytes]) -> Sample:
        """Look at the service once."""
        proc = Path(f"/proc/{process.pid}")
        [memory] = re.findall(r"RssAnon:\s+(\d+)", (proc / "status").read_text())
        page = b""
        with (
            contextlib.suppress(OSError),
            urllib.request.urlopen(f"http://127.0.0.1:{self._port}/metrics", timeout=30) as answer,
        ):
            page = answer.read()
        lines = [line for line in page.splitlines() if not line.startswith(b"#")]
        files = sum(len(names) for _, _, names in os.walk(self._target))
        descriptors, threads = (len(list((proc / name).iterdir())) for name in ("fd", "task"))
        return Sample(int(memory) / _MEBIBYTE, descriptors, threads, len(lines), files)


def slope(seconds: Sequence[float], values: Sequence[float]) -> tuple[float, float]:
    """Return by how much values grow an hour, by least squares, and the standard error of that."""
    count = len(seconds)
    middle, mean = sum(seconds) / count, sum(values) / count
    spread = sum((each - middle) ** 2 for each in seconds)
    pairs = list(zip(seconds, values, strict=True))
    steep = sum((x - middle) * (y - mean) for x, y in pairs) / spread
    rest = sum((y - mean - steep * (x - middle)) ** 2 for x, y in pairs)
    return steep * 3600, (rest / max(1, count - 2) / spread) ** 0.5 * 3600


def least(seconds: Sequence[float], values: Sequence[float]) -> tuple[list[float], list[float]]:
    """Return the least value of each part of the time, and when it was."""
    part = max(1, len(values) // _PARTS)
    at = [
        min(range(first, min(first + part, len(values))), key=values.__getitem__)
        for first in range(0, len(values), part)
    ]
    return [seconds[each] for each in at], [values[each] for each in at]


def soak(site: Soak, seconds: float) -> tuple[list[float], list[Sample], int | None]:
    """Run the service for so long; return the samples, when they were, and how it ended, if so."""
    times: list[float] = []
    samples: list[Sample] = []
    with site.service() as process:
        for work in (site.churn, lambda: site.faults(process)):
            threading.Thread(target=work, daemon=True).start()
        began = time.monotonic()
        while (now := time.monotonic() - began) < seconds and process.poll() is None:
            with contextlib.suppress(OSError, ValueError):  # it ends just now
                samples.append(site.sample(process))
                times.append(now)
            if len(samples) % 12 == 1:
                print(f"{now:6.0f} s {samples[-1]}", flush=True)
            time.sleep(_SAMPLE)
        ended = process.poll()
    return times, samples, ended


def report(times: list[float], samples: list[Sample], limit: float) -> bool:
    """Print the slopes; return whether the memory grows by more than the limit."""
    first = next((n for n, at in enumerate(times) if at >= times[-1] * _WARM_UP), 0)
    times, samples = times[first:], samples[first:]
    print(f"\n{'':12} {'an hour':>10} {'±':>8} {'first':>8} {'last':>8}")
    too_steep = False
    for name, values in zip(Sample._fields, map(list, zip(*samples, strict=True)), strict=True):
        steep, error = slope(*(least(times, values) if name == "memory" else (times, values)))
        print(f"{name:12} {steep:10.1f} {2 * error:8.1f} {values[0]:8.0f} {values[-1]:8.0f}")
        too_steep = too_steep or (name == "memory" and steep - 2 * error > limit)
    return too_steep


def main() -> None:
    """Soak, print the slopes, and exit with 1 if memory grows."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--jobs", type=int, default=30)
    parser.add_argument("--limit", type=float, default=20.0, help="MiB an hour")
    parser.add_argument("--without-hdfs", action="store_true", help="replicate to file: only")
    given = parser.parse_args()
    end_tidily()
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="soak-")))
        cluster = None if given.without_hdfs else stack.enter_context(HdfsCluster(datanodes=1))
        target = f"{cluster.uri}/replicas" if cluster is not None else f"{directory}/dcD"
        site = Soak(directory, target, cluster, given.jobs)
        times, samples, ended = soak(site, given.minutes * 60)
        if ended is not None:
            print((directory / "log").read_text(errors="replace")[-2000:])
            sys.exit(f"soak: the service ended with {ended}")
    sys.exit(report(times, samples, given.limit))


if __name__ == "__main__":
    main()
