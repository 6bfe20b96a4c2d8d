"""`promote --all` of many replicas on local disk, and back. `make bench-promote`."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.bench.measured import end_tidily, run, wait_until_quiet
from scripts.bench_status import command, prepare

_SECONDS = 1800
_TARGET_CPU = 0.030  # seconds a replica of 100 files


def main() -> None:
    """Measure and print."""
    end_tidily()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicas", type=int, default=1000)
    parser.add_argument("--files", type=int, default=100, help="of each; default: %(default)s")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cpreplicate-bench-") as directory:
        targets = Path(directory) / "dcB"
        prepare(Path(directory), options.replicas, options.files)
        print(f"{options.replicas} replicas of {options.files} files;", end=" ")
        print(f"target: {_TARGET_CPU * 1000:.0f} ms of CPU a replica")
        for words in (
            ("promote", "--all", "--dry-run", targets, "--output", "json"),
            ("promote", "--all", "--yes", targets, "--output", "json"),
            ("promote", "--all", "--yes", "--max-lag", "15m", targets, "--output", "json"),
            (
                "unseal",
                "--all",
                "--yes",
                "--no-job-uses-it",
                "--sealed-after",
                "2020-01-01T00:00Z",
                targets,
            ),
        ):
            wait_until_quiet(60)
            took = run(command(*words), _SECONDS)
            shown = " ".join(str(word).replace(directory, "…") for word in words)
            each = took.cpu / options.replicas * 1000
            print(f"{took.seconds:6.2f} s, {each:6.2f} CPU ms a replica: {shown}", flush=True)


if __name__ == "__main__":
    main()
