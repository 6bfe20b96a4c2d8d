"""cpreplicate, DistCp's dynamic strategy and CoxAutomotive's spark-distcp over the same trees, side
by side.

Both that need Spark run on one standalone cluster of this machine, with as much for each executor;
DistCp's maps are threads of one JVM. They take turns; the best round of each is reported.
For one that does not run, the error is reported.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from scripts.bench import distcp, dynamic, sparkdistcp, trees
from scripts.bench.clusters import BenchCluster
from scripts.bench.measured import CommandFailed, run, wait_until_quiet
from scripts.bench.meter import Meter
from scripts.bench.scaling import environment
from scripts.bench.trees import Files
from scripts.bench_hdfs import Place, Result
from tests.support.jobs import JOB
from tests.support.standalone import StandaloneCluster

_SECONDS = 600
_MAPS = 20
_EXECUTORS = 2
_CONF = (
    "spark.executor.memory=700m",
    # the cluster's JVMs are the tests', made to start quickly
    "spark.executor.extraJavaOptions=-XX:TieredStopAtLevel=4",
)
_ONE = trees.uniform("one", 1, 64 << 10)  # what it takes to start and to end
FULL, QUICK = (
    [_ONE, trees.FULL["mix"], trees.uniform("small", 2000, 64 << 10)],
    [trees.QUICK["mix"]],
)


class Competitor(NamedTuple):
    """A name, the command for a place and a Spark master, and what has it ready or raises."""

    name: str
    command: Callable[[Place, str], list[str]]
    build: Callable[[], None] = lambda: None


def _cpreplicate(place: Place, master: str) -> list[str]:
    checkpoint = f"{place.source}/{JOB}/chk-{place.checkpoint}"
    words = [word for setting in _CONF for word in ("--conf", setting)]
    sync = [
        str(Path(sys.executable).parent / "cpreplicate"),
        "sync",
        checkpoint,
        place.target,
        "--output",
        "json",
    ]
    return [*sync, "--runner", "spark", "--master", master, *words]


def _dynamic(place: Place, _master: str, settings: tuple[str, ...]) -> list[str]:
    return dynamic.command(
        f"{place.source}/{JOB}", f"{place.target}/{JOB}", place.scratch, _MAPS, settings
    )


def _sparkdistcp(place: Place, master: str) -> list[str]:
    conf = (f"spark.master={master}", *_CONF, f"spark.hadoop.{distcp.QUICK_CLOSE}")
    words = ("--maxFilesPerTask", "50")  # else all of a tree is one task or two
    return sparkdistcp.command(
        f"{place.source}/{JOB}", f"{place.target}/{JOB}", place.scratch, conf, words
    )


OURS = "cpreplicate --runner spark"
_DYNAMIC = f"DistCp -strategy dynamic, {_MAPS} maps"
COMPETITORS = [
    Competitor(OURS, _cpreplicate),
    Competitor(_DYNAMIC, functools.partial(_dynamic, settings=()), dynamic.build),
    Competitor(
        f"{_DYNAMIC}, 10 ms",
        functools.partial(_dynamic, settings=(distcp.QUICK_CLOSE,)),
        dynamic.build,
    ),
    Competitor("spark-distcp 0.2.5, 50 files a task, 10 ms", _sparkdistcp, sparkdistcp.build),
]


class Bench:
    """Two clusters of HDFS, one of Spark, a directory."""

    def __init__(
        self,
        a: BenchCluster,
        b: BenchCluster,
        spark: StandaloneCluster,
        directory: Path,
        patience: float,
    ) -> None:
        self._a, self._b = a, b
        self._spark = spark
        self._directory = directory
        self._patience = patience

    def tree(self, tree: Files, rounds: int, errors: dict[str, str]) -> list[Result]:
        """What everybody took who has no error; `errors` gets those of who fails."""
        source = f"{self._a.uri}/{tree.name}"
        trees.write_checkpoint(source, 1, tree.sizes)
        results = {each.name: Result(each.name) for each in COMPETITORS}
        for _ in range(rounds):
            for each in COMPETITORS:
                if each.name not in errors:
                    with _collecting_errors(each, errors):
                        self._round(each, tree, source, results[each.name])
        trees.remove(source)
        return list(results.values())

    def _round(self, competitor: Competitor, tree: Files, source: str, result: Result) -> None:
        scratch, path = self._directory / "scratch", f"/copy-of-{tree.name}"
        scratch.mkdir()
        place = Place(source, f"{self._b.uri}{path}", 1, dict(tree.sizes), scratch)
        self._b.mkdirs(f"{path}/{JOB}")  # spark-distcp fails where its target is not there
        try:
            self._measure(competitor, place, result)
        finally:
            trees.remove(place.target)
            shutil.rmtree(scratch)

    def _measure(self, competitor: Competitor, place: Place, result: Result) -> None:
        os.sync()
        self._spark.repair()
        wait_until_quiet(self._patience)
        before, meter = (self._a.rpcs(), self._b.rpcs()), Meter()
        took = run(
            competitor.command(place, self._spark.master), _SECONDS, [self._a.pid, self._b.pid]
        )
        result.add(
            took._replace(others=meter.read().others),
            (self._a.rpcs() - before[0], self._b.rpcs() - before[1]),
        )
        found = trees.lengths(f"{place.target}/{JOB}")
        wrong = [name for name, size in place.sizes.items() if found.get(name) != size]
        if wrong:
            raise CommandFailed(
                f"{len(wrong)} of {len(place.sizes)} files are not there, or not with their length"
            )
        print(
            f"{competitor.name}: {took.seconds:.2f} s, others {result.rounds[-1].others:.0%}",
            file=sys.stderr,
            flush=True,
        )


@contextlib.contextmanager
def _collecting_errors(competitor: Competitor, errors: dict[str, str]) -> Iterator[None]:
    """What fails in the block becomes the competitor's error; the others go on."""
    try:
        yield
    except (CommandFailed, RuntimeError) as error:
        print(f"{competitor.name}: {error}", file=sys.stderr, flush=True)
        errors[competitor.name] = _reason(str(error))


