"""Any call to a storage may fail: passing faults are outlived, a lasting one ends in its exit code
and deletes nothing.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import re
from collections import Counter
from collections.abc import Callable, Iterator
from random import Random
from typing import TypeVar

import pytest

from cpreplicate.errors import CpreplicateError, exit_code_of
from cpreplicate.runners import inline
from cpreplicate.storage import Transient
from cpreplicate.storage.wrappers import retry
from cpreplicate.storage.wrappers.base import StorageWrapper
from cpreplicate.storage.wrappers.retry import Retrying
from tests.support import parts
from tests.support.reached import LOST, lost, sometimes
from tests.support.registry import serving
from tests.support.simulated import READS, SimulatedDisk, files
from tests.support.staging import LATER, Judge, Scenario, Stage, record, running_on

T = TypeVar("T")
STAGES = 40
SHARE = 0.05
ENDINGS = {0: "done", 1: "OSError", 3: "CopyFailed", 7: "Transient", 10: "NotThere"}


class Unreliable(StorageWrapper):
    """Each call may be lost on its way, or its answer on the way back; the first that is aimed at
    is lost in any case, so that no loss which is demanded depends on luck.
    """

    def __init__(self, disk: SimulatedDisk, draw: Random, aim: tuple[str, str, str]) -> None:
        super().__init__(disk)
        self._draw = draw
        self._aim: tuple[str, str, str] | None = aim
        self.faults = 0

    def carry_out(self, verb: str, uri: str, call: Callable[[], T]) -> T:  # whatever verb it is
        what = self._what_is_lost(verb, uri)
        found = call() if what != "call" else None
        if what is not None:
            self.faults += 1
            lost(what, verb, uri)
            raise Transient(errno.EIO, f"the {what} was lost", uri)
        return found  # type: ignore[return-value]  # it was called

    def _what_is_lost(self, verb: str, uri: str) -> str | None:
        is_lost = self._draw.random() < SHARE
        what = "answer" if self._draw.random() < 0.5 else "call"
        if self._aim is not None:
            aimed, aimed_verb, place = self._aim
            if verb == aimed_verb and re.search(place, uri):
                self._aim = None
                return aimed
        return what if is_lost else None


class Broken(StorageWrapper):
    """One call, by its verb and place, always fails."""

    def __init__(self, disk: SimulatedDisk, call: tuple[str, str], error: OSError) -> None:
        super().__init__(disk)
        self._call, self._error = call, error

    def before(self, verb: str, uri: str) -> None:
        if (verb, _any_run(uri)) == self._call:
            raise self._error


class Calls(StorageWrapper):
    """Keeps which calls are made."""

    def __init__(self, disk: SimulatedDisk) -> None:
        super().__init__(disk)
        self.made: dict[tuple[str, str], None] = {}

    def before(self, verb: str, uri: str) -> None:
        self.made[verb, _any_run(uri)] = None


def _any_run(uri: str) -> str:
    """A place without what is different in each run: the name of its journal."""
    return re.sub(r"/copied-.*-(\d+)\.parquet", r"/copied-\1.parquet", uri)


@functools.cache
def _set_up(number: int) -> tuple[Scenario, Judge]:
    draw = Random(f"faults {number}")
    stage = Stage(
        draw, keep=draw.choice([1, 2]), foreign=draw.random() < 0.5, merged=draw.random() < 0.5
    ).complete()
    if draw.random() < 0.8:
        stage.sync().complete()
    scenario = stage.sync_scenario()
    return scenario, Judge(scenario, record(scenario)[1])


@contextlib.contextmanager
def _reached_through(disk: SimulatedDisk, storage: StorageWrapper) -> Iterator[None]:
    with (
        running_on(disk),
        serving("file", storage),
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(inline, "PAUSE", 0.0)
        patch.setattr(retry, "PAUSES", retry.Pauses(first=0.0, longest=0.0))
        yield


def _steps_at_source(disk: SimulatedDisk) -> list[tuple[str, str]]:
    """What is written at the source from now on."""
    written: list[tuple[str, str]] = []

    def note(_moment: str, verb: str, uri: str) -> None:
        if uri.startswith("file:/dcA") and verb not in READS:
            written.append((verb, uri))

    disk.hook = note
    return written


@pytest.mark.parametrize("seeds", parts.seeds(60, 1_000, 470, portions=1))
def test_faults_that_pass_are_outlived(seeds):
    faults, aims = 0, list(LOST.values())
    for seed in seeds:
        scenario, judge = _set_up(seed % STAGES)
        disk = scenario.disk(scenario.start)
        written = _steps_at_source(disk)
        unreliable = Unreliable(disk, Random(seed), aims[seed % len(aims)])
        with _reached_through(disk, Retrying(unreliable, 60.0)):
            report = scenario.run()
        assert report.committed, seed
        assert_catches_up(scenario, disk)
        assert judge.state(disk.snapshot()) + judge.incomplete(disk.snapshot()) == [], seed
        assert written == []
        faults += unreliable.faults
    assert faults > 2 * len(seeds)


@pytest.mark.parametrize("numbers", parts.seeds(2, STAGES, 18, portions=1))
def test_a_fault_that_lasts_ends_in_its_exit_code_and_deletes_nothing(numbers):
    ended: Counter[int] = Counter()
    for number in numbers:
        scenario, judge = _set_up(number)
        before = _own_apart(files(scenario.start, scenario.replica))
        for call in _calls_of(scenario):
            error = _an_error(call[0], Random(f"{number} {call}"))
            disk = scenario.disk(scenario.start)
            written = _steps_at_source(disk)
            with _reached_through(disk, Broken(disk, call, error)):
                code = _run(scenario)
            case = f"{number}: {call} {error!r} ended with {code}"
            assert code in _allowed(call, error, scenario), case
            after = _own_apart(files(disk.snapshot(), scenario.replica))
            was_done = call[0] == "delete" and call[1].endswith("/lease")  # the run's last call
            assert code == 0 or was_done or before.keys() <= after.keys(), case
            assert judge.state(disk.snapshot()) == [], case
            assert written == []
            ended[code] += 1
            sometimes(f"a lasting fault ended with {ENDINGS.get(code, 'another code')}")
            assert_catches_up(scenario, disk, case)
            assert judge.incomplete(disk.snapshot()) == [], case
    assert min(ended[code] for code in ENDINGS) > len(numbers) // 2, ended


ROUNDS = 5


def assert_catches_up(scenario: Scenario, disk: SimulatedDisk, case: str = "") -> None:
    """Once the faults have stopped, and the lease of a run that died has expired, the replica is
    complete within five rounds.
    """
    disk.clock.pass_(LATER)
    with _reached_through(disk, Calls(disk)):
        outcomes: list[object] = []
        for _ in range(ROUNDS):
            try:
                outcomes.append(scenario.run())
            except (CpreplicateError, OSError) as error:
                outcomes.append(error)
            else:
                if scenario.is_idle(outcomes[-1]):
                    return
    raise AssertionError(f"{case}: it did not catch up: {outcomes}")


def _calls_of(scenario: Scenario) -> list[tuple[str, str]]:
    disk = scenario.disk(scenario.start)
    calls = Calls(disk)
    with _reached_through(disk, calls):
        scenario.run()
    return list(calls.made)


def _an_error(verb: str, draw: Random) -> OSError:
    """What may last; only `open` raises if nothing is there."""
    gone = [FileNotFoundError(errno.ENOENT, "no such file")] if verb == "open" else []
    return draw.choice([
        PermissionError(errno.EACCES, "permission denied"), OSError(errno.ENOSPC, "no space left"),
        Transient(errno.EIO, "the connection was lost"), *gone,
    ])  # fmt: skip


def _run(scenario: Scenario) -> int:
    """The exit code that the command would have; 0 for a warning too."""
    try:
        report = scenario.run()
    except (CpreplicateError, OSError) as error:
        return exit_code_of(error)
    assert report.committed
    return 0


def _allowed(call: tuple[str, str], error: OSError, scenario: Scenario) -> set[int]:
    """The exit codes for a call that fails.

    0 where it is made after the commit, or its result can be done without.
    """
    verb, uri = call
    is_gone = isinstance(error, FileNotFoundError)
    failed = exit_code_of(error)
    is_own, is_metadata = "/.cpreplicate/" in uri, uri.endswith("/_metadata")
    if not uri.startswith(scenario.replica):
        # the marker that the source would have were it a replica, and our lease were it the same
        # directory
        if is_own:
            return {0} if is_gone else {failed}
        return {10, 12} if is_gone else {3} if verb == "open" and not is_metadata else {failed}
    if uri.endswith("/lease"):
        # by when it is looked at: for a copy of a merged file, the commit, or after it
        return {
            0,
            failed,
            3,
            11,
        }
    if verb in ("delete", "rmdir", "move"):
        return {0, failed}
    if verb == "stat" and uri == scenario.replica:
        return {0, failed}  # how much room there is need not be known
    if verb == "put" and "/.cpreplicate/.cpreplicate-tmp-" in uri:
        return {0}  # the room that is kept for the journal
    if verb == "put" and not is_own and not is_metadata:
        return {3}
    if is_gone and is_own:
        return {0, 6}  # without its marker or record nothing shows that it is cpreplicate's
    if verb == "stat" and is_metadata and not is_gone:
        return {0}  # asked before the deletes only: whether a job completed a checkpoint meanwhile
    if is_gone and is_metadata:
        return {0, 1, 7, 10}  # 7: it is listed, and opening it answers that it is not there
    return {0, 1, 10} if is_gone else {failed}


def _own_apart(found: dict[str, bytes]) -> dict[str, bytes]:
    return {path: data for path, data in found.items() if "/.cpreplicate" not in path}
