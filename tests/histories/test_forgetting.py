"""Replicas are forgotten while Flink and cpreplicate go on: no job loses a byte or its last point.

A failure prints its seed and the history; `ForgettingWorld(seed).play(STEPS)` plays it again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import pytest

from cpreplicate.operations.replicas import forget
from cpreplicate.operations.upkeep import removal
from cpreplicate.protocol import ownership
from tests.histories.test_cotenant import without
from tests.support import parts
from tests.support.forgetting import ForgettingWorld
from tests.support.reached import demanded_of, going_on, sometimes

STEPS = 10
HISTORIES = 500
PORTION = 50
SUITE = "tests/histories/test_forgetting.py"
ENOUGH = 100  # histories, of which few are played until it is found
NOT_RARE = [
    "forget Removal",
    "forget Refused",
    "forget Crash",
    "not to be forgotten",
    "an earlier life was forgotten",
    "started unpromoted",
    "adopted again",
    "sealed after it was chosen",
]


def described(world: ForgettingWorld) -> str:
    return "\n  ".join([*world.history, "WRONG:", *world.wrong])


@pytest.mark.parametrize("seeds", parts.seeds(8, HISTORIES, PORTION, portions=1))
def test_what_is_forgotten_is_needed_by_nobody(seeds):
    counts: Counter[str] = Counter()
    for seed in going_on(seeds, demanded_of(SUITE, "a forgetting history had")):
        world = ForgettingWorld(seed)
        assert not world.play(STEPS), described(world)
        for kind in world.counts:
            sometimes(f"a forgetting history had: {kind}", world.counts[kind])
        counts += world.counts
    if len(seeds) >= PORTION:
        assert [each for each in NOT_RARE if not counts[each]] == []


def reasons_are_left_out(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(forget, "_reasons", lambda *_args: iter(()))


class Mutant(NamedTuple):
    """A check that is left out, what is then found, and the first history that found it."""

    mutate: Callable[[pytest.MonkeyPatch], None]
    found: str
    by: int


MUTANTS = {
    "the newest point is no reason": Mutant(reasons_are_left_out, "the newest point of its job", 1),
    "a job that runs from it is no reason": Mutant(
        without(ForgettingWorld, "_refuse_used"), "needs it", 0
    ),
    "checkpoints of others are no reason": Mutant(
        without(ownership, "refuse_foreign"), "it must not succeed: a job keeps", 12
    ),
    "the seal is no reason": Mutant(
        without(removal, "_refuse_used"), "it must not succeed: the replica is sealed", 3
    ),
    "what checkpoints of others need is removed": Mutant(
        without(removal, "_needed_by_others", ()), "has lost", 1
    ),
    "what changed since the decision is no reason": Mutant(
        without(forget, "_refuse_changed"), "the newest point of its job", 24
    ),
}


@pytest.mark.parametrize("name", parts.cases(MUTANTS, main=["the newest point is no reason"]))
def test_the_histories_find_a_check_that_is_left_out(name):
    mutant = MUTANTS[name]
    for seed in (mutant.by, *range(ENOUGH)):
        with pytest.MonkeyPatch.context() as patch:
            mutant.mutate(patch)
            if any(mutant.found in each for each in ForgettingWorld(seed).play(STEPS)):
                return
    pytest.fail(f"{ENOUGH} histories find nothing wrong")
