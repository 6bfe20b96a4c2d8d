"""Jobs leave clusters with high availability, whose next JobManager goes on, or begins anew."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from cpreplicate.core.notify import silent
from cpreplicate.errors import SwitchUnclear
from cpreplicate.flink.control import FlinkControl
from cpreplicate.operations.handover.switch.switch import switch
from cpreplicate.protocol.switch_record import new_id
from cpreplicate.storage import Transient
from tests.operations.handover.switch.test_applications import WORDS, goes_on_by_hand, pair_of
from tests.support.applications import Application, application
from tests.support.flink import Flink
from tests.support.ports import free_port
from tests.support.sessions import arguments_of, session
from tests.support.switching import HurriedTime, Pair
from tests.support.waiting import wait_until
from tests.support.zookeeper import zookeeper

pytestmark = [
    pytest.mark.xdist_group("flink"),
    pytest.mark.rest,
    pytest.mark.parametrize("flink", ["1", "2"], indirect=True),
]


@contextlib.contextmanager
def recovered(flink: Flink, place: Path, *words: object) -> Iterator[Application]:
    """Run an application with high availability, whose job has the same id in each life."""
    with zookeeper(flink) as quorum:
        configuration = {
            "high-availability.type": "zookeeper",
            "high-availability.zookeeper.quorum": quorum,
            "high-availability.zookeeper.client.session-timeout": "20000",
            "high-availability.storageDir": f"file:{place}/recovery",
            "high-availability.cluster-id": "/orders",
        }
        arguments = arguments_of(place / "dcA/checkpoints", *WORDS, *words)
        home = place / "application"
        with application(flink, home, arguments, configuration=configuration) as started:
            yield started


def test_an_application_whose_jobmanager_is_lost_before_its_end_goes_on_and_is_switched(
    flink: Flink, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = HurriedTime(monkeypatch)

    class Lost(FlinkControl):
        """Its JobManager is lost when it is asked to cancel, and another one takes over."""

        def cancel(self, job_id: str) -> None:  # noqa: ARG002
            a.kill()
            a.start_again()
            a.job()
            clock.is_lost = True
            raise Transient("connection reset")

    with recovered(flink, place) as a, session(flink) as b:
        job_id = a.job()
        pair = pair_of(a, b, place)
        with pytest.raises(SwitchUnclear):
            switch(pair.request(), pair.clusters(a=Lost), silent)
        clock.is_lost = False
        pair.assert_runs_only(a, job_id)
        assert a.restored(job_id) is not None
        done = switch(pair.request(), pair.clusters(), silent)
        assert (done.outcome, done.job_id) == ("switched", job_id)
        a.wait_until_gone()
        pair.assert_runs_only(b, str(done.new_job))
        pair.close()


def test_an_application_that_began_anew_after_its_end_was_missed_is_left_alone(
    flink: Flink, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = HurriedTime(monkeypatch)

    class Misses(FlinkControl):
        """It asks next when the process has ended, and was started again."""

        def cancel(self, job_id: str) -> None:
            super().cancel(job_id)
            a.start_again()
            wait_until(lambda: job_id in a.running())
            clock.is_lost = True

    seldom = ("--interval-ms", 86_400_000)  # its next life would number its checkpoints alike
    with recovered(flink, place, *seldom) as a, session(flink) as b:
        pair = pair_of(a, b, place)
        origin = pair.clusters().origin
        wait_until(lambda: a.running() != [])
        (job_id,) = a.running()
        wait_until(lambda: origin.has_all_tasks(job_id))
        assert origin.trigger_checkpoint(job_id, new_id())
        wait_until(lambda: origin.newest_checkpoint(job_id) is not None)
        with pytest.raises(SwitchUnclear, match="was not seen"):
            switch(pair.request(), pair.clusters(a=Misses), silent)
        clock.is_lost = False
        for is_taken_back in (False, True):
            with pytest.raises(SwitchUnclear, match="from empty state: after its end") as raised:
                switch(pair.request(take_back=is_taken_back), pair.clusters(), silent)
        assert (a.running(), a.restored(job_id), b.running()) == ([job_id], None, [])
        a.cancel(job_id)
        goes_on_by_hand(pair, place, str(raised.value))
        pair.close()


def test_the_next_jobmanager_starts_the_jobs_again_that_were_not_switched_and_no_other(
    flink: Flink, place: Path
) -> None:
    with zookeeper(flink) as quorum, session(flink) as b:
        available = ("--zookeeper", quorum, "--recovery", f"file:{place}/recovery")
        with session(flink, *available, "--rest-port", free_port()) as a:
            wait_until(lambda: "jobs" in a.get("jobs"))  # it is elected
            pair = Pair(a, b, f"file:{place}/dcA", f"file:{place}/dcB")
            job_id = pair.start("--parallelism", "1")
            stays = a.start(f"{pair.dc_a}/checkpoints", *pair.words, name="stock")
            done = switch(pair.request(), pair.clusters(), silent)
            assert (done.outcome, done.job_id) == ("switched", job_id)
            a.kill()
        with session(flink, *available, "--rest-port", free_port()) as again:
            wait_until(lambda: bool(again.get("jobs").get("jobs")))
            again.wait_for_checkpoints(stays, 1)
            assert again.running() == [stays]
            assert b.running() == [done.new_job]
        pair.close()
