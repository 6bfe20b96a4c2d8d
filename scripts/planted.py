"""Plant bugs in copies of the package, and print which the simulations find: `make planted`.

A seed is one simulation: a history, a history of jobs that share files, a race, a source that goes
on between two reads, or a run that dies at each of its points. Each bug is played from seed 0 until
one finds it.
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
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from random import Random
from typing import NamedTuple

PROJECT = Path(__file__).resolve().parent.parent
sys.path.append(str(PROJECT))  # after PYTHONPATH, which names a copy of the package with a bug

from tests.support.planted import BUGS, Bug, plant  # noqa: E402

SEEDS = 2_000
ENOUGH = 27  # bugs, of 30
PROCESSES = 2
STEPS = 8  # of a history
ROUND = (  # the kinds of simulations that the seeds go round: the cheap ones more often
    *("history", "shared", "history", "race", "held up"),
    *("history", "shared", "history", "death", "two jobs"),
    *("history", "shared", "history", "race", "held up"),
    *("history", "shared", "history", "death", "churn"),
)
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
    parser.add_argument("--processes", type=int, default=PROCESSES)
    parser.add_argument("--play", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("bug", nargs="*", help="words of the names of bugs: only these")
    arguments = parser.parse_args()
    if arguments.play:
        return play(arguments.seeds)
    chosen = [bug for bug in BUGS if all(word in bug.name for word in arguments.bug)]
    with ThreadPoolExecutor(arguments.processes) as pool:
        running = [pool.submit(examine, bug, arguments.seeds) for bug in chosen]
        results = []
        for done in as_completed(running):
            results.append(done.result())
            print(_line(results[-1]), flush=True)
    missed = [result.bug for result in results if result.seed is None]
    print(f"{len(results) - len(missed)} of {len(results)} bugs were found")
    for bug in missed:
        print(f"not found: {bug.name} ({bug.rule})")
    return len(missed) > len(BUGS) - ENOUGH


def _line(result: Result) -> str:
    seed = "-" if result.seed is None else result.seed
    return f"{result.bug.name:45} {seed:>5} {result.seconds:7.1f} s  {result.found[:_SHOWN]}"


def examine(bug: Bug, seeds: int) -> Result:
    """Plant a bug in a copy of the package, and play seeds against it in a process of its own."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="planted-") as directory:
        plant(bug, Path(directory))
        played = subprocess.run(
            [sys.executable, __file__, "--play", "--seeds", str(seeds)],
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


def play(seeds: int) -> int:
    """Play seeds until one finds something wrong, and print it and what was found."""
    import cpreplicate

    if Path(cpreplicate.__file__).is_relative_to(PROJECT):
        raise RuntimeError(f"this is not a copy with a bug: {cpreplicate.__file__}")
    simulations = _simulations()
    played: Counter[str] = Counter()
    for seed, kind in zip(range(seeds), itertools.cycle(ROUND), strict=False):
        if wrong := _wrong(simulations[kind], played[kind]):
            print(seed, f"{kind} {played[kind]}:", " ".join(wrong.split()))
            return 0
        played[kind] += 1
    print("-")
    return 0


def _wrong(simulate: Callable[[int], list[str]], number: int) -> str:
    """Return the first thing that a simulation found wrong, which may be how it ended."""
    try:
        return next(iter(simulate(number)), "")
    except Exception as error:  # noqa: BLE001  # whatever it raises, no sound package makes it
        return f"ended by {error!r}"


def _simulations() -> dict[str, Callable[[int], list[str]]]:
    """Return the simulations by their kind; each returns what was wrong."""
    from tests.histories.test_crash_points import KINDS, PACKED_KINDS
    from tests.histories.test_races import Race, RaceOfTwoJobs
    from tests.support.histories import World
    from tests.support.staging import examine as dying

    kinds = [*KINDS, *PACKED_KINDS]

    def death(number: int) -> list[str]:
        kind = kinds[number % len(kinds)]
        return dying(kind(Random(f"{kind.__name__} {number // len(kinds)}"))).wrong

    return {
        "history": lambda number: World(number, is_adopting=number % 10 == 0).play(STEPS),
        "shared": lambda number: World(number, is_sharing=True).play(STEPS),
        "race": lambda number: Race(f"race False {number}", False).run(),
        "held up": lambda number: Race(f"race True {number}", True).run(),
        "two jobs": lambda number: RaceOfTwoJobs(f"earlier {number}").run(),
        "churn": _churn,
        "death": death,
    }


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
