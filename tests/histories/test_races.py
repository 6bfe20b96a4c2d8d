"""Two and three runs on one replica at once, also such that were held up until their lease was
another's.
"""

from __future__ import annotations

import copy
import functools
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import TypeAlias

import pytest

from cpreplicate.core import plan
from cpreplicate.core.packs import PackOptions
from cpreplicate.errors import CpreplicateError, LeaseHeld, NotThere, SourceBroken, SourceMovedOn
from cpreplicate.operations.handover import promote
from cpreplicate.operations.sync import sync as sync_operation
from cpreplicate.operations.sync.report import Report
from cpreplicate.operations.upkeep import relocate, sweep
from cpreplicate.protocol import lease
from cpreplicate.protocol.held import HeldReplica
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import TEMPORARY
from cpreplicate.storage.backends.rename_commit import RenamingStorage
from tests.support import checker, parts
from tests.support.interleaving import Interleaving, Step, any_of
from tests.support.reached import going_on, raced, sometimes
from tests.support.simulated import READS, State, files
from tests.support.staging import Stage, running_on, silent

STAGES = 100
LATER = 2 * lease.SECONDS
REUSED = "files of an earlier job came from its replica"
SWEPT_MEANWHILE = "the earlier replica was swept meanwhile"
TURNED = "a run turned to a newer checkpoint"
COMMITTED = re.compile(r".*/chk-\d+/_metadata")
WITHDRAWN = re.compile(r"/\.cpreplicate-tmp-withdrawn-[^/]*$")


PACKINGS = [PackOptions("on", 1 << 20), *[PackOptions("off", 1 << 20)] * 3]  # one run in four packs


def sync(stage: Stage) -> Callable[[], object]:
    request = stage.request(packing=stage.draw.choice(PACKINGS))
    return lambda: sync_operation.sync(request, silent)


def packing_sync(stage: Stage) -> Callable[[], object]:
    request = stage.request(packing=PACKINGS[0])
    return lambda: sync_operation.sync(request, silent)


def sweep_all(stage: Stage) -> Callable[[], object]:
    everything = plan.Cap(1, is_share=True)
    request = sweep.SweepRequest(
        stage.replica,
        min_age=0.0,
        max_delete=everything,
        execution=ExecutionOptions(runner="inline", parallelism=1),
    )
    return lambda: sweep.sweep(request, silent)


def relocate_all(stage: Stage) -> Callable[[], object]:
    request = relocate.RelocateRequest(stage.replica, stage.draw.choice(["relative", "absolute"]))
    return lambda: relocate.relocate(request, silent)


def promote_it(stage: Stage) -> Callable[[], object]:
    request = promote.PromoteRequest(stage.replica)
    return lambda: promote.promote(request, silent)


def put_off_deletes(stage: Stage) -> Callable[[], object]:
    request = stage.request(async_deletes=True, packing=stage.draw.choice(PACKINGS))
    return lambda: sync_operation.sync(request, silent)


Begin: TypeAlias = "Callable[[Stage], Callable[[], object]]"
OTHERS: list[Begin] = [sync, sync, put_off_deletes, sweep_all, relocate_all, promote_it]


@functools.cache
def _set_up(number: int) -> tuple[Stage, State, float, tuple[object, ...], int]:
    """A replica in some state, by that state and its time; many races start from each."""
    draw = Random(f"stage {number}")
    stage = Stage(
        draw,
        keep=draw.choice([1, 2]),
        foreign=draw.random() < 0.3,
        merged=draw.random() < 0.5,
        packing=draw.choice(PACKINGS),
    )
    stage.complete().sync().complete()
    if draw.random() < 0.5:
        stage.die()
    if draw.random() < 0.3:
        stage.complete()
    return stage, stage.disk.snapshot(), stage.disk.clock.now, stage.job.memory(), stage.last


