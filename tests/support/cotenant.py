"""A model of Flink on a simulated disk: jobs that write, retain and delete checkpoints beside
cpreplicate's replicas.

It writes its files itself, in no step of the disk, and remembers every byte that it wrote and has
not deleted.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Literal, NamedTuple

from cpreplicate.core import uri
from tests.support import checker
from tests.support.encoder import File as FileHandle
from tests.support.encoder import (
    RelativeFile,
    Segment,
    Tree,
    encode,
    keyed_operator,
)
from tests.support.simulated import SimulatedDisk

METADATA = "_metadata"
FIXED = "c0ffee00" * 4  # an id that is set, `$internal.pipeline.job-id`: that of each start
SIDES = ("A", "B")
# the operator id of the model's checkpoints: it identifies the checkpoint
TAG = re.compile(rb"tag:[0-9]{12}")

ClaimMode = Literal["NO_CLAIM", "CLAIM", "LEGACY"]


class Checkpoint(NamedTuple):
    """A complete checkpoint: its directory, its number, and its references in the order of its
    `_metadata`.
    """

    place: str
    number: int
    needs: tuple[checker.Need, ...]
    tag: bytes

    @property
    def metadata(self) -> str:
        return f"{self.place}/{METADATA}"

    @property
    def files(self) -> set[str]:
        return {f"file:{need.path}" for need in self.needs}


@dataclass
class Job:
    """A job as Flink runs it. `store` are the checkpoints that it keeps, the oldest first.

    `restored` is what it started from, until its first own checkpoint. `mine` are the files that it
    may delete.
    """

    side: str
    root: str
    number: int = 0
    is_running: bool = True
    mode: ClaimMode | None = None
    store: list[Checkpoint] = field(default_factory=list)
    restored: Checkpoint | None = None
    shared: list[str] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    mine: set[str] = field(default_factory=set)
    uploaded: list[str] | None = None
    merged: str | None = None

    @property
    def needed(self) -> set[str]:
        """The files without which it could not be restored after a failure now."""
        newest = self.restored or (self.store[-1] if self.store else None)
        return newest.files if newest else set()

    def __str__(self) -> str:
        return f"job {self.root.removeprefix('file:/')}"


class Flink:
    """Every job of both data centres.

    `owned` is what they wrote and have not deleted, `ever` each byte there ever was. `before` is
    what that was of a file that was damaged when a job started from it.
    """

    def __init__(self, disk: SimulatedDisk, draw: Random, retained: int, merging: bool) -> None:
        self.owned: dict[str, bytes] = {}
        self.ever: dict[str, bytes] = {}
        self.before: dict[str, bytes] = {}
        self.released: set[str] = set()  # files that a job deleted, its own and claimed ones
        self.jobs: list[Job] = []
        self.checkpoints: dict[bytes, Checkpoint] = {}
        self.completed: dict[bytes, float] = {}  # when, by tag
        self._disk, self._draw = disk, draw
        self._retained, self._merging = retained, merging

    def start(self, side: str, root: str) -> Job:
        """Start a job from scratch, which writes to the directory `root`."""
        job = Job(side, root)
        if self._merging:
            job.merged = f"{root}/shared/merged-{self._name()}"
        self.jobs.append(job)
        return job

    def restore(self, side: str, root: str, start: Checkpoint, mode: ClaimMode) -> Job:
        """Start a job from a complete checkpoint, its own, another job's or a replica's."""
        job = self.start(side, root)
        job.number, job.mode, job.restored = start.number, mode, start
        for place in start.files:
            data = self._data(place)
            if self.ever.get(place, data) != data:
                self.before[place] = self.ever[place]
            self.ever[place] = data
        if mode != "NO_CLAIM":  # else the first checkpoint is a full one
            job.shared = [
                place
                for place in sorted(start.files)  # else the seed would draw for another file
                if "/shared/" in place and "merged-" not in place
            ]
        if mode == "CLAIM":
            job.store = [start]
            job.mine = {*start.files, start.metadata}
        return job

    def upload(self, job: Job) -> None:
        """Write files of the next checkpoint, which is not complete without its `_metadata`."""
        if job.uploaded is None:
            job.number += self._draw.randint(1, 2)
            job.uploaded = []
            job.shared = [place for place in job.shared if self._draw.random() < 0.7]
        job.uploaded += self._some(job, f"{job.root}/chk-{job.number}")
        shared = self._some(job, f"{job.root}/shared")
        job.shared += shared
        if job.merged is not None:
            self._grow(job, job.merged)

    def complete(self, job: Job) -> Checkpoint | None:
        """Complete the checkpoint in progress, and subsume those that are not retained.

        None if it fails.
        """
        if job.uploaded is None or self._draw.random() < 0.3:
            self.upload(job)
        place = f"{job.root}/chk-{job.number}"
        if self._disk.is_file(f"{place}/{METADATA}"):  # Flink never overwrites one
            self.abandon(job)
            return None
        made = self._written(job, place)
        job.store.append(made)
        job.uploaded, job.restored = None, None
        while len(job.store) > self._retained:
            self._subsume(job, job.store.pop(0))
        return made

    def abandon(self, job: Job) -> None:
        """Delete the files of the checkpoint in progress, unless others need them by now."""
        for place in job.uploaded or ():
            self._delete(place)
        if job.uploaded is not None:
            self._remove_directory(f"{job.root}/chk-{job.number}")
        job.uploaded = None

    def cancel(self, job: Job) -> None:
        """End a job, which retains its checkpoints."""
        self.abandon(job)
        job.is_running = False

    def fail(self, job: Job) -> None:
        """End a job in the midst of everything: what it was uploading stays."""
        job.is_running = False

    def complete_on_disk(self) -> list[Checkpoint]:
        """The checkpoints of all jobs that are there."""
        last = {each.metadata: each for each in self.checkpoints.values()}  # numbers restart
        return [each for place, each in last.items() if place in self.owned]

    def running(self) -> list[Job]:
        return [job for job in self.jobs if job.is_running]

    def _written(self, job: Job, place: str) -> Checkpoint:
        tag = f"tag:{len(self.checkpoints):012d}".encode()
        own = [self._handle(each, place) for each in job.uploaded or ()]
        shared = [(f"{each[-8:]}.sst", self._handle(each)) for each in job.shared]
        operator = keyed_operator(tag, job.number, own, shared, job.segments)
        version = self._draw.randint(5 if job.segments else 3, 6)
        data = bytes(encode(Tree(version, (operator,), job.number)).data)
        self._write(job, f"{place}/{METADATA}", data)
        local = Path(uri.local_path(f"{place}/{METADATA}"))
        made = Checkpoint(
            place, job.number, tuple(checker.needs_of(data, local, check_directories=False)), tag
        )
        self.checkpoints[tag], self.completed[tag] = made, self._disk.clock.now
        return made

    def _subsume(self, job: Job, gone: Checkpoint) -> None:
        """Delete a checkpoint and the files that only it needed, as far as they are the job's: its
        own and claimed ones.
        """
        kept = {place for each in job.store for place in each.files}.union(
            job.shared, job.uploaded or ()
        )
        kept.update([job.merged] if job.merged else [])
        for place in sorted({gone.metadata, *gone.files} & job.mine - kept):
            self._delete(place)
        self._remove_directory(gone.place)

    def _some(self, job: Job, directory: str) -> list[str]:
        found = [f"{directory}/{self._name()}" for _ in range(self._draw.randint(1, 2))]
        for place in found:
            self._write(job, place, self._draw.randbytes(self._draw.choice([0, 1, 40, 90])))
        return found

    def _grow(self, job: Job, place: str) -> None:
        before = self.owned.get(place, b"")
        size = self._draw.randint(1, 60)
        self._write(job, place, before + self._draw.randbytes(size))
        job.segments = [*job.segments[-1:], Segment(len(before), size, 1, place, f"{job.number}")]

    def _handle(self, place: str, checkpoint: str | None = None) -> FileHandle | RelativeFile:
        size = len(self.ever[place])
        is_relative = checkpoint is not None and self._draw.random() < 0.5
        return RelativeFile(uri.name(place), size) if is_relative else FileHandle(place, size)

    def _name(self) -> str:
        return f"{self._draw.getrandbits(64):016x}"

    def _data(self, place: str) -> bytes:
        return self._disk.data(place) or b""

    def _write(self, job: Job, place: str, data: bytes) -> None:
        self._disk.place(place, data)
        self.owned[place] = self.ever[place] = data
        job.mine.add(place)

    def _delete(self, place: str) -> None:
        self.owned.pop(place, None)
        self.released.add(place)
        if self._disk.is_file(place):
            self._disk.remove(place)

    def _remove_directory(self, place: str) -> None:
        with quiet(self._disk):
            self._disk.rmdir(place)


@contextlib.contextmanager
def quiet(disk: SimulatedDisk) -> Iterator[None]:
    """Nobody watches the steps of the disk."""
    hook, disk.hook = disk.hook, lambda *_: None
    try:
        yield
    finally:
        disk.hook = hook


def files_of(metadata: str, data: bytes) -> Sequence[checker.Need]:
    """What a `_metadata` with these bytes at this place needs."""
    return checker.needs_of(data, Path(uri.local_path(metadata)), check_directories=False)
