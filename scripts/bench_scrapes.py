"""What 50 scrapes a second of 1,000 jobs cost the syncs of a service. `make bench-scrapes`.

One service follows the jobs on `file:`, of which some complete a checkpoint each second. Times
without and with scrapes, compressed as those of Prometheus, follow each other, several times. Of
both, the seconds of CPU of the service a minute are shown, and how long its syncs took, as its own
metrics have it.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.bench_service import write
from tests.support.ports import free_port

_THREADS = 10  # that scrape
_TICK = os.sysconf("SC_CLK_TCK")


class Seen(NamedTuple):
    """What was seen of a service: seconds of CPU, syncs, and the seconds that these took."""

    cpu: float
    syncs: float
    seconds: float

    def since(self, other: Seen) -> Seen:
        """Return what came after another look."""
        return Seen(*(now - before for now, before in zip(self, other, strict=True)))


def look(process: int, url: str) -> Seen:
    """Look at a service."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    with urllib.request.urlopen(url, timeout=60) as answer:
        page = answer.read().decode()
    count, seconds = (
        float(re.findall(rf"^cpreplicate_sync_seconds_{name} (\S+)$", page, re.MULTILINE)[0])
        for name in ("count", "sum")
    )
    return Seen((int(fields[11]) + int(fields[12])) / _TICK, count, seconds)


@contextmanager
def scraping(url: str, rate: float, answered: list[float]) -> Iterator[None]:
    """Scrape so many times a second until the context ends; collect how long each took."""
    is_over = threading.Event()

    def scrape() -> None:
        request = urllib.request.Request(url, headers={"Accept-Encoding": "gzip"})
        while not is_over.wait(_THREADS / rate):
            began = time.monotonic()
            with suppress(OSError), urllib.request.urlopen(request, timeout=60) as answer:
                answer.read()
                answered.append(time.monotonic() - began)

    threads = [threading.Thread(target=scrape) for _ in range(_THREADS if rate else 0)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        is_over.set()
        for thread in threads:
            thread.join()


def work(place: Path, numbers: Iterator[int], options: argparse.Namespace, seconds: float) -> None:
    """Let jobs complete checkpoints for some seconds, in turn."""
    for _ in range(int(seconds)):
        until = time.monotonic() + 1.0
        for number in itertools.islice(numbers, options.rate):
            write(place / "dcA", number % options.jobs, 2 + number // options.jobs)
        time.sleep(max(0.0, until - time.monotonic()))


def measure(place: Path, options: argparse.Namespace) -> None:
    """Run the service, and print a line for each time."""
    for number in range(options.jobs):
        write(place / "dcA", number, 1)
    port = free_port()
    words = ["watch", "--jobs-under", f"{place}/dcA", f"{place}/dcB", "--runner", "inline", "-q"]
    words += ["--interval", "5s", "--metrics", str(port)]
    url, numbers = f"http://127.0.0.1:{port}/metrics", itertools.count()
    with subprocess.Popen([sys.executable, "-m", "cpreplicate", *words]) as service:
        try:
            while len(list((place / "dcB").glob("*/chk-1/_metadata"))) < options.jobs:
                time.sleep(1)
            work(place, numbers, options, 10)
            for rate in [0.0, options.scrapes] * options.times:
                answered: list[float] = []
                before = look(service.pid, url)
                with scraping(url, rate, answered):
                    work(place, numbers, options, options.seconds)
                report(rate, look(service.pid, url).since(before), answered, options.seconds)
        finally:
            service.terminate()


def report(rate: float, seen: Seen, answered: list[float], seconds: float) -> None:
    """Print a line."""
    print(
        f"{rate:4.0f} scrapes a second asked for, {len(answered) / seconds:5.1f} answered, median"
        f" {statistics.median(answered or [0.0]):6.3f} s; {seen.cpu * 60 / seconds:6.1f} s of CPU a"
        f" minute, {seen.syncs:4.0f} syncs of {1000 * seen.seconds / max(1.0, seen.syncs):6.1f} ms",
        flush=True,
    )


def main() -> None:
    """Measure as the options say."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--rate", type=int, default=5, help="checkpoints a second")
    parser.add_argument("--scrapes", type=float, default=50.0, help="a second")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each time")
    parser.add_argument("--times", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="scrapes-") as place:
        measure(Path(place), options)


if __name__ == "__main__":
    main()