class Race:
    """A replica in some state, and runs on it.

    `stalls` lets the clock pass every lease's expiry in their midst.
    """

    def __init__(self, seed: str, stalls: bool, runs: Sequence[Begin] = ()) -> None:
        draw = Random(seed)
        stage, state, now, memory, last = _set_up(draw.randrange(STAGES))
        stage.disk.clock.now, stage.last = now, last
        stage.disk.become(state)
        stage.job.recall(memory)
        stage.draw = Random(f"runs {seed}")  # not what the races before left of it
        self._stage = stage
        drawn = runs or [sync, *(draw.choice(OTHERS) for _ in range(draw.choice([1, 1, 2])))]
        self.runs = [run(stage) for run in drawn]
        self.disk = stage.disk
        self.replica = ReplicaUnderWatch(stage)
        self.wrong: list[str] = []
        self._pick = any_of(draw)
        self._draw = draw
        self._stalls = draw.choice([1, 2]) if stalls else 0
        self._held_up: int | None = None
        self._were_held_up: set[int] = set()
        self.outcomes: dict[int, object] = {}

    def run(self) -> list[str]:
        """What was wrong at any instant."""
        with running_on(self.disk):
            race = Interleaving(self.disk, self.runs, self._next)
            race.play()
        self.wrong += self.replica.look()
        self.wrong += [
            f"the source was written to: {each}"
            for each in race.steps
            if _writes_to_source(*each[1:])
        ]
        self.outcomes = race.outcomes
        raced(race.steps, race.outcomes, self._were_held_up)
        unforeseen = [
            each
            for each in race.outcomes.values()
            if isinstance(each, BaseException) and not _is_foreseen(each)
        ]
        self.wrong += [f"ended unforeseen: {each!r}" for each in unforeseen]
        return self.wrong + ([] if self._were_held_up else _lost_leases(race.outcomes.values()))

    def _next(self, waiting: Mapping[int, Step]) -> int:
        self.wrong += self.replica.look()
        if self._stalls and len(waiting) > 1:
            self._hold_up_somebody(waiting)
        others = {number: step for number, step in waiting.items() if number != self._held_up}
        return self._pick(others or waiting)

    def _hold_up_somebody(self, waiting: Mapping[int, Step]) -> None:
        """One run takes no step until the others are done, and its lease expires; mostly at one
        that counts. The job goes on.

        None is held up between its last look at the clock and a delete: there is no storage on
        which that could be fenced, see docs/architecture.md. A withdrawal is a rename.
        """
        if any(verb == "delete" for verb, _ in waiting.values()):
            return
        for number, (verb, uri) in waiting.items():
            counts = verb == "rename" and ("/.cpreplicate/" not in uri or WITHDRAWN.search(uri))
            if self._draw.random() < (0.2 if counts else 0.002):
                self._held_up, self._stalls = number, self._stalls - 1
                self._were_held_up.add(number)
                self.disk.clock.pass_(LATER)
                self._stage.complete()
                return


class Overtaken(Race):
    """A sync that another run overtakes, from its beginning to its end, after some steps.

    If the sync `stalls` there, its lease has expired when the other run begins.
    """

    def __init__(self, seed: str, first: Begin, other: Begin, after: int, stalls: bool) -> None:
        super().__init__(seed, stalls=False, runs=[first, other])
        self._after, self._stalls_there = after, stalls
        self.was_overtaken = False

    def _next(self, waiting: Mapping[int, Step]) -> int:
        self.wrong += self.replica.look()
        if 0 in waiting and self._after > 0:
            self._after -= 1
            return 0
        if 0 in waiting and not self.was_overtaken:
            self.was_overtaken = True
            if self._stalls_there and waiting[0][0] != "delete":  # as in `_hold_up_somebody`
                self._were_held_up.add(0)
                self.disk.clock.pass_(LATER)
        return max(waiting)


