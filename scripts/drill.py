"""The drills of docs/drill.md, lost.md and kafka.md, on real servers and Flink: `make drill`.

One job loses its data centre at a random moment, goes on in the other one and goes home, many times
in a row. Then ten jobs lose it at once, and the next one, too: every command of docs/lost.md is
run. Last, a job between topics of Kafka starts at mirrors that trail. Prints a row for each
drill; ends with 1 if a restored state is not exact, if more was lost than one interval and the time
of one copy, or if a command of the page was not run.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.bench.measured import end_tidily
from scripts.drills import kafka, lost, switch
from scripts.drills.sites import DrillFailed, table
from tests.support.flink import VERSIONS, Flink, FlinkError
from tests.support.hdfs import HdfsError
from tests.support.kafka_flink import CONNECTORS
from tests.support.services import ServiceError

_CONNECTOR = "5"  # of Kafka, for Flink 2.2


def _switches(flink: Flink, count: int, chance: random.Random, scratch: Path) -> list[str]:
    """Run the drills of one job, print their table also if one fails, and return complaints."""
    rows: list[switch.Row] = []
    try:
        with switch.Drill(flink, scratch, chance) as drill:
            for number in range(1, count + 1):
                print(f"  drill {number}", flush=True)
                began = time.monotonic()
                rows.append(drill.run())
                print(f"  drill {number}: {time.monotonic() - began:.0f} s", flush=True)
    finally:
        cells = [row.cells(number) for number, row in enumerate(rows, 1)]
        _print_table(flink, switch.HEADINGS, cells)
    return switch.complaints(rows)


def _losses(flink: Flink, scratch: Path) -> None:
    """Run the drill of ten jobs, and print its table."""
    print("  ten jobs, by the commands of docs/lost.md", flush=True)
    with lost.Losses(flink, scratch) as drill:
        _print_table(flink, lost.HEADINGS, [drill.run().cells()])


def _mirrors(connector: str, count: int, chance: random.Random) -> None:
    """Run the drills of a job between topics of Kafka, and print their table, whole or not."""
    rows: list[Sequence[str]] = []
    with tempfile.TemporaryDirectory(prefix="cpreplicate-drill-") as scratch:
        try:
            with kafka.Drill(connector, Path(scratch), chance) as drill:
                for number in range(1, count + 1):
                    rows += [row.cells(number) for row in drill.run(number)]
                    print(f"  Kafka, drill {number}", flush=True)
        finally:
            release = CONNECTORS[connector]
            print(f"\nFlink {release}\n\n{table(kafka.HEADINGS, rows)}\n", flush=True)


def _print_table(flink: Flink, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    print(f"\nFlink {flink.release}\n\n{table(headings, rows)}\n", flush=True)


def _drill(options: argparse.Namespace, flink: Flink, chance: random.Random) -> list[str]:
    print(f"Flink {flink.release}", flush=True)
    complaints: list[str] = []
    with tempfile.TemporaryDirectory(prefix="cpreplicate-drill-") as scratch:
        if options.only != "lost":
            complaints += _switches(flink, options.drills, chance, Path(scratch))
        if options.only != "switch":
            _losses(flink, Path(scratch))
    return complaints


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    releases = {release: version for version, release in VERSIONS.items()}
    parser.add_argument("--drills", type=int, default=10, metavar="N", help="in a row; default 10")
    parser.add_argument(
        "--flink-version",
        action="append",
        choices=sorted(releases),
        help="repeatable; default 1.20.5 and 2.3.0",
    )
    parser.add_argument(
        "--only",
        choices=("switch", "lost", "kafka"),
        help="the drills of one job, that of ten jobs, or those with Kafka",
    )
    parser.add_argument("--seed", type=int, help="of the random moments; default: a new one")
    options = parser.parse_args()
    chosen = options.flink_version or [VERSIONS["1"], VERSIONS["2"]]
    options.versions = [releases[release] for release in chosen]
    return options


def main() -> int:
    """Run the drills; 1 if one failed."""
    options = _options()
    end_tidily()
    seed = random.randrange(1 << 30) if options.seed is None else options.seed
    print(f"seed {seed}")
    chance = random.Random(seed)
    complaints: list[str] = []
    try:
        for version in options.versions if options.only != "kafka" else ():
            with Flink(version) as flink:
                complaints += _drill(options, flink, chance)
        if options.only in (None, "kafka"):
            _mirrors(_CONNECTOR, options.drills, chance)
    except (DrillFailed, FlinkError, HdfsError, ServiceError) as error:
        complaints.append(f"the drill failed: {error}")
    except KeyboardInterrupt:
        complaints.append("interrupted")
    print("\n".join(complaints), file=sys.stderr)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
