"""The last point of a job that was stopped: the right one, or none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cpreplicate.core.notify import silent
from cpreplicate.errors import NotSwitched, SwitchUnclear
from cpreplicate.flink import Overview
from cpreplicate.flink.control import Operation
from cpreplicate.operations.handover.switch import ending
from cpreplicate.operations.handover.switch.request import Clusters
from cpreplicate.operations.handover.switch.switch import switch
from cpreplicate.protocol.source import find
from cpreplicate.protocol.switch_record import SwitchRecord, read_switch, switching
from cpreplicate.storage import Side, Transient
from tests.operations.handover.switch.test_steps import Centres, Killed, fails_at
from tests.support.jobs import JOB
from tests.support.simulated_flink import SimulatedControl, SimulatedFlink


@pytest.fixture
def centres(tmp_path: Path) -> Centres:
    return Centres(tmp_path)


def record_of(centres: Centres) -> SwitchRecord:
    found = read_switch(Side(), centres.replica)
    assert found is not None
    return found


def deployed_elsewhere(centres: Centres) -> None:
    """Have the job begin anew under its id, with another directory of checkpoints."""
    centres.a.root += "/v2"
    centres.a.begin_anew(JOB)


@pytest.mark.parametrize("number", [1, 2], ids=["of a round", "of the last point"])
def test_a_job_that_was_deployed_with_another_directory_meanwhile_is_not_stopped(
    centres: Centres, number: int
) -> None:
    for _ in range(20):
        centres.a.complete(JOB)
    asked = list[str]()

    def deploy(verb: str) -> None:
        asked.extend([verb] * (verb == "trigger"))
        if verb == "trigger" and len(asked) == number:
            deployed_elsewhere(centres)

    centres.a.before = deploy
    with pytest.raises(NotSwitched, match=r"v2/\w+ now, .* It was not stopped by this run"):
        centres.switch()
    assert centres.running() == [JOB]
    assert not record_of(centres).is_open
    done = centres.switch()  # as the message advises
    record = read_switch(Side(), done.replica)  # of the other directory
    assert record is not None
    assert record.point == f"{centres.a.root}/{JOB}/{done.checkpoint}"
    assert centres.running() == centres.b.running() == [done.new_job]


def test_a_job_without_a_checkpoint_since_it_began_anew_is_not_stopped(centres: Centres) -> None:
    centres.a.version = centres.b.version = (1, 16)  # which takes none when asked

    class Anew(SimulatedControl):
        """The job begins anew before it is to be stopped."""

        def is_stopping(self, job_id: str) -> bool:
            deployed_elsewhere(centres)
            return super().is_stopping(job_id)

    clusters = Clusters(Anew(centres.a), SimulatedControl(centres.b))
    with pytest.raises(NotSwitched, match="Run again once it completed one"):
        switch(centres.request(), clusters, silent)
    assert centres.running() == [JOB]


def test_the_checkpoint_of_a_former_directory_is_not_the_last_point_of_a_job_that_has_ended(
    centres: Centres,
) -> None:
    centres.a.before = fails_at("cancel", 1, Killed())
    with pytest.raises(Killed):
        centres.switch()
    centres.a.root += "/v2"
    centres.a.complete(JOB)
    centres.a.jobs[JOB].state = "CANCELED"
    with pytest.raises(SwitchUnclear, match=r"its last checkpoint is file:.*/v2/.*/chk-4, not in"):
        centres.switch()
    assert centres.running() == []


def cut_short(centres: Centres, number: int) -> None:
    """Leave a checkpoint whose `_metadata` is cut short, as a JobManager that dies does."""
    place = Path(centres.a.root.removeprefix("file:")) / JOB
    whole = (place / f"chk-{number - 1}" / "_metadata").read_bytes()
    (place / f"chk-{number}").mkdir()
    (place / f"chk-{number}" / "_metadata").write_bytes(whole[: len(whole) // 2])


def test_a_checkpoint_that_is_cut_short_is_not_the_last_point(centres: Centres) -> None:
    def cut(verb: str) -> None:
        if verb == "cancel":
            cut_short(centres, centres.a.jobs[JOB].newest + 1)

    centres.a.before = cut
    done = centres.switch()
    assert done.checkpoint == f"chk-{centres.a.jobs[JOB].newest}"
    assert centres.running() == centres.b.running() == [done.new_job]


def test_a_checkpoint_that_completed_and_is_cut_short_leaves_the_job_to_a_person(
    centres: Centres,
) -> None:
    def cut(verb: str) -> None:
        if verb == "cancel":
            cut_short(centres, centres.a.jobs[JOB].newest + 1)
            centres.a.jobs[JOB].newest += 1

    centres.a.before = cut
    with pytest.raises(SwitchUnclear, match="its checkpoint 4 is not in"):
        centres.switch()
    assert centres.running() == []


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_job_that_reached_its_end_before_it_was_cancelled_is_started_nowhere(
    centres: Centres, is_killed: bool
) -> None:
    def finish(verb: str) -> None:
        if verb == "cancel":
            centres.a.jobs[JOB].state = "FINISHED"
            if is_killed:
                raise Killed

    centres.a.before = finish
    if is_killed:
        with pytest.raises(Killed):
            centres.switch()
    with pytest.raises(SwitchUnclear, match=r"FINISHED .* before it was cancelled"):
        centres.switch(take_back=is_killed)
    assert centres.running() == []
    assert set(centres.a.jobs) == {JOB}
    assert not record_of(centres).is_open


class Storage:
    """The storage of the source, which does not answer at the look for the last point."""

    is_lost = True

    def find(self, *of: Any) -> Any:
        if self.is_lost:
            raise Transient("the NameNode is in standby")
        return find(*of)


@pytest.mark.parametrize("is_taken_back", [False, True])
def test_an_end_that_was_seen_is_known_when_the_storage_answers_again(
    centres: Centres, monkeypatch: pytest.MonkeyPatch, is_taken_back: bool
) -> None:
    class Gone(SimulatedControl):
        """The JobManager of an application, which ends with its job."""

        def jobs(self) -> Overview:
            known = read_switch(Side(), centres.replica)
            if known is not None and known.ended:
                raise Transient("connection refused")
            return super().jobs()

    storage = Storage()
    monkeypatch.setattr(ending, "find", storage.find)
    clusters = Clusters(Gone(centres.a), SimulatedControl(centres.b))
    with pytest.raises(SwitchUnclear, match="its last point was not found: the NameNode is in"):
        switch(centres.request(), clusters, silent)
    assert record_of(centres).ended == "CANCELED"
    storage.is_lost = False
    if is_taken_back:
        assert centres.switch(take_back=True).outcome == "taken back"
        assert centres.running() == centres.a.running() == [record_of(centres).back_job]
    else:
        done = switch(centres.request(), clusters, silent)
        assert centres.running() == centres.b.running() == [done.new_job]


def see_the_end_alone(centres: Centres, monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin a switch that sees the end of the job, and not its last point. That is there again."""
    storage = Storage()
    monkeypatch.setattr(ending, "find", storage.find)
    with pytest.raises(SwitchUnclear, match="its last point was not found"):
        centres.switch()
    storage.is_lost = False


