"""Syncs between machines that fail: five network namespaces with real servers. `make try-network`.

A driver, two workers of Spark and two HDFS clusters have an address each. What is between them is
broken in each case; docs/network.md has the table. Each case ends in a completed run or with a
documented exit code; after that, the replica is whole, at once or after another run. Ends with 1 if
a case ended otherwise. Needs root.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.bench.measured import end_tidily
from scripts.network.cases import CASES, Row, run_case
from scripts.network.machines import Network, NetworkError
from scripts.network.sites import MACHINES, Site

_HEADINGS = ("what is broken", "expected", "what happened", "seconds")


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _table(rows: list[Row]) -> str:
    head = [_line(list(_HEADINGS)), _line(["---"] * 3 + ["---:"])]
    return "\n".join([*head, *(_line(row.cells()) for row in rows)])


def main() -> None:
    """Run the cases, and print their table, whole or not."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    names = [case.name for case in CASES]
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(names)}")
    chosen = parser.parse_args().cases or names
    if unknown := set(chosen) - set(names):
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    end_tidily()
    rows: list[Row] = []
    try:
        with (
            tempfile.TemporaryDirectory(prefix="cpreplicate-network-") as directory,
            Network(*MACHINES) as network,
            Site(network, Path(directory)) as site,
        ):
            for case in (each for each in CASES if each.name in chosen):
                print(f"  {case.name}: {case.what}", flush=True)
                rows.append(run_case(site, case))
                print(f"  {_line(rows[-1].cells())}", flush=True)
    except NetworkError as error:
        sys.exit(f"try_network: {error}")
    finally:
        if rows:
            print(f"\n{_table(rows)}", flush=True)
    sys.exit(any(row.complaints for row in rows))


if __name__ == "__main__":
    main()
