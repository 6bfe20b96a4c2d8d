"""A JobManager that is killed in the middle of a switch: a real one, by SIGKILL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cpreplicate.core.notify import silent
from cpreplicate.errors import SwitchUnclear
from cpreplicate.flink.control import FlinkControl, Run, Version
from cpreplicate.operations.handover.switch.switch import switch
from cpreplicate.operations.handover.unseal import UnsealRequest, unseal
from cpreplicate.protocol import seal
from cpreplicate.protocol.replica import Replica
from cpreplicate.protocol.switch_record import read_switch
from cpreplicate.storage import Side
from tests.support.flink import Flink
from tests.support.sessions import session
from tests.support.switching import RETAINED, HurriedTime, Pair

pytestmark = [pytest.mark.xdist_group("flink"), pytest.mark.rest]


@pytest.fixture
def pair(flink: Flink, tmp_path: Path) -> Iterator[Pair]:
    for name in ("dcA", "dcB"):
        (tmp_path / name / "replicas").mkdir(parents=True)
    with session(flink) as a, session(flink) as b:
        pair = Pair(a, b, f"file:{tmp_path}/dcA", f"file:{tmp_path}/dcB")
        yield pair
        pair.close()


@pytest.mark.parametrize("flink", ["2"], indirect=True)
def test_a_jobmanager_that_dies_after_the_cancel_leaves_the_job_to_a_person(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = HurriedTime(monkeypatch)

    class Dies(FlinkControl):
        def cancel(self, job_id: str) -> None:
            super().cancel(job_id)
            pair.a.kill()
            clock.is_lost = True

    job_id = pair.start()
    with pytest.raises(SwitchUnclear, match="was not seen within"):
        switch(pair.request(), pair.clusters(a=Dies), silent)
    assert pair.b.running() == []
    with pytest.raises(SwitchUnclear):
        switch(pair.request(take_back=True), pair.clusters(), silent)
    assert pair.b.running() == []
    record = read_switch(Side(), f"{pair.dc_b}/replicas/{job_id}")
    assert record is not None
    assert record.step == "stopping"


@pytest.mark.parametrize("flink", ["2"], indirect=True)
def test_a_target_that_dies_after_the_start_has_no_job_started_where_it_ran_but_by_a_person(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = HurriedTime(monkeypatch)

    class Dies(FlinkControl):
        def run(self, jar_id: str, run: Run, version: Version) -> str:
            started = super().run(jar_id, run, version)
            pair.b.kill()
            clock.is_lost = True
            return started

    job_id = pair.start()
    replica = f"{pair.dc_b}/replicas/{job_id}"
    with pytest.raises(SwitchUnclear, match="cannot be read"):
        switch(pair.request(), pair.clusters(b=Dies), silent)
    with pytest.raises(SwitchUnclear, match="If you know that it does not run"):
        switch(pair.request(take_back=True), pair.clusters(), silent)
    assert pair.a.running() == []
    record = read_switch(Side(), replica)
    assert record is not None
    # as the message advises
    unseal(UnsealRequest(replica, None))
    (tmp_path / "dcB/replicas" / job_id / ".cpreplicate/switch.json").unlink()
    again = pair.a.start(f"{pair.dc_a}/checkpoints", *RETAINED, restored=record.point)
    pair.a.wait_for_checkpoints(again, 2)
    assert not seal.is_sealed(Replica(replica, Side()))