def test_an_end_that_was_seen_is_not_that_of_a_job_which_was_started_again_since(
    centres: Centres, monkeypatch: pytest.MonkeyPatch
) -> None:
    see_the_end_alone(centres, monkeypatch)
    own = f"{centres.a.root}/{JOB}/chk-{centres.a.jobs[JOB].newest}"
    centres.a.begin_anew(JOB, own)
    for is_taken_back in (False, True):
        with pytest.raises(SwitchUnclear, match="something started it anew"):
            centres.switch(take_back=is_taken_back)
    assert centres.running() == [JOB]


def test_an_end_that_was_seen_does_not_need_the_jobmanager_that_reported_it(
    centres: Centres, monkeypatch: pytest.MonkeyPatch
) -> None:
    see_the_end_alone(centres, monkeypatch)
    restarted = SimulatedFlink(centres.a.url, centres.a.root)
    clusters = Clusters(SimulatedControl(restarted), SimulatedControl(centres.b))
    done = switch(centres.request(), clusters, silent)
    assert centres.running() == centres.b.running() == [done.new_job]
    assert restarted.jobs == {}


class Stopped(SimulatedControl):
    """A cluster that answers about a last savepoint as it is given."""

    answers: list[Operation]

    def savepoint_result(self, job_id: str, trigger_id: str) -> Operation:
        assert (job_id, bool(trigger_id)) == (JOB, True)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def stopped_with_savepoint(centres: Centres, state: str, *answers: Operation) -> Clusters:
    """Have a switch die after it asked for the last savepoint, and the job end in a state."""
    centres.a.before = fails_at("trigger", 2, Killed())
    with pytest.raises(Killed):
        centres.switch()
    with switching(centres.replica, Side(), record_of(centres)) as log:
        log.write(stop="savepoint")
    centres.a.jobs[JOB].state = state
    control = Stopped(centres.a)
    control.answers = list(answers)
    return Clusters(control, SimulatedControl(centres.b))


@pytest.mark.parametrize(
    ("state", "answer", "text"),
    [
        ("FINISHED", Operation(is_known=False), "does not know its savepoint any more"),
        ("FINISHED", Operation(True, True, failure="expired"), "failed: expired.*reached its end"),
        ("CANCELED", Operation(True, True, failure="expired"), "failed: expired.*newest checkpoi"),
    ],
)
def test_why_a_job_has_no_last_savepoint_is_reported_as_it_is(
    centres: Centres, state: str, answer: Operation, text: str
) -> None:
    clusters = stopped_with_savepoint(centres, state, answer)
    with pytest.raises(SwitchUnclear, match=text):
        switch(centres.request(stop="savepoint"), clusters, silent)
    assert centres.running() == []


def test_a_last_savepoint_that_is_not_done_when_the_job_has_ended_is_waited_for(
    centres: Centres,
) -> None:
    point = f"{centres.a.root}/{JOB}/chk-2"
    answers = (Operation(), Operation(), Operation(True, True, path=point))
    clusters = stopped_with_savepoint(centres, "FINISHED", *answers)
    asked = centres.request(stop="savepoint", patience=60.0, take_back=True)
    assert switch(asked, clusters, silent).outcome == "taken back"
    (job_id,) = centres.running()
    assert centres.a.jobs[job_id].restored == point


def test_a_job_that_reached_its_end_is_not_to_be_started_by_hand(centres: Centres) -> None:
    class Finishes(SimulatedControl):
        """The job ends by itself when a savepoint is to be asked for, which is refused then."""

        def stop_with_savepoint(self, *_of: Any, **_with: Any) -> str:
            centres.a.jobs[JOB].state = "FINISHED"
            raise NotSwitched("the job has gone")

    clusters = Clusters(Finishes(centres.a), SimulatedControl(centres.b))
    with pytest.raises(SwitchUnclear, match="there is nothing to start") as raised:
        switch(centres.request(stop="savepoint"), clusters, silent)
    assert "start it from there" not in str(raised.value)
    assert centres.running() == []
