"""`status` of many replicas on local disk, each with its source. `make bench-status`."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.bench.measured import end_tidily, run, wait_until_quiet
from tests.support import jobs

_BIN = Path(sys.executable).parent
_SECONDS = 1800
_TARGET_SECONDS = 5.0


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
        print(f"{options.replicas} replicas of {options.files} files; target: {_TARGET_SECONDS} s")
        for words in (
            ("status", place / "dcB"),
            ("status", place / "dcB", "--source", place / "dcA", "--output", "json"),
            ("status", place / "fleet.toml", "--output", "json"),
            ("status", place / "dcB", "--orphans"),
        ):
            wait_until_quiet(60)
            took = run(command(*words), _SECONDS)
            shown = " ".join(str(word).replace(directory, "…") for word in words)
            print(f"{took.seconds:6.2f} s, {took.cpu:6.2f} CPU s: {shown}", flush=True)


if __name__ == "__main__":
    main()
