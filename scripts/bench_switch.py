"""The standstill of a job that moves between two session clusters: `make bench-switch`.

Real Flink 2.3, both clusters on this machine and on `file:`. In place of a line there is a limit of
the bytes that are copied in a second (`--rate`), which has no round-trip time. The same job is
moved by `switch` with a checkpoint, and with a savepoint, of which nothing is copied ahead. DistCp
is not measured. Prints a table with the state of the job and the rate, without which the seconds
mean nothing.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from cpreplicate.core.notify import silent
from cpreplicate.operations.handover.switch.request import JobSwitch
from cpreplicate.operations.handover.switch.switch import switch
from cpreplicate.storage import Side, Sides
from cpreplicate.storage.wrappers.limits import new_limits
from tests.support.flink import Flink
from tests.support.sessions import session
from tests.support.switching import Pair

_MIB = 1 << 20
_PADDING = 2000  # bytes of each of the two values of a key


class Row(NamedTuple):
    """A way to move the job: what its last round copied, and how long the job stood still."""

    name: str
    last: int
    standstill: float


def main() -> None:
    """Measure each way once, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--state", type=int, default=2048, help="MiB of state (2048)")
    parser.add_argument("--rate", type=float, default=25.0, help="MB copied in a second (25)")
    given = parser.parse_args()
    rows = [
        _measured("switch, checkpoint", given, _by_checkpoint),
        _measured("switch, savepoint: all is copied after the stop", given, _by_savepoint),
    ]
    print(f"{given.state} MiB of state, {given.rate:g} MB/s, a limit in place of a line\n")
    print("| way | copied while it stood still | standstill |\n| --- | --- | --- |")
    for row in rows:
        print(f"| {row.name} | {row.last / _MIB:.0f} MiB | {row.standstill:.1f} s |")


def _measured(name: str, given: argparse.Namespace, move: Callable[[Pair], JobSwitch]) -> Row:
    with _pair(given) as pair:
        pair.start("--keys", given.state * _MIB // (2 * _PADDING), "--padding", _PADDING)
        time.sleep(60)  # until each key has state, and changes
        began, done = time.monotonic(), move(pair)
        assert done.standstill is not None, done
        print(f"{name}: {time.monotonic() - began:.0f} s in all, {done.phases}", file=sys.stderr)
        return Row(name, done.rounds[-1].bytes, done.standstill)


@contextmanager
def _pair(given: argparse.Namespace) -> Iterator[Pair]:
    limited = Side(limits=new_limits(None, given.rate * 1e6))
    with (
        tempfile.TemporaryDirectory() as place,
        Flink("2") as flink,
        session(flink) as a,
        session(flink) as b,
    ):
        pair = Pair(a, b, f"file:{place}/dcA", f"file:{place}/dcB", Sides(limited, limited))
        yield pair
        pair.close()


def _by_checkpoint(pair: Pair) -> JobSwitch:
    return switch(pair.request(), pair.clusters(), silent)


def _by_savepoint(pair: Pair) -> JobSwitch:
    asked = pair.request(stop="savepoint", savepoints=f"{pair.dc_a}/savepoints")
    return switch(asked, pair.clusters(), silent)


if __name__ == "__main__":
    main()
