"""A switch that goes on late, elsewhere or with wrong words: a job never runs twice."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cpreplicate.core.notify import silent
from cpreplicate.errors import (
    FlinkRefused,
    LeaseHeld,
    MetadataError,
    NotSwitched,
    NotThere,
    Refused,
    SwitchUnclear,
)
from cpreplicate.flink import Overview
from cpreplicate.flink.control import Operation
from cpreplicate.operations.handover.switch import switch as steps
from cpreplicate.operations.handover.switch.preview import preview, running_job
from cpreplicate.operations.handover.switch.request import Clusters, Program
from cpreplicate.operations.handover.switch.starting import wait_until_it_runs
from cpreplicate.operations.handover.switch.switch import switch
from cpreplicate.operations.handover.unseal import UnsealRequest, unseal
from cpreplicate.protocol.switch_record import SwitchRecord, new_id, read_switch, switching
from cpreplicate.storage import Side, Transient
from tests.operations.handover.switch.test_steps import Centres, Killed, fails_at
from tests.support.jobs import JOB, NEXT_JOB
from tests.support.simulated_flink import SimulatedControl, SimulatedFlink


@pytest.fixture
def centres(tmp_path: Path) -> Centres:
    return Centres(tmp_path)


def killed_at(centres: Centres, verb: str, number: int = 1, when: str = "after") -> None:
    cluster = centres.b if verb == "run" else centres.a
    setattr(cluster, when, fails_at(verb, number, Killed()))
    with pytest.raises(Killed):
        centres.switch()
    setattr(cluster, when, lambda _verb: None)


def record_of(centres: Centres) -> SwitchRecord:
    found = read_switch(Side(), centres.replica)
    assert found is not None
    return found


@pytest.mark.parametrize("is_taken_back", [False, True])
@pytest.mark.parametrize("where", ["a", "b"])
def test_an_open_switch_does_not_go_on_once_its_job_was_started_by_hand(
    centres: Centres, where: str, is_taken_back: bool
) -> None:
    killed_at(centres, "cancel")
    getattr(centres, where).start(NEXT_JOB, "orders")
    with pytest.raises(SwitchUnclear, match="it could run twice"):
        centres.switch(take_back=is_taken_back)
    assert centres.running() == [NEXT_JOB]


def test_the_way_back_of_a_switch_that_is_open_is_not_undone_by_it(centres: Centres) -> None:
    killed_at(centres, "run")  # it runs in B, and the record does not know
    (moved,) = centres.b.running()
    centres.b.jobs[moved].state = "CANCELED"
    centres.a.start(NEXT_JOB, "orders")
    with pytest.raises(SwitchUnclear, match=f"{centres.replica}/.cpreplicate/switch.json"):
        centres.switch()
    assert centres.running() == [NEXT_JOB]


def test_a_job_whose_start_was_left_to_the_operator_is_switched_again_in_its_next_life(
    centres: Centres,
) -> None:
    alone = Clusters(SimulatedControl(centres.a))
    assert switch(centres.request(), alone, silent).outcome == "promoted"
    assert switch(centres.request(), alone, silent).outcome == "promoted"  # shown again
    for next_life in (NEXT_JOB, JOB):
        unseal(UnsealRequest(centres.replica, None))
        newest = centres.a.jobs[JOB].newest
        centres.a.start(next_life, "orders", f"{centres.a.root}/{JOB}/chk-{newest}")
        seen = switch(centres.request(dry_run=True), alone, silent)
        assert (seen.outcome, seen.job_id) == ("can be switched", next_life)
        done = switch(centres.request(), alone, silent)
        assert done.job_id == next_life
        assert centres.a.running() == []
        if next_life == NEXT_JOB:
            centres.replica = str(done.replica)


def test_a_switch_that_another_run_ended_before_this_one_had_its_lease_is_not_repeated(
    centres: Centres, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_at(centres, "cancel")
    real = switching

    def late(*arguments: Any) -> Any:
        monkeypatch.setattr(steps, "switching", real)
        assert centres.switch().outcome == "switched"
        return real(*arguments)

    monkeypatch.setattr(steps, "switching", late)
    with pytest.raises(LeaseHeld, match="another run ended the switch of orders"):
        centres.switch()
    assert centres.running() == centres.b.running()
    assert len(centres.running()) == 1


@pytest.mark.parametrize("is_taken_back", [False, True])
def test_a_job_of_the_same_id_in_another_cluster_is_left_alone(
    centres: Centres, is_taken_back: bool
) -> None:
    killed_at(centres, "trigger", number=2, when="before")
    centres.a.jobs[JOB].name = "invoices"
    with pytest.raises(SwitchUnclear, match="leads to another cluster"):
        centres.switch(take_back=is_taken_back)
    assert centres.running() == [JOB]
    assert record_of(centres).is_open


def test_a_job_that_reaches_its_end_in_b_is_not_started_again_in_a(centres: Centres) -> None:
    def finish(verb: str) -> None:
        if verb == "run":
            (started,) = centres.b.jobs.values()
            started.state = "FINISHED"

    centres.b.after = finish
    with pytest.raises(SwitchUnclear, match="reached its end there"):
        centres.switch()
    assert centres.running() == []
    assert set(centres.a.jobs) == {JOB}


def test_a_job_that_somebody_else_stopped_is_started_nowhere(centres: Centres) -> None:
    def stop(_verb: str) -> None:
        centres.a.jobs[JOB].state = "CANCELED"  # of a switch into another TARGET_ROOT

    centres.a.after = stop
    with pytest.raises(SwitchUnclear, match="did not stop it"):
        centres.switch()
    assert centres.running() == []


def test_a_wrong_jar_does_not_take_a_switch_back(centres: Centres) -> None:
    killed_at(centres, "run")
    running = centres.running()
    wrong = Program(jar="./not-here.jar")
    assert centres.switch(program=wrong).outcome == "switched"  # it needs no jar any more
    assert centres.running() == centres.b.running() == running


def test_a_wrong_jar_leaves_a_switch_open(centres: Centres) -> None:
    killed_at(centres, "cancel")
    with pytest.raises(SwitchUnclear, match="Correct it"):
        centres.switch(program=Program(jar="not-there.jar"))
    done = centres.switch()
    assert centres.running() == centres.b.running() == [done.new_job]


class NoUpload(SimulatedControl):
    """A cluster that refuses a jar that is uploaded."""

    def upload(self, jar: str) -> str:
        raise FlinkRefused(f"{jar} is no jar", 400)


def test_a_jar_that_the_target_refuses_leaves_a_switch_open(
    centres: Centres, tmp_path: Path
) -> None:
    killed_at(centres, "cancel")
    (tmp_path / "own.jar").touch()
    asked = centres.request(program=Program(jar=f"{tmp_path}/own.jar"))
    clusters = Clusters(SimulatedControl(centres.a), NoUpload(centres.b))
    with pytest.raises(SwitchUnclear, match=r"own.jar is no jar\. Correct it"):
        switch(asked, clusters, silent)
    done = centres.switch()
    assert centres.running() == centres.b.running() == [done.new_job]


def test_a_jar_that_the_origin_refuses_leaves_a_switch_open_to_be_taken_back(
    centres: Centres, tmp_path: Path
) -> None:
    killed_at(centres, "cancel")
    (tmp_path / "own.jar").touch()
    asked = centres.request(take_back=True, origin_program=Program(jar=f"{tmp_path}/own.jar"))
    clusters = Clusters(NoUpload(centres.a), SimulatedControl(centres.b))
    with pytest.raises(SwitchUnclear, match="with another --origin-jar"):
        switch(asked, clusters, silent)
    assert centres.switch(take_back=True).outcome == "taken back"
    assert centres.running() == centres.a.running() == [record_of(centres).back_job]


def killed_once_it_runs_again(centres: Centres) -> None:
    """Begin a switch, and take it back: that dies once the job is started where it ran."""
    killed_at(centres, "cancel")
    centres.a.after = fails_at("run", 1, Killed())
    with pytest.raises(Killed):
        centres.switch(take_back=True)
    centres.a.after = lambda _verb: None


def test_a_job_that_went_on_where_it_ran_and_ended_is_not_taken_back_to_an_older_point(
    centres: Centres,
) -> None:
    killed_once_it_runs_again(centres)
    (back,) = centres.a.running()
    newest = centres.a.complete(back)
    centres.a.jobs[back].state = "CANCELED"
    with pytest.raises(SwitchUnclear, match=f"It went on there to .*{back}/chk-{newest}: that"):
        centres.switch()
    assert centres.running() == []
    assert not record_of(centres).is_open


def test_a_job_that_went_on_in_b_before_its_switch_did_stays_there(centres: Centres) -> None:
    killed_at(centres, "run")
    (moved,) = centres.b.running()
    own = f"{centres.b.root}/{moved}/chk-{centres.b.complete(moved)}"
    centres.b.jobs[moved].restored = own
    assert centres.switch().outcome == "switched"
    assert centres.running() == centres.b.running() == [moved]


def test_a_job_that_may_have_begun_with_empty_state_is_left_to_a_person(centres: Centres) -> None:
    centres.b.start(NEXT_JOB, "orders")
    centres.b.jobs[NEXT_JOB].restored = f"{centres.b.root}/{NEXT_JOB}/chk-1"
    control = SimulatedControl(centres.b)
    point = f"{centres.replica}/chk-1"
    with pytest.raises(SwitchUnclear, match="It was left running"):
        wait_until_it_runs(NEXT_JOB, point, control, centres.request(), "advice")
    assert centres.b.running() == [NEXT_JOB]


def test_a_start_that_ran_into_a_timeout_within_flink_is_asked_for_again(centres: Centres) -> None:
    late = FlinkRefused("java.util.concurrent.TimeoutException: Invocation of submitJob", 400)
    centres.b.after = fails_at("run", 1, late)
    done = centres.switch(patience=60.0)
    assert centres.running() == centres.b.running() == [done.new_job]


class Renaming(SimulatedControl):
    """A cluster that starts each job under an id of its own."""

    def run(self, jar_id: str, run: Any, version: Any) -> str:
        own = new_id()
        super().run(jar_id, run._replace(job_id=own), version)
        return own


def test_a_job_that_is_started_under_another_id_has_ended_before_it_is_taken_back(
    centres: Centres,
) -> None:
    centres.b.after = fails_at("cancel", 1, Transient("the answer is lost"))
    clusters = Clusters(SimulatedControl(centres.a), Renaming(centres.b))
    with pytest.raises(NotSwitched, match="instead of"):
        switch(centres.request(patience=60.0), clusters, silent)
    assert len(centres.b.jobs) == 1
    assert centres.running() == centres.a.running() != []


def test_a_cancel_that_is_not_allowed_leaves_the_job_running(centres: Centres) -> None:
    centres.a.before = fails_at("cancel", 1, FlinkRefused("Forbidden", 403))
    with pytest.raises(NotSwitched, match="Forbidden"):
        centres.switch()
    assert centres.running() == [JOB]


class Saving(SimulatedControl):
    """A cluster whose job ends with a savepoint once somebody asks for it."""

    def savepoint_result(self, job_id: str, trigger_id: str) -> Operation:
        assert trigger_id
        self.sim.jobs[job_id].state = "FINISHED"
        return Operation(is_done=True, path=f"{self.sim.root}/{job_id}/chk-1")


def test_a_job_that_takes_its_last_savepoint_is_not_reported_as_running_on(
    centres: Centres,
) -> None:
    killed_at(centres, "trigger", number=2, when="before")
    with switching(centres.replica, Side(), record_of(centres)) as log:
        log.write(stop="savepoint")
    clusters = Clusters(Saving(centres.a), SimulatedControl(centres.b))
    done = switch(centres.request(stop="savepoint", take_back=True), clusters, silent)
    assert "it runs again" in done.warnings[0]
    assert centres.running() == centres.a.running() == [record_of(centres).back_job]


def test_a_checkpoint_that_takes_longer_before_the_stop_is_no_reason_for_alarm(
    centres: Centres,
) -> None:
    class Slow(SimulatedControl):
        def checkpoint_result(self, *_of: str) -> Operation:
            return Operation()

    clusters = Clusters(Slow(centres.a), SimulatedControl(centres.b))
    with pytest.raises(NotSwitched, match="was not stopped, and runs on"):
        switch(centres.request(), clusters, silent)
    assert centres.running() == [JOB]


def test_a_job_that_was_stopped_is_not_left_so_because_another_one_failed(centres: Centres) -> None:
    killed_at(centres, "cancel")
    is_halted = threading.Event()
    is_halted.set()
    done = switch(centres.request(), centres.clusters, silent, is_halted)
    assert centres.running() == [done.new_job]


def test_a_failure_of_the_way_back_is_reported_with_what_failed_before(centres: Centres) -> None:
    refused = threading.Event()

    class Broken(SimulatedControl):
        def jobs(self) -> Overview:
            if refused.is_set():
                raise MetadataError("an answer of a login page")
            return super().jobs()

    def refuse(verb: str) -> None:
        if verb == "run":
            refused.set()
            raise FlinkRefused("no such class", 400)

    centres.b.before = refuse
    clusters = Clusters(Broken(centres.a), SimulatedControl(centres.b))
    with pytest.raises(SwitchUnclear, match=r"no such class.*be taken back: an answer of a login"):
        switch(centres.request(), clusters, silent)
    assert centres.switch(take_back=True).outcome == "taken back"
    assert centres.running() == centres.a.running() != []


def test_a_job_that_ended_in_b_since_was_not_switched_before(centres: Centres) -> None:
    done = centres.switch()
    elsewhere = Clusters(SimulatedControl(centres.a), SimulatedControl(other_of(centres)))
    with pytest.raises(NotThere):
        switch(centres.request(), elsewhere, silent)
    centres.b.jobs[str(done.new_job)].state = "FAILED"
    with pytest.raises(NotThere):
        centres.switch()


def other_of(centres: Centres) -> SimulatedFlink:
    return SimulatedFlink("http://c:8081", centres.b.root)


@pytest.mark.parametrize("is_named", [False, True], ids=["configured", "named"])
def test_a_savepoint_that_could_not_be_read_is_refused_before_the_stop(
    centres: Centres, is_named: bool
) -> None:
    place = "file:///elsewhere" if is_named else None
    asked = centres.request(stop="savepoint", savepoints=place)
    root = f"{centres.a.root}/{JOB}"  # a configured directory is its parent
    asked = replace(asked, sync=replace(asked.sync, source_roots=(root,)))
    with pytest.raises(Refused, match="is outside the source's roots"):
        switch(asked, centres.clusters, silent)
    assert centres.running() == [JOB]


def test_two_urls_of_one_cluster_are_reported_as_such(centres: Centres) -> None:
    again = SimulatedControl(centres.a)
    again.url = "http://10.0.0.1:8081"
    clusters = Clusters(SimulatedControl(centres.a), again)
    seen = preview(running_job("orders", clusters.origin), centres.request(), clusters)
    (reason,) = [each for each in seen.refusals if "10.0.0.1" in each and JOB in each]
    assert "same cluster" in reason
    assert "Cancel it" not in reason


def test_a_cluster_to_which_the_url_of_the_target_leads_meanwhile_starts_no_second_job(
    centres: Centres,
) -> None:
    killed_at(centres, "run")  # it runs in B
    (moved,) = centres.b.running()
    elsewhere = SimulatedFlink(centres.b.url, centres.b.root)
    clusters = Clusters(SimulatedControl(centres.a), SimulatedControl(elsewhere))
    with pytest.raises(SwitchUnclear, match="its URL leads elsewhere, or it was restarted"):
        switch(centres.request(), clusters, silent)
    assert elsewhere.jobs == {}
    assert centres.switch().new_job == moved
    assert centres.running() == [moved]


@pytest.mark.parametrize("is_taken_back", [False, True])
def test_a_cluster_to_which_the_url_of_the_origin_leads_meanwhile_has_no_job_stopped(
    centres: Centres, is_taken_back: bool
) -> None:
    killed_at(centres, "trigger", number=2, when="before")
    elsewhere = SimulatedFlink(centres.a.url, centres.b.root)
    elsewhere.start(JOB, "orders")  # as each application with high availability has one
    clusters = Clusters(SimulatedControl(elsewhere), SimulatedControl(centres.b))
    with pytest.raises(SwitchUnclear, match="is not the JobManager any more"):
        switch(centres.request(take_back=is_taken_back), clusters, silent)
    assert elsewhere.running() == [JOB]
    assert centres.switch().outcome == "switched"


def test_a_job_that_is_started_again_where_it_ran_is_not_started_by_another_cluster(
    centres: Centres,
) -> None:
    killed_once_it_runs_again(centres)
    elsewhere = SimulatedFlink(centres.a.url, centres.a.root)
    clusters = Clusters(SimulatedControl(elsewhere), SimulatedControl(centres.b))
    with pytest.raises(SwitchUnclear, match="its URL leads elsewhere, or it was restarted"):
        switch(centres.request(take_back=True), clusters, silent)
    assert elsewhere.jobs == {}
    assert centres.switch(take_back=True).outcome == "taken back"
    assert centres.running() == centres.a.running() == [record_of(centres).back_job]


def test_a_wrong_origin_jar_leaves_a_switch_open_to_be_taken_back(centres: Centres) -> None:
    killed_at(centres, "cancel")
    for wrong in ("./not-here.jar", "not-there.jar"):
        with pytest.raises(SwitchUnclear, match="with another --origin-jar"):
            centres.switch(take_back=True, origin_program=Program(jar=wrong))
    assert record_of(centres).is_open
    assert centres.switch(take_back=True).outcome == "taken back"
    assert centres.running() == centres.a.running() == [record_of(centres).back_job]


def test_a_wrong_origin_jar_after_the_target_refused_the_job_leaves_it_to_be_taken_back(
    centres: Centres,
) -> None:
    centres.b.before = fails_at("run", 1, FlinkRefused("no such class", 400))
    with pytest.raises(SwitchUnclear, match="with another --origin-jar"):
        centres.switch(origin_program=Program(jar="not-there.jar"))
    assert centres.switch(take_back=True).outcome == "taken back"
    assert centres.running() == centres.a.running() == [record_of(centres).back_job]


def test_a_switch_whose_origin_does_not_answer_is_not_taken_back_and_a_person_has_to_act(
    centres: Centres,
) -> None:
    class Lost(SimulatedControl):
        def jobs(self) -> Overview:
            raise Transient("connection refused")

    killed_at(centres, "cancel")
    clusters = Clusters(Lost(centres.a), SimulatedControl(centres.b))
    with pytest.raises(SwitchUnclear, match=r"could not be taken back: connection refused"):
        switch(centres.request(take_back=True), clusters, silent)
    assert centres.running() == []
    assert centres.switch(take_back=True).outcome == "taken back"


@pytest.mark.parametrize("restored", [None, "file:/replicas/chk-7", "{own}/chk-2"])
def test_a_job_that_began_anew_under_its_id_after_it_was_stopped_is_left_alone(
    centres: Centres, restored: str | None
) -> None:
    own = f"{centres.a.root}/{JOB}"
    killed_at(centres, "cancel")
    centres.a.begin_anew(JOB, None if restored is None else restored.format(own=own))
    for is_taken_back in (False, True):
        asked = {"take_back": is_taken_back, "patience": 60.0, "pause": 0.2}
        with pytest.raises(SwitchUnclear, match="something started it anew") as raised:
            centres.switch(**asked)
        assert f"cpreplicate sync {own}/chk-3 {centres.target}" in str(raised.value)
    assert centres.running() == [JOB]
    assert record_of(centres).is_open


def test_a_job_that_was_restored_before_its_end_is_stopped_by_the_same_switch(
    centres: Centres,
) -> None:
    killed_at(centres, "cancel", when="before")
    centres.a.begin_anew(JOB, f"{centres.a.root}/{JOB}/chk-{centres.a.jobs[JOB].newest}")
    done = centres.switch()
    assert centres.running() == centres.b.running() == [done.new_job]
