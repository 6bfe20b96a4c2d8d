"""A simulated disk with a job at the source and its replica: stages to be set, runs to be
interrupted, and a judge of both.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from cpreplicate.core import clock, uri
from cpreplicate.core.packs import PackOptions
from cpreplicate.errors import CpreplicateError
from cpreplicate.operations.sync import sync as sync_operation
from cpreplicate.operations.sync.diff import diff
from cpreplicate.operations.sync.report import Report
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.verify import verify
from cpreplicate.protocol import lease
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import Side
from cpreplicate.storage.base import TEMPORARY, Storage
from tests.support import checker
from tests.support.jobs import NEXT_JOB
from tests.support.registry import serving
from tests.support.simulated import (
    EPOCH,
    READS,
    Clock,
    Hook,
    Moment,
    Point,
    Recorder,
    SimulatedDisk,
    SimulatedJob,
    State,
    files,
)
from tests.support.untimed import hold_threads

TARGET_ROOT = "file:/dcB"
LATER = 2 * lease.SECONDS  # by then the lease of a run that died has expired
UNFINISHED = re.compile(rf"/{re.escape(TEMPORARY)}[^/]*$|/\.cpreplicate/lease")
LEFTOVER = re.compile(
    rf"(.*/)?{re.escape(TEMPORARY)}[^/]*"  # a file that was not whole
    r"|(shared|taskowned|foreign|packed|chk-\d+)/.*(?<!/_metadata)"  # an orphan
    r"|\.cpreplicate/(lease.*|chk-\d+\.(parquet|json)|copied-.*|late\.json)"
)


class ClockOf(clock.Clock):
    """The clock of a disk, which is all the time that there is."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self._disk = disk

    def monotonic(self) -> float:
        return self._disk.clock()


def served(disk: SimulatedDisk) -> Storage:
    """What is served of a disk: itself, unless it is far away (`asking`)."""
    return disk


@contextlib.contextmanager
def running_on(disk: SimulatedDisk) -> Iterator[None]:
    """Local files are those of this disk, and the time is its clock's.

    The threads that wait for a real time make no call: a pause of the machine is none of the disk.
    """
    real_time, machine = time.time, clock.MACHINE
    time.time, clock.MACHINE = disk.clock, ClockOf(disk)
    try:
        with serving("file", served(disk)), pytest.MonkeyPatch.context() as patch:
            hold_threads(patch)
            yield
    finally:
        time.time, clock.MACHINE = real_time, machine


def at_source(state: State, later: State) -> State:
    """A state of the target, with what the source has later."""
    of_source = {path: each for path, each in later.items() if not uri.within(path, TARGET_ROOT)}
    return {
        **of_source,
        **{path: each for path, each in state.items() if uri.within(path, TARGET_ROOT)},
    }


def silent(_line: str) -> None:
    """Said to nobody."""


@dataclass(frozen=True)
class Scenario:
    """What is on the disk, and a run there that is to be interrupted.

    `is_idle` returns whether a report means that there was nothing to do, `leftover` which paths a
    death may leave for ever. Only the lease of the `earlier` replica may be taken. Of a run whose
    job goes on meanwhile, `later` is what the source has from its file number `at` on.
    """

    start: State
    job: SimulatedJob
    run: Callable[[], Any]
    now: float = EPOCH
    links: bool = False
    is_idle: Callable[[Any], bool] = lambda report: report.plan.empty
    leftover: re.Pattern[str] = LEFTOVER
    earlier: str | None = None
    later: State | None = None
    at: int = 0

    @property
    def replica(self) -> str:
        return f"{TARGET_ROOT}/{self.job.job}"

    def gone_on(self, state: State) -> State:
        """A state of the target, with what the source has in the end."""
        return state if self.later is None else at_source(state, self.later)

    def hook(self, disk: SimulatedDisk, recorder: Recorder) -> Hook:
        """Record each step, and let the job go on before the run opens one of its files."""
        opened = itertools.count(1)

        def go_on(moment: Moment, verb: str, place: str) -> None:
            is_read = (moment, verb) == ("before", "open") and uri.within(place, self.job.root)
            if is_read and next(opened) == self.at:
                disk.become(self.gone_on(disk.snapshot()))
            recorder(moment, verb, place)

        return go_on

    def disk(self, state: State, later: float = 0.0) -> SimulatedDisk:
        return SimulatedDisk(state, Clock(self.now + later), self.links)


