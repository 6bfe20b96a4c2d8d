"""A job moves out of a session cluster with high availability, whose next JobManager leaves it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cpreplicate.core.notify import silent
from cpreplicate.operations.handover.switch.switch import switch
from tests.support.flink import Flink
from tests.support.ports import free_port
from tests.support.sessions import session
from tests.support.switching import Pair
from tests.support.waiting import wait_until
from tests.support.zookeeper import zookeeper

pytestmark = [pytest.mark.xdist_group("flink"), pytest.mark.rest]


@pytest.mark.parametrize("flink", ["1", "2"], indirect=True)
def test_the_next_jobmanager_starts_the_jobs_again_that_were_not_switched_and_no_other(
    flink: Flink, tmp_path: Path
) -> None:
    for name in ("dcA", "dcB"):
        (tmp_path / name / "replicas").mkdir(parents=True)
    with zookeeper(flink) as quorum, session(flink) as b:
        recovered = ("--zookeeper", quorum, "--recovery", f"file:{tmp_path}/recovery")
        with session(flink, *recovered, "--rest-port", free_port()) as a:
            wait_until(lambda: "jobs" in a.get("jobs"))  # it is elected
            pair = Pair(a, b, f"file:{tmp_path}/dcA", f"file:{tmp_path}/dcB")
            job_id = pair.start("--parallelism", "1")
            stays = a.start(f"{pair.dc_a}/checkpoints", *pair.words, name="stock")
            done = switch(pair.request(), pair.clusters(), silent)
            assert (done.outcome, done.job_id) == ("switched", job_id)
            a.kill()
        with session(flink, *recovered, "--rest-port", free_port()) as again:
            wait_until(lambda: bool(again.get("jobs").get("jobs")))
            again.wait_for_checkpoints(stays, 1)
            assert again.running() == [stays]
            assert b.running() == [done.new_job]
        pair.close()
