"""A fleet of small jobs of which few changed: one run against a `sync` a job and a DistCp a job.
`make bench-fleet`.

A `sync` and a DistCp a job are run for a sample of the jobs, as many of them changed as in the
fleet, and multiplied.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.bench import distcp
from scripts.bench.measured import Took, end_tidily, run, wait_until_quiet
from tests.support import jobs

_BIN = Path(sys.executable).parent
_SECONDS = 1800
_DISTCPS = 10  # of the sample
_FILES = {f"shared/{number:04d}": 20_000 for number in range(20)}
_NEXT = {**dict(list(_FILES.items())[2:]), "shared/new-1": 20_000, "shared/new-2": 20_000}


class Row(NamedTuple):
    """What one way took for the whole fleet, and how many jobs that was measured with."""

    name: str
    seconds: float
    measured: int
    took: Took


def job_id(number: int) -> str:
    """The id of a job."""
    return f"{number:032x}"


def write(root: Path, numbers: Sequence[int], checkpoint: int, files: dict[str, int]) -> None:
    """A checkpoint of each of some jobs.

    Files that it no longer needs go, as Flink deletes them.
    """
    for number in numbers:
        jobs.JOB = job_id(number)  # whose directory `write_checkpoint` writes
        jobs.write_checkpoint(root, checkpoint, files)
        if checkpoint > 1:
            shutil.rmtree(root / jobs.JOB / f"chk-{checkpoint - 1}")
            for file in (root / jobs.JOB / "shared").iterdir():
                if f"shared/{file.name}" not in files:
                    file.unlink()


def fleet(place: Path, target: str, *words: str, only: Sequence[int] = ()) -> list[str]:
    """One run for all, or for some."""
    config = place / f"{target}.toml"
    named = [f'[[job]]\nsource = "{place}/dcA/{job_id(number)}"\n' for number in only]
    jobs_ = "".join(named) or f'[[root]]\nsource = "{place}/dcA"\n'
    config.write_text(f'[defaults]\ntarget = "{place}/{target}"\n{jobs_}')
    return [
        str(_BIN / "cpreplicate"),
        "fleet",
        str(config),
        "--output",
        "json",
        "--progress",
        "none",
        *words,
    ]


def in_turn(commands: Iterator[list[str]]) -> Took:
    """One after the other, as cron would run them."""
    total: Took | None = None
    for command in commands:
        took = run(command, _SECONDS)
        total = (
            took
            if total is None
            else total._replace(
                seconds=total.seconds + took.seconds,
                cpu=total.cpu + took.cpu,
                peak=max(total.peak, took.peak),
            )
        )
    assert total is not None, "there is a command"
    return total


def rows(place: Path, count: int, sample: int, changed: list[int]) -> Iterator[Row]:
    """Each way in turn; every replica is at the checkpoint before."""
    for target, words in (("inline", ()), ("spark", ("--master", "local[2]"))):
        wait_until_quiet(60)
        took = run(fleet(place, target, "--runner", target, *words), _SECONDS)
        yield Row(f"cpreplicate fleet, {' '.join((target, *words[1:]))}", took.seconds, count, took)
        wait_until_quiet(60)
        took = run(
            fleet(place, f"{target}-few", "--runner", target, *words, only=changed), _SECONDS
        )
        yield Row(
            f"the same, of the {len(changed)} that changed alone", took.seconds, len(changed), took
        )
    chosen = [*changed[: max(1, sample * len(changed) // count)], *range(count - sample, count)][
        :sample
    ]
    took = in_turn(sync(place, number) for number in chosen)
    yield Row("cpreplicate sync, a run a job", took.seconds * count / sample, sample, took)
    few = chosen[:_DISTCPS]
    took = in_turn(copy(place, number) for number in few)
    yield Row("DistCp -update, a run a job", took.seconds * count / len(few), len(few), took)


def sync(place: Path, number: int) -> list[str]:
    """One job by itself."""
    return [
        str(_BIN / "cpreplicate"),
        "sync",
        f"{place}/dcA/{job_id(number)}",
        f"{place}/syncs",
        "--output",
        "json",
    ]


def copy(place: Path, number: int) -> list[str]:
    """The same by DistCp, which copies what is new and deletes nothing."""
    job = job_id(number)
    return distcp.command(
        f"file:{place}/dcA/{job}", f"file:{place}/distcp/{job}", place / "scratch", 2
    )


def prepare(place: Path, count: int, changed: list[int]) -> float:
    """Jobs and replicas of their first checkpoint, then the next one of some.

    What the first run of the fleet took.
    """
    write(place / "dcA", range(count), 1, _FILES)
    first = run(fleet(place, "inline", "--runner", "inline"), _SECONDS)
    for target in ("inline-few", "spark", "spark-few", "syncs", "distcp"):
        shutil.copytree(place / "inline", place / target)
    write(place / "dcA", changed, 2, _NEXT)
    return first.seconds


def main() -> None:
    """Measure and print."""
    end_tidily()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument(
        "--sample", type=int, default=50, help="jobs that are run one by one; default: %(default)s"
    )
    options = parser.parse_args()
    distcp.build()
    changed = list(range(0, options.jobs, 50))
    with tempfile.TemporaryDirectory(prefix="cpreplicate-bench-") as directory:
        place = Path(directory)
        first = prepare(place, options.jobs, changed)
        what = f"{options.jobs} jobs of {len(_FILES)} files, {len(changed)} of them changed"
        print(f"{what}; the first run of all took {first:.1f} s\n")
        print(
            "| | seconds for the fleet | measured with jobs | CPU s of those | peak MiB | times as"
            " long as the quickest |"
        )
        print("| --- " * 6 + "|")
        found = list(rows(place, options.jobs, options.sample, changed))
        best = min(row.seconds for row in found)
        for row in found:
            cells = (
                row.name,
                f"{row.seconds:.1f}",
                str(row.measured),
                f"{row.took.cpu:.1f}",
                f"{row.took.peak / 2**20:.0f}",
                f"{row.seconds / best:.1f}",
            )
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