class ReplicaUnderWatch:
    """Judges the replica at every instant by the independent checker: whole, of the source's bytes,
    never going back.
    """

    def __init__(self, stage: Stage) -> None:
        self._stage, self._version, self._newest = stage, -1, -1
        self._there: dict[str, bytes] = {}

    def look(self) -> list[str]:
        """What is wrong now; nothing is looked at twice."""
        disk = self._stage.disk
        if disk.version == self._version:
            return []
        self._version = disk.version
        there = {
            path: data
            for path, data in files(disk.snapshot(), self._stage.replica).items()
            if TEMPORARY not in path
        }
        if there == self._there:
            return []
        self._there = there
        committed = {
            int(path.split("/")[-2][4:]): path for path in there if COMMITTED.fullmatch(path)
        }
        newest = max(committed, default=-1)
        wrong = (
            [f"the newest went back from chk-{self._newest} to chk-{newest}"]
            if newest < self._newest
            else []
        )
        self._newest = newest
        return wrong + [
            each
            for number, path in committed.items()
            for each in self._checkpoint(number, path, there)
        ]

    def _checkpoint(self, number: int, path: str, there: Mapping[str, bytes]) -> list[str]:
        local = Path(path.removeprefix("file:"))
        faults = checker.faults_of(
            there[path],
            local,
            lambda each: len(there[f"file:{each}"]) if f"file:{each}" in there else None,
        )
        return faults or self._other_bytes(number, checker.needs_of(there[path], local), there)

    def _other_bytes(
        self, number: int, needs: Sequence[checker.Need], there: Mapping[str, bytes]
    ) -> list[str]:
        """References have the order of the source's, so they are compared one by one."""
        job = self._stage.job
        pairs = zip(job.references[number], needs, strict=True)
        return [
            f"other bytes: {copied.path}"
            for source, copied in pairs
            if not checker.is_copy(
                source, copied, job.bytes[source.path], there[f"file:{copied.path}"]
            )
        ]


def _writes_to_source(verb: str, uri: str) -> bool:
    return uri.startswith("file:/dcA") and verb not in READS


def _lost_leases(outcomes: Iterable[object]) -> list[str]:
    """Return who lost a lease to another run. Nobody does whom nothing held up."""
    held = (str(each) for each in outcomes if isinstance(each, LeaseHeld))
    return [each for each in held if "lost its lease" in each]


def _is_foreseen(error: BaseException) -> bool:
    """Return whether a run may end so: what another run removes ends it by its lease, too."""
    return isinstance(error, CpreplicateError)


@pytest.mark.parametrize("seeds", parts.seeds(40, 1_000, 470, portions=1))
@pytest.mark.parametrize("stalls", [False, True], ids=["in time", "held up"])
def test_runs_beside_each_other_leave_every_committed_checkpoint_whole_at_every_instant(
    stalls, seeds
):
    ended: Counter[str] = Counter()
    for seed in seeds:
        race = Race(f"race {stalls} {seed}", stalls)
        wrong = race.run()
        assert wrong == [], f"seed {seed}: {race.outcomes}"
        ended.update(type(each).__name__ for each in race.outcomes.values())
    least = len(seeds) // 2 if len(seeds) > 100 else len(seeds) // 3  # of few, fewer
    assert ended["Report"] > least
    assert ended["LeaseHeld"] > len(seeds) // 10


@pytest.mark.parametrize(
    ("first", "other", "stalls", "seed", "every"),
    [
        (sync, promote_it, False, 1, 3),
        (packing_sync, packing_sync, True, 1, 3),
        parts.rest(sync, promote_it, False, 1, 1),
        *(
            parts.rest(sync, each, True, 1, 1)
            for each in (promote_it, sync, sweep_all, relocate_all)
        ),
        *(parts.rest(packing_sync, each, False, 1, 1) for each in (sync, promote_it, relocate_all)),
        *(parts.rest(packing_sync, packing_sync, True, seed, 1) for seed in (1, 2)),
    ],
)
def test_a_sync_that_another_run_overtakes_at_any_step_leaves_every_checkpoint_whole(
    first, other, stalls, seed, every
):
    ended: Counter[str] = Counter()
    for after in itertools.count(step=every):
        race = Overtaken(f"overtaken {seed}", first, other, after, stalls)
        wrong = race.run()
        assert wrong == [], f"after {after} steps: {race.outcomes}"
        ended.update(type(each).__name__ for each in race.outcomes.values())
        if not race.was_overtaken:
            break
    assert ended["LeaseHeld"]
    assert ended["Report"]


