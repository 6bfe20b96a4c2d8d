"""`status` and `list` of many replicas on local disk, each with its source. `make bench-status`.

`reads` is what the kernel takes for the same listings and reads, without anything that is made of
them: the floor.

The goal of `status` was 2 s of CPU for 10,000 replicas. It is 5 s: 0.9 s are the calls that `reads`
makes, 0.8 s the start, the text of 10,000 rows and what is below them. What is left of 2 s would be
30 us a replica, in which Python makes ten objects. It takes 230 us for the statuses of files, three
records, the census, the source's newest checkpoint, and whether `promote` would succeed. Before, a
replica took 480 us, and threads that hindered each other 200 more.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.bench.measured import end_tidily, run, wait_until_quiet
from tests.support import jobs

_BIN = Path(sys.executable).parent
_SECONDS = 1800
_GOALS = {"status": 5.0, "list": 4.0}  # seconds of CPU for 10,000 replicas
_PER = 10_000


def prepare(place: Path, count: int, files: int) -> None:
    """Replicas of jobs of so many files, half of them behind their source.

    One is replicated. The others are its copies, with names and sources of their own.
    """
    jobs.write_checkpoint(place / "dcA", 1, {f"shared/{each:06d}": 100 for each in range(files)})
    run(command("sync", place / "dcA" / jobs.JOB, place / "dcB", "--name", "job-0"), _SECONDS)
    for number in range(1, count):
        job = f"{number:032x}"
        for root in (place / "dcA", place / "dcB"):
            shutil.copytree(root / jobs.JOB, root / job)
        own = place / "dcB" / job / ".cpreplicate"
        marker, name = own / "replica.json", own / "job.json"
        marker.write_text(marker.read_text().replace(jobs.JOB, job))
        name.write_text(name.read_text().replace("job-0", f"job-{number}"))
    for source in sorted((place / "dcA").iterdir())[::2]:
        shutil.copytree(source / "chk-1", source / "chk-2")
    (place / "fleet.toml").write_text(f'[[root]]\nsource = "{place}/dcA"\ntarget = "{place}/dcB"\n')


def command(*words: object) -> list[str]:
    """A command of cpreplicate."""
    return [str(_BIN / "cpreplicate"), *map(str, words)]


def goal(command: str, cpu: float) -> str:
    """Return whether a command that takes so many seconds of CPU a replica meets its goal."""
    is_met = cpu * _PER <= _GOALS[command]
    goal = f"at most {_GOALS[command]:g} CPU s for {_PER:,} replicas"
    return f" ({goal}: {'met' if is_met else 'missed'})"


def reads(place: Path) -> None:
    """List the directories and read the files of each replica and source, and do nothing more."""
    for name in [each.name for each in (place / "dcB").iterdir()]:
        replica, source = f"{place}/dcB/{name}", f"{place}/dcA/{name}"
        for directory in (replica, f"{replica}/.cpreplicate", f"{replica}/chk-1", source):
            with os.scandir(directory) as entries:
                for entry in entries:
                    entry.stat(follow_symlinks=False)
        for file in ("replica.json", "job.json", "chk-1.json", "chk-1.parquet"):
            number = os.open(f"{replica}/.cpreplicate/{file}", os.O_RDONLY)
            os.read(number, 1 << 16)
            os.close(number)
        Path(source, "chk-1", "_metadata").stat()


def cpu_of(function: Callable[[Path], None], place: Path) -> float:
    """Return the seconds of CPU that a call takes."""
    before = time.process_time()
    function(place)
    return time.process_time() - before


def main() -> None:
    """Measure and print."""
    end_tidily()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicas", type=int, default=1000)
    parser.add_argument("--files", type=int, default=100, help="of each; default: %(default)s")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cpreplicate-bench-") as directory:
        place = Path(directory)
        prepare(place, options.replicas, options.files)
        print(f"{options.replicas} replicas of {options.files} files")
        reads(place)
        print(f"{cpu_of(reads, place):6.2f} CPU s: reads", flush=True)
        for words in (
            ("status", place / "dcB"),
            ("list", place / "dcB"),
            ("status", place / "dcB", "--source", place / "dcA", "--output", "json"),
            ("status", place / "fleet.toml", "--output", "json"),
            ("status", place / "dcB", "--orphans"),
        ):
            wait_until_quiet(60)
            took = run(command(*words), _SECONDS)
            shown = " ".join(str(word).replace(directory, "…") for word in words)
            result = "" if len(words) > 2 else goal(words[0], took.cpu / options.replicas)
            print(f"{took.seconds:6.2f} s, {took.cpu:6.2f} CPU s: {shown}{result}", flush=True)


if __name__ == "__main__":
    main()
