"""HDFS to HDFS against Hadoop's DistCp and the limits, in one run: `make bench-hdfs`. Prints tables
of docs/lab/hdfs.md.

Competitors take turns, each into a directory of its own; the best round of each is reported.
All of it is removed at the end."""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.bench import distcp, local, raw, trees
from scripts.bench.clusters import BenchCluster
from scripts.bench.measured import Took, add_patience, end_tidily, run, wait_until_quiet
from scripts.bench.trees import Files
from tests.support.jobs import JOB

_BIN = Path(sys.executable).parent
_SECONDS = 900  # a run that takes longer has failed
_MAPS = 20  # DistCp's own number of maps
_COPYING = ("first copy", "5 % changed")
_NOTHING = "nothing to do"
_WARM = trees.mixed(2000, 4 << 20)
_WARM_ROUNDS = 3  # after them, a file costs the servers no more CPU than after ten


class Place(NamedTuple):
    """Where a competitor copies from and to, the tree at its state, and a directory for what it
    needs besides.
    """

    source: str
    target: str
    checkpoint: int
    sizes: dict[str, int]
    scratch: Path


class Phase(NamedTuple):
    """What everybody has to do in turn: the source's checkpoint, its files, and what happens to it
    before.
    """

    name: str
    checkpoint: int
    sizes: dict[str, int]
    prepare: Callable[[], None] = lambda: None


@dataclass
class Result:
    """What the rounds of a competitor took.

    `calls` of the best round, at the source and at the target.
    """

    name: str
    rounds: list[Took] = field(default_factory=list)
    calls: tuple[int, int] | None = None

    @property
    def best(self) -> Took:
        return min(self.rounds)

    def add(self, took: Took, calls: tuple[int, int] | None = None) -> None:
        """Count one more round in."""
        self.rounds.append(took)
        if took is self.best:
            self.calls = calls


class Competitor(NamedTuple):
    """Its word for `--competitors`, its name, and the command for a place."""

    key: str
    name: str
    command: Callable[[Place], list[str]]
    ours: bool = False
    distcp: bool = False
    packs: bool = False


def _cpreplicate(place: Place, words: tuple[str, ...]) -> list[str]:
    checkpoint = f"{place.source}/{JOB}/chk-{place.checkpoint}"
    return [str(_BIN / "cpreplicate"), "sync", checkpoint, place.target, "--output", "json", *words]


def _raw(place: Place) -> list[str]:
    names = trees.write_names(place.scratch / "names", place.sizes)
    return [
        sys.executable,
        raw.__file__,
        f"{place.source}/{JOB}",
        f"{place.target}/{JOB}",
        str(names),
    ]


def _distcp(place: Place, maps: int, settings: tuple[str, ...] = ()) -> list[str]:
    return distcp.command(
        f"{place.source}/{JOB}", f"{place.target}/{JOB}", place.scratch, maps, settings
    )


NATIVE = "hdfs-native alone"
LOCAL = "local copy"
LOCAL_KEY = "local"
COMPETITORS = [
    Competitor(
        "packs",
        "cpreplicate --runner inline --pack on",
        functools.partial(_cpreplicate, words=("--runner", "inline", "--pack", "on")),
        ours=True,
        packs=True,
    ),
    Competitor(
        "inline",
        "cpreplicate --runner inline",
        functools.partial(_cpreplicate, words=("--runner", "inline")),
        ours=True,
    ),
    Competitor(
        "spark",
        "cpreplicate --runner spark, local[2]",
        functools.partial(_cpreplicate, words=("--runner", "spark", "--master", "local[2]")),
        ours=True,
    ),
    Competitor("native", NATIVE, _raw),
    Competitor(
        "distcp",
        f"DistCp, {_MAPS} maps",
        functools.partial(_distcp, maps=_MAPS),
        distcp=True,
    ),
    Competitor(
        "distcp-10ms",
        f"DistCp, {_MAPS} maps, 10 ms",
        functools.partial(_distcp, maps=_MAPS, settings=(distcp.QUICK_CLOSE,)),
        distcp=True,
    ),
    Competitor(
        "distcp-2-10ms",
        "DistCp, 2 maps, 10 ms",
        functools.partial(_distcp, maps=2, settings=(distcp.QUICK_CLOSE,)),
        distcp=True,
    ),
]


