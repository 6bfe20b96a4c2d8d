"""Which points a replica keeps over a history of syncs: of policies that are stated, changed and
left out by several places, of clocks that go wrong, and of jobs that stand still.

The model is written anew: it knows which points and which policy a replica must have, from what was
asked alone.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from cpreplicate.core.retention import Retention, StatedBy
from cpreplicate.errors import KeepsLess
from cpreplicate.operations.sync.diff import diff
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.sync.sync import sync
from cpreplicate.runners import ExecutionOptions
from tests.support import parts
from tests.support.points import DAY, HOUR, kept_of
from tests.support.reached import sometimes
from tests.support.simulated import SimulatedDisk, SimulatedJob, files
from tests.support.staging import LATER, TARGET_ROOT, record_run, running_on, silent

PLACES = {
    "service": StatedBy("cpreplicate fleet", "flink", "a", "/etc/fleet.toml"),
    "other service": StatedBy("cpreplicate fleet", "flink", "b", "/etc/fleet.toml"),
    "typed": StatedBy("cpreplicate sync", "alice", "a"),
}
POLICIES = st.builds(
    Retention,
    last=st.sampled_from([1, 1, 2, 4]),
    within=st.sampled_from([0, 0, 5 * HOUR, 3 * DAY]),
    hourly=st.sampled_from([0, 0, 3, 6]),
    daily=st.sampled_from([0, 0, 2, 7]),
)
# since the checkpoint before: also none, as of a clock that stands still, and back
PASSES = st.sampled_from([0, 1, 600, HOUR, 5 * HOUR, DAY, 3 * DAY, -2 * HOUR])
_AHEAD = (0, 0, 0, 0, HOUR, 2 * DAY, 4000 * DAY)  # of the source's clock
AHEAD = st.sampled_from(_AHEAD)


class Held(NamedTuple):
    """A point of the model: its number, and when it was completed by the source's clock."""

    number: int
    completed: float


class Stated(NamedTuple):
    """A policy of the model, and the place that stated it."""

    policy: Retention
    place: str


