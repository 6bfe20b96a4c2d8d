"""Anything may happen to a job and its replicas, in any order: what is committed stays whole, and
syncing follows the job.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from cpreplicate.core import plan
from cpreplicate.core.packs import PackOptions
from cpreplicate.core.restore import PathsMode
from cpreplicate.errors import Refused
from cpreplicate.operations.handover import promote, unseal
from cpreplicate.operations.sync import sync as sync_operation
from cpreplicate.operations.sync.plan import plan as sync_plan
from cpreplicate.operations.sync.report import Report
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.upkeep import relocate, sweep
from cpreplicate.operations.verify import verify
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import Side
from tests.support import checker, parts
from tests.support.reached import sometimes
from tests.support.simulated import READS, SimulatedDisk, SimulatedJob, files
from tests.support.staging import LATER, TARGET_ROOT, record_run, running_on, silent

T = TypeVar("T")
COMMITTED = re.compile(r".*/chk-(\d+)/_metadata")
DAYS = 3 * 24 * 3600.0


class Replication(RuleBasedStateMachine):
    """The model: the checkpoints of the job and their bytes, which one its replica must have at
    least, whether it is sealed.
    """

    @initialize(
        seed=st.integers(0, 2**32),
        links=st.booleans(),
        kinds=st.tuples(st.booleans(), st.booleans()),
    )
    def begin(self, seed: int, links: bool, kinds: tuple[bool, bool]) -> None:
        self.draw = Random(seed)
        self.disk = SimulatedDisk(links=links)
        self.disk.hook = self._note
        self.kinds = dict(zip(("foreign", "merged"), kinds, strict=True))
        self.jobs = [SimulatedJob(self.disk, self.draw)]
        self.written_at_source: list[str] = []
        self.last, self.newest, self.sealed = 0, -1, False
        self.complete()

    @property
    def job(self) -> SimulatedJob:
        return self.jobs[-1]

    @property
    def replica(self) -> str:
        return f"{TARGET_ROOT}/{self.job.job}"

    @rule()
    def complete(self) -> None:
        self.last += self.draw.randint(1, 3)
        self.job.complete(self.last, **self.kinds)

    @rule()
    def subsume(self) -> None:
        for number in sorted(self.job.references)[:-1]:
            self.job.subsume(number)

    @precondition(lambda self: len(self.jobs) < 3)
    @rule()
    def restore(self) -> None:
        """The job fails and is started again from its newest checkpoint, under another id."""
        self.jobs.append(self.job.restored(f"{len(self.jobs):032x}"))
        self.newest, self.sealed = -1, False
        self.complete()

    @rule(
        keep=st.integers(1, 3),
        paths=st.sampled_from(["auto", "relative", "absolute"]),
        put_off=st.booleans(),
    )
    def sync(self, keep: int, paths: PathsMode, put_off: bool) -> None:
        request = self._sync(keep, paths, put_off)
        report = self._run(request)
        sometimes("a sync met a seal", report is None)
        if report is None:
            assert self.sealed
            return
        sometimes("a restored job's files came from the earlier replica", report.plan.reused)
        sometimes("a pack was made sparse and its members moved", report.plan.repacks)
        sometimes("deletes were put off", report.undeleted)
        assert not self.sealed
        assert self._committed(files(self.disk.snapshot(), self.replica))[-1] == self.last
        self.newest = self.last
        again = self._run(request)
        assert again is not None
        assert again.plan.copies == ()
        assert not again.committed

    @precondition(lambda self: not self.sealed)
    @rule(keep=st.integers(1, 3), paths=st.sampled_from(["auto", "relative", "absolute"]))
    def sync_and_die(self, keep: int, paths: PathsMode) -> None:
        self._die_in(self._sync(keep, paths, put_off=False))

    @precondition(lambda self: self.newest >= 0)
    @rule(trash=st.booleans(), dies=st.booleans())
    def sweep(self, trash: bool, dies: bool) -> None:
        self.disk.clock.pass_(DAYS)
        everything = plan.Cap(1, is_share=True)
        request = sweep.SweepRequest(
            self.replica,
            max_delete=everything,
            trash=trash,
            empty_trash=True,
            execution=ExecutionOptions(runner="inline", parallelism=1),
        )
        run = lambda: sweep.sweep(request, silent)  # noqa: E731  # a run is a call
        sometimes("a sweep died", dies and not self.sealed)
        if dies and not self.sealed:
            self._die_in(run)
        else:
            assert (self._run(run) is None) == self.sealed

    @precondition(lambda self: self.newest >= 0 and not self.sealed)
    @rule(paths=st.sampled_from(["relative", "absolute"]), dies=st.booleans())
    def relocate(self, paths: PathsMode, dies: bool) -> None:
        request = relocate.RelocateRequest(self.replica, paths)
        run = lambda: relocate.relocate(request, silent)  # noqa: E731
        sometimes("a relocation died", dies)
        if dies:
            self._die_in(run)
        else:
            assert self._run(run) is not None

    @precondition(lambda self: self.newest >= 0)
    @rule()
    def promote(self) -> None:
        done = self._run(lambda: promote.promote(promote.PromoteRequest(self.replica), silent))
        assert done is not None
        assert done.starting is not None
        self.sealed = True

    @precondition(lambda self: self.sealed)
    @rule()
    def unseal(self) -> None:
        sometimes("a replica was unsealed")
        with running_on(self.disk):
            assert unseal.unseal(unseal.UnsealRequest(self.replica, None))
        self.sealed = False

    @invariant()
    def every_committed_checkpoint_is_whole_and_of_the_sources_bytes(self) -> None:
        if not hasattr(self, "disk"):
            return
        for job in self.jobs:
            there = files(self.disk.snapshot(), f"{TARGET_ROOT}/{job.job}")
            lengths = {path.removeprefix("file:"): len(data) for path, data in there.items()}
            for path, number in _found(there):
                local = Path(path.removeprefix("file:"))
                assert checker.faults_of(there[path], local, lengths.get) == []
                for source, copy in zip(
                    job.references[number], checker.needs_of(there[path], local), strict=True
                ):
                    data, original = there[f"file:{copy.path}"], job.bytes[source.path]
                    assert checker.is_copy(source, copy, original, data)

    @invariant()
    def the_newest_never_goes_back_and_verify_agrees(self) -> None:
        if not hasattr(self, "disk") or self.newest < 0:
            return
        numbers = self._committed(files(self.disk.snapshot(), self.replica))
        assert numbers[-1] >= self.newest
        with running_on(self.disk):
            assert verify.verify(self.replica, None, verify.NOTHING, silent, Side()).restorable

    @invariant()
    def the_source_is_never_written_to(self) -> None:
        assert getattr(self, "written_at_source", []) == []

    def _sync(self, keep: int, paths: PathsMode, put_off: bool) -> Callable[[], Report]:
        request = SyncRequest(
            self.job.root,
            TARGET_ROOT,
            paths=paths,
            keep=keep,
            keep_less=True,  # tests/histories/test_retention.py has those that are refused
            async_deletes=put_off,
            packing=PackOptions("on" if self.draw.random() < 0.3 else "off", 1 << 20),
            execution=ExecutionOptions(runner="inline", parallelism=1),
        )
        return lambda: sync_operation.sync(request, silent)

    def _run(self, run: Callable[[], T]) -> T | None:
        """Return what the run returns, or None if it was refused."""
        self.disk.clock.pass_(1.0)
        with running_on(self.disk):
            try:
                return run()
            except Refused:
                return None

    def _die_in(self, run: Callable[[], object]) -> None:
        """It dies at some point; its lease expires."""
        states = record_run(self.disk, run)
        sometimes("a run died that had several states to leave", len(states) > 3)
        self.disk.hook = self._note
        self.disk.become(self.draw.choice(states))
        self.disk.clock.pass_(LATER)
        self.newest = max(
            [self.newest, *self._committed(files(self.disk.snapshot(), self.replica))]
        )

    def _note(self, _moment: str, verb: str, uri: str) -> None:
        if uri.startswith("file:/dcA") and verb not in READS:
            self.written_at_source.append(f"{verb} {uri}")

    @staticmethod
    def _committed(there: dict[str, bytes]) -> list[int]:
        return sorted(number for _, number in _found(there))


def _found(there: dict[str, bytes]) -> list[tuple[str, int]]:
    return [(path, int(match[1])) for path in there if (match := COMMITTED.fullmatch(path))]


TestReplication = Replication.TestCase
TestReplication.settings = settings(
    max_examples=20,  # the walks below reach what is demanded
    stateful_step_count=12,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)


def test_walks_in_which_each_step_has_the_same_chance_keep_the_invariants():
    # Hypothesis prefers small examples, and other ones after each change of this file: what the
    # model reaches must not depend on that
    for seed in range(30):
        _walk(Random(seed), steps=12)


def _walk(draw: Random, steps: int) -> None:
    walked = Replication()
    walked.begin(draw.getrandbits(32), draw.random() < 0.5, (draw.random() < 0.5,) * 2)
    for _ in range(steps):
        possible = _possible(walked, draw)
        draw.choice(possible)()
        walked.every_committed_checkpoint_is_whole_and_of_the_sources_bytes()
        walked.the_newest_never_goes_back_and_verify_agrees()
        walked.the_source_is_never_written_to()


def _possible(walked: Replication, draw: Random) -> list[Callable[[], None]]:
    """Return the steps whose preconditions hold, with arguments."""
    keep = draw.randint(1, 3)
    paths: PathsMode = draw.choice(["auto", "relative", "absolute"])
    one, other = draw.random() < 0.5, draw.random() < 0.5
    is_open = not walked.sealed

    def complete_and_sync() -> None:
        walked.complete()
        walked.sync(keep, paths, one)

    steps: list[tuple[bool, Callable[[], None]]] = [
        (True, walked.complete),
        (is_open, complete_and_sync),
        (True, walked.subsume),
        (len(walked.jobs) < 3, walked.restore),
        (not is_open, lambda: walked.sync(keep, paths, one)),
        (is_open, lambda: walked.sync_and_die(keep, paths)),
        (walked.newest >= 0, lambda: walked.sweep(one, other)),
        (
            walked.newest >= 0 and is_open,
            lambda: walked.relocate("relative" if one else "absolute", other),
        ),
        (walked.newest >= 0, walked.promote),
        (walked.sealed, walked.unseal),
    ]
    return [step for is_possible, step in steps if is_possible]


class LongerReplication(Replication):
    """The same model: its name makes other examples of it."""


TestLongerReplication = parts.nightly_class(LongerReplication.TestCase)
TestLongerReplication.settings = settings(TestReplication.settings, max_examples=500)


def test_the_model_finds_out_a_protocol_that_deletes_what_another_checkpoint_needs(monkeypatch):
    # what is needed by others is not looked at
    def all_of_the_dropped(
        replaced,
        kept,  # noqa: ARG001
        present,  # noqa: ARG001
    ):
        return tuple(
            plan.Action("delete", None, path, 0, "") for each in replaced for path in each.files
        )

    monkeypatch.setattr(sync_plan, "deletes", all_of_the_dropped)
    once_found = settings(
        TestReplication.settings,
        max_examples=100,
        phases=[Phase.generate],
        report_multiple_bugs=False,
        print_blob=False,
    )
    with pytest.raises(AssertionError):
        run_state_machine_as_test(Replication, settings=once_found)
