"""Histories of a replica with derived checkpoints: what they need stays, whatever dies when.

The model remembers which positions each derived checkpoint must hold; the bytes on the disk decide.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import pytest

from cpreplicate.core.packs import PackOptions
from cpreplicate.core.plan import Cap
from cpreplicate.core.positions.offsets import as_given
from cpreplicate.core.restore import PathsMode
from cpreplicate.errors import CpreplicateError, Refused
from cpreplicate.operations.kafka import rebase
from cpreplicate.operations.kafka.positions import positions_of
from cpreplicate.operations.sync import sync
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.upkeep import relocate, sweep
from cpreplicate.operations.verify.verify import ALL, verify
from cpreplicate.protocol.source import read_metadata
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import Side
from tests.support import kafka_states as written
from tests.support import parts
from tests.support.encoder import (
    File,
    Incremental,
    OperatorEntry,
    RelativeFile,
    Stream,
    Subtask,
    Tree,
    encode,
)
from tests.support.jobs import JOB
from tests.support.kafka_jobs import inline, source_operator, subtask
from tests.support.kafka_states import Split
from tests.support.simulated import Moment, SimulatedDisk, files
from tests.support.staging import running_on, silent

SOURCE, REPLICA = f"file:/dcA/{JOB}", f"file:/dcB/{JOB}"
INLINE = ExecutionOptions(runner="inline", parallelism=1)
STEPS = 14
PARTITIONS = 3
DAYS = 3 * 24 * 3600.0


class Crash(BaseException):
    """The process is killed: no step that follows takes effect."""


@dataclass
class History:
    """A job, its replica, and what the derived checkpoints in it must hold, by name."""

    draw: Random
    disk: SimulatedDisk = field(default_factory=SimulatedDisk)
    number: int = 0
    shared: list[str] = field(default_factory=list)
    derived: dict[str, dict[int, int]] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    made: int = 0

    def complete(self) -> None:
        """Let the job complete a checkpoint, whose Kafka state may be in a file."""
        self.number += 1
        self.shared = [each for each in self.shared if self.draw.random() < 0.6]
        for _ in range(self.draw.randint(1, 2)):
            place = f"{SOURCE}/shared/{self.draw.getrandbits(64):016x}"
            self.disk.place(place, self.draw.randbytes(self.draw.randint(1, 90)))
            self.shared.append(place)
        splits = [Split("orders", each, self.number * 1000 + each) for each in range(PARTITIONS)]
        states = written.stream({written.READERS: [split.element for split in splits]})
        place = f"{SOURCE}/chk-{self.number}"
        delegate: Stream = inline(states.data)
        if self.draw.random() < 0.7:
            self.disk.place(f"{place}/state", states.data)
            delegate = RelativeFile("state", len(states.data))
        keyed = Incremental(
            11,
            self.number,
            "backend",
            (0, 127),
            1,
            None,
            tuple(
                (each[-8:], File(each, len(self.disk.data(each) or b""))) for each in self.shared
            ),
            (),
        )
        operators = (
            OperatorEntry(bytes(16), 1, 128, (Subtask(0, keyed=keyed),)),
            source_operator([subtask(0, states, delegate)], written.coordinator(3, splits)),
        )
        self.disk.place(f"{place}/_metadata", bytes(encode(Tree(6, operators, self.number)).data))

    def step(self) -> None:
        """Do one thing, which may die at any of its steps."""
        kind = self.draw.choice(
            ["complete", "sync", "sync", "rebase", "rebase", "forget", "sweep", "relocate"]
        )
        if kind == "complete" or not self.number:
            self.complete()
            return
        run = {
            "sync": self.sync,
            "rebase": self.rebase,
            "forget": self.forget,
            "sweep": self.sweep,
            "relocate": self.relocate,
        }[kind]
        self.disk.clock.pass_(60.0)
        dies_at = self.draw.randint(1, 90) if self.draw.random() < 0.4 else 0
        before = files(self.disk.snapshot(), SOURCE)
        died = self._run(run, dies_at)
        self.log.append(f"{kind}{' died' if died else ''}")
        assert files(self.disk.snapshot(), SOURCE) == before
        self.check()

    def _run(self, run: Callable[[], None], dies_at: int) -> bool:
        """Run an operation; return whether it was killed, at its step `dies_at`."""
        taken = 0

        def hook(_moment: Moment, _verb: str, _place: str) -> None:
            nonlocal taken
            taken += 1
            if dies_at and taken >= dies_at:
                raise Crash

        self.disk.hook = hook
        try:
            run()
        except Crash:
            self.disk.clock.pass_(600.0)  # its lease is over
            return True
        except CpreplicateError as error:
            self.log.append(f"refused: {error}")
        finally:
            self.disk.hook = lambda *_: None
        return False

    def sync(self) -> None:
        pack = PackOptions("on", 60) if self.draw.random() < 0.3 else PackOptions()
        sync.sync(SyncRequest(SOURCE, "file:/dcB", execution=INLINE, packing=pack), silent)

    def rebase(self) -> None:
        name = f"d{len(self.derived)}-{self.draw.getrandbits(32):08x}"
        moved = {each: self.draw.randrange(1 << 40) for each in (0, 2)}
        given = as_given({("orders", each): offset for each, offset in moved.items()})
        # written down before it is known: a run that dies may have committed it
        held = self.held(self.newest())
        self.derived[f"rebased/{name}"] = {**held, **moved}
        request = rebase.RebaseRequest(REPLICA, name=name, choice=given)
        rebase.rebase(request, silent)
        self.made += 1

    def forget(self) -> None:
        there = [name for name in self.derived if self.is_there(name)]
        if there:
            rebase.forget(REPLICA, self.draw.choice(there), Side(), False, 0.0, silent)

    def sweep(self) -> None:
        self.disk.clock.pass_(DAYS)
        request = sweep.SweepRequest(REPLICA, max_delete=Cap(1, is_share=True), execution=INLINE)
        sweep.sweep(request, silent)

    def relocate(self) -> None:
        paths: PathsMode = "absolute" if self.draw.random() < 0.5 else "relative"
        relocate.relocate(relocate.RelocateRequest(REPLICA, paths), silent)

    def newest(self) -> str:
        committed = re.compile(rf"{REPLICA}/(chk-\d+)/_metadata")
        found = map(committed.fullmatch, files(self.disk.snapshot(), REPLICA))
        names = [match[1] for match in found if match is not None]
        if not names:
            raise Refused("there is no checkpoint yet")
        return max(names, key=lambda name: int(name.removeprefix("chk-")))

    def is_there(self, name: str) -> bool:
        return self.disk.is_file(f"{REPLICA}/{name}/_metadata")

    def held(self, name: str) -> dict[int, int]:
        """The offsets that a checkpoint of the replica holds."""
        found = positions_of(read_metadata(f"{REPLICA}/{name}", Side()), Side())
        assert found is not None
        assert found.found.unread == ()
        return {each.partition: each.offset or 0 for each in found.found.positions}

    def check(self) -> None:
        """Every derived checkpoint that is there holds what it must, and can be restored."""
        for name, wanted in self.derived.items():
            if self.is_there(name):
                assert self.held(name) == wanted, name
                found = verify(REPLICA, name, ALL, silent, Side())
                assert found.restorable, (name, found)

    def end(self) -> None:
        """Once nothing dies any more, the replica catches up, and what was forgotten is gone."""
        self.complete()
        self.sync()
        self.check()
        for name in [name for name in self.derived if self.is_there(name)]:
            rebase.forget(REPLICA, name, Side(), False, 0.0, silent)
        self.sweep()
        self.disk.clock.pass_(1.0)
        self.sweep()
        left = files(self.disk.snapshot(), REPLICA)
        assert not [place for place in left if "rebased" in place]
        assert verify(REPLICA, None, ALL, silent, Side()).restorable
        assert self.held(f"chk-{self.number}") == {
            each: self.number * 1000 + each for each in range(PARTITIONS)
        }


@pytest.mark.parametrize("seeds", parts.seeds(4, 400, 20, portions=6))
def test_derived_checkpoints_are_whole_until_they_are_forgotten(seeds):
    died = made = 0
    for seed in seeds:
        history = History(Random(f"derived {seed}"))
        with running_on(history.disk):
            try:
                play(history)
            except (AssertionError, CpreplicateError, OSError, LookupError) as error:
                raise AssertionError(f"seed {seed}: {'; '.join(history.log)}") from error
        died += sum(each.endswith("died") for each in history.log)
        made += history.made
    assert min(died, made) > len(seeds)


def play(history: History) -> None:
    history.complete()
    history.sync()
    for _ in range(STEPS):
        history.step()
    history.end()