@dataclass
class Findings:
    """What came of dying at every point: how many there were, how many states were left, and what
    was wrong with them.
    """

    points: list[Point] = field(default_factory=list)
    states: list[State] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    outcome: object = None


def examine(scenario: Scenario, again: int = 1) -> Findings:
    """Die at every point of the scenario's run.

    Run again from each state whose number `again` divides; from none if it is 0.
    """
    findings, end = record(scenario)
    judge = Judge(scenario, end)
    findings.wrong += judge.trace(findings)
    for number, state in enumerate(findings.states):
        at = next(point for point in findings.points if point.state == number)
        is_run_again = again and number % again == 0
        wrong = judge.state(state) + (judge.run_again(state) if is_run_again else [])
        findings.wrong += [f"died {at.moment} {at.verb} {at.uri}: {each}" for each in wrong]
    return findings


def record(scenario: Scenario) -> tuple[Findings, State]:
    """All points of the run and the states between them.

    The last state is that of a run which nothing interrupted.
    """
    disk = scenario.disk(scenario.start)
    recorder = Recorder(disk)
    disk.hook = scenario.hook(disk, recorder)
    wrong, outcome = [], None
    with running_on(disk):
        try:
            outcome = scenario.run()
        except (
            CpreplicateError,
            OSError,
            LookupError,
        ) as error:  # a broken protocol may end like that
            wrong = [f"the run failed: {error!r}"]
    return Findings(recorder.points, recorder.states, wrong, outcome), disk.snapshot()


def record_run(disk: SimulatedDisk, run: Callable[[], object]) -> list[State]:
    """The distinct states through which a run takes a disk."""
    recorder = Recorder(disk)
    with running_on(disk):
        run()
    return recorder.states


