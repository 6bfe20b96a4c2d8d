"""How copying scales with executors, and beside other tools that copy in parallel: `make
bench-scale`.

Prints tables of docs/lab/executors.md: 1 to 16 executors with a line of their own each on this
machine (`scripts/bench/scaling.py`), one large file among small ones (`longest.py`), what a copy
costs (`costs.py`), the batches of a plan of 10 TB on up to 200 executors, simulated with these
costs (`planned.py`), and cpreplicate, DistCp's dynamic strategy and spark-distcp over the same
trees (`competing.py`).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.bench import competing, costs, longest, planned, scaling
from scripts.bench.measured import add_patience, end_tidily
from scripts.bench_hdfs import show_targets

_PARTS = ("scaling", "longest", "costs", "plan", "others")


def arguments() -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="little work, one round: for trying it, not for its numbers",
    )
    parser.add_argument(
        "--parts", default=",".join(_PARTS), help="which, separated by commas; default: %(default)s"
    )
    parser.add_argument(
        "--executors",
        default=",".join(map(str, scaling.EXECUTORS)),
        help="how many of them, separated by commas, the first to compare with; default:"
        " %(default)s",
    )
    parser.add_argument(
        "--rounds", type=int, help="of costs and others; default: 2, with --quick 1"
    )
    add_patience(parser)
    return parser.parse_args()


def main() -> None:
    """Measure, print."""
    end_tidily()
    options = arguments()
    parts = options.parts.split(",")
    rounds = options.rounds or (1 if options.quick else 2)
    if "scaling" in parts:
        work = scaling.QUICK if options.quick else scaling.FULL
        numbers = [int(number) for number in options.executors.split(",")]
        show_targets(list(scaling.targets(scaling.table(work, numbers, options.patience))))
    if "longest" in parts:
        size = longest.QUICK if options.quick else longest.FULL
        show_targets(list(longest.targets(longest.table(size, options.patience, options.quick))))
    model = planned.MODEL
    if "costs" in parts:
        model = costs.measured(rounds, options.patience)
    if "plan" in parts:
        planned.table(planned.plan(planned.FILES // (10 if options.quick else 1)), model)
    if "others" in parts:
        competing.table(
            competing.QUICK if options.quick else competing.FULL, rounds, options.patience
        )


if __name__ == "__main__":
    main()
