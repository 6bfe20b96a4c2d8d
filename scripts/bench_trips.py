"""For how many round trips a sync that changes one file waits, one after the other, and how many
calls it makes to an HDFS 40 ms away: part of `make bench`.

The HDFS is a storage double of the tests, so that nothing but the order of the calls counts.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.support.far import Call, calls_of_sync, counted, rounds

ROUND_TRIP = 0.04  # seconds
TRIES = 8  # on a busy machine, a thread may begin its call later than a round trip
# 40 calls need fewer files of the protocol: each of the six takes four of them
# 21, not 20: what is looked at amid the commit may be another job's before it is withdrawn
MOST_CALLS, MOST_ROUNDS = 47, 21


def main() -> None:
    """Print a row for a SOURCE that is a checkpoint, and for one that is a job."""
    print("| SOURCE | round trips | calls at the target |\n| --- | --- | --- |")
    for name, source in (("checkpoint", "/chk-2"), ("job", "")):
        calls = min((_calls(source) for _ in range(TRIES)), key=rounds)
        trips, count = rounds(calls), counted(calls, "hdfs://b").total()
        missed = "" if trips <= MOST_ROUNDS and count <= MOST_CALLS else " (missed)"
        print(f"| {name} | {trips} | {count}{missed} |", flush=True)


def _calls(source: str) -> list[Call]:
    with tempfile.TemporaryDirectory(prefix="cpreplicate-bench-") as directory:
        return calls_of_sync(Path(directory), source, ROUND_TRIP)


if __name__ == "__main__":
    main()