def _reason(output: str) -> str:
    """Return the line that gives the reason."""
    found = re.search(r"Could not find artifact [^ (]+|[^\n]*(Exception|Error): [^\n]*", output)
    return (found[0] if found else output.partition("\n")[0]).strip()[:200].replace("|", "/")


@contextlib.contextmanager
def _bench(patience: float) -> Iterator[Bench]:
    a, b = BenchCluster(), BenchCluster()
    with contextlib.ExitStack() as stack:
        directory = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="cpreplicate-bench-"))
        )
        stack.callback(a.close)
        stack.callback(b.close)
        BenchCluster.start_many([a, b])
        spark = stack.enter_context(StandaloneCluster(directory / "spark", _EXECUTORS))
        stack.enter_context(
            environment({**spark.environment, "XDG_CACHE_HOME": str(directory / "cache")})
        )
        yield Bench(a, b, spark, directory, patience)


def table(chosen: list[Files], rounds: int, patience: float) -> None:
    """Measure, and print a table a tree."""
    errors: dict[str, str] = {}
    for each in COMPETITORS:
        with _collecting_errors(each, errors):
            each.build()
    with _bench(patience) as bench:
        for tree in chosen:
            failed = dict(errors)
            print(_table(tree, bench.tree(tree, rounds, failed), failed), flush=True)


def _table(tree: Files, results: list[Result], errors: dict[str, str]) -> str:
    ours = next(each for each in results if each.name == OURS)
    head = [
        "",
        "seconds (rounds)",
        "files/s",
        "MB/s",
        "calls a file, A / B",
        "others' CPU",
        f"times as long as {OURS}",
    ]
    lines = [f"\n### {tree}\n", f"| {' | '.join(head)} |", "|" + " --- |" * len(head)]
    return "\n".join([*lines, *(_row(tree, each, ours, errors.get(each.name)) for each in results)])


def _row(tree: Files, result: Result, ours: Result, error: str | None) -> str:
    if error is not None or result.calls is None:
        return f"| {result.name} | does not run: {error} |{' |' * 5}"
    best, files = result.best.seconds, len(tree.sizes)
    cells = [
        result.name,
        f"**{best:.1f}** ({', '.join(f'{each.seconds:.1f}' for each in result.rounds)})",
        f"{files / best:.0f}",
        f"{tree.bytes / best / 1e6:.0f}",
        f"{result.calls[0] / files:.1f} / {result.calls[1] / files:.1f}",
        f"{result.best.others:.0%}",
        f"{best / ours.best.seconds:.1f}" if ours.rounds else "",
    ]
    return f"| {' | '.join(cells)} |"
