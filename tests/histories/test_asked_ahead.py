"""What other suites play on a disk that answers at once, on one that is far away: a sync asks ahead
there, and others change what was asked before its answer is used.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from cpreplicate.core.clock import Instant
from cpreplicate.protocol import lease
from tests.histories import test_crash_points, test_races, test_takeovers
from tests.histories.test_cotenant import STEPS, described
from tests.histories.test_crash_points import incremental
from tests.histories.test_takeovers import LEASE, Stop, TakenOver
from tests.support import parts
from tests.support.asking import MOMENTS, asked_ahead
from tests.support.forgetting import ForgettingWorld
from tests.support.histories import World
from tests.support.simulated import Moment
from tests.support.staging import Scenario, examine, running_on

KINDS = [
    *test_crash_points.KINDS,
    *test_crash_points.PACKED_KINDS,
    *test_crash_points.NAMED_KINDS,
    *test_crash_points.TURNING_KINDS,
]
ASK_NOTHING = {"sweeping", "sweeping_packs", "relocating", "promoting"}


def each_kind() -> list[Any]:
    others = [(kind, moment, 1) for kind, moment in itertools.product(KINDS, MOMENTS)]
    return [(incremental, "asking", 6), *[parts.rest(*each) for each in others]]


@pytest.mark.parametrize(("kind", "moment", "again"), each_kind())
def test_a_death_at_any_point_of_a_run_that_asks_ahead_leaves_every_checkpoint_whole(
    kind: Callable[[Random], Scenario], moment, again
):
    scenario = kind(Random(f"{kind.__name__} 0"))
    with asked_ahead(moment) as asked:
        findings = examine(scenario, again)
    assert findings.wrong == []
    assert bool(asked["taken"]) == (kind.__name__ not in ASK_NOTHING)


@pytest.mark.parametrize("seeds", parts.seeds(4, 300, 150))
@pytest.mark.parametrize("moment", parts.cases(MOMENTS, main=["asking"]))
@pytest.mark.parametrize("stalls", [False, True], ids=["in time", "held up"])
def test_runs_that_ask_ahead_beside_each_other_leave_every_checkpoint_whole(stalls, moment, seeds):
    for seed in seeds:
        with asked_ahead(moment) as asked:
            race = test_races.Race(f"race {stalls} {seed}", stalls)
            wrong = race.run()
        assert wrong == [], f"seed {seed}: {race.outcomes}"
        assert asked["taken"]


@pytest.mark.parametrize("seeds", parts.seeds(20, 60, 20))
@pytest.mark.parametrize("kind", [World, *parts.cases([ForgettingWorld], main=[])])
@pytest.mark.parametrize("moment", parts.cases(MOMENTS, main=["asking"]))
def test_what_happens_between_a_question_and_the_use_of_its_answer_harms_nobody(
    moment, kind, seeds
):
    for seed in seeds:
        with asked_ahead(moment):
            world = kind(seed)
            assert not world.play(STEPS), described(world)


def is_look(verb: str, uri: str) -> bool:
    return (verb, uri) == ("open", LEASE)


def looks(command: str, *others: str) -> list[Stop]:
    """Return where a command is stopped: right after each of its reads of the lease.

    They are counted among themselves: the journal is written by a thread, sooner or later.
    """
    staged = test_takeovers.stage_of(command, *others)
    disk, found = test_takeovers.disk_of(staged), list[Stop]()

    def hook(moment: Moment, verb: str, uri: str) -> None:
        if moment == "before" and is_look(verb, uri):
            found.append(Stop(len(found) + 1, is_late=False))

    disk.hook = hook
    with running_on(disk):
        test_takeovers.COMMANDS[command](staged)
    return found


def unbroken(_patch: pytest.MonkeyPatch) -> None:
    """Break nothing."""


def taken_over_after_looks(
    other: str, broken: Callable[[pytest.MonkeyPatch], None] = unbroken
) -> list[str]:
    """Return what a sync did wrong which was taken over between a question and its use.

    It sleeps there, and a beat that was under way has renewed its lease: that it took its time is
    not what stops it. It is broken then, and not where it is found out when it looks.
    """
    wrong = []
    with asked_ahead("asking"), pytest.MonkeyPatch.context() as patch:
        patch.setattr(lease.Lease, "until", lambda _self: math.inf)
        stops = looks("sync", other)
        assert stops
        broken(patch)
        for stop in stops:
            wrong += TakenOver("sync", other, stop, is_look).run()
    return wrong


@pytest.mark.parametrize("other", parts.cases(["promote", "sync", "relocate"], main=["promote"]))
def test_an_answer_about_the_lease_does_not_outlast_a_sleep(other):
    assert taken_over_after_looks(other) == []


def ages_are_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Instant, "age", lambda _self: 0.0)


def the_lease_is_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        lease.LeaseToken, "check", lambda token, side: side.storage(token.uri).read(token.uri)
    )


@pytest.mark.parametrize("broken", [ages_are_not_looked_at, the_lease_is_not_looked_at])
def test_a_sync_that_uses_any_answer_about_its_lease_is_detected(broken):
    assert taken_over_after_looks("promote", broken) != []