class Bench:
    """Two clusters, a directory, and the rounds on them."""

    def __init__(
        self,
        clusters: tuple[BenchCluster, BenchCluster],
        directory: Path,
        rounds: int,
        patience: float,
        keys: list[str],
    ) -> None:
        self._a, self._b = clusters
        self._competitors = [each for each in COMPETITORS if each.key in keys]
        self._is_copied_locally = LOCAL_KEY in keys
        self._directory = directory
        self._rounds = rounds
        self._patience = patience

    def warm_up(self) -> None:
        """Let the servers' JVMs compile what they need, so that who comes first does not pay for
        it.
        """
        source, target = f"{self._a.uri}/warm", f"{self._b.uri}/warm"
        trees.write_checkpoint(source, 1, _WARM.sizes)
        for _ in range(_WARM_ROUNDS):
            run(_raw(Place(source, target, 1, dict(_WARM.sizes), self._directory)), _SECONDS)
            trees.remove(target)
        trees.remove(source)

    def tree(self, tree: Files) -> dict[str, list[Result]]:
        """What a tree's phases took: one of copying all, and for an incremental tree the next
        checkpoint and nothing.
        """
        source = f"{self._a.uri}/{tree.name}"
        trees.write_checkpoint(source, 1, tree.sizes)
        results = {
            phase.name: self._phase(phase, tree, source) for phase in self._phases(tree, source)
        }
        if self._is_copied_locally:
            results[_COPYING[0]] += self._local(tree)
        self._drop(self._b, f"/{tree.name}")
        self._drop(self._a, f"/{tree.name}")
        return results

    @staticmethod
    def _phases(tree: Files, source: str) -> list[Phase]:
        sizes, gone = trees.changed(tree)

        def change() -> None:
            trees.write_checkpoint(source, 2, sizes, present=tree.sizes)
            trees.delete(source, [*gone, "chk-1"])

        first = Phase(_COPYING[0], 1, dict(tree.sizes))
        return (
            [first, Phase(_COPYING[1], 2, sizes, change), Phase(_NOTHING, 2, sizes)]
            if tree.incremental
            else [first]
        )

    def _phase(self, phase: Phase, tree: Files, source: str) -> list[Result]:
        phase.prepare()
        chosen = [
            each for each in self._competitors if phase.name == _COPYING[0] or each.name != NATIVE
        ]
        results = {each.name: Result(each.name) for each in chosen}
        for number in range(self._rounds):
            for index, competitor in enumerate(chosen):
                path = f"/{tree.name}/{number}-{COMPETITORS.index(competitor)}"
                scratch = self._directory / f"scratch-{index}"
                scratch.mkdir(exist_ok=True)
                place = Place(
                    source, f"{self._b.uri}{path}", phase.checkpoint, phase.sizes, scratch
                )
                what = f"{tree.name}, {phase.name}, round {number + 1}: {competitor.name}"
                took, calls = self._measured(competitor, place)
                results[competitor.name].add(took, calls)
                self._check(place, competitor)
                shutil.rmtree(scratch)
                if not tree.incremental:
                    self._drop(self._b, path)
                _report(what, took)
        return list(results.values())

    def breakdown(self, *packing: str) -> str:
        """Return a table of the calls of a sync that changes one file of twenty."""
        source, target = f"{self._a.uri}/one", f"{self._b.uri}/one"
        sizes = {f"shared/{number:06d}": 64 << 10 for number in range(20)}
        changed = {**dict(list(sizes.items())[1:]), "shared/changed": 64 << 10}
        words = ("--runner", "inline", *packing)
        trees.write_checkpoint(source, 1, sizes)
        run(_cpreplicate(Place(source, target, 1, sizes, self._directory), words), _SECONDS)
        trees.write_checkpoint(source, 2, changed, present=sizes)
        with self._a.counted() as at_source, self._b.counted() as at_target:
            run(_cpreplicate(Place(source, target, 2, changed, self._directory), words), _SECONDS)
        self._drop(self._a, "/one")
        self._drop(self._b, "/one")
        names = sorted({*at_source, *at_target}, key=lambda name: -at_target[name])
        rows = [f"| {name} | {at_source[name]} | {at_target[name]} |" for name in names]
        total = f"| together | {sum(at_source.values())} | {sum(at_target.values())} |"
        head = " ".join(["### calls of a sync", *packing, "that changes one file of twenty"])
        head = f"{head}\n\n| call | source | target |"
        return "\n".join([f"\n{head}", "| --- | --- | --- |", *rows, total])

    def _measured(self, competitor: Competitor, place: Place) -> tuple[Took, tuple[int, int]]:
        command = competitor.command(place)
        os.sync()  # nobody pays for what another one has written
        before = self._a.rpcs(), self._b.rpcs()
        wait_until_quiet(self._patience)
        took = run(command, _SECONDS, [self._a.pid, self._b.pid])
        after = self._a.rpcs(), self._b.rpcs()
        return took, (after[0] - before[0], after[1] - before[1])

    @staticmethod
    def _check(place: Place, competitor: Competitor) -> None:
        """Everything is there, with its length; what is in packs is proved by `verify`."""
        if competitor.packs:
            verify = [str(_BIN / "cpreplicate"), "verify", f"{place.target}/{JOB}", "--content"]
            run([*verify, "--output", "json"], _SECONDS)
            return
        found = trees.lengths(f"{place.target}/{JOB}")
        wrong = [name for name, size in place.sizes.items() if found.get(name) != size]
        if wrong:
            raise RuntimeError(f"{competitor.name} left {len(wrong)} files wrong, first {wrong[0]}")

    @staticmethod
    def _drop(cluster: BenchCluster, path: str) -> None:
        trees.remove(f"{cluster.uri}{path}")

    def _local(self, tree: Files) -> list[Result]:
        """The same bytes from the local disk to it, by eight threads."""
        source, result = self._directory / "local", Result(LOCAL)
        trees.write_local(source, tree.sizes)
        for number in range(self._rounds):
            target = self._directory / f"local-{number}"
            os.sync()
            wait_until_quiet(self._patience)
            result.add(run([sys.executable, local.__file__, str(source), str(target)], _SECONDS))
            shutil.rmtree(target)
        shutil.rmtree(source)
        return [result]


