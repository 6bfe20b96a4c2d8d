"""Plant bugs in copies of the package, and print which the simulations find: `make planted`.

A seed is one simulation: a history, a history of jobs that share files, a race, a source that goes
on between two reads, or a run that dies at each of its points. Each bug is played from seed 0 until
one finds it: first the kinds that fit it, then all. A copy without a bug is played, too: nothing
may be found there.
"""

from __future__ import annotations

import argparse
import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from random import Random
from typing import NamedTuple

PROJECT = Path(__file__).resolve().parent.parent
sys.path.append(str(PROJECT))  # after PYTHONPATH, which names a copy of the package with a bug

from tests.support.planted import BUGS, Bug, plant  # noqa: E402  # the path comes first

SEEDS = 2_000
ENOUGH = 33  # bugs, of 36
STEPS = 8  # of a history
ROUND = (  # the kinds of simulations that the seeds go round: the cheap ones more often
    *("history", "shared", "adopting", "race", "held up"),
    *("history", "shared", "churn", "overtaken", "two jobs"),
    *("history", "shared", "adopting", "race", "held up"),
    *("history", "shared", "churn", "overtaken", "death", "points"),
)
CONTROL = Bug("no bug", "the package as it is", ())
_SHOWN = 90  # characters of what was found


class Result(NamedTuple):
    """What became of a bug: the seed that found it, None if none did, and what was wrong."""

    bug: Bug
    seed: int | None
    seconds: float
    found: str


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS, help="at most, for each bug")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--play", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("bug", nargs="*", help="words of the names of bugs: only these")
    arguments = parser.parse_args()
    words = " ".join(arguments.bug)
    if arguments.play:
        return play(bug_of(words), arguments.seeds)
    chosen = [bug for bug in (CONTROL, *BUGS) if words in bug.name]
    return reported(examine_all(chosen, arguments.seeds, arguments.processes))


def bug_of(name: str) -> Bug:
    """Return the bug of this name, or the control."""
    return next(bug for bug in (CONTROL, *BUGS) if bug.name == name)


def examine_all(bugs: Sequence[Bug], seeds: int, processes: int) -> list[Result]:
    """Examine bugs, one in each process, and print each result as it is known.

    Return them in the order of the bugs.
    """
    with ThreadPoolExecutor(processes) as pool:
        running = [pool.submit(examine, bug, seeds) for bug in bugs]
        for done in as_completed(running):
            print(_line(done.result()), flush=True)
    return [each.result() for each in running]


def reported(results: Sequence[Result]) -> int:
    """Print the table of all results, and what was missed.

    Return the exit code: 0 if enough bugs, and only bugs, were found.
    """
    print("", *map(_line, results), "", sep="\n")
    control = [result for result in results if result.bug is CONTROL]
    bugs = [result for result in results if result.bug is not CONTROL]
    missed = [result.bug for result in bugs if result.seed is None]
    print(f"{len(bugs) - len(missed)} of {len(bugs)} bugs were found")
    for bug in missed:
        print(f"not found: {bug.name} ({bug.rule})")
    false = [result for result in control if result.seed is not None]
    for result in false:
        print(f"without a bug, seed {result.seed} found: {result.found}")
    return int(bool(false) or len(missed) > len(BUGS) - ENOUGH)


def _line(result: Result) -> str:
    seed = "-" if result.seed is None else result.seed
    return f"{result.bug.name:45} {seed:>5} {result.seconds:7.1f} s  {result.found[:_SHOWN]}"


