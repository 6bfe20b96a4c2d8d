"""A job that is switched into two TARGET_ROOTs at the same time runs once, whoever comes first."""

from __future__ import annotations

import itertools
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from cpreplicate.core.notify import silent
from cpreplicate.errors import CpreplicateError, FlinkRefused, NotSwitched, Refused, SwitchUnclear
from cpreplicate.flink.control import Operation
from cpreplicate.operations.handover.switch.request import Clusters
from cpreplicate.operations.handover.switch.switch import switch
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.protocol.switch_record import claims, id_of_next, read_switch
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import Side
from tests.operations.handover.switch.test_steps import CALLS, Centres, fails_at
from tests.support.jobs import JOB
from tests.support.simulated_flink import SimulatedControl, SimulatedFlink

MOMENTS = list(itertools.product(CALLS, (1, 2), ("before", "after")))


@pytest.fixture
def centres(tmp_path: Path) -> Centres:
    (tmp_path / "dcB" / "other").mkdir(parents=True)
    return Centres(tmp_path)


def other_switch(centres: Centres, target: SimulatedFlink | None = None, **changes: Any) -> Any:
    """The same job is switched into another TARGET_ROOT by somebody else."""
    place = centres.target.replace("replicas", "other")
    sync = SyncRequest("", place, execution=ExecutionOptions(runner="inline"))
    clusters = Clusters(SimulatedControl(centres.a), SimulatedControl(target or centres.b))
    return switch(centres.request(sync=sync, **changes), clusters, silent)


def meanwhile(centres: Centres, moment: Any, target: SimulatedFlink | None = None) -> list[Any]:
    """Have the other switch run at a call of a switch, and return where its result will be.

    It is to start the job at another `target`, if one is given.
    """
    (where, verb), number, when = moment
    calls, done = [0], list[Any]()

    def begin(called: str) -> None:
        calls[0] += called == verb
        if called == verb and calls[0] == number:
            with suppress(CpreplicateError):
                done.append(other_switch(centres, target))

    setattr(getattr(centres, where), when, begin)
    return done


@pytest.mark.parametrize("moment", MOMENTS, ids=str)
def test_it_runs_once_when_both_come_to_the_same_cluster(centres: Centres, moment: Any) -> None:
    switched = meanwhile(centres, moment)
    with suppress(SwitchUnclear, Refused):
        switched.append(centres.switch())
    (job_id,) = centres.running()
    assert [each.new_job for each in switched] == [job_id] * len(switched)
    restored = centres.b.jobs[job_id].restored
    for each in switched:
        assert restored == f"{each.replica}/{each.checkpoint}"


@pytest.mark.parametrize("moment", MOMENTS, ids=str)
def test_it_runs_once_when_they_lead_to_two_clusters(
    centres: Centres, tmp_path: Path, moment: Any
) -> None:
    third = SimulatedFlink("http://c:8081", f"file:{tmp_path}/dcC")
    switched = meanwhile(centres, moment, third)
    with suppress(SwitchUnclear, Refused):
        switched.append(centres.switch())
    (job_id,) = [*centres.running(), *third.running()]
    assert [each.new_job for each in switched] == [job_id]
    assert centres.a.running() == []


def test_of_two_that_ask_for_the_last_checkpoint_at_once_none_stops_it(centres: Centres) -> None:
    """Each has asked before the other looks: which of them was first shows nowhere."""

    def ask(verb: str) -> None:
        record = read_switch(Side(), centres.replica)
        if verb == "trigger" and record is not None and record.claim:
            other = next(each for each in claims(record) if each != record.claim)
            centres.a.jobs[JOB].triggered[other] = Operation(is_known=True)

    centres.a.before = ask
    with pytest.raises(Refused, match=r"was not stopped by this run: .* in 6 minutes"):
        centres.switch()
    assert centres.running() == [JOB]
    with pytest.raises(Refused, match="another `switch` of it"):
        centres.switch()
    centres.a.before = lambda _verb: None
    centres.a.jobs[JOB].triggered.clear()  # as Flink does after five minutes
    assert centres.switch().outcome == "switched"


def test_a_switch_whose_own_try_failed_is_not_taken_for_another_one(centres: Centres) -> None:
    centres.a.before = fails_at("cancel", 1, FlinkRefused("not now", 500))
    with pytest.raises(NotSwitched):
        centres.switch()
    record = read_switch(Side(), centres.replica)
    assert record is not None
    assert record.claim in claims(record)
    assert record.claim in centres.a.jobs[JOB].triggered
    assert centres.switch().outcome == "switched"


@pytest.mark.parametrize("moment", MOMENTS, ids=str)
def test_it_runs_once_where_it_ran_when_neither_can_start_it(centres: Centres, moment: Any) -> None:
    meanwhile(centres, moment)
    refuse = centres.b.before

    def refused(verb: str) -> None:
        refuse(verb)
        if verb == "run":
            raise FlinkRefused("no such class", 400)

    centres.b.before = refused
    with pytest.raises((NotSwitched, SwitchUnclear, Refused)):
        centres.switch()
    (job_id,) = centres.running()
    assert centres.a.running() == [job_id]


def test_one_that_is_taken_back_leaves_the_job_that_the_other_one_started(
    centres: Centres,
) -> None:
    done = meanwhile(centres, (("a", "cancel"), 1, "before"))
    begin = centres.a.before

    def late(verb: str) -> None:
        if verb == "cancel":  # five minutes after Flink was asked for the last checkpoint
            centres.a.jobs[JOB].triggered.clear()
        begin(verb)

    centres.a.before = late
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
