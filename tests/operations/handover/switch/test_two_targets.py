"""A job that is switched into two TARGET_ROOTs at the same time runs once, whoever comes first."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from cpreplicate.core.notify import silent
from cpreplicate.errors import (
    CpreplicateError,
    FlinkRefused,
    NoSpace,
    NotSwitched,
    NotThere,
    Refused,
    SwitchUnclear,
)
from cpreplicate.flink import Overview
from cpreplicate.flink.control import Restored
from cpreplicate.operations.handover.switch import moving
from cpreplicate.operations.handover.switch.request import Clusters
from cpreplicate.operations.handover.switch.rounds import copy_last
from cpreplicate.operations.handover.switch.switch import switch
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.protocol.switch_record import (
    SwitchRecord,
    id_of_next,
    marks,
    new_id,
    read_switch,
    switching,
)
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import Side, Transient
from tests.operations.handover.switch.test_steps import MOMENTS as CALLS
from tests.operations.handover.switch.test_steps import Centres, Killed, fails_at
from tests.support.jobs import JOB
from tests.support.simulated_flink import SimulatedControl, SimulatedFlink

MOMENTS = [
    (call, number, when)
    for call, numbers in ((each, (1, 12) if "mark" in each else (1, 2)) for each in CALLS)
    for number in numbers
    for when in ("before", "after")
]


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


def claim_of(centres: Centres) -> SwitchRecord:
    """The record of the switch, which has claimed the job."""
    record = read_switch(Side(), centres.replica)
    assert record is not None
    assert record.claim
    return record


def test_of_two_that_claim_a_job_at_once_none_stops_it(centres: Centres) -> None:
    """Each has made its marks before the other looks: which of them was first shows nowhere."""

    def claim(verb: str) -> None:
        if verb == "mark":
            record = claim_of(centres)._replace(claim=new_id())
            centres.a.marks |= {(marks(record).job_id, each) for each in marks(record).own}

    centres.a.before = claim
    with pytest.raises(Refused, match=r"was not stopped by this run: .* in 6 minutes"):
        centres.switch()
    assert centres.running() == [JOB]
    with pytest.raises(Refused, match="another `switch` of it"):
        centres.switch()
    centres.a.before = lambda _verb: None
    centres.a.marks.clear()  # as Flink does after five minutes
    assert centres.switch().outcome == "switched"


def test_a_switch_whose_own_try_failed_is_not_taken_for_another_one(centres: Centres) -> None:
    centres.a.before = fails_at("cancel", 1, FlinkRefused("not now", 500))
    with pytest.raises(NotSwitched):
        centres.switch()
    claimed = marks(claim_of(centres))
    assert centres.a.marks == {(claimed.job_id, each) for each in claimed.own}
    assert centres.switch().outcome == "switched"
    assert marks(claim_of(centres)) == claimed


def test_a_job_that_ends_with_a_savepoint_for_long_is_left_alone(centres: Centres) -> None:
    """Whoever asked for the savepoint: the marks of that switch may be forgotten."""
    centres.a.jobs[JOB].is_stopping = True
    with pytest.raises(SwitchUnclear, match="takes a savepoint with which it ends, at http://a"):
        centres.switch()
    assert centres.running() == [JOB]
    centres.a.jobs[JOB].is_stopping = False
    assert centres.switch().outcome == "switched"


def test_a_claim_that_the_jobmanager_forgot_during_a_long_checkpoint_is_made_again(
    centres: Centres, monkeypatch: pytest.MonkeyPatch
) -> None:
    triggered = list[str]()

    def long(verb: str) -> None:
        triggered.extend([verb] * (verb == "trigger"))
        if verb == "trigger" and len(triggered) == 2:  # the first one is of a round of copies
            centres.a.marks.clear()
            later = time.monotonic() + 300.0
            monkeypatch.setattr(time, "monotonic", lambda: later)

    centres.a.before = long
    assert centres.switch().outcome == "switched"
    assert len(triggered) == 2
    claimed = marks(claim_of(centres))
    assert centres.a.marks == {(claimed.job_id, each) for each in claimed.own}


def test_each_of_two_claims_has_a_mark_that_the_other_has_not(centres: Centres) -> None:
    centres.switch()
    record = claim_of(centres)
    found = [marks(record._replace(claim=new_id())) for _ in range(50)]
    for one, other in itertools.permutations(found, 2):
        assert set(one.own) & set(other.others)
        assert {*one.own, *one.others} == {*other.own, *other.others}
    assert marks(record._replace(new_job=new_id())).job_id != marks(record).job_id


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
        if verb == "cancel":  # five minutes after the job was claimed
            centres.a.marks.clear()
        begin(verb)

    centres.a.before = late
    with pytest.raises(SwitchUnclear, match="`cpreplicate unseal"):
        centres.switch()
    running = centres.running()
    assert running == [done[0].new_job]
    with pytest.raises(SwitchUnclear, match="into another TARGET_ROOT"):
        centres.switch(take_back=True)
    assert centres.running() == running


def full_after_another(
    centres: Centres, monkeypatch: pytest.MonkeyPatch, since: Callable[[], None] = lambda: None
) -> list[Any]:
    """Have another switch run before the cancel, and the last copy of this one fail `since`."""
    centres.a.version = centres.b.version = (1, 16)  # which remembers no claim
    done = meanwhile(centres, (("a", "cancel"), 1, "before"))

    def full(*of: Any) -> Any:
        if not done:
            return copy_last(*of)
        since()
        raise NoSpace("the quota is used up")

    monkeypatch.setattr(moving, "copy_last", full)
    return done


@pytest.mark.parametrize("is_reported", [True, False])
def test_a_job_of_another_switch_is_not_started_where_it_ran_whatever_it_was_restored_from_since(
    centres: Centres, monkeypatch: pytest.MonkeyPatch, is_reported: bool
) -> None:
    def fail_over() -> None:
        (job_id,) = centres.b.running()
        own = f"{centres.b.root}/{job_id}/chk-9"
        centres.b.jobs[job_id].restored = own if is_reported else None

    done = full_after_another(centres, monkeypatch, fail_over)
    with pytest.raises(SwitchUnclear, match=r"another `switch` of the same job started it"):
        centres.switch()
    assert centres.running() == centres.b.running() == [done[0].new_job]


def test_a_target_that_does_not_answer_at_once_is_asked_again_before_the_job_starts_where_it_ran(
    centres: Centres, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = full_after_another(centres, monkeypatch)
    lost = [2]

    class Blinks(SimulatedControl):
        def jobs(self) -> Overview:
            if done and lost[0]:
                lost[0] -= 1
                raise Transient("connection refused")
            return super().jobs()

    clusters = Clusters(SimulatedControl(centres.a), Blinks(centres.b))
    with pytest.raises(SwitchUnclear, match="into another TARGET_ROOT"):
        switch(centres.request(patience=60.0), clusters, silent)
    assert lost == [0]
    assert centres.running() == centres.b.running() == [done[0].new_job]


def test_how_a_switch_ends_whose_job_another_one_started_names_its_own_replica_only(
    centres: Centres, monkeypatch: pytest.MonkeyPatch
) -> None:
    full_after_another(centres, monkeypatch)
    with pytest.raises(SwitchUnclear) as raised:
        centres.switch()
    assert f"{centres.replica} followed again, delete .cpreplicate/switch.json" in str(raised.value)
    assert "unseal" not in str(raised.value)  # it was not promoted
    (Path(centres.replica.removeprefix("file:")) / ".cpreplicate/switch.json").unlink()
    with pytest.raises(NotThere):
        centres.switch()


def killed_at_the_start(centres: Centres) -> str:
    """Kill a switch right after the target has started the job, and return the id of that."""
    centres.b.after = fails_at("run", 1, Killed())
    with pytest.raises(Killed):
        centres.switch()
    centres.b.after = lambda _verb: None
    (job_id,) = centres.running()
    return job_id


@pytest.mark.parametrize("restored", ["own", "not reported", "another point"])
def test_a_job_that_another_switch_may_have_started_is_not_cancelled_by_the_way_back(
    centres: Centres, restored: str
) -> None:
    job_id = killed_at_the_start(centres)
    own = f"{centres.b.root}/{job_id}/chk-{centres.b.complete(job_id)}"
    found = {"own": own, "not reported": None, "another point": f"{centres.target}/x/chk-3"}
    centres.b.jobs[job_id].restored = found[restored]
    with pytest.raises(SwitchUnclear, match="It was left running"):
        centres.switch(take_back=True)
    assert centres.running() == centres.b.running() == [job_id]


def test_a_job_of_which_a_person_knows_who_started_it_is_taken_back_as_the_message_has_it(
    centres: Centres,
) -> None:
    job_id = killed_at_the_start(centres)
    centres.b.jobs[job_id].restored = f"{centres.b.root}/{job_id}/chk-9"
    with pytest.raises(SwitchUnclear, match=r"cancel it at http://b:8081, and run with --take-ba"):
        centres.switch(take_back=True)
    centres.b.jobs[job_id].state = "CANCELED"
    assert centres.switch(take_back=True).outcome == "taken back"
    assert centres.running() == centres.a.running() != []


def test_a_lost_answer_about_a_restore_is_asked_for_again_before_a_job_is_cancelled(
    centres: Centres,
) -> None:
    job_id = killed_at_the_start(centres)
    other = f"{centres.target.replace('replicas', 'other')}/{JOB}/chk-3"
    centres.b.jobs[job_id].restored = other
    lost = [1]

    class Blinks(SimulatedControl):
        def restored(self, job_id: str) -> Restored | None:
            if lost[0]:
                lost[0] -= 1
                raise Transient("connection refused")
            return super().restored(job_id)

    clusters = Clusters(SimulatedControl(centres.a), Blinks(centres.b))
    with pytest.raises(SwitchUnclear, match=f"from {other}: another `switch`"):
        switch(centres.request(take_back=True, patience=60.0), clusters, silent)
    assert centres.running() == [job_id]


def started_again(centres: Centres, state: str, checkpoints: int = 5) -> SwitchRecord:
    """Have a job run where it ran, as another switch has it, while this one is killed."""
    centres.b.before = fails_at("run", 1, Killed())
    with pytest.raises(Killed):
        centres.switch()
    centres.b.before = lambda _verb: None
    record = claim_of(centres)
    centres.a.start(record.back_job, "orders", record.point)
    job = centres.a.jobs[record.back_job]
    job.completed = 0
    for _ in range(checkpoints):
        centres.a.complete(record.back_job)
    job.state = state
    return record


@pytest.mark.parametrize("state", ["CANCELED", "FINISHED", "FAILED"])
@pytest.mark.parametrize("step", ["starting", "promoted"])
def test_a_job_that_went_on_where_it_ran_and_has_ended_is_not_started_from_an_older_point(
    centres: Centres, state: str, step: str
) -> None:
    record = started_again(centres, state)
    with switching(centres.replica, Side(), record) as log:
        log.write(step=step)
    newest = f"{record.back_job}/chk-{centres.a.jobs[record.back_job].newest}"
    left = "ended with a savepoint" if state == "FINISHED" else newest
    with pytest.raises(SwitchUnclear, match=f"{left}.*switch.json"):
        centres.switch()
    if step == "promoted":
        with pytest.raises(SwitchUnclear, match=f"this switch has ended.*{left}"):
            centres.switch(take_back=True)
        assert not claim_of(centres).is_open
    assert centres.running() == []


def test_a_job_that_ended_where_it_ran_before_a_checkpoint_goes_on_from_its_point(
    centres: Centres,
) -> None:
    record = started_again(centres, "FAILED", checkpoints=0)
    with pytest.raises(SwitchUnclear, match=f"since {record.point}. If .* start it from there"):
        centres.switch()
    assert centres.running() == []


@pytest.mark.parametrize("step", ["starting", "promoted"])
def test_a_switch_whose_job_runs_again_where_it_ran_ends_as_its_message_states(
    centres: Centres, step: str
) -> None:
    record = started_again(centres, "RUNNING")
    with switching(centres.replica, Side(), record) as log:
        log.write(step=step)
    with pytest.raises(SwitchUnclear, match="has started it there") as raised:
        centres.switch()
    if "With --take-back, this switch ends" in str(raised.value):
        assert centres.switch(take_back=True).outcome == "taken back"
    else:
        assert f"`cpreplicate unseal {centres.replica} --no-job-uses-it`" in str(raised.value)
        centres.unseal()
        (Path(centres.replica.removeprefix("file:")) / ".cpreplicate/switch.json").unlink()
    assert centres.running() == centres.a.running() == [record.back_job]
    assert not centres.is_sealed


def test_an_id_follows_from_the_life_of_the_job_that_ends() -> None:
    lives = [("0" * 32, "orders", 1.0), ("0" * 32, "orders", 2.0), ("0" * 32, "pay", 1.0)]
    ids = {id_of_next(*life, where) for life in lives for where in ("target", "origin")}
    assert len(ids) == 6
    assert {id_of_next(*life, "target") for life in lives * 2} < ids