def examine(bug: Bug, seeds: int) -> Result:
    """Plant a bug in a copy of the package, and play seeds against it in a process of its own."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="planted-") as directory:
        plant(bug, Path(directory))
        played = subprocess.run(
            [sys.executable, __file__, "--play", "--seeds", str(seeds), bug.name],
            env={**os.environ, "PYTHONPATH": directory, "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
    if played.returncode != 0:
        raise RuntimeError(f"{bug.name}: the seeds cannot be played\n{played.stderr}")
    seed, _, found = played.stdout.strip().rpartition("\n")[2].partition(" ")
    return Result(
        bug, int(seed) if seed.isdigit() else None, time.monotonic() - began, found.strip()
    )


def play(bug: Bug, seeds: int) -> int:
    """Play seeds until one finds something wrong, and print it and what was found."""
    import cpreplicate

    if Path(cpreplicate.__file__).is_relative_to(PROJECT):
        raise RuntimeError(f"this is not a copy with a bug: {cpreplicate.__file__}")
    simulations = _simulations()
    played: Counter[str] = Counter()
    for seed, kind in enumerate(kinds_of(bug, seeds)):
        if wrong := _wrong(simulations[kind], played[kind]):
            print(seed, f"{kind} {played[kind]}:", " ".join(wrong.split()))
            return 0
        played[kind] += 1
    print("-")
    return 0


def kinds_of(bug: Bug, seeds: int) -> Iterator[str]:
    """Yield the kind of each seed: those that fit the bug in the first half, then all."""
    first = seeds // 2 if bug.by else 0
    yield from itertools.islice(itertools.cycle(bug.by), first)
    yield from itertools.islice(itertools.cycle(ROUND), seeds - first)


def _wrong(simulate: Callable[[int], list[str]], number: int) -> str:
    """Return the first thing that a simulation found wrong, which may be how it ended."""
    try:
        return next(iter(simulate(number)), "")
    except Exception as error:  # noqa: BLE001  # whatever it raises, no sound package makes it
        return f"ended by {error!r}"


def _simulations() -> dict[str, Callable[[int], list[str]]]:
    """Return the simulations by their kind; each returns what was wrong."""
    from tests.histories.test_crash_points import KINDS, PACKED_KINDS
    from tests.histories.test_point_summary import Points
    from tests.histories.test_races import Race, RaceOfTwoJobs
    from tests.support.histories import World
    from tests.support.staging import examine as dying

    kinds = [*KINDS, *PACKED_KINDS]

    def death(number: int) -> list[str]:
        kind = kinds[number % len(kinds)]
        return dying(kind(Random(f"{kind.__name__} {number // len(kinds)}"))).wrong

    return {
        "history": lambda number: World(number).play(STEPS),
        "adopting": lambda number: World(number, is_adopting=True).play(STEPS),
        "shared": lambda number: World(number, is_sharing=True).play(STEPS),
        "race": lambda number: Race(f"race False {number}", False).run(),
        "held up": lambda number: Race(f"race True {number}", True).run(),
        "two jobs": lambda number: RaceOfTwoJobs(f"earlier {number}").run(),
        "points": lambda number: Points(number).play(),
        "overtaken": _overtaken,
        "churn": _churn,
        "death": death,
    }


def _overtaken(number: int) -> list[str]:
    """Another run overtakes a sync after some of its steps."""
    from tests.histories.test_races import OTHERS, Overtaken, packing_sync, sync

    draw = Random(f"overtaken {number}")
    first, other = draw.choice([sync, sync, packing_sync]), draw.choice(OTHERS)
    after, stalls = draw.randrange(80), draw.random() < 0.5
    return Overtaken(f"overtaken {number}", first, other, after, stalls).run()


def _churn(number: int) -> list[str]:
    """The source completes and subsumes checkpoints between any two reads of a sync."""
    from cpreplicate.errors import SourceBroken
    from tests.histories.test_races import Churn
    from tests.support.staging import Stage

    draw = Random(f"churn {number}")
    stage = Stage(draw, foreign=draw.random() < 0.5, merged=draw.random() < 0.5).complete()
    churn = Churn(stage.sync().complete(), draw)
    outcome = churn.run()
    wrong = [f"it is not broken: {outcome}"] if isinstance(outcome, SourceBroken) else []
    return churn.wrong + wrong


if __name__ == "__main__":
    sys.exit(main())
