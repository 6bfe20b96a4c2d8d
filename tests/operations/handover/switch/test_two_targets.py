"""A job that is switched into two TARGET_ROOTs at the same time runs once, whoever comes first."""

from __future__ import annotations

import itertools
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from cpreplicate.core.notify import silent
from cpreplicate.errors import CpreplicateError, FlinkRefused, NotSwitched, SwitchUnclear
from cpreplicate.operations.handover.switch.switch import switch
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.protocol.switch_record import id_of_next
from cpreplicate.runners import ExecutionOptions
from tests.operations.handover.switch.test_steps import CALLS, Centres

MOMENTS = list(itertools.product(CALLS, (1, 2), ("before", "after")))


@pytest.fixture
def centres(tmp_path: Path) -> Centres:
    (tmp_path / "dcB" / "other").mkdir(parents=True)
    return Centres(tmp_path)


def other_switch(centres: Centres, **changes: Any) -> Any:
    """The same job is switched into another TARGET_ROOT by somebody else."""
    target = centres.target.replace("replicas", "other")
    sync = SyncRequest("", target, execution=ExecutionOptions(runner="inline"))
    return switch(centres.request(sync=sync, **changes), centres.clusters, silent)


def meanwhile(centres: Centres, moment: Any) -> list[Any]:
    """Have the other switch run at a call of a switch, and return where its result will be."""
    (where, verb), number, when = moment
    calls, done = [0], list[Any]()

    def begin(called: str) -> None:
        calls[0] += called == verb
        if called == verb and calls[0] == number:
            with suppress(CpreplicateError):
                done.append(other_switch(centres))

    setattr(getattr(centres, where), when, begin)
    return done


@pytest.mark.parametrize("moment", MOMENTS, ids=str)
def test_it_runs_once_when_both_come_to_the_same_cluster(centres: Centres, moment: Any) -> None:
    switched = meanwhile(centres, moment)
    with suppress(SwitchUnclear):
        switched.append(centres.switch())
    (job_id,) = centres.running()
    assert [each.new_job for each in switched] == [job_id] * len(switched)
    restored = centres.b.jobs[job_id].restored
    for each in switched:
        assert restored == f"{each.replica}/{each.checkpoint}"


@pytest.mark.parametrize("moment", MOMENTS, ids=str)
def test_it_runs_once_where_it_ran_when_neither_can_start_it(centres: Centres, moment: Any) -> None:
    meanwhile(centres, moment)
    refuse = centres.b.before

    def refused(verb: str) -> None:
        refuse(verb)
        if verb == "run":
            raise FlinkRefused("no such class", 400)

    centres.b.before = refused
    with pytest.raises((NotSwitched, SwitchUnclear)):
        centres.switch()
    (job_id,) = centres.running()
    assert centres.a.running() == [job_id]


def test_one_that_is_taken_back_leaves_the_job_that_the_other_one_started(
    centres: Centres,
) -> None:
    done = meanwhile(centres, (("a", "cancel"), 1, "before"))
    with pytest.raises(SwitchUnclear, match="`cpreplicate unseal"):
        centres.switch()
    running = centres.running()
    assert running == [done[0].new_job]
    with pytest.raises(SwitchUnclear, match="into another TARGET_ROOT"):
        centres.switch(take_back=True)
    assert centres.running() == running


def test_an_id_follows_from_the_life_of_the_job_that_ends() -> None:
    lives = [("0" * 32, "orders", 1.0), ("0" * 32, "orders", 2.0), ("0" * 32, "pay", 1.0)]
    ids = {id_of_next(*life, where) for life in lives for where in ("target", "origin")}
    assert len(ids) == 6
    assert {id_of_next(*life, "target") for life in lives * 2} < ids
