"""Each call of a switch may be its last, or lose its answer: a job never runs twice."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cpreplicate.core.notify import silent
from cpreplicate.errors import FlinkRefused, NotSwitched, NotThere, Refused, SwitchUnclear
from cpreplicate.flink import CompletedCheckpoint, Overview
from cpreplicate.flink.control import Cluster
from cpreplicate.operations.handover.switch.request import (
    Clusters,
    Program,
    Programs,
    SwitchRequest,
)
from cpreplicate.operations.handover.switch.switch import switch
from cpreplicate.operations.handover.switch.switch_all import switch_all
from cpreplicate.operations.handover.unseal import UnsealRequest, unseal
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.protocol import seal
from cpreplicate.protocol.lease import acquire
from cpreplicate.protocol.replica import Replica
from cpreplicate.protocol.switch_record import read_switch
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import Side, Transient
from tests.support.jobs import JOB, NEXT_JOB
from tests.support.registry import serving
from tests.support.simulated_flink import SimulatedControl, SimulatedFlink
from tests.support.tracing import Tracing

CALLS = [
    (where, verb)
    for where, verbs in (("a", ("trigger", "cancel")), ("b", ("run",)))
    for verb in verbs
]
MOMENTS = [*CALLS, ("a", "mark")]  # a mark can be left behind, and changes nothing else


class Killed(BaseException):
    """What ends a switch as SIGKILL does: nothing of it runs any more."""


class Centres:
    """Two data centres with a simulated cluster each, of which the first runs a job."""

    def __init__(self, place: Path) -> None:
        self.a = SimulatedFlink("http://a:8081", f"file:{place}/dcA")
        self.b = SimulatedFlink("http://b:8081", f"file:{place}/dcB/own")
        self.replica = f"file:{place}/dcB/replicas/{JOB}"
        (place / "dcB" / "replicas").mkdir(parents=True)
        self.a.start(JOB, "orders")
        self.target = f"file:{place}/dcB/replicas"

    @property
    def clusters(self) -> Clusters:
        return Clusters(SimulatedControl(self.a), SimulatedControl(self.b))

    def request(self, **changes: Any) -> SwitchRequest:
        sync = SyncRequest("", self.target, execution=ExecutionOptions(runner="inline"))
        asked = SwitchRequest("orders", sync, patience=0.05, pause=0.0)
        return replace(asked, **changes)

    def switch(self, **changes: Any) -> Any:
        return switch(self.request(**changes), self.clusters, silent)

    def running(self) -> list[str]:
        """All jobs that run anywhere."""
        return [*self.a.running(), *self.b.running()]

    def unseal(self) -> None:
        """Remove the seal of the replica."""
        unseal(UnsealRequest(self.replica, None))

    @property
    def is_sealed(self) -> bool:
        return seal.is_sealed(Replica(self.replica, Side()))


@pytest.fixture
def centres(tmp_path: Path) -> Centres:
    return Centres(tmp_path)


def fails_at(verb: str, number: int, error: BaseException) -> Callable[[str], None]:
    """Return what raises at the call of a verb that has this number."""
    calls = [0]

    def fail(called: str) -> None:
        if called == verb:
            calls[0] += 1
            if calls[0] == number:
                raise error

    return fail


def test_a_job_is_switched_and_the_switch_of_the_same_name_is_over(centres: Centres) -> None:
    done = centres.switch()
    assert done.outcome == "switched"
    assert centres.running() == [done.new_job]
    assert centres.b.running() == [done.new_job]
    assert centres.b.jobs[done.new_job].restored == f"{centres.replica}/{done.checkpoint}"
    assert int(done.checkpoint.removeprefix("chk-")) == centres.a.jobs[JOB].newest
    assert centres.is_sealed
    assert centres.switch().outcome == "switched before"
    with pytest.raises(NotThere, match="is open"):
        centres.switch(take_back=True)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize(("where", "verb"), MOMENTS)
def test_a_switch_that_dies_at_a_call_is_continued_and_the_job_runs_once(
    centres: Centres, where: str, verb: str, number: int, when: str
) -> None:
    cluster = getattr(centres, where)
    setattr(cluster, when, fails_at(verb, number, Killed()))
    with contextlib.suppress(Killed):
        centres.switch()
    assert len(centres.running()) <= 1
    setattr(cluster, when, lambda _verb: None)
    done = centres.switch()
    assert done.outcome in ("switched", "switched before")
    assert centres.running() == centres.b.running() == [done.new_job]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(("where", "verb"), CALLS)
def test_a_switch_that_dies_at_a_call_is_taken_back_and_the_job_runs_once(
    centres: Centres, where: str, verb: str, when: str
) -> None:
    # the first trigger is of a round of copies: nothing was to be stopped yet
    number = 2 if verb == "trigger" else 1
    cluster = getattr(centres, where)
    setattr(cluster, when, fails_at(verb, number, Killed()))
    with pytest.raises(Killed):
        centres.switch()
    setattr(cluster, when, lambda _verb: None)
    if (verb, when) == ("run", "before"):
        with pytest.raises(SwitchUnclear, match="proves nothing"):
            centres.switch(take_back=True)
        assert centres.running() == []
        return
    assert centres.switch(take_back=True).outcome == "taken back"
    assert centres.b.running() == []
    (job_id,) = centres.a.running()
    assert not centres.is_sealed
    if job_id != JOB:
        record = read_switch(Side(), centres.replica)
        assert record is not None
        assert centres.a.jobs[job_id].restored == record.point
        assert record.point == f"{centres.a.root}/{JOB}/chk-{centres.a.jobs[JOB].newest}"


@pytest.mark.parametrize(("where", "verb"), MOMENTS)
def test_an_answer_that_is_lost_is_asked_for_again(centres: Centres, where: str, verb: str) -> None:
    getattr(centres, where).after = fails_at(verb, 1, Transient("the answer is lost"))
    done = centres.switch(patience=60.0)
    assert centres.running() == centres.b.running() == [done.new_job]


def test_a_checkpoint_that_completes_before_the_cancel_is_the_last_point(centres: Centres) -> None:
    def complete(verb: str) -> None:
        if verb == "cancel":
            centres.a.complete(JOB)

    centres.a.before = complete
    done = centres.switch()
    assert done.checkpoint == f"chk-{centres.a.jobs[JOB].newest}"


def test_a_service_that_holds_the_lease_when_the_job_ended_is_waited_for(centres: Centres) -> None:
    waited = threading.Event()
    holding: list[threading.Thread] = []

    def hold() -> None:
        with acquire(centres.replica, Side()):
            held.set()
            waited.wait()

    held = threading.Event()

    def begin(verb: str) -> None:
        if verb == "cancel":
            holding.append(threading.Thread(target=hold))
            holding[0].start()
            held.wait()

    centres.a.after = begin

    def notify(line: str) -> None:
        if line.startswith("waiting "):
            waited.set()

    assert switch(centres.request(), centres.clusters, notify).outcome == "switched"
    holding[0].join()


def test_before_flink_1_17_the_newest_checkpoint_is_the_last_point(centres: Centres) -> None:
    centres.a.version = centres.b.version = (1, 13)
    newest = centres.a.jobs[JOB].newest
    done = centres.switch()
    assert done.checkpoint == f"chk-{newest}"
    assert done.repeated is None


def test_a_job_that_is_refused_or_began_with_other_state_runs_again_where_it_ran(
    tmp_path: Path,
) -> None:
    for name, cause in (
        ("refused", {"before": fails_at("run", 1, FlinkRefused("no such class", 400))}),
        ("empty", {"ignores_paths": True}),
    ):
        (tmp_path / name).mkdir()
        centres = Centres(tmp_path / name)
        for field, value in cause.items():
            setattr(centres.b, field, value)
        with pytest.raises(NotSwitched, match="it runs again at http://a:8081"):
            centres.switch(patience=60.0)
        (job_id,) = centres.running()
        assert centres.a.running() == [job_id]
        assert (
            centres.a.jobs[job_id].restored
            == f"{centres.a.root}/{JOB}/chk-{centres.a.jobs[JOB].newest}"
        )
        assert not centres.is_sealed


def test_a_target_that_is_lost_before_the_start_has_the_job_run_again_where_it_ran(
    centres: Centres,
) -> None:
    class Lost(SimulatedControl):
        def cluster(self) -> Cluster:
            if centres.a.jobs[JOB].state == "CANCELED":
                raise Transient("connection refused")
            return super().cluster()

    lost = Clusters(SimulatedControl(centres.a), Lost(centres.b))
    with pytest.raises(NotSwitched, match="it runs again at http://a:8081"):
        switch(centres.request(), lost, silent)
    assert centres.running() == centres.a.running() != []
    assert not centres.is_sealed


def test_a_target_that_is_lost_after_the_start_is_asked_before_the_job_is_taken_back(
    centres: Centres,
) -> None:
    class Lost(SimulatedControl):
        def jobs(self) -> Overview:
            if centres.b.jobs:
                raise Transient("connection refused")
            return super().jobs()

    lost = Clusters(SimulatedControl(centres.a), Lost(centres.b))
    with pytest.raises(SwitchUnclear, match="connection refused"):
        switch(centres.request(), lost, silent)
    with pytest.raises(SwitchUnclear, match="it is not known whether the job"):
        switch(centres.request(take_back=True), lost, silent)
    assert centres.a.running() == []
    done = centres.switch()
    assert centres.running() == [done.new_job]


@pytest.mark.parametrize(
    ("last", "error", "text"),
    [
        ("RUNNING", NotSwitched, "was not stopped, and is RUNNING"),
        ("FAILED", SwitchUnclear, "FAILED"),
    ],
)
def test_a_job_that_fails_when_it_is_to_end_is_reported_as_it_is_then(
    centres: Centres, last: str, error: type[Exception], text: str
) -> None:
    class Fails(SimulatedControl):
        def jobs(self) -> Overview:
            found = super().jobs()
            if centres.a.jobs[JOB].state == "FAILING":
                centres.a.jobs[JOB].state = last
            return found

    def fail(verb: str) -> None:
        if verb == "trigger" and centres.a.jobs[JOB].newest > 2:
            centres.a.jobs[JOB].state = "FAILING"
            raise FlinkRefused("the savepoint failed", 500)

    centres.a.after = fail
    failing = Clusters(Fails(centres.a), SimulatedControl(centres.b))
    with pytest.raises(error, match=text):
        switch(centres.request(patience=60.0), failing, silent)
    assert centres.b.jobs == {}


class Application(SimulatedControl):
    """A JobManager without jars that ends with its job: its end is reported once."""

    is_over = False

    def jobs(self) -> Overview:
        self._refuse_over()
        self.is_over = self.sim.jobs[JOB].state == "CANCELED"
        return super().jobs()

    def newest_checkpoint(self, job_id: str) -> CompletedCheckpoint | None:
        self._refuse_over()
        return super().newest_checkpoint(job_id)

    def cluster(self) -> Cluster:
        self._refuse_over()
        return super().cluster()._replace(can_submit=False)

    def _refuse_over(self) -> None:
        if self.is_over:
            raise Transient("connection refused")


def test_an_application_ends_with_its_job_and_is_switched(centres: Centres) -> None:
    from_application = Clusters(Application(centres.a), SimulatedControl(centres.b))
    done = switch(centres.request(), from_application, silent)
    assert centres.running() == [done.new_job]


def test_an_application_that_cannot_be_started_again_is_left_to_a_person_with_the_command(
    centres: Centres,
) -> None:
    centres.b.before = fails_at("run", 1, FlinkRefused("no such class", 400))
    application = Application(centres.a)
    from_application = Clusters(application, SimulatedControl(centres.b))
    with pytest.raises(SwitchUnclear, match=r"flink run -d -s file:.*/chk-3 JAR"):
        switch(centres.request(), from_application, silent)
    assert centres.running() == []
    assert not centres.is_sealed


@pytest.mark.parametrize("state", [None, "FAILED", "SUSPENDED", "RUNNING"])
def test_a_job_whose_end_is_not_proven_is_started_nowhere(
    centres: Centres, state: str | None
) -> None:
    def other(verb: str) -> None:
        if verb == "cancel" and state is None:
            del centres.a.jobs[JOB]
        elif verb == "cancel":
            centres.a.jobs[JOB].state = str(state)

    centres.a.after = other
    with pytest.raises(SwitchUnclear):
        centres.switch()
    assert centres.b.jobs == {}
    assert set(centres.a.jobs) <= {JOB}


def test_an_open_switch_goes_on_only_between_its_clusters(centres: Centres) -> None:
    centres.b.before = fails_at("run", 1, Killed())
    with pytest.raises(Killed):
        centres.switch()
    others = Clusters(SimulatedControl(centres.b), SimulatedControl(centres.a))
    with pytest.raises(Refused, match="--flink http://a:8081 --start-at http://b:8081"):
        switch(centres.request(), others, silent)
    with pytest.raises(Refused, match="came to 'starting'"):
        centres.switch(dry_run=True)


def test_of_several_jobs_those_that_still_run_are_not_stopped_once_one_failed(
    centres: Centres,
) -> None:
    centres.a.start(NEXT_JOB, "invoices")
    done = switch_all(
        ["orders", "unknown", "invoices"],
        centres.request(),
        lambda: centres.clusters,
        silent,
        stops_on_error=False,
    )
    assert [job.outcome for job in done.jobs] == ["switched", "failed", "switched"]
    assert [job.exit_code for job in done.jobs] == [0, 10, 0]
    assert done.exit_code == 3
    assert centres.a.running() == []
    assert len(centres.b.running()) == 2


def test_jobs_are_left_running_once_another_one_was_not_switched(centres: Centres) -> None:
    is_halted = threading.Event()
    is_halted.set()
    with pytest.raises(Refused, match="another job was not switched"):
        switch(centres.request(), centres.clusters, silent, is_halted)
    assert centres.running() == [JOB]


def test_each_of_several_jobs_is_started_with_its_own_program(centres: Centres) -> None:
    centres.a.start(NEXT_JOB, "payments")
    own = Programs(Program(arguments=("--for", "{job}"), parallelism=3), Program())
    jobs, asked = ["orders", "payments"], centres.request()
    done = switch_all(jobs, asked, lambda: centres.clusters, silent, True, 1, {"payments": own})
    assert [(each.name, each.outcome) for each in done.jobs] == [
        ("orders", "switched"),
        ("payments", "switched"),
    ]
    assert [each.arguments for each in centres.b.asked] == [(), ("--for", "payments")]
    assert [each.parallelism for each in centres.b.asked] == [None, 3]


def test_a_switch_that_died_right_after_the_promotion_goes_on_with_the_sealed_replica(
    centres: Centres,
) -> None:
    class Dies(Tracing):
        """The process ends once the seal is there, before the switch has recorded that."""

        def before(self, verb: str, uri: str) -> None:
            super().before(verb, uri)
            is_sealed = any(each == "put" and path.endswith("/sealed") for each, path in self.calls)
            if is_sealed and verb == "put" and uri.endswith("/switch.json"):
                raise Killed

    with serving("file", Dies(Side().storage("file:/"))), pytest.raises(Killed):
        centres.switch()
    assert centres.is_sealed
    done = centres.switch()
    assert centres.running() == [done.new_job]
    assert centres.b.jobs[done.new_job].restored == f"{done.replica}/{done.checkpoint}"


def test_from_the_end_of_a_job_to_its_start_a_far_storage_is_asked_for_little(
    centres: Centres,
) -> None:
    ended = []
    with serving("file", tracing := Tracing(Side().storage("file:/"))):
        centres.a.after = lambda verb: (
            ended.append(len(tracing.calls)) if verb == "cancel" else None
        )
        centres.b.before = lambda _verb: ended.append(len(tracing.calls))
        centres.switch()
    # how often a lease is looked at and renewed depends on the time that passes
    calls = [
        path
        for _, path in tracing.calls[slice(*ended)]
        if not path.endswith(("/lease", ".heartbeat"))
    ]
    assert len([path for path in calls if path.startswith(centres.target)]) <= 66