class HeldUp:
    """A sync that is held up right before a rename, after its last look at its lease.

    Meanwhile its lease expires, the job completes a checkpoint, and another run takes the lease
    over and ends. `left` are the `_metadata` that it left.
    """

    def __init__(self, seed: str, at: re.Pattern[str], other: Begin) -> None:
        draw = Random(seed)
        self._stage = Stage(draw, keep=draw.choice([1, 2]), merged=draw.random() < 0.5)
        self._stage.complete().sync().complete().sync().complete()
        self._runs = [sync(self._stage), other(self._stage)]
        self._at, self._watched = at, ReplicaUnderWatch(self._stage)
        self.was_held_up, self.wrong = False, list[str]()
        self.left: dict[str, bytes] | None = None
        self.outcomes: dict[int, object] = {}

    def run(self) -> HeldUp:
        disk = self._stage.disk
        with running_on(disk):
            race = Interleaving(disk, self._runs, self._next)
            race.play()
        self.wrong += self._watched.look()
        self.outcomes = race.outcomes
        return self

    def published(self) -> dict[str, bytes]:
        """Every `_metadata` that is there now, by its place."""
        there = files(self._stage.disk.snapshot(), self._stage.replica)
        return {path: data for path, data in there.items() if COMMITTED.fullmatch(path)}

    def _next(self, waiting: Mapping[int, Step]) -> int:
        self.wrong += self._watched.look()
        verb, uri = waiting.get(0, ("", ""))
        if not self.was_held_up and verb == "rename" and self._at.search(uri):
            self.was_held_up = True
            self._stage.disk.clock.pass_(LATER)
            self._stage.complete()
        if self.was_held_up and 1 in waiting:
            return 1
        if self.was_held_up and self.left is None:
            self.left = self.published()
        return min(waiting)


def keeping_all(stage: Stage) -> Callable[[], object]:
    request = stage.request(keep=9)
    return lambda: sync_operation.sync(request, silent)


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
@pytest.mark.parametrize("other", [keeping_all, sync, sweep_all, relocate_all, promote_it])
@pytest.mark.parametrize("at", [WITHDRAWN, COMMITTED], ids=["withdrawal", "commit"])
def test_a_run_held_up_right_before_a_commit_or_a_withdrawal_changes_no_metadata_of_its_successor(
    at, other, seed
):
    race = HeldUp(f"held up {seed}", at, other).run()
    assert race.was_held_up
    assert race.wrong == [], race.outcomes
    assert race.published() == race.left, race.outcomes
    is_stopped = "stopped before publishing or deleting" in ended_by(race)
    sometimes("a withdrawal met the fence", at is WITHDRAWN and is_stopped)


def ended_by(race: HeldUp) -> str:
    """What the run that was held up ended with: its warnings or its error."""
    outcome = race.outcomes[0]
    return str(outcome.warnings if isinstance(outcome, Report) else outcome)


def test_a_withdrawal_without_the_fence_is_detected():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RenamingStorage, "fence", lambda _self, _aside: None)
        race = HeldUp("held up 1", WITHDRAWN, keeping_all).run()
    assert race.was_held_up
    assert race.published() != race.left


def without_checks(patch: pytest.MonkeyPatch) -> None:
    """No run looks at its lease again once it has it, nor removes what those before it left
    half-written.
    """
    patch.setattr(lease.Lease, "check", lambda _self, _seconds=0.0: None)
    patch.setattr(lease.LeaseToken, "check", lambda _self, _side: None)
    patch.setattr(HeldReplica, "without_unfinished", lambda _self: True)


