"""What the start of a command costs, as CPU seconds and as a multiple of importing the libraries
that it needs in any case: part of `make bench`.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.bench.measured import end_tidily, wait_until_quiet
from tests.support import jobs

_CLI = str(Path(sys.executable).parent / "cpreplicate")
_SECONDS = 600
_ROUNDS = 9


def main() -> None:
    """Measure the commands and their peers in turn, and print the least of each."""
    end_tidily()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # pip compiles what it installs
    with tempfile.TemporaryDirectory(prefix="cpreplicate-bench-") as directory:
        place = Path(directory)
        jobs.write_checkpoint(place / "dcA", 1, {f"shared/{each}": 100 for each in range(10)})
        sync = [_CLI, "sync", str(place / "dcA" / jobs.JOB), str(place / "dcB"), "-q"]
        cpu(sync)
        wait_until_quiet(60)
        _compare("--help", [_CLI, "--help"], "click", 6)
        _compare("sync with nothing to do", sync, "click, pyarrow.parquet, pyarrow.compute", 3)


def cpu(command: list[str]) -> float:
    """CPU seconds of a run, as the kernel counts them."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, capture_output=True, timeout=_SECONDS)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _compare(name: str, command: list[str], libraries: str, limit: float) -> None:
    peer = [sys.executable, "-c", f"import {libraries}"]
    pairs = [(cpu(command), cpu(peer)) for _ in range(_ROUNDS)]
    mine, others = (min(column) for column in zip(*pairs, strict=True))
    print(
        f"{name}: {mine:.2f} CPU s, {mine / others:.1f} times `import {libraries}`"
        f" ({others:.2f} s); at most {limit}"
    )


if __name__ == "__main__":
    main()