class KeptPoints(RuleBasedStateMachine):
    """The model: the points of the replica, newest first, and the policy that it records."""

    @initialize(seed=st.integers(0, 2**32))
    def begin(self, seed: int) -> None:
        self.disk = SimulatedDisk()
        self.job = SimulatedJob(self.disk, Random(seed))
        self.now, self.number = self.disk.clock.now, 0
        self.points: list[Held] = []
        self.recorded: Stated | None = None
        self.complete(0, 0)

    @rule(passes=PASSES, ahead=AHEAD)
    def complete(self, passes: float, ahead: float) -> None:
        """The job completes a checkpoint, dated by a clock that may be ahead, or set back."""
        self.disk.clock.now += max(passes, 0)
        self.number += 1
        self.completed = self.disk.clock.now + ahead + min(passes, 0)
        true_time, self.disk.clock.now = self.disk.clock.now, self.completed
        self.job.complete(self.number)
        self.disk.clock.now = true_time

    @rule()
    def stand_still(self) -> None:
        self.disk.clock.pass_(9 * DAY)

    @rule()
    def sync_without_a_policy(self) -> None:
        """As a runbook has it."""
        before = [point.number for point in self.points]
        self._sync(None, "typed", keep_less=False)
        gone = {*before} - {point.number for point in self.points}
        sometimes("a run that states no policy kept several points", len(self.points) > 1)
        if self.recorded is None:
            assert len(self.points) == 1
        elif before[:1] == [self.number]:
            assert not gone, "nothing was new, and nothing was stated"

    @rule(policy=POLICIES, place=st.sampled_from(sorted(PLACES)), keep_less=st.booleans())
    def sync_with_a_policy(self, policy: Retention, place: str, keep_less: bool) -> None:
        self._sync(policy, place, keep_less)

    @rule(place=st.sampled_from(sorted(PLACES)))
    def sync_with_the_recorded_policy(self, place: str) -> None:
        if self.recorded is not None:
            self._sync(self.recorded.policy, place, keep_less=False)

    @rule(policy=POLICIES, place=st.sampled_from(sorted(PLACES)), point=st.floats(0, 1))
    def sync_and_die(self, policy: Retention, place: str, point: float) -> None:
        """A run dies anywhere, and is repeated with the same words."""
        if self._is_refused(policy, place, keep_less=False):
            return
        request = self._request(policy, place)
        states = record_run(self.disk, lambda: sync(request, silent))
        self.disk.hook = lambda *_: None
        self.disk.become(states[int(point * (len(states) - 1))])
        self.disk.clock.pass_(LATER)
        sometimes("a run that stated a policy died", len(states) > 3)
        with running_on(self.disk):
            sync(request, silent)
        self.points = self._kept(policy)
        self._record(policy, place)

    def _sync(self, policy: Retention | None, place: str, keep_less: bool) -> None:
        """Sync, and expect what the model does of it."""
        request = self._request(policy, place, keep_less)
        before = files(self.disk.snapshot(), TARGET_ROOT)
        with running_on(self.disk):
            try:
                planned = diff(request).plan
                done = sync(request, silent).plan
            except KeepsLess:
                planned = None
        assert (planned is None) == self._is_refused(policy, place, keep_less)
        if planned is None:
            assert files(self.disk.snapshot(), TARGET_ROOT) == before
            sometimes("a policy that keeps less was refused")
            return
        kept = self._kept(policy)
        gone = [point for point in reversed(self.points) if point not in kept]
        assert [each.checkpoint for each in planned.withdrawals] == _names(gone)
        assert planned.withdrawals == done.withdrawals
        assert [each.completed for each in done.withdrawals] == [each.completed for each in gone]
        sometimes("a checkpoint dated in the future was kept", self._has_future(kept))
        self.points = kept
        self._record(policy, place)
        with running_on(self.disk):
            assert sync(request, silent).plan.empty

    def _kept(self, policy: Retention | None) -> list[Held]:
        """Return the points that are kept once the newest checkpoint is published."""
        held = policy or (Retention() if self.recorded is None else self.recorded.policy)
        older = [point for point in self.points if point.number != self.number]
        candidates = [Held(self.number, self.completed), *older]
        times = [point.completed for point in candidates]
        return [candidates[place] for place in kept_of(held, times, self.disk.clock.now)]

    def _is_refused(self, policy: Retention | None, place: str, keep_less: bool) -> bool:
        if policy is None or self.recorded is None or keep_less:
            return False
        if place == self.recorded.place and place != "typed":
            return False
        rules = ("last", "within", "hourly", "daily")
        former = self.recorded.policy
        return any(getattr(policy, each) < getattr(former, each) for each in rules)

    def _record(self, policy: Retention | None, place: str) -> None:
        if policy is None:
            return
        is_same = self.recorded is not None and self.recorded.policy == policy
        is_taken_over = self.recorded is not None and self.recorded.place == "typed"
        if is_same and not (is_taken_over and place != "typed"):
            return
        sometimes("a policy was recorded in place of another", self.recorded is not None)
        self.recorded = Stated(policy, place)

    def _has_future(self, kept: list[Held]) -> bool:
        return any(point.completed > self.disk.clock.now for point in kept[1:])

    def _request(
        self, policy: Retention | None, place: str, keep_less: bool = False
    ) -> SyncRequest:
        return SyncRequest(
            f"{self.job.root}/chk-{self.number}",  # by name, also where its clock was set back
            TARGET_ROOT,
            keep=policy,
            keep_less=keep_less,
            stated_by=PLACES[place],
            execution=ExecutionOptions(runner="inline", parallelism=1),
        )

    @invariant()
    def the_replica_holds_just_the_points_of_the_model(self) -> None:
        if hasattr(self, "disk"):
            there = files(self.disk.snapshot(), f"{TARGET_ROOT}/{self.job.job}")
            found = {path.split("/")[-2] for path in there if path.endswith("/_metadata")}
            assert found == {*_names(self.points)}


def _names(points: list[Held]) -> list[str]:
    return [f"chk-{point.number}" for point in points]


TestKeptPoints = KeptPoints.TestCase
TestKeptPoints.settings = settings(
    max_examples=20,  # the walks below reach what is demanded
    stateful_step_count=12,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)


def test_walks_in_which_a_policy_changes_now_and_then_keep_the_points_of_the_model():
    # what the model reaches must not depend on the examples that Hypothesis chooses
    for seed in range(25):
        _walk(Random(seed), steps=12)


def _walk(draw: Random, steps: int) -> None:
    walked = KeptPoints()
    walked.begin(draw.getrandbits(32))
    for _ in range(steps):
        place = draw.choice(sorted(PLACES))
        policy = Retention(
            draw.choice([1, 2, 4]),
            draw.choice([0, 0, 5 * HOUR, 3 * DAY]),
            draw.choice([0, 3, 6]),
            draw.choice([0, 2, 7]),
        )
        if draw.random() < 0.7:
            walked.complete(draw.choice([0, 600, 5 * HOUR, DAY, -2 * HOUR]), draw.choice(_AHEAD))
        draw.choice(
            [
                walked.stand_still,
                walked.sync_without_a_policy,
                walked.sync_without_a_policy,
                lambda: walked.sync_with_a_policy(policy, place, draw.random() < 0.3),  # noqa: B023
                lambda: walked.sync_with_the_recorded_policy(place),  # noqa: B023
                lambda: walked.sync_and_die(policy, place, draw.random()),  # noqa: B023
            ]
        )()
        walked.the_replica_holds_just_the_points_of_the_model()


class LongerKeptPoints(KeptPoints):
    """The same model: its name makes other examples of it."""


TestLongerKeptPoints = parts.nightly_class(LongerKeptPoints.TestCase)
TestLongerKeptPoints.settings = settings(TestKeptPoints.settings, max_examples=600)