def table(title: str, files: int, size: int, results: list[Result]) -> str:
    """One phase; `files` and `size` are what was to be copied."""
    distcp_best = _best_distcp({each.name: each for each in results})
    limit = next((each.best.seconds for each in results if each.name == NATIVE), None)
    head = [
        "",
        "seconds (rounds)",
        "files/s",
        "MB/s",
        "calls a file, A / B",
        "peak MiB",
        "CPU s",
        "others' CPU",
        "times DistCp",
        "of hdfs-native",
    ]
    lines = [f"\n### {title}\n", f"| {' | '.join(head)} |", "|" + " --- |" * len(head)]
    return "\n".join([*lines, *(_row(each, files, size, distcp_best, limit) for each in results)])


def _row(
    result: Result, files: int, size: int, distcp_best: Result | None, limit: float | None
) -> str:
    best = result.best
    cells = [
        result.name,
        f"**{best.seconds:.2f}** ({', '.join(f'{each.seconds:.2f}' for each in result.rounds)})",
        f"{files / best.seconds:.0f}" if files else "",
        f"{size / best.seconds / 1e6:.0f}" if files else "",
        _calls(result, files),
        f"{best.peak / 2**20:.0f}{' JVM' if best.jvm else ''}",
        f"{best.cpu:.1f}",
        f"{best.others:.0%}",
        f"{distcp_best.best.seconds / best.seconds:.1f}" if distcp_best else "",
        f"{limit / best.seconds:.2f}" if limit else "",
    ]
    return f"| {' | '.join(cells)} |"


def _calls(result: Result, files: int) -> str:
    if result.calls is None:
        return ""
    a, b = result.calls
    return f"{a / files:.1f} / {b / files:.1f}" if files else f"{a} / {b} in all"


def targets(name: str, phases: dict[str, list[Result]]) -> Iterator[tuple[str, str, bool]]:
    """What was promised for a tree: the promise, what came of it, whether it is met."""
    first = {each.name: each for each in phases[_COPYING[0]]}
    for ours in (each.name for each in COMPETITORS if each.ours and each.name in first):
        if name == "small":
            yield from _small_targets(first, ours)
        if name == "large" and NATIVE in first:
            share = first[NATIVE].best.seconds / first[ours].best.seconds
            yield f"large: {ours}: ≥ 0.9 of hdfs-native alone", f"{share:.2f}", share >= 0.9
        if _COPYING[1] in phases:
            yield from _incremental_targets(phases, ours)


def _small_targets(first: dict[str, Result], ours: str) -> Iterator[tuple[str, str, bool]]:
    better = _best_distcp(first)
    if better is None:
        return
    times = better.best.seconds / first[ours].best.seconds
    calls = sum(first[ours].calls or ()) / sum(better.calls or ())
    least = 8 if "--pack on" in ours else 2.7
    promise = f"small: {ours}: ≥ {least} times as fast as the better DistCp"
    yield promise, f"{times:.1f}", times >= least
    yield f"small: {ours}: at most half of its calls", f"{calls:.2f}", calls <= 0.5


