"""How whole syncs scale with executors, `fleet --spread jobs`: `make bench-spread`.

Prints the table of docs/lab/many-jobs.md; see `scripts/bench/spreading.py`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.bench import spreading
from scripts.bench.measured import add_patience, end_tidily
from scripts.bench_hdfs import show_targets


def main() -> None:
    """Measure, print."""
    end_tidily()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few syncs: for trying it")
    parser.add_argument(
        "--executors",
        default=",".join(map(str, spreading.EXECUTORS)),
        help="how many of them, separated by commas, the first to compare with; default:"
        " %(default)s",
    )
    parser.add_argument(
        "--latency",
        type=float,
        default=spreading.LATENCY,
        metavar="SECONDS",
        help="of each call of a storage; default: %(default)s",
    )
    add_patience(parser)
    options = parser.parse_args()
    each = spreading.QUICK if options.quick else spreading.FULL
    numbers = [int(number) for number in options.executors.split(",")]
    found = spreading.table(each, numbers, options.latency, options.patience)
    show_targets(list(spreading.targets(found)))


if __name__ == "__main__":
    main()
