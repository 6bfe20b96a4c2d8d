"""How soon a job that deletes its checkpoints is replicated: `make bench-turns`.

A line of so many bytes a second (the limit of the run itself), and a job that completes a
checkpoint every two seconds. It writes 0.5, 0.9 and 1.2 times what the line carries, and retains
1 or 10 checkpoints. A file goes with each checkpoint by a chance of one in ten, as compaction takes
it, and a fifth of what is new is of its checkpoint only. So a checkpoint has about nine times what
is new in one.

Reported are the seconds to the first commit, how far it is behind the source then, how often the
run turned, and the same of the run after it. `paused` is the first commit while the job stands
still: what a copy in an unlimited time takes. `named` is a run on the checkpoint that was the
newest one, which never turns. `--order last` copies the files last that only one checkpoint needs.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import shutil
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from cpreplicate.core.timetable import constant
from cpreplicate.errors import CpreplicateError
from cpreplicate.operations.sync import tasks
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.sync.sync import sync
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import Limits, Side, Sides
from tests.support.jobs import JOB, write_checkpoint

LINE = 4 << 20  # bytes a second
INTERVAL = 2.0  # seconds between two checkpoints
LIVES = 10  # checkpoints that need a file, in the mean
FILE = 128 << 10  # bytes
OWN_SHARE = 5  # of what is new, one part is of its checkpoint only


class RunningJob:
    """A job that completes a checkpoint every interval, and retains some."""

    def __init__(self, root: Path, share: float, retained: int) -> None:
        self.newest, self.completed = 0, dict[int, float]()
        self._root, self._retained = root, retained
        self._new = max(OWN_SHARE, round(share * LINE * INTERVAL / FILE))
        self._draw = random.Random(0)
        self._live = [self._named() for _ in range(LIVES * self._new)]
        self._files: dict[int, Mapping[str, int]] = {}
        self._ended = threading.Event()

    def complete(self) -> None:
        """Complete a checkpoint, and delete the one that is not retained any more."""
        number, own = self.newest + 1, self._new // OWN_SHARE
        self._live = [name for name in self._live if self._draw.random() > 1 / LIVES]
        self._live += [self._named() for _ in range(self._new - own)]
        self._draw.shuffle(self._live)
        names = [*self._live, *(f"chk-{number}/{row}" for row in range(own))]
        self._files[number] = dict.fromkeys(names, FILE)
        write_checkpoint(self._root, number, self._files[number])
        self.newest, self.completed[number] = number, time.monotonic()
        if (gone := number - self._retained) > 0:
            (self._root / JOB / f"chk-{gone}" / "_metadata").unlink()
            shutil.rmtree(self._root / JOB / f"chk-{gone}")
            needed = {name for files in list(self._files.values())[1:] for name in files}
            for name in self._files.pop(gone).keys() - needed:
                (self._root / JOB / name).unlink(missing_ok=True)

    def _named(self) -> str:
        return f"shared/{self._draw.randbytes(12).hex()}"

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join()

    def _run(self) -> None:
        due = time.monotonic() + INTERVAL
        while not self._ended.wait(max(0.0, due - time.monotonic())):
            self.complete()
            due += INTERVAL


class Ended(NamedTuple):
    """How a run ended: the seconds it took, the seconds it was behind then, and its turns."""

    seconds: float
    behind: float | None
    turns: int
    error: str = ""

    def __str__(self) -> str:
        if self.behind is None:
            return f"{self.seconds:6.1f} s  {self.error}"
        return f"{self.seconds:6.1f} s, {self.behind:5.1f} s behind, {self.turns} turns"


def run(job: RunningJob, source: str, target: str) -> Ended:
    """Replicate once over the line."""
    limits = Limits(timetable=constant(LINE), run=uuid.uuid4().hex)
    sides = Sides(Side(), Side(limits=limits))
    inline = ExecutionOptions(runner="inline")
    request = SyncRequest(source, target, sides=sides, execution=inline, look_every=INTERVAL / 2)
    began = time.monotonic()
    try:
        report = sync(request, lambda _line: None)
    except CpreplicateError as error:
        ended = type(error).__name__
        return Ended(time.monotonic() - began, None, 0, f"{ended} ({error.exit_code})")
    now = time.monotonic()
    behind = now - job.completed[report.plan.checkpoint_id]
    return Ended(now - began, behind, len(report.turned_from))


def measure(share: float, retained: int) -> dict[str, Ended]:
    """Return how runs end: beside a job that stands still, that goes on, and by name."""
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        job = RunningJob(root / "dcA", share, retained)
        job.complete()
        source = f"file:{root}/dcA/{JOB}"
        paused = run(job, source, f"file:{root}/paused")
        with job.running():
            named = run(job, f"{source}/chk-{job.newest}", f"file:{root}/named")
            first = run(job, source, f"file:{root}/dcB")
            again = run(job, source, f"file:{root}/dcB")
    return {"paused": paused, "named": named, "first": first, "again": again}


def own_last() -> None:
    """Copy the files last that only one checkpoint needs."""
    tasks.soonest_first = lambda files, name: np.argsort(  # type: ignore[assignment]  # in place of it
        tasks.is_own(files, name), kind="stable"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--order", choices=["first", "last"], default="first")
    parser.add_argument("--shares", type=float, nargs="+", default=[0.5, 0.9, 1.2])
    parser.add_argument("--retained", type=int, nargs="+", default=[1, 10])
    options = parser.parse_args()
    if options.order == "last":
        own_last()
    for retained in options.retained:
        for share in options.shares:
            print(f"retains {retained}, writes {share} of the line", flush=True)
            for name, ended in measure(share, retained).items():
                print(f"    {name:8}{ended}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