def test_a_protocol_that_does_not_check_its_lease_again_is_detected():
    for seed in range(1000):
        race = Race(f"broken {seed}", stalls=True)
        with pytest.MonkeyPatch.context() as patch:
            without_checks(patch)
            if any("chk-" in each for each in race.run()):
                return
    raise AssertionError("not found in 1000 schedules")


@pytest.mark.parametrize("seeds", parts.seeds(40, 500, 230, portions=1))
def test_a_job_is_replicated_while_other_runs_lease_and_change_the_replica_of_the_earlier_job(
    seeds,
):
    ended: Counter[str] = Counter()
    played = copied = 0
    for seed in going_on(seeds, [REUSED, SWEPT_MEANWHILE]):
        played += 1
        race = RaceOfTwoJobs(f"earlier {seed}")
        wrong = race.run()
        assert wrong == [], f"seed {seed}: {race.outcomes}"
        report = race.outcomes[0]
        assert isinstance(report, Report), f"seed {seed}: {report!r}"
        copied += bool(report.plan.reused)
        sometimes(REUSED, report.plan.reused)
        others = {type(each).__name__ for each in race.outcomes.values()}
        sometimes(SWEPT_MEANWHILE, report.plan.reused and "Sweep" in others)
        ended.update(type(each).__name__ for each in race.outcomes.values())
    assert set(ended) <= {"Report", "Sweep", "LeaseHeld", "Refused"}
    assert len(seeds) // 10 < copied < played


class RaceOfTwoJobs:
    """A sync of a restored job, beside runs on the replica of the job that it was restored from.

    The earlier job goes on, so that its replica no longer needs what the other one copies.
    """

    def __init__(self, seed: str) -> None:
        draw = Random(seed)
        stage = Stage(draw, packing=draw.choice(PACKINGS)).complete().sync()
        earlier = copy.copy(stage)
        others = [draw.choice([sync, sweep_all])(earlier), sync(earlier)]
        stage.restart().complete()
        earlier.job.complete(stage.last + 1)
        self._runs = [sync(stage), *others]
        self._disk, self._pick = stage.disk, any_of(draw)
        self._watched = [ReplicaUnderWatch(stage), ReplicaUnderWatch(earlier)]
        self._wrong: list[str] = []
        self.outcomes: dict[int, object] = {}

    def run(self) -> list[str]:
        """What was wrong with either replica at any instant."""
        with running_on(self._disk):
            race = Interleaving(self._disk, self._runs, self._next)
            race.play()
        self._look()
        self.outcomes = race.outcomes
        return self._wrong

    def _next(self, waiting: Mapping[int, Step]) -> int:
        self._look()
        return self._pick(waiting)

    def _look(self) -> None:
        self._wrong += [wrong for replica in self._watched for wrong in replica.look()]


@pytest.mark.parametrize("seeds", parts.seeds(main=12, full=100, portion=80))
def test_of_runs_that_do_not_wait_one_goes_on_and_the_others_name_it(seeds):
    for seed in seeds:
        draw = Random(f"contention {seed}")
        stage = Stage(draw).complete()
        disk = stage.disk
        with running_on(disk):
            race = Interleaving(disk, [sync(stage)] * 3, any_of(draw))
            race.play()
        reports = [each for each in race.outcomes.values() if isinstance(each, Report)]
        refused = [each for each in race.outcomes.values() if isinstance(each, LeaseHeld)]
        assert len(reports) + len(refused) == 3
        assert sum(report.committed for report in reports) == 1
        assert all("is held by" in str(each) or "is gone" in str(each) for each in refused)