class Judge:
    """Knows what may be on the disk of a scenario at any moment, and what must in the end."""

    def __init__(self, scenario: Scenario, end: State) -> None:
        self.scenario, self.replica = scenario, scenario.replica
        self.complete = files(end, self.replica)
        self._before = files(scenario.start, self.replica)
        self._outside = [
            self._outside_of(each) for each in (scenario.start, scenario.gone_on(scenario.start))
        ]
        self._had_one = bool(self._committed(self._before))
        self._verified: dict[object, bool] = {}

    def trace(self, findings: Findings) -> list[str]:
        """Return the steps that would change anything outside the replica.

        Also return where the newest checkpoint went back to an older one.
        """
        changed = {point.uri for point in findings.points if point.verb not in READS}
        strange = [
            place
            for place in changed
            if place != self.replica
            and not place.startswith(f"{self.replica}/")
            and not self._is_lease(place)
        ]
        newest = [
            max(self._committed(files(state, self.replica)), default=-1)
            for state in findings.states
        ]
        back = [
            f"the newest went back from {a} to {b}" for a, b in itertools.pairwise(newest) if b < a
        ]
        return [f"changed outside the replica: {place}" for place in strange] + back

    def state(self, state: State) -> list[str]:
        """What must not be, whatever instant it is."""
        there = files(state, self.replica)
        committed = self._committed(there)
        wrong = ["no checkpoint is committed any more"] if self._had_one and not committed else []
        wrong += (
            []
            if self._outside_of(state) in self._outside
            else ["something outside the replica changed"]
        )
        wrong += [
            f"neither old nor new: {path}"
            for path, data in there.items()
            if not self._is_known(path, data)
        ]
        for number, path in committed.items():
            wrong += self._checkpoint(number, path, there) + self._disagreement(
                state, number, path, there
            )
        return wrong

    def run_again(self, state: State) -> list[str]:
        """What must not be after the same run was made again, later."""
        disk = self.scenario.disk(self.scenario.gone_on(state), LATER)
        try:
            with running_on(disk):
                self.scenario.run()
                settled = disk.snapshot()
                is_idle = self.scenario.is_idle(self.scenario.run())
        except (CpreplicateError, OSError, LookupError) as error:
            return [f"running again failed: {error!r}"]
        is_same = files(disk.snapshot()) == files(settled)
        wrong = [] if is_idle and is_same else ["a further run found something to do"]
        return wrong + [
            f"after running again: {each}"
            for each in self.state(settled) + self.incomplete(settled)
        ]

    def incomplete(self, state: State) -> list[str]:
        """What is not as a run that nothing interrupted leaves it, leftovers apart."""
        there = files(state, self.replica)
        lacking = [
            path
            for path, data in self.complete.items()
            if not _own(path) and not _is_as(path, there.get(path), data)
        ]
        more = [path for path in there if path not in self.complete and not self._is_leftover(path)]
        return [f"not as it should be: {path}" for path in lacking] + [
            f"left over: {path}" for path in more
        ]

    def _is_leftover(self, path: str) -> bool:
        return self.scenario.leftover.fullmatch(path, len(self.replica) + 1) is not None

    def _is_known(self, path: str, data: bytes) -> bool:
        is_own = _own(path) or TEMPORARY in path
        known = (self._before.get(path), self.complete.get(path))
        return (
            is_own
            or any(_is_as(path, data, other) for other in known)
            or (self.scenario.later is not None and self._is_of_the_job(path, data))
        )

    def _is_of_the_job(self, path: str, data: bytes) -> bool:
        """Whether a file is one that the checkpoint needed from which a run turned."""
        name = uri.name(path)
        originals = [
            each for place, each in self.scenario.job.bytes.items() if uri.name(place) == name
        ]
        grows = name.startswith("merged-")
        return any(each == data or (grows and each.startswith(data)) for each in originals)

    def _committed(self, there: Mapping[str, bytes]) -> dict[int, str]:
        found = re.compile(rf"{re.escape(self.replica)}/chk-(\d+)/_metadata")
        return {int(match[1]): path for path in there if (match := found.fullmatch(path))}

    def _checkpoint(self, number: int, path: str, there: Mapping[str, bytes]) -> list[str]:
        faults = _faults(path, there)
        return faults or self._other_bytes(number, path, there)

    def _other_bytes(self, number: int, path: str, there: Mapping[str, bytes]) -> list[str]:
        """References have the order of the source's, so they are compared one by one."""
        needs = checker.needs_of(there[path], Path(path.removeprefix("file:")))
        pairs = zip(self.scenario.job.references[number], needs, strict=True)
        originals = self.scenario.job.bytes
        return [
            f"other bytes: {copy.path}"
            for source, copy in pairs
            if not checker.is_copy(source, copy, originals[source.path], there[f"file:{copy.path}"])
        ]

    def _disagreement(
        self, state: State, number: int, path: str, there: Mapping[str, bytes]
    ) -> list[str]:
        """Return where the results of `verify` and the checker differ.

        It is asked once for all states that differ in unfinished files only.
        """
        asked = number, frozenset(item for item in there.items() if not UNFINISHED.search(item[0]))
        if asked not in self._verified:
            self._verified[asked] = self._verify(state, number)
        restorable = self._verified[asked]
        return (
            []
            if restorable == (not _faults(path, there))
            else [f"verify reports restorable={restorable} of chk-{number}"]
        )

    def _verify(self, state: State, number: int) -> bool:
        with running_on(self.scenario.disk(state)):
            try:
                return verify.verify(
                    self.replica, f"chk-{number}", verify.NOTHING, silent, Side()
                ).restorable
            except CpreplicateError:
                return False

    def _is_lease(self, place: str) -> bool:
        """Whether a file is the lease of the earlier replica, or one that is being written."""
        own = f"{self.scenario.earlier}/.cpreplicate"
        return place.startswith((f"{own}/lease", f"{own}/{TEMPORARY}"))

    def _outside_of(self, state: State) -> dict[str, object]:
        return {
            directory: {
                name: child
                for name, child in children.items()
                if not self._is_lease(f"{directory}/{name}")
            }
            for directory, children in state.items()
            if directory not in (TARGET_ROOT, self.replica)
            and not self._is_lease(directory)  # the fence of a run that was held up
            and not directory.startswith(f"{self.replica}/")
        }


def _own(path: str) -> bool:
    return "/.cpreplicate/" in path


