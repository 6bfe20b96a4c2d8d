"""One YARN: cpreplicate against DistCp with 4 and with 20 maps, start included, and where the start
of Spark goes: `make bench-yarn`. Prints tables of docs/lab/executors.md.

Competitors take turns, each into a directory of its own. All of it is removed at the end.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.bench import distcp, start, trees
from scripts.bench.clusters import BenchCluster
from scripts.bench.measured import Took, add_patience, end_tidily, run, wait_until_quiet
from scripts.bench.start import Phase
from scripts.bench.trees import Files
from tests.support import yarn
from tests.support.hdfs import site_xml
from tests.support.jobs import JOB

_CLI = str(Path(sys.executable).parent / "cpreplicate")
_SECONDS = 900  # a run that takes longer has failed
_MIB = 1 << 20
_ONE, _CHANGED = "one", "changed"
TREES = {
    _ONE: trees.uniform(_ONE, 1, 64 << 10),
    "small": trees.uniform("small", 2000, 64 << 10),
    "large": trees.uniform("large", 20, 64 * _MIB),
    # copied once by everybody's own first run, and what is measured is the next checkpoint
    _CHANGED: Files(_CHANGED, trees.mixed(600, 16 * _MIB).sizes, incremental=True),
}
_SERVICE = "yarn.nodemanager.aux-services"
_YARN = {
    _SERVICE: "mapreduce_shuffle",
    f"{_SERVICE}.mapreduce_shuffle.class": "NoShuffle",
    "yarn.nodemanager.resource.memory-mb": "8192",
}
_CONTAINERS = (
    f"spark.yarn.jars=local:{yarn.JARS}/*",  # DistCp's are on the node, too
    "spark.yarn.am.memory=512m",
    "spark.executor.instances=2",
    "spark.executor.cores=2",
    "spark.executor.memory=512m",
    "spark.executor.memoryOverhead=768m",
)
_ALONE = ("spark.cpreplicate.driverCopies=false",)


class Place(NamedTuple):
    """Where a competitor copies from and to, with the tree at its state."""

    source: str
    target: str
    checkpoint: int
    scratch: Path
    conf: Path


class Competitor(NamedTuple):
    """Its word for `--competitors`, its name, and the command for a place."""

    key: str
    name: str
    command: Callable[[Place], list[str]]
    is_spark: bool = False


def _distcp(maps: int) -> Callable[[Place], list[str]]:
    def command(place: Place) -> list[str]:
        places = (f"{place.source}/{JOB}", f"{place.target}/{JOB}")
        quick = (distcp.QUICK_CLOSE,)
        return distcp.command_on_yarn(*places, place.scratch, maps, place.conf, quick)

    return command


def _sync(*words: str, conf: tuple[str, ...] = ()) -> Callable[[Place], list[str]]:
    def command(place: Place) -> list[str]:
        checkpoint = f"{place.source}/{JOB}/chk-{place.checkpoint}"
        given = [*_CONTAINERS, *start.settings(place.scratch / "log"), *conf]
        options = [word for setting in given for word in ("--conf", setting)]
        on_yarn = [*words, "--master", "yarn", *options]
        return [_CLI, "sync", checkpoint, place.target, "--output", "json", *on_yarn]

    return command


DISTCP_4, DISTCP_20 = "DistCp, 4 maps", "DistCp, 20 maps"
SPARK, AUTO = "cpreplicate --runner spark", "cpreplicate --runner auto"
COMPETITORS = [
    Competitor("distcp-4", DISTCP_4, _distcp(4)),
    Competitor("distcp-20", DISTCP_20, _distcp(20)),
    Competitor("auto", AUTO, _sync()),
    Competitor("spark", SPARK, _sync("--runner", "spark"), is_spark=True),
    Competitor(
        "executors",
        "the same, executors only",
        _sync("--runner", "spark", conf=_ALONE),
        is_spark=True,
    ),
]


class Run(NamedTuple):
    """What a run took, the phases of Spark's start if it has some, and the load before it.

    The load is that of a minute, in which the former run counts.
    """

    took: Took
    phases: list[Phase]
    load: float


class Bench:
    """Two clusters, a YARN beside them, and the runs on them."""

    def __init__(
        self,
        clusters: tuple[BenchCluster, BenchCluster],
        conf: Path,
        directory: Path,
        competitors: list[Competitor],
        patience: float,
    ) -> None:
        self._a, self._b = clusters
        self._conf, self._directory, self._patience = conf, directory, patience
        self._competitors = competitors

    def tree(self, tree: Files, rounds: int) -> dict[str, list[Run]]:
        """Return the runs of each competitor on a tree."""
        source = f"{self._a.uri}/{tree.name}"
        trees.write_checkpoint(source, 1, tree.sizes)
        targets = {each.key: f"{self._b.uri}/{tree.name}/{each.key}" for each in self._competitors}
        sizes, checkpoint = dict(tree.sizes), 1
        if tree.incremental:
            for target in targets.values():  # the first copy, by whatever is quickest
                self._first_copy(source, target)
            sizes, gone = trees.changed(tree)
            checkpoint = 2
            trees.write_checkpoint(source, checkpoint, sizes, present=tree.sizes)
            trees.delete(source, [*gone, "chk-1"])
        runs: dict[str, list[Run]] = {each.name: [] for each in self._competitors}
        for number in range(1 if tree.incremental else rounds):
            for each in self._competitors:
                target = targets[each.key]
                ran = self._run(each, source, target, checkpoint)
                _check(each, target, sizes)
                if not tree.incremental:
                    trees.remove(target)
                runs[each.name].append(ran)
                what = f"{tree.name}, round {number + 1}: {each.name}"
                took = ran.took
                line = f"{what}: {took.seconds:.1f} s, load before {ran.load:.0f}"
                print(line, file=sys.stderr, flush=True)
        trees.remove(source)
        trees.remove(f"{self._b.uri}/{tree.name}")
        return runs

    def _run(self, competitor: Competitor, source: str, target: str, checkpoint: int) -> Run:
        with tempfile.TemporaryDirectory(dir=self._directory) as scratch:
            place = Place(source, target, checkpoint, Path(scratch), self._conf)
            command = competitor.command(place)
            os.sync()  # nobody pays for what another one has written
            wait_until_quiet(self._patience)
            began, load = time.time(), os.getloadavg()[0]
            took = run(command, _SECONDS, [self._a.pid, self._b.pid])
            log = Path(scratch) / "log"
            is_known = competitor.is_spark and log.exists()
            phases = start.phases(log, began, took.seconds) if is_known else []
            return Run(took, phases, load)

    @staticmethod
    def _first_copy(source: str, target: str) -> None:
        command = [_CLI, "sync", f"{source}/{JOB}/chk-1", target, "--runner", "inline", "-q"]
        run(command, _SECONDS)


def _check(competitor: Competitor, target: str, sizes: dict[str, int]) -> None:
    """Everything is there, with its length."""
    found = trees.lengths(f"{target}/{JOB}")
    wrong = [name for name, size in sizes.items() if found.get(name) != size]
    if wrong:
        raise RuntimeError(f"{competitor.name} left {len(wrong)} files wrong, first {wrong[0]}")


def table(measured: dict[str, dict[str, list[Run]]]) -> str:
    """Return the best seconds of each competitor by tree, with all rounds."""
    names = list(dict.fromkeys(name for runs in measured.values() for name in runs))
    head = ["tree", *names]
    rows = [[str(TREES[tree]), *map(_cell, runs.values())] for tree, runs in measured.items()]
    lines = ["| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows]]
    return "\n".join(lines)


def _cell(runs: list[Run]) -> str:
    every = ", ".join(f"{each.took.seconds:.1f}" for each in runs)
    return f"**{_best(runs):.1f}** ({every})" if len(runs) > 1 else f"{_best(runs):.1f}"


def _best(runs: list[Run]) -> float:
    return min(each.took.seconds for each in runs)


def targets(measured: dict[str, dict[str, list[Run]]]) -> Iterator[tuple[str, str, bool]]:
    """Yield what was promised for each tree, what came of it, and whether it is met."""
    for tree, runs in measured.items():
        peers = [_best(runs[name]) for name in (DISTCP_4, DISTCP_20) if name in runs]
        if not peers:
            continue
        if AUTO in runs:
            auto = _best(runs[AUTO])
            found = f"{auto:.1f} s, {min(peers):.1f} s"
            yield f"{tree}: --runner auto faster than DistCp", found, auto < min(peers)
        if tree == _ONE and SPARK in runs:
            later = _best(runs[SPARK]) - min(peers)
            yield f"{tree}: --runner spark at most 3 s slower", f"{later:+.1f} s", later <= 3


def show_start(name: str, runs: dict[str, list[Run]]) -> None:
    """Print the phases of the best run of each competitor that has some."""
    best = {key: min(found, key=lambda run: run.took) for key, found in runs.items()}
    columns = {key: each.phases for key, each in best.items() if each.phases}
    if columns:
        print(f"### {name}\n\n{start.table(columns)}\n", flush=True)


@contextlib.contextmanager
def servers(directory: Path) -> Iterator[tuple[tuple[BenchCluster, BenchCluster], Path]]:
    """Provide two clusters, and the configuration of a YARN beside them."""
    a, b = BenchCluster(), BenchCluster()
    with contextlib.ExitStack() as stack:
        for cluster in (a, b):
            stack.enter_context(contextlib.closing(cluster))
        BenchCluster.start_many([a, b])
        stack.enter_context(yarn.cluster(directory, _YARN, [distcp.build_service()]))
        conf = directory / "conf"
        (conf / "core-site.xml").write_text(site_xml({"fs.defaultFS": a.uri}))
        (conf / "hdfs-site.xml").write_text(site_xml({"dfs.replication": "1"}))
        yield (a, b), conf


def arguments() -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trees", default=",".join(TREES), help="default: %(default)s")
    keys = ",".join(each.key for each in COMPETITORS)
    parser.add_argument("--competitors", default=keys, help="default: %(default)s")
    parser.add_argument("--rounds", type=int, default=1, help="default: %(default)s")
    add_patience(parser, 10)
    return parser.parse_args()


def main() -> None:
    """Build, start, measure, print."""
    end_tidily()
    options = arguments()
    distcp.build()
    keys = options.competitors.split(",")
    chosen = [each for each in COMPETITORS if each.key in keys]
    measured: dict[str, dict[str, list[Run]]] = {}
    with contextlib.ExitStack() as stack:
        prefix = "cpreplicate-bench-"
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=prefix)))
        clusters, conf = stack.enter_context(servers(directory))
        os.environ["XDG_CACHE_HOME"] = f"{directory}/cache"
        os.environ["YARN_CONF_DIR"] = str(conf)
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        bench = Bench(clusters, conf, directory, chosen, options.patience)
        for name in options.trees.split(","):
            measured[name] = bench.tree(TREES[name], options.rounds)
            show_start(name, measured[name])
    print(f"\n{table(measured)}\n")
    print("| target | measured | |\n| --- | --- | --- |")
    for promise, found, met in targets(measured):
        print(f"| {promise} | {found} | {'met' if met else '**not met**'} |")


if __name__ == "__main__":
    main()
