"""Decoding against Flink's own loader, in one run: `make bench`.

Prints the table of docs/lab/metadata.md.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.support.flink import Flink
from tests.support.generate import synthetic

BEST_OF = 5


class Case(NamedTuple):
    """A synthetic file: references over subtasks, and bytes of inline state."""

    name: str
    references: int
    subtasks: int
    inline: int = 0


CASES = [
    Case("300,000 references, 100 subtasks", 300_000, 100),
    Case("300,000 references, 5,000 subtasks", 300_000, 5_000),
    Case("3,000,000 references, 1,000 subtasks", 3_000_000, 1_000),
    Case("300,000 references and 500 MB inline", 300_000, 100, 500_000_000),
]


def measure(path: str, through: str) -> None:
    """In a process of its own: best time, and the memory that it took beyond an idle process."""
    from cpreplicate.core.metadata import decode

    idle = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds = []
    for _ in range(BEST_OF):
        started = time.perf_counter()
        with open(path, "rb") as file:
            metadata = decode(file if through == "stream" else file.read(), "hdfs://dcA/job/chk-42")
        seconds.append(time.perf_counter() - started)
        handles = len(metadata.handles)
        del metadata
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"seconds": min(seconds), "peak": (peak - idle) * 1024, "handles": handles}))


def measured(path: Path, through: str) -> dict[str, float]:
    """`measure` in a process of its own."""
    command = [sys.executable, __file__, str(path), through]
    return dict(
        json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    )


def main() -> None:
    """Write the files, let Flink and cpreplicate read them, print the table."""
    with tempfile.TemporaryDirectory() as directory:
        paths = {
            case: Path(directory) / f"{number}" / "_metadata" for number, case in enumerate(CASES)
        }
        for case, path in paths.items():
            path.parent.mkdir()
            with open(path, "wb") as file:
                file.writelines(synthetic(case.references, case.subtasks, case.inline))
        with Flink("2") as harness:
            flink = harness.load_bench(list(paths.values()))
        print(
            "| file | MB | read as | seconds | MB/s | peak memory, MiB | Flink's loader, s | times"
            " as fast |"
        )
        print("| --- | --- | --- | --- | --- | --- | --- | --- |")
        for case, path in paths.items():
            for through in ("bytes", "stream"):
                print(row(case, path, through, flink[path]), flush=True)


def row(case: Case, path: Path, through: str, flink: float) -> str:
    """One line of the table."""
    found, megabytes = measured(path, through), path.stat().st_size / 1e6
    cells = (
        case.name,
        f"{megabytes:.1f}",
        through,
        f"{found['seconds']:.3f}",
        f"{megabytes / found['seconds']:.0f}",
        f"{found['peak'] / 2**20:.0f}",
        f"{flink:.3f}",
        f"{flink / found['seconds']:.1f}",
    )
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    if len(sys.argv) == 3:
        measure(*sys.argv[1:])
    else:
        main()
