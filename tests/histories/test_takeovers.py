"""Each command is stopped before each of its changes; another one takes its lease over and ends,
and then the first goes on: it changes nothing any more.
"""

from __future__ import annotations

import functools
import itertools
import re
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, TypeAlias

import pytest

from cpreplicate.core.packs import PackOptions
from cpreplicate.core.plan import Cap
from cpreplicate.core.positions.offsets import as_given
from cpreplicate.errors import LeaseHeld, TargetGone
from cpreplicate.operations.handover import promote, unseal
from cpreplicate.operations.kafka import rebase
from cpreplicate.operations.sync import put_off, sync
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.upkeep import relocate, removal, sweep
from cpreplicate.protocol import held, lease
from cpreplicate.storage import Side
from tests.histories.test_derived import INLINE, REPLICA, SOURCE, History
from tests.support import checker, parts
from tests.support.simulated import Moment, SimulatedDisk, State, files
from tests.support.staging import LATER, running_on, silent

CHANGES = ("rename", "delete", "rmdir")
COMMITTED = re.compile(r".*/(chk-\d+|rebased/[^/]+)/_metadata")
# what is fenced even after the last look at the lease; see docs/architecture.md
FENCED = re.compile(rf"{COMMITTED.pattern}|.*/\.cpreplicate-tmp-withdrawn-[^/]+")
SEAL, LEASE = f"{REPLICA}/.cpreplicate/sealed", f"{REPLICA}/.cpreplicate/lease"
MARKER = f"{REPLICA}/.cpreplicate/replica.json"
PACKED = PackOptions("on", 60)


class Stage(NamedTuple):
    """A replica that each command has something to change in."""

    state: State
    now: float
    put_off: tuple[str, ...]
    dropped: tuple[str, ...]


Run: TypeAlias = Callable[[Stage], object]


def request(**options: Any) -> SyncRequest:
    return SyncRequest(SOURCE, "file:/dcB", execution=INLINE, subsumption_wait=0.0, **options)


def put_off_deletes(stage: Stage) -> object:
    backlog = put_off.Backlog(request(), REPLICA, list(stage.put_off), list(stage.dropped))
    backlog.work_off(float("inf"), silent)
    return backlog


def sweeping(_stage: Stage) -> object:
    asked = sweep.SweepRequest(REPLICA, 0.0, Cap(1, is_share=True), execution=INLINE)
    return sweep.sweep(asked, silent)


def relocating(_stage: Stage) -> object:
    return relocate.relocate(relocate.RelocateRequest(REPLICA, "absolute"), silent)


def unpacking(_stage: Stage) -> object:
    asked = relocate.RelocateRequest(REPLICA, "relative", unpack=True, execution=INLINE)
    return relocate.relocate(asked, silent)


def rebasing(_stage: Stage) -> object:
    choice = as_given({("orders", 0): 7})
    return rebase.rebase(rebase.RebaseRequest(REPLICA, name="new", choice=choice), silent)


def removing(_stage: Stage) -> object:
    asked = removal.RemovalRequest(REPLICA, execution=INLINE)
    return removal.remove(asked, lambda _replica, _state: None, silent)


COMMANDS: dict[str, Run] = {
    "sync": lambda _stage: sync.sync(request(), silent),
    "put-off deletes": put_off_deletes,
    "sweep": sweeping,
    "relocate": relocating,
    "unpack": unpacking,
    "promote": lambda _stage: promote.promote(promote.PromoteRequest(REPLICA), silent),
    "rebase": rebasing,
    "forget": lambda _stage: rebase.forget(REPLICA, "kept", Side(), False, 0.0, silent),
    "remove": removing,
    "unseal": lambda _stage: unseal.unseal(unseal.UnsealRequest(REPLICA, None)),
}


@functools.cache
def stage(has_derived: bool, is_sealed: bool) -> Stage:
    """A replica with packs, a derived checkpoint or none, and files of a checkpoint that is gone.

    The source has a later checkpoint.
    """
    history = History(Random("takeovers"))
    with running_on(history.disk):
        for _ in range(2):
            history.complete()
            report = sync.sync(request(packing=PACKED, async_deletes=True), silent)
        if has_derived:
            choice = as_given({("orders", 1): 5})
            rebase.rebase(rebase.RebaseRequest(REPLICA, name="kept", choice=choice), silent)
        if is_sealed:
            promote.promote(promote.PromoteRequest(REPLICA), silent)
    history.complete()
    state, now = history.disk.snapshot(), history.disk.clock()
    return Stage(state, now, report.undeleted, report.plan.dropped)


def stage_of(*commands: str) -> Stage:
    has_derived = {"unpack", "remove"}.isdisjoint(commands)
    return stage(has_derived, "unseal" in commands)


class Stop(NamedTuple):
    """Where the first command is stopped: before its step of this number.

    `is_late`: after its last look at the lease, else before that.
    """

    step: int
    is_late: bool


def stops(command: str, *others: str) -> list[Stop]:
    """Where a command is stopped: before each of its changes, once it has the lease."""
    disk, found = disk_of(stage_of(command, *others)), list[Stop]()
    steps = itertools.count()

    def hook(moment: Moment, verb: str, uri: str) -> None:
        if moment != "before":
            return
        number = next(steps)
        if verb in CHANGES and uri.startswith(REPLICA) and disk.is_file(LEASE):
            found.append(Stop(number, False))
            if FENCED.fullmatch(uri):
                found.append(Stop(number, True))

    disk.hook = hook
    with running_on(disk):
        COMMANDS[command](stage_of(command, *others))
    return found