@pytest.mark.parametrize("seeds", parts.seeds(60, 1_000, 450, portions=1))
def test_the_source_may_complete_and_subsume_checkpoints_between_any_two_reads(seeds):
    ended: Counter[str] = Counter()
    turns = 0
    for seed in going_on(seeds, [TURNED]):
        draw = Random(f"churn {seed}")
        stage = Stage(
            draw,
            keep=draw.choice([1, 2]),
            foreign=draw.random() < 0.5,
            merged=draw.random() < 0.5,
            packing=draw.choice(PACKINGS),
        )
        stage.complete()
        if draw.random() < 0.7:
            stage.sync().complete()
        churn = Churn(stage, draw)
        outcome = churn.run()
        assert churn.wrong == [], f"seed {seed}: {outcome!r}"
        assert isinstance(outcome, (Report, SourceMovedOn, NotThere)), f"seed {seed}: {outcome!r}"
        assert not isinstance(outcome, SourceBroken), f"seed {seed}: {outcome!r}"
        ended[type(outcome).__name__] += 1
        turned = isinstance(outcome, Report) and bool(outcome.turned_from)
        sometimes(TURNED, turned)
        turns += turned
        committed = isinstance(outcome, Report) and outcome.committed
        newest = f"chk-{stage.last}"
        is_old = committed and outcome.plan.checkpoint != newest
        sometimes("a subsumed checkpoint was committed", is_old)
        if turned:
            with running_on(stage.disk):
                found = sweep_all(stage)()
            assert isinstance(found, sweep.Sweep)
            assert found.deletes == (), f"seed {seed}"
        stage.sync()
        assert churn.replica.look() == []
    assert ended["Report"] > 9 * len(seeds) // 10
    assert turns > len(seeds) // 10


@pytest.mark.parametrize("seeds", parts.seeds(main=12, full=200, portion=100))
def test_after_a_run_that_turned_died_at_any_step_the_next_one_and_a_sweep_leave_all_whole(seeds):
    points = 0
    for seed in seeds:
        draw = Random(f"turning {seed}")
        stage = Stage(draw, merged=draw.random() < 0.5, packing=draw.choice(PACKINGS)).complete()
        if draw.random() < 0.5:
            stage.sync().complete()
        churn = Churn(stage, draw, how_often=0.4)
        outcome = churn.run()
        if not (isinstance(outcome, Report) and outcome.turned_from):
            continue
        for state in draw.sample(churn.states, min(8, len(churn.states))):
            stage.disk.become(state)
            stage.disk.clock.now += LATER
            replica = ReplicaUnderWatch(stage)
            assert replica.look() == [], f"seed {seed}"
            stage.sync()
            assert replica.look() == [], f"seed {seed}"
            with running_on(stage.disk):
                sweep_all(stage)()
                found = sweep_all(stage)()
            assert replica.look() == [], f"seed {seed}"
            assert isinstance(found, sweep.Sweep)
            assert found.deletes == (), f"seed {seed}"
            points += 1
    sometimes("a run that had turned died", points)
    assert points > len(seeds)


class Churn:
    """A sync during which the job goes on: between some of its reads of the source a checkpoint
    completes. `states` are those of the disk between its steps.
    """

    def __init__(self, stage: Stage, draw: Random, how_often: float | None = None) -> None:
        self.wrong: list[str] = []
        self.states: list[State] = []
        self._version = -1
        self._stage, self._draw, self._left = stage, draw, draw.randint(1, 3)
        self._how_often = how_often or draw.choice([0.02, 0.1, 0.4])
        self.replica = ReplicaUnderWatch(stage)

    def run(self) -> object:
        self._stage.disk.hook = self._at_a_step
        try:
            with running_on(self._stage.disk):
                return sync_operation.sync(self._stage.request(), silent)
        except CpreplicateError as error:
            return error
        finally:
            self._stage.disk.hook = lambda *_: None

    def _at_a_step(self, moment: str, verb: str, uri: str) -> None:
        if moment != "before":
            return
        self.wrong += self.replica.look()
        if self._version != self._stage.disk.version:
            self._version = self._stage.disk.version
            self.states.append(self._stage.disk.snapshot())
        if _writes_to_source(verb, uri):
            self.wrong.append(f"the source was written to: {verb} {uri}")
        if uri.startswith("file:/dcA") and self._left and self._draw.random() < self._how_often:
            self._left -= 1
            hook, self._stage.disk.hook = self._stage.disk.hook, lambda *_: None
            self._stage.complete()
            self._stage.disk.hook = hook
