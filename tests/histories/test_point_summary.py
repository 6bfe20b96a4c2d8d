"""Syncs of a replica with many points, whose summary is damaged, forged, out of date, or written
over by an earlier version: no kept point ever lacks a file, and no summary changes what is done. So
on a filesystem, and on an object store, whose directories have no times.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from cpreplicate.core import uri
from cpreplicate.core.packs import PackOptions
from cpreplicate.core.restore import PathsMode
from cpreplicate.core.retention import Retention
from cpreplicate.errors import CpreplicateError
from cpreplicate.operations.sync.diff import diff
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.sync.sync import sync
from cpreplicate.operations.upkeep.relocate import RelocateRequest, relocate
from cpreplicate.operations.upkeep.sweep import SweepRequest, sweep
from cpreplicate.protocol import point_summary
from cpreplicate.protocol.point_summary import NAME, WORTH
from cpreplicate.runners import ExecutionOptions
from tests.support import checker, parts
from tests.support.points import HOUR
from tests.support.reached import demanded_of, going_on, sometimes
from tests.support.simulated import File, SimulatedDisk, SimulatedJob, State, files
from tests.support.simulated_store import SimulatedStore
from tests.support.staging import LATER, TARGET_ROOT, record_run, running_on, silent

SUITE = "tests/histories/test_point_summary.py"
STEPS = 14


class Points:
    """A job whose replica keeps several points, and all that happens to their summary."""

    def __init__(self, seed: object) -> None:
        self.draw = draw = Random(f"points {seed}")
        kind = draw.choice([SimulatedDisk, SimulatedStore])
        self.disk = kind(links=draw.random() < 0.3)
        self.disk.pieces = 1
        self.job = SimulatedJob(self.disk, draw)
        self.replica = f"{TARGET_ROOT}/{self.job.job}"
        self.summary, self.own = (
            f"{self.replica}/.cpreplicate/{NAME}",
            f"{self.replica}/.cpreplicate",
        )
        self.keep = draw.randint(WORTH + 1, WORTH + 4)
        self.packs = draw.choice([0.0, 0.0, 0.5])
        self.merges = draw.random() < 0.3
        self.goes_back = draw.random() < 0.5  # then Flink retains every checkpoint
        self.number = 0
        self.backups: list[File] = []  # summaries of former times
        self.history: list[str] = [f"Points({seed!r}): keeps {self.keep} on a {kind.__name__}"]
        self.wrong: list[str] = []

    def play(self, steps: int = STEPS) -> list[str]:
        """Make some points, then take steps; return what was wrong."""
        for _ in range(self.keep + 2):
            self.complete_and_sync()
        for _ in range(steps):
            self._step(self.draw.choice(ACTIONS))
            if self.wrong:
                return [*self.history, *self.wrong]
        return []

    def _step(self, action: Callable[[Points], object]) -> None:
        self.history.append(action.__name__)
        action(self)
        if self.draw.random() < 0.7:
            self.disk.clock.pass_(self.draw.choice([1, 10, HOUR]))
        self._judge()

    def complete_and_sync(self) -> None:
        """The next checkpoint is replicated, by the plan of a run that reads every record."""
        self._complete()
        request = self._request()
        plan = self._plan(request, self.disk.snapshot())
        reading = self.disk.snapshot()
        self._without_summary()
        expected = self._plan(request, self.disk.snapshot())
        self.disk.become(reading)
        if plan != expected:
            self.wrong.append(f"with the summary {plan}, without it {expected}")
        opened: list[str] = []
        self.disk.hook = lambda moment, verb, place: (
            opened.append(place) if (moment, verb) == ("before", "open") else None
        )
        with running_on(self.disk):
            report = sync(request, silent)
        self.disk.hook = lambda *_: None
        read = {each for each in opened if each.startswith(f"{self.replica}/chk-")}
        reads_few, is_store = len(read) < self.keep - 1, not self.disk.has_directories
        sometimes("a sync read few of its points", reads_few)
        sometimes("a sync read few of its points of an object store", reads_few and is_store)
        sometimes("a summary was doubted", NAME in self._there() and len(read) >= self.keep)
        if report.warnings != report.plan.warnings:
            self.wrong.append(f"warnings of a sync: {report.warnings}")
        self._judge_whole()
        self._back_up()

    def sync_and_die(self) -> None:
        """A run dies at some point, and is made again when its lease has expired."""
        self._complete()
        request = self._request()
        states = record_run(self.disk, lambda: sync(request, silent))
        self.disk.hook = lambda *_: None
        died = self.draw.randrange(len(states))
        for state in (states[died], *self.draw.sample(states, 3)):
            self.disk.become(state)
            self._judge()
        self.disk.become(states[died])
        self.disk.clock.pass_(LATER)
        with running_on(self.disk):
            sync(request, silent)
        sometimes("a run with points died")

    def sync_by_an_earlier_version(self) -> None:
        """It knows no summary: it leaves that as it is, and vouches for none."""
        self._complete()
        before = self._file(self.summary)
        with running_on(self.disk):
            sync(self._request(), silent)
        record = f"{self.own}/chk-{self.number}.json"
        fields = json.loads(self.disk.data(record) or b"")
        sometimes("an earlier version wrote beside a summary", fields.pop("summary", None))
        self.disk.place(record, json.dumps(fields).encode())
        if before is not None:
            self._place(before)

    def respell(self) -> None:
        """Every `_metadata` is rewritten, within the same second or later."""
        modes: tuple[PathsMode, ...] = ("absolute", "relative")
        paths = self.draw.choice(modes)
        with running_on(self.disk):
            relocate(RelocateRequest(self.replica, paths), silent)

    def unpack(self) -> None:
        with running_on(self.disk):
            relocate(RelocateRequest(self.replica, "absolute", unpack=True), silent)

    def sweep(self) -> None:
        with running_on(self.disk):
            sweep(SweepRequest(self.replica, min_age=0.0), silent)

    def replace_metadata(self) -> None:
        """Another program puts its `_metadata` over that of a point, until somebody repairs that.

        It may be as long, and of the same second. No sync is made meanwhile, with a summary or
        without one.
        """
        name = self.draw.choice(sorted(self._committed()))
        place = f"{self.replica}/chk-{name}/_metadata"
        file = self._file(place)
        assert file is not None
        data = file.data[:-1] + bytes([file.data[-1] ^ 1])
        self._put_over(place, data, file.modified if self.draw.random() < 0.5 else None)
        self.history.append(f"of chk-{name}")
        self._complete()
        with_summary, reading = self._refusal(), self.disk.snapshot()
        self._without_summary()
        if not with_summary or self._refusal() != with_summary:
            self.wrong.append(f"with the summary {with_summary}, without {self._refusal()}")
        self.disk.become(reading)
        sometimes("a summary was there when a `_metadata` was replaced", NAME in self._there())
        self._put_over(place, file.data)
        with running_on(self.disk):
            sync(self._request(), silent)

    def _put_over(self, place: str, data: bytes, modified: float | None = None) -> None:
        """Replace a file. That it has the time of the former shows nowhere but on object stores."""
        now = self.disk.clock.now
        if self.disk.has_directories:
            self.disk.write_new(f"{place}.new", lambda: [data])
            self.disk.rename(f"{place}.new", place, replace=True)
            return
        self.disk.clock.now = now if modified is None else modified
        self.disk.place(place, data)
        self.disk.clock.now = now

    def _refusal(self) -> str:
        """Why a sync would not be made now, nothing if it would."""
        with running_on(self.disk):
            try:
                report = diff(self._request())
            except CpreplicateError as error:
                return str(error)
        return "" if report.refusal is None else str(report.refusal)

    def truncate(self) -> None:
        data = self.disk.data(self.summary)
        if data:
            self.disk.place(self.summary, data[: self.draw.randrange(len(data))])

    def restore_from_a_backup(self) -> None:
        if self.backups:
            self._place(self.draw.choice(self.backups))
            sometimes("a summary came from a backup")

    def copy_from_another_replica(self) -> None:
        """With all that it has of the points: jobs count alike."""
        found = self._decoded()
        if found is not None:
            head, table = found
            self._write(head, table)  # in other bytes

    def name_fewer_files(self) -> None:
        """The summary hides what points need, and is valid by itself."""
        found = self._decoded()
        if found is None:
            return
        head, table = found
        paths = table["path"].to_pylist()
        hidden = self.draw.sample(paths, min(len(paths), self.draw.randint(1, 6)))
        kept = [row for row, path in enumerate(paths) if path not in hidden]
        self._write(head, table.take(kept))
        sometimes("a summary named fewer files than points need")

    def name_other_points(self) -> None:
        """The summary states of points what a listing shows, and the files of others."""
        found = self._decoded()
        if found is None:
            return
        head, table = found
        points = head["points"]
        self.draw.shuffle(points)
        for point in points:
            point[2] = self._mark(point[0]) or point[2]
        self._write(head, table)

    def _complete(self) -> None:
        if self.goes_back and self.number > 3 and self.draw.random() < 0.4:
            self.job.go_back(self.draw.randint(self.number - 3, self.number - 1))
        self.number += 1
        self.job.complete(self.number, merged=self.merges)
        if self.number > 1 and not self.goes_back:
            self.job.subsume(self.number - 1)

    def _request(self) -> SyncRequest:
        packs = self.draw.random() < self.packs
        return SyncRequest(
            self.job.root,
            TARGET_ROOT,
            paths="absolute" if self.packs else "relative",
            keep=Retention(last=self.keep),
            packing=PackOptions("on" if packs else "off"),
            execution=ExecutionOptions(runner="inline"),
            subsumption_wait=0.0,
        )

    def _plan(self, request: SyncRequest, state: State) -> Any:
        """What a sync would do: the paths that it copies, keeps and deletes."""
        disk = type(self.disk)(state, self.disk.clock, self.disk.links)
        with running_on(disk):
            plan = diff(request).plan
        return sorted((each.action, each.target, each.reason) for each in plan.actions)

    def _without_summary(self) -> None:
        if self.disk.is_file(self.summary):
            self.disk.remove(self.summary)

    def _back_up(self) -> None:
        found = self._file(self.summary)
        if found is not None and self.draw.random() < 0.3:
            self.backups.append(found)

    def _file(self, place: str) -> File | None:
        return self.disk.snapshot().get(uri.parent(place), {}).get(uri.name(place))

    def _place(self, file: File) -> None:
        """Put a summary back, with the time that it had."""
        now, self.disk.clock.now = self.disk.clock.now, file.modified
        self.disk.place(self.summary, file.data)
        self.disk.clock.now = now

    def _decoded(self) -> tuple[dict[str, Any], Any] | None:
        data = self.disk.data(self.summary)
        head, _, body = (data or b"").partition(b"\n")
        try:
            return json.loads(head), parquet.read_table(pa.BufferReader(body))
        except (ValueError, pa.ArrowInvalid):
            return None

    def _write(self, head: Mapping[str, Any], table: Any) -> None:
        body = io.BytesIO()
        parquet.write_table(table, body, write_page_checksum=True)
        self.disk.place(self.summary, json.dumps(head).encode() + b"\n" + body.getvalue())

    def _mark(self, name: str) -> list[Any] | None:
        own = {each.name: each for each in self.disk.list(self.own)}
        metadata = {each.name: each for each in self.disk.list(f"{self.replica}/{name}")}
        directory = self.disk.stat(f"{self.replica}/{name}")
        if directory is None:
            return None
        mark = point_summary.mark_of(directory, own, metadata.get("_metadata"))
        return None if mark is None else list(mark)

    def _there(self) -> set[str]:
        return {*self.disk.snapshot().get(self.own, {})}

    def _committed(self) -> dict[int, bytes]:
        there = files(self.disk.snapshot(), self.replica)
        return {
            int(uri.name(uri.parent(path)).removeprefix("chk-")): data
            for path, data in there.items()
            if path.endswith("/_metadata")
        }

    def _needs(self) -> dict[int, list[checker.Need]]:
        return {
            number: checker.needs_of(
                data, Path(f"{self.replica}/chk-{number}/_metadata".removeprefix("file:"))
            )
            for number, data in self._committed().items()
        }

    def _judge(self) -> None:
        """Each committed point has all files that it needs, with the bytes of the source."""
        there = files(self.disk.snapshot(), self.replica)
        for number, needs in self._needs().items():
            for source, copy in zip(self.job.references[number], needs, strict=True):
                found = there.get(f"file:{copy.path}")
                if found is None:
                    self.wrong.append(f"chk-{number} lacks {copy.path}")
                elif not checker.is_copy(source, copy, self.job.bytes[source.path], found):
                    self.wrong.append(f"chk-{number}: other bytes in {copy.path}")

    def _judge_whole(self) -> None:
        """After a sync: the points that are to be kept, and no file that none of them needs."""
        numbers = sorted(self._committed(), reverse=True)
        expected = [*range(self.number, max(0, self.number - self.keep), -1)]
        if numbers != expected:
            self.wrong.append(f"{numbers} are kept, not {expected}")


ACTIONS: tuple[Callable[[Points], object], ...] = (
    *[Points.complete_and_sync] * 6,
    *[Points.sync_and_die] * 2,
    *[Points.sync_by_an_earlier_version] * 2,
    *[Points.respell] * 2,
    Points.unpack,
    Points.sweep,
    Points.replace_metadata,
    Points.truncate,
    Points.restore_from_a_backup,
    Points.copy_from_another_replica,
    Points.name_fewer_files,
    Points.name_fewer_files,
    Points.name_other_points,
)


@pytest.mark.parametrize("seeds", parts.seeds(6, 400, 6, portions=8))
def test_no_summary_loses_a_file_that_a_point_needs(seeds: range) -> None:
    for seed in going_on(seeds, demanded_of(SUITE, "")):
        assert Points(seed).play() == []
