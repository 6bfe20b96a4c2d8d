"""The memory of tasks that pack: `make bench-packs`. Prints a table of docs/lab/executors.md.

Two HDFS clusters run on this machine. Each tree is packed by threads of one process, and by Spark.
The numbers are the most resident memory that the kernel recorded for one process.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.bench import trees
from scripts.bench.clusters import BenchCluster
from scripts.bench.measured import Took, end_tidily, run
from scripts.bench.trees import Files
from tests.support import hdfs
from tests.support.jobs import JOB

_BIN = Path(sys.executable).parent
_SECONDS = 900
_MIB = 1 << 20
_MOST = 256  # MiB of a task: what was promised
_INLINE = ("--runner", "inline")
_SPARK = ("--runner", "spark", "--master", "local[2]")


class Row(NamedTuple):
    """What packed which tree, and what it took."""

    tree: Files
    name: str
    took: Took
    peak: int

    def __str__(self) -> str:
        peak = self.peak / _MIB
        met = "met" if peak <= _MOST else "**not met**"
        return f"| {self.tree} | {self.name} | {self.took.seconds:.1f} | {peak:.0f} | {met} |"


def every_tree(quick: bool) -> dict[str, Files]:
    """Return small files, and files just below 1 MiB that fill several packs."""
    return {
        "small": trees.uniform("small", 200 if quick else 2000, 64 << 10),
        "large": trees.uniform("large", 60 if quick else 1400, _MIB - 1),
    }


def measure(a: BenchCluster, b: BenchCluster, tree: Files) -> Iterator[Row]:
    """Yield a row for each runner."""
    source = f"{a.uri}/{tree.name}"
    trees.write_checkpoint(source, 1, tree.sizes)
    inline = _packed(source, f"{b.uri}/inline", _INLINE)
    yield Row(tree, "inline: the process", inline, inline.own_peak)
    spark = _packed(source, f"{b.uri}/spark", _SPARK)
    yield Row(tree, "Spark, local[2]: the largest Python worker", spark, spark.worker_peak)
    yield Row(tree, "Spark, local[2]: the driver's Python process", spark, spark.own_peak)
    trees.remove(source)


def _packed(source: str, target: str, runner: tuple[str, ...]) -> Took:
    sync = [str(_BIN / "cpreplicate"), "sync", f"{source}/{JOB}/chk-1", target]
    took = run([*sync, "--pack", "on", "--output", "json", *runner], _SECONDS)
    packs = [name for name in trees.lengths(f"{target}/{JOB}") if name.startswith("packed/")]
    print(f"{target}: {len(packs)} packs", file=sys.stderr, flush=True)
    trees.remove(target)
    return took


def main() -> None:
    """Start, measure, print."""
    end_tidily()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="small trees: for trying it, not for its numbers"
    )
    parser.add_argument(
        "--trees",
        default="small,large",
        help="which, separated by commas; default: %(default)s",
    )
    options = parser.parse_args()
    chosen = [every_tree(options.quick)[name] for name in options.trees.split(",")]
    hdfs.build()
    print("| tree | process | seconds | peak MiB | at most 256 MiB |\n|" + " --- |" * 5)
    a, b = BenchCluster(), BenchCluster()
    with contextlib.closing(a), contextlib.closing(b):
        BenchCluster.start_many([a, b])
        for tree in chosen:
            for row in measure(a, b, tree):
                print(row, flush=True)


if __name__ == "__main__":
    main()
