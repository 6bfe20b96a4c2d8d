"""The lag of 1,000 jobs with a checkpoint every 10 s, replicated by one service or more on `file:`.
`make bench-service`.

Jobs complete their checkpoints in turn, 20 at a time. The lag of a checkpoint is the time from the
appearance of its `_metadata` at the source to that at the target, or of the `_metadata` of a newer
one. A checkpoint that is superseded before it was replicated counts with that of the newer one.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.bench_fleet import job_id as numbered
from tests.support import jobs

_FILES = [f"shared/{number:04d}" for number in range(20)]
_AT_A_TIME = 20
_SIZE = 20_000


def job_id(number: int) -> str:
    """The id of a job. That of all zeros is an application's, whose replica has a longer name."""
    return numbered(number + 1)


def files(checkpoint: int) -> dict[str, int]:
    """Twenty files, of which two are new in each checkpoint."""
    kept = _FILES[2:]
    return dict.fromkeys((*kept, f"shared/new-{checkpoint}-a", f"shared/b-{checkpoint}"), _SIZE)


def write(root: Path, number: int, checkpoint: int) -> float:
    """One more checkpoint of a job, whose former one goes. Return when it was complete."""
    jobs.JOB = job_id(number)
    jobs.write_checkpoint(root, checkpoint, files(checkpoint))
    done = time.time()
    directory = root / job_id(number)
    if checkpoint > 1:
        shutil.rmtree(directory / f"chk-{checkpoint - 1}")
    for name in files(checkpoint - 2).keys() - files(checkpoint).keys() if checkpoint > 2 else ():
        (directory / name).unlink(missing_ok=True)
    return done


class Seen(threading.Thread):
    """Looks at every replica again and again, and notes when each checkpoint appears."""

    def __init__(self, root: Path, count: int) -> None:
        super().__init__(daemon=True)
        self._root, self._count = root, count
        self.appeared: dict[int, list[tuple[int, float]]] = {n: [] for n in range(count)}
        self.is_over = False

    def run(self) -> None:
        """Look until it is over."""
        while not self.is_over:
            for number in range(self._count):
                checkpoint = self._newest(number)
                known = self.appeared[number]
                if not known or known[-1][0] < checkpoint:
                    known.append((checkpoint, time.time()))
            time.sleep(0.5)

    def _newest(self, number: int) -> int:
        replica = f"{self._root}/{job_id(number)}"
        with os.scandir(replica) as entries:
            directories = [entry for entry in entries if entry.name.startswith("chk-")]
        complete = [entry for entry in directories if Path(entry, "_metadata").exists()]
        return max((int(entry.name.removeprefix("chk-")) for entry in complete), default=0)


def lags(completed: list[tuple[int, int, float]], seen: Seen) -> list[float]:
    """The lag of each checkpoint, of those that never came the time until now."""
    result = []
    for number, checkpoint, at in completed:
        later = [when for other, when in seen.appeared[number] if other >= checkpoint]
        result.append((later[0] if later else time.time()) - at)
    return sorted(result)


def measure(place: Path, options: argparse.Namespace) -> tuple[list[float], float]:
    """Run the services, let the jobs complete their checkpoints.

    Returns the lags, and how many checkpoints appeared at the target in a second.
    """
    count, interval = options.jobs, options.interval
    for number in range(count):
        write(place / "dcA", number, 1)
    (place / "fleet.toml").write_text(
        f'[defaults]\ntarget = "{place}/dcB"\n[[root]]\nsource = "{place}/dcA"\n'
    )
    command = [sys.executable, "-m", "cpreplicate", "fleet", "--every", options.every]
    command += ["--slots", options.slots, str(place / "fleet.toml"), "--runner", "inline", "-q"]
    if options.processes:
        command += ["--processes", options.processes]
    shards = [f"--shard={number}/{options.shards}" for number in range(1, options.shards + 1)]
    seen = Seen(place / "dcB", count)
    with ExitStack() as stack:
        services = [stack.enter_context(subprocess.Popen([*command, shard])) for shard in shards]
        try:
            while len(list((place / "dcB").glob("*/chk-1/_metadata"))) < count:
                time.sleep(1)
            seen.start()
            began = time.monotonic()
            completed = []
            for checkpoint in range(2, 2 + options.rounds):
                started = time.monotonic()
                for first in range(0, count, _AT_A_TIME):
                    due = started + interval * first / count
                    time.sleep(max(0.0, due - time.monotonic()))
                    for number in range(first, min(count, first + _AT_A_TIME)):
                        completed.append(
                            (number, checkpoint, write(place / "dcA", number, checkpoint))
                        )
                time.sleep(max(0.0, started + interval - time.monotonic()))
            seconds = time.monotonic() - began
            replicated = sum(map(len, seen.appeared.values())) - count  # each had one before
            time.sleep(2 * interval)
        finally:
            for service in services:
                service.terminate()
            for service in services:
                service.wait()
    seen.is_over = True
    seen.join()
    return lags(completed, seen), replicated / seconds


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--interval", type=float, default=10.0, help="seconds between checkpoints")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--every", default="2s")
    parser.add_argument("--slots", default="20")
    parser.add_argument("--processes", help="of each service, instead of the default")
    parser.add_argument("--shards", type=int, default=1, help="services that divide the jobs")
    options = parser.parse_args()
    load = os.getloadavg()
    with tempfile.TemporaryDirectory() as place:
        result, rate = measure(Path(place), options)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = used.ru_utime + used.ru_stime
    before, after = (f"{each[0]:.1f}" for each in (load, os.getloadavg()))
    print(
        f"{options.jobs} jobs, a checkpoint every {options.interval:g} s each, {len(result)} in"
        f" all; {rate:.0f} replicated a second; the services took {seconds:.0f} s of CPU; load"
        f" {before} before and {after} after"
    )
    for share in (0.5, 0.9, 0.99, 1.0):
        lag = result[min(len(result) - 1, int(share * len(result)))]
        print(
            f"  {100 * share:3.0f} % lag at most {lag:6.1f} s,"
            f" {lag / options.interval:5.2f} intervals"
        )


if __name__ == "__main__":
    main()