def _is_as(path: str, data: bytes | None, other: bytes | None) -> bool:
    """Whether a file is as another run leaves it, whatever the names of packs.

    What a pack holds is judged by the references to it.
    """
    if data == other or "/packed/" in path:
        return True
    if data is None or other is None or not path.endswith("/_metadata"):
        return False
    try:
        return _without_packs(path, data) == _without_packs(path, other)
    except (AssertionError, LookupError, ValueError):
        return False


def _without_packs(path: str, data: bytes) -> list[tuple[str, int, int, str | None]]:
    """What a `_metadata` references: packed files by their logical paths and lengths."""
    return [
        ("packed", need.extent - need.position, 0, need.segment) if need.is_packed else need
        for need in checker.needs_of(data, Path(path.removeprefix("file:")))
    ]


def _faults(path: str, there: Mapping[str, bytes]) -> list[str]:
    def length_of(local: str) -> int | None:
        data = there.get(f"file:{local}")
        return None if data is None else len(data)

    try:
        return checker.faults_of(there[path], Path(path.removeprefix("file:")), length_of)
    except (AssertionError, LookupError, ValueError) as error:
        return [f"{path}: not understood: {error!r}"]


class Stage:
    """A job at the source and its replica, set up step by step until the run that is to be
    interrupted.
    """

    def __init__(
        self,
        draw: Random,
        keep: int = 1,
        foreign: bool = False,
        merged: bool = False,
        packing: PackOptions | None = None,
    ) -> None:
        self.draw = draw
        self.disk = SimulatedDisk(links=draw.random() < 0.5)
        self.disk.place(f"{TARGET_ROOT}/another/file", b"of another job")
        self.job = SimulatedJob(self.disk, draw)
        self.last = 0
        self.earlier: str | None = None
        self._kinds = {"foreign": foreign, "merged": merged}
        self._options = {
            "keep": keep,
            "paths": draw.choice(["auto", "relative", "absolute"]),
            "packing": packing or PackOptions("off", 1 << 20),
        }

    @property
    def replica(self) -> str:
        return f"{TARGET_ROOT}/{self.job.job}"

    def restart(self) -> Stage:
        """Another job starts from the newest checkpoint, and references its files."""
        self.earlier = self.replica
        self.job = self.job.restored(NEXT_JOB)
        return self

    def request(self, **options: Any) -> SyncRequest:
        given = {**self._options, **options}
        return SyncRequest(
            self.job.root,
            TARGET_ROOT,
            execution=ExecutionOptions(runner="inline", parallelism=1),
            subsumption_wait=0.0,
            **given,
        )

    def complete(self) -> Stage:
        """The job completes its next checkpoint and subsumes the one before."""
        self.last += self.draw.randint(1, 9)
        self.job.complete(self.last, **self._kinds)
        if len(self.job.references) > 1:
            self.job.subsume(sorted(self.job.references)[-2])
        return self

    def sync(self, **options: Any) -> Stage:
        with running_on(self.disk):
            sync_operation.sync(self.request(**options), silent)
        return self

    def diff(self) -> Report:
        """The plan of the next sync."""
        with running_on(self.disk):
            return diff(self.request())

    def die(self, leaving: str = "") -> Stage:
        """A sync dies at some point, or at one when a file with such a name was there.

        The lease that it leaves expires.
        """
        states = [
            state
            for state in record(self.sync_scenario())[0].states
            if any(leaving in path for path in files(state))
        ]
        self.disk.become(self.draw.choice(states))
        self.disk.clock.now += LATER
        return self

    def sync_scenario(self, **options: Any) -> Scenario:
        """The next sync is the one to be interrupted."""
        request = self.request(**options)
        return self.scenario(lambda: sync_operation.sync(request, silent))

    def turning_scenario(self) -> Scenario | None:
        """The job goes on amid the next sync, which turns. None if it turns nowhere."""
        start = self.sync_scenario(look_every=math.inf)
        self.complete()
        later = self.disk.snapshot()
        for at in self.draw.sample(range(2, 10), 8):
            scenario = replace(start, later=later, at=at)
            outcome = record(scenario)[0].outcome
            if isinstance(outcome, Report) and outcome.turned_from:
                return scenario
        return None

    def scenario(self, run: Callable[[], object], **more: Any) -> Scenario:
        """Any run is."""
        disk = self.disk
        return Scenario(
            disk.snapshot(), self.job, run, disk.clock.now, disk.links, earlier=self.earlier, **more
        )