def _incremental_targets(
    phases: dict[str, list[Result]], ours: str
) -> Iterator[tuple[str, str, bool]]:
    changed, nothing = (
        {each.name: each for each in phases[phase]} for phase in (_COPYING[1], _NOTHING)
    )
    if better := _best_distcp(changed):
        times = better.best.seconds / changed[ours].best.seconds
        promise = f"5 % changed: {ours}: ≥ 6 times as fast as the better DistCp"
        yield promise, f"{times:.1f}", times >= 6
    took = nothing[ours].best
    found = f"{took.seconds:.2f} s, {'a' if took.jvm else 'no'} JVM"
    yield f"nothing to do: {ours}: under 1 s, no JVM", found, took.seconds < 1 and not took.jvm


def _report(what: str, took: Took) -> None:
    print(
        f"{what}: {took.seconds:.2f} s, CPU {took.cpu:.1f} s, others {took.others:.0%}",
        file=sys.stderr,
        flush=True,
    )


def _best_distcp(results: dict[str, Result]) -> Result | None:
    return min(
        (each for each in results.values() if each.name.startswith("DistCp")),
        key=lambda each: each.best,
        default=None,
    )


def show(tree: Files, phases: dict[str, list[Result]]) -> None:
    """The tables of a tree."""
    gone = trees.changed(tree)[1]
    amounts = {
        _COPYING[0]: (len(tree.sizes), tree.bytes),
        _COPYING[1]: (len(gone), sum(tree.sizes[name] for name in gone)),
        _NOTHING: (0, 0),
    }
    for phase, results in phases.items():
        print(table(f"{tree}; {phase}", *amounts[phase], results), flush=True)


def _as_json(result: Result) -> dict[str, object]:
    return {
        "name": result.name,
        "calls": result.calls,
        "rounds": [took._asdict() for took in result.rounds],
    }


def show_targets(found: list[tuple[str, str, bool]]) -> None:
    """All that was promised."""
    print("\n| target | measured | |\n| --- | --- | --- |")
    for promise, measured, met in found:
        print(f"| {promise} | {measured} | {'met' if met else '**not met**'} |")


@contextlib.contextmanager
def clusters() -> Iterator[tuple[BenchCluster, BenchCluster]]:
    """Two, stopped at the end."""
    a, b = BenchCluster(), BenchCluster()
    with contextlib.closing(a), contextlib.closing(b):
        BenchCluster.start_many([a, b])
        yield a, b


def arguments() -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="small trees, one round: for trying it, not for its numbers",
    )
    parser.add_argument(
        "--trees",
        default="small,large,mix",
        help="which, separated by commas; with none only the calls of a sync that changes one file"
        " are counted; default: %(default)s",
    )
    keys = ",".join([*(each.key for each in COMPETITORS), LOCAL_KEY])
    parser.add_argument(
        "--competitors",
        default=keys,
        help="who, separated by commas; default: %(default)s",
    )
    parser.add_argument("--rounds", type=int, help="default: 2, with --quick 1")
    add_patience(parser)
    parser.add_argument("--json", type=Path, help="also write what was measured to this file")
    return parser.parse_args()


def main() -> None:
    """Build, start, measure, print."""
    end_tidily()
    options = arguments()
    chosen = [
        (trees.QUICK if options.quick else trees.FULL)[name]
        for name in options.trees.split(",")
        if name
    ]
    keys = options.competitors.split(",")
    if any(key.startswith("distcp") for key in keys):
        distcp.build()
    found: list[tuple[str, str, bool]] = []
    measured: dict[str, object] = {}
    with tempfile.TemporaryDirectory(prefix="cpreplicate-bench-") as directory, clusters() as both:
        os.environ["XDG_CACHE_HOME"] = f"{directory}/cache"
        rounds = options.rounds or (1 if options.quick else 2)
        bench = Bench(both, Path(directory), rounds, options.patience, keys)
        bench.warm_up()
        for tree in chosen:
            phases = bench.tree(tree)
            measured[tree.name] = {
                phase: [_as_json(each) for each in results] for phase, results in phases.items()
            }
            show(tree, phases)
            found += targets(tree.name, phases)
        print(bench.breakdown(), flush=True)
        print(bench.breakdown("--pack", "on"), flush=True)
    show_targets(found)
    if options.json:
        options.json.write_text(json.dumps(measured, indent=1))


if __name__ == "__main__":
    main()