def disk_of(stage: Stage) -> SimulatedDisk:
    disk = SimulatedDisk(stage.state, links=True)
    disk.clock.now = stage.now
    return disk


def is_any(_verb: str, _uri: str) -> bool:
    """Count each step."""
    return True


class TakenOver:
    """A command that stands still somewhere, until another one has taken its lease over.

    Of its steps those are numbered of which `is_step` is true.
    """

    def __init__(
        self, first: str, other: str, stop: Stop, is_step: Callable[[str, str], bool] = is_any
    ) -> None:
        self._stage = stage_of(first, other)
        self._first, self._other, self._stop = first, other, stop
        self._is_step = is_step
        self._disk, self._steps = disk_of(self._stage), 0
        self.first: object = None
        self.other: object = None
        self.then: Mapping[str, bytes] = {}

    def run(self) -> list[str]:
        """Return what is wrong at the end."""
        self._disk.hook = self._at_a_step
        with running_on(self._disk):
            self.first = self._outcome(self._first)
            self._disk.hook = lambda *_: None
            return [*self._wrong(self.then), *self._wrong(self.now), *self._changed()]

    @property
    def now(self) -> Mapping[str, bytes]:
        return files(self._disk.snapshot(), REPLICA)

    def _outcome(self, command: str) -> object:
        try:
            return COMMANDS[command](self._stage)
        except Exception as error:  # noqa: BLE001  # whatever it raises is what came of it
            return error

    def _at_a_step(self, moment: Moment, verb: str, uri: str) -> None:
        """Stop before a step, or after the one before it: a look at the lease is still to come."""
        if not self._is_step(verb, uri):
            return
        stop = self._stop
        is_here = self._steps == stop.step
        if moment == ("before" if stop.is_late else "after") and is_here:
            self._stand_still()
        self._steps += moment == "before"

    def _stand_still(self) -> None:
        self._disk.hook = lambda *_: None
        self._disk.clock.pass_(LATER)
        thread = threading.Thread(target=self._overtake)
        thread.start()
        thread.join()

    def _overtake(self) -> None:
        self.other = self._outcome(self._other)
        self.then = self.now

    def _is_of_loss(self, error: Exception) -> bool:
        """Whether an error is that of a lease that was lost, or of a replica that was removed."""
        return isinstance(error, LeaseHeld) or (
            self._other == "remove" and isinstance(error, TargetGone)
        )

    def _wrong(self, there: Mapping[str, bytes]) -> list[str]:
        """Return what the checkpoints lack that are committed."""
        return [
            fault
            for path, data in there.items()
            if COMMITTED.fullmatch(path)
            for fault in checker.faults_of(data, local(path), lambda each: length(there, each))
        ]

    def _changed(self) -> list[str]:
        """Return what the first command did after it had lost its lease."""
        if isinstance(self.first, Exception) and not self._is_of_loss(self.first):
            return [f"ended otherwise: {self.first!r}"]
        if LEASE in self.then:  # the other one did not need it
            return []
        kept = {path: data for path, data in self.then.items() if is_of_value(path)}
        now = {path: data for path, data in self.now.items() if is_of_value(path)}
        differ = sorted(
            path for path in kept.keys() | now.keys() if kept.get(path) != now.get(path)
        )
        return [f"changed after its lease was lost: {path}" for path in differ]


def is_of_value(path: str) -> bool:
    return path in (SEAL, MARKER) or COMMITTED.fullmatch(path) is not None


def local(path: str) -> Path:
    """The path of a `_metadata`, whose replica is two directories above, as the checker has it."""
    return Path(path.removeprefix("file:").replace("/rebased/", "/"))


def length(there: Mapping[str, bytes], path: str) -> int | None:
    data = there.get(f"file:{path}")
    return None if data is None else len(data)


def pairs() -> list[object]:
    main = [("unseal", "promote"), ("sync", "promote"), ("promote", "sync"), ("sweep", "sync")]
    main += [("relocate", "sync"), ("forget", "rebase"), ("unpack", "sync"), ("remove", "sync")]
    every = [
        pair
        for pair in itertools.product(COMMANDS, COMMANDS)
        # there is either a seal or not, and nothing is unpacked or removed beside a derived one
        if not ("unseal" in pair and pair[0] != "unseal")
        and not ("forget" in pair and not {"unpack", "remove"}.isdisjoint(pair))
        and pair != ("unseal", "remove")  # it refuses a sealed replica
    ]
    return [pair if pair in main else parts.rest(*pair) for pair in every]


@pytest.mark.parametrize(("first", "other"), pairs())
def test_a_command_whose_lease_was_taken_over_before_any_of_its_changes_makes_no_other(
    first, other
):
    for stop in stops(first, other):
        race = TakenOver(first, other, stop)
        wrong = race.run()
        assert wrong == [], f"{stop}: {race.first!r}; {race.other!r}"


def test_every_command_has_something_to_change():
    for command in COMMANDS:
        is_fenced = any(stop.is_late for stop in stops(command))
        assert stops(command)
        assert is_fenced == (command not in ("sweep", "put-off deletes"))


def test_a_command_that_does_not_look_at_its_lease_is_detected(monkeypatch):
    monkeypatch.setattr(lease.Lease, "check", lambda _self, _seconds=0.0: None)
    monkeypatch.setattr(held.HeldReplica, "withdraw", deleted)
    found = [TakenOver("unseal", "promote", stop).run() for stop in stops("unseal", "promote")]
    assert any(found)


def deleted(replica: held.HeldReplica, path: str, _keeps_aside: bool = False) -> bool:
    return replica.storage.delete(replica.uri_of(path))
