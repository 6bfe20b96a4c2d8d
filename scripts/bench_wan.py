"""HDFS to HDFS over a line of 40 ms round trip at 200 Mbit/s and 2 Gbit/s: `make bench-wan`.

Prints the table of docs/lab/link.md. The line is emulated, see `scripts/bench/link.py`: the
source and the copying process are at one end of it, the target's NameNode and DataNodes at the
other. Whatever the line itself carries on this machine, from plain connections, is printed beside
it. Needs root, as namespaces and TUN devices do.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.bench import raw, standby, trees
from scripts.bench.clusters import NAMED, BenchCluster, FarCluster
from scripts.bench.link import ADDRESSES, Link
from scripts.bench.measured import Took, add_patience, end_tidily, run, wait_until_quiet
from scripts.bench.trees import Files
from tests.support import hdfs
from tests.support.jobs import JOB

_BIN = Path(sys.executable).parent
_SECONDS = 900
_ROUND_TRIP = 0.04
_MIB, _MBIT = 1 << 20, 1e6
_STANDBY = 1.3  # seconds of a standby's small checkpoint
_STREAMS = 8  # of the line's own measurement
_LEAST = {"large": 0.9, "small": 0.7}  # of the line: what was promised
# with packs, small files: of what plain connections carry, at each rate
_LEAST_IN_PACKS = {200 * _MBIT: 0.85, 2000 * _MBIT: 0.5}


class Case(NamedTuple):
    """A rate in bits a second, and the tree that is copied at it."""

    rate: float
    tree: Files


class Place(NamedTuple):
    """Where from and to, and a list of the files."""

    source: str
    target: str
    names: Path


class Competitor(NamedTuple):
    """A name, and the command for a place."""

    name: str
    command: Callable[[Place], list[str]]
    ours: bool = False
    packs: bool = False


class Row(NamedTuple):
    """What one of them reached."""

    case: Case
    name: str
    seconds: float
    took: Took | None = None

    @property
    def share(self) -> float:
        """Of the line."""
        return self.case.tree.bytes * 8 / self.seconds / self.case.rate


def _cases(quick: bool) -> dict[str, Case]:
    """Return the cases by the names that `--rows` takes."""
    slow, fast = 200 * _MBIT, 2000 * _MBIT
    small = trees.uniform("small", 500 if quick else 4000, 64 << 10)
    return {
        "200-large": Case(slow, trees.uniform("large", 4 if quick else 24, 16 * _MIB)),
        "200-small": Case(slow, small),
        "2000-large": Case(fast, trees.uniform("large", 8 if quick else 32, 64 * _MIB)),
        "2000-small": Case(fast, small),
    }


def _cpreplicate(place: Place, words: tuple[str, ...]) -> list[str]:
    sync = [str(_BIN / "cpreplicate"), "sync", f"{place.source}/{JOB}/chk-1", place.target]
    return [*sync, "--target-conf", NAMED, "--output", "json", *words]


def _raw(place: Place, streams: int) -> list[str]:
    where = [f"{place.source}/{JOB}", f"{place.target}/{JOB}", str(place.names)]
    return [sys.executable, raw.__file__, *where, str(streams), NAMED]


def _ours(*words: str, name: str | None = None) -> Competitor:
    """Return `cpreplicate sync` with these options; it is named after them by default."""
    command = functools.partial(_cpreplicate, words=words)
    return Competitor(
        name or f"cpreplicate {' '.join(words)}", command, ours=True, packs="--pack" in words
    )


COMPETITORS = {  # by the names that `--only` takes
    "packs": _ours("--runner", "inline", "--pack", "on"),
    "inline": _ours("--runner", "inline"),
    "inline-256": _ours("--runner", "inline", "--parallelism", "256"),
    "spark": _ours(
        "--runner", "spark", "--master", "local[2]", name="cpreplicate --runner spark, local[2]"
    ),
    "native-64": Competitor(
        "hdfs-native alone, 64 and 8 streams", functools.partial(_raw, streams=64)
    ),
    "native-256": Competitor(
        "hdfs-native alone, 256 and 8 streams", functools.partial(_raw, streams=256)
    ),
}


class Bench:
    """A cluster at each end of the line; this process is at the near end."""

    def __init__(
        self, link: Link, near: BenchCluster, far: FarCluster, directory: Path, patience: float
    ) -> None:
        self._link, self._near, self._far = link, near, far
        self._directory = directory
        self._patience = patience

    def case(self, case: Case, competitors: list[Competitor], rounds: int) -> Iterator[Row]:
        """The line itself, then each competitor, in turns."""
        self._link.set_rate(case.rate)
        wait_until_quiet(self._patience)
        yield Row(
            case, f"the line itself, {_STREAMS} plain connections", self._plain(case.tree.bytes)
        )
        source = f"{self._near.uri}/{case.tree.name}"
        trees.write_checkpoint(source, 1, case.tree.sizes)
        for number, competitor in enumerate(competitors * rounds):
            place = Place(
                source,
                f"{self._far.uri}/{number}",
                trees.write_names(self._directory / "names", case.tree.sizes),
            )
            wait_until_quiet(self._patience)
            took = run(
                competitor.command(place), _SECONDS, [self._near.pid, self._far.pid, self._link.pid]
            )
            self._check(place, case.tree, competitor)
            trees.remove(place.target)
            yield Row(case, competitor.name, took.seconds, took)
        trees.remove(source)

    def standby(self, count: int) -> list[float]:
        """Return the seconds of each sync of a small checkpoint."""
        wait_until_quiet(self._patience)
        return standby.seconds(f"{self._near.uri}/standby", f"{self._far.uri}/standby", count)

    def _plain(self, size: int) -> float:
        """Seconds for so many bytes."""
        with self._link.inside(1):
            server = socket.create_server((ADDRESSES[1], 0))
        with server, ThreadPoolExecutor(2 * _STREAMS) as pool:
            started = time.perf_counter()
            done = []
            for _ in range(_STREAMS):
                sender = socket.create_connection(server.getsockname())
                done += [
                    pool.submit(_send, sender, size // _STREAMS),
                    pool.submit(_receive, server.accept()[0]),
                ]
            for each in done:
                each.result()
            return time.perf_counter() - started

    @staticmethod
    def _check(place: Place, tree: Files, competitor: Competitor) -> None:
        """Everything is there, with its length; what is in packs is proved by `verify`."""
        if competitor.packs:
            verify = [str(_BIN / "cpreplicate"), "verify", f"{place.target}/{JOB}", "--content"]
            run([*verify, "--target-conf", NAMED, "--output", "json"], _SECONDS)
            return
        found = trees.lengths(f"{place.target}/{JOB}")
        wrong = [name for name, size in tree.sizes.items() if found.get(name) != size]
        if wrong:
            raise RuntimeError(f"{len(wrong)} files are wrong, first {wrong[0]}")


def _send(connection: socket.socket, size: int) -> None:
    data = bytes(_MIB)
    with connection:
        for sent in range(0, size, _MIB):
            connection.sendall(data[: size - sent])


def _receive(connection: socket.socket) -> None:
    buffer = bytearray(_MIB)
    with connection:
        while connection.recv_into(buffer):
            pass


def show(rows: Iterator[Row]) -> list[Row]:
    """The table, a line as soon as it is known."""
    head = [
        "rate",
        "tree",
        "",
        "seconds",
        "files/s",
        "MB/s",
        "share of the line",
        "of what the line itself carries",
        "peak MiB",
        "CPU s",
        "others' CPU",
    ]
    print(f"\n| {' | '.join(head)} |\n|{' --- |' * len(head)}")
    shown: list[Row] = []
    for row in rows:
        shown.append(row)
        line = next(each for each in shown if each.case is row.case)
        print(_row(row, line), flush=True)
    return shown


def _row(row: Row, line: Row) -> str:
    size = row.case.tree.bytes
    cells = [
        f"{row.case.rate / _MBIT:.0f} Mbit/s",
        str(row.case.tree),
        row.name,
        f"{row.seconds:.2f}",
        f"{len(row.case.tree.sizes) / row.seconds:.0f}" if row.took else "",
        f"{size / row.seconds / 1e6:.1f}",
        f"{row.share:.0%}",
        f"{line.seconds / row.seconds:.0%}",
        f"{row.took.peak / _MIB:.0f}" if row.took else "",
        f"{row.took.cpu:.1f}" if row.took else "",
        f"{row.took.others:.0%}" if row.took else "",
    ]
    return f"| {' | '.join(cells)} |"


def show_standby(took: list[float]) -> None:
    """Print what small checkpoints took, and whether that was promised."""
    middle = statistics.median(took)
    met = "met" if middle <= _STANDBY else "**not met**"
    each = ", ".join(f"{seconds:.2f}" for seconds in took)
    print(
        f"a standby's small checkpoint: {each} s; median {middle:.2f} s, at most {_STANDBY} {met}"
    )


def show_targets(rows: list[Row]) -> None:
    """What was promised."""
    ours = {each.name: each for each in COMPETITORS.values() if each.ours}
    print("\n| target | measured | |\n| --- | --- | --- |")
    for row in rows:
        if row.name in ours:
            promise, least, share = _target(row, ours[row.name], rows)
            what = f"{row.case.rate / _MBIT:.0f} Mbit/s, {row.case.tree}: {row.name}: {promise}"
            met = "met" if share >= least else "**not met**"
            print(f"| {what} | {share:.0%} | {met} |")


def _target(row: Row, competitor: Competitor, rows: list[Row]) -> tuple[str, float, float]:
    """Return what was promised for a row in words, the least share, and the share reached."""
    if competitor.packs and row.case.tree.name == "small":
        line = next(each for each in rows if each.case is row.case)
        least = _LEAST_IN_PACKS[row.case.rate]
        promise = f"≥ {least:.0%} of what plain connections carry"
        return promise, least, line.seconds / row.seconds
    least = _LEAST[row.case.tree.name]
    return f"≥ {least:.0%} of the line", least, row.share


@contextlib.contextmanager
def bench(patience: float) -> Iterator[Bench]:
    """The line and the clusters, gone at the end; this thread is at the near end in between."""
    hdfs.build()
    near, far = BenchCluster(), FarCluster(ADDRESSES[1])
    with contextlib.ExitStack() as stack:
        directory = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="cpreplicate-bench-"))
        )
        link = stack.enter_context(Link(_ROUND_TRIP))
        stack.callback(near.close)
        stack.callback(far.close)
        with link.inside(1):
            far.start()
        stack.enter_context(link.inside(0))
        near.start()
        link.set_rate(2000 * _MBIT)
        yield Bench(link, near, far, directory, patience)


def _chosen(text: str, names: Iterable[str]) -> list[str]:
    """Return the names that an option lists, in its order."""
    chosen = text.split(",")
    unknown = set(chosen).difference(names)
    if unknown:
        raise SystemExit(f"{', '.join(sorted(unknown))}: not one of {', '.join(names)}")
    return chosen


def arguments() -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="small trees: for trying it, not for its numbers"
    )
    parser.add_argument(
        "--rows",
        default=",".join(_cases(quick=False)),
        help="which rates and trees, separated by commas; default: %(default)s",
    )
    parser.add_argument(
        "--only",
        default=",".join(COMPETITORS),
        help="which competitors, separated by commas; default: %(default)s",
    )
    parser.add_argument(
        "--standby",
        type=int,
        default=0,
        metavar="SYNCS",
        help="instead: so many small checkpoints of a standby, by a process that is warm",
    )
    parser.add_argument("--rounds", type=int, default=1, help="default: %(default)s")
    add_patience(parser)
    return parser.parse_args()


def main() -> None:
    """Start, measure, print."""
    end_tidily()
    options = arguments()
    every_case = _cases(options.quick)
    cases = [every_case[name] for name in _chosen(options.rows, every_case)]
    chosen = [COMPETITORS[name] for name in _chosen(options.only, COMPETITORS)]
    with bench(options.patience) as ready:
        if options.standby:
            show_standby(ready.standby(options.standby))
            return
        rows = show(row for case in cases for row in ready.case(case, chosen, options.rounds))
    show_targets(rows)
    congestion = Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
    line = (
        f"{_ROUND_TRIP * 1000:.0f} ms round trip, emulated between two network namespaces by a"
        " program on two TUN devices"
    )
    print(
        f"\nThe line: {line}, a queue of 100 ms; TCP is the kernel's, {congestion}. All of it"
        " shares this machine."
    )


if __name__ == "__main__":
    main()
