"""A job moves out of a cluster in application mode, whose JobManager ends with it, and into one."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from cpreplicate.core.notify import silent
from cpreplicate.errors import SwitchUnclear
from cpreplicate.flink.control import FlinkControl
from cpreplicate.operations.handover.switch.request import Clusters, JobSwitch
from cpreplicate.operations.handover.switch.switch import switch
from cpreplicate.operations.handover.switch.switch_all import SwitchOfAll
from cpreplicate.output.results.switch import FORMS
from cpreplicate.protocol import seal
from cpreplicate.protocol.replica import Replica
from cpreplicate.storage import Side
from tests.support.applications import Application, application
from tests.support.commandline import run
from tests.support.flink import Flink
from tests.support.sessions import Session, arguments_of, session
from tests.support.switching import RETAINED, HurriedTime, Pair

pytestmark = [pytest.mark.xdist_group("flink"), pytest.mark.rest]
WORDS = (*RETAINED, "--parallelism", "1")


@pytest.fixture
def a(flink: Flink, place: Path) -> Iterator[Application]:
    arguments = arguments_of(place / "dcA/checkpoints", *WORDS)
    with application(flink, place / "application-a", arguments) as started:
        yield started


def pair_of(a: Session, b: Session, place: Path) -> Pair:
    pair = Pair(a, b, f"file:{place}/dcA", f"file:{place}/dcB")
    pair.words = WORDS
    return pair


def command_of(done: JobSwitch) -> str:
    """The command by which an application is started, as `switch` prints it."""
    lines = FORMS.text(SwitchOfAll((done,), 1.0)).splitlines()
    (found,) = [line.strip() for line in lines if line.strip().startswith("standalone-job.sh")]
    return found


def test_a_job_moves_from_an_application_to_another_and_on_to_a_session(
    flink: Flink, a: Application, place: Path
) -> None:
    job_id = a.job()
    alone = Clusters(FlinkControl(a.url))
    done = switch(pair_of(a, a, place).request(), alone, silent)
    assert (done.outcome, done.job_id) == ("promoted", job_id)
    a.wait_until_gone()
    arguments = arguments_of(place / "dcB/checkpoints", *WORDS)
    with application(flink, place / "application-b", arguments, command_of(done)) as b:
        moved = b.job()
        assert b.restored(moved) == f"{done.replica}/{done.checkpoint}"
        with session(flink) as c:
            pair = pair_of(c, b, place)
            back = switch(pair.request(is_back=True), pair.back(), silent)
            assert back.outcome == "switched"
            b.wait_until_gone()
            pair.assert_runs_only(c, str(back.new_job))
            pair.close()


def test_an_application_whose_end_was_missed_is_not_started_elsewhere_but_by_hand(
    flink: Flink, a: Application, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = HurriedTime(monkeypatch)

    class Misses(FlinkControl):
        """It asks next when the JobManager has ended, two seconds after the job."""

        def cancel(self, job_id: str) -> None:
            super().cancel(job_id)
            a.wait_until_gone()
            clock.is_lost = True

    a.job()
    with session(flink) as b:
        pair = pair_of(a, b, place)
        with pytest.raises(SwitchUnclear, match="JobManager of an application ends") as raised:
            switch(pair.request(), pair.clusters(a=Misses), silent)
        assert b.running() == []
        with pytest.raises(SwitchUnclear, match="JobManager of an application ends"):
            switch(pair.request(), pair.clusters(), silent)
        assert b.running() == []
        goes_on_by_hand(pair, place, str(raised.value))
        pair.close()


def goes_on_by_hand(pair: Pair, place: Path, message: str) -> None:
    """Do as a message advises, start the job in B from what is promoted, and see that it runs."""
    (replica,) = (place / "dcB/replicas").iterdir()
    assert not seal.is_sealed(Replica(f"file:{replica}", Side()))
    for command in commands_of(message):
        assert run(*command, "--runner", "inline").code == 0
    (replica / ".cpreplicate/switch.json").unlink()
    assert seal.is_sealed(Replica(f"file:{replica}", Side()))
    newest = sorted(replica.glob("chk-*"), key=number_of)[-1]
    moved = pair.b.start(f"{pair.dc_b}/checkpoints", *pair.words, restored=f"file:{newest}")
    pair.assert_runs_only(pair.b, moved)


def commands_of(message: str) -> list[list[str]]:
    """The commands that a message advises."""
    quoted = [each for each in message.split("`") if each.startswith("cpreplicate ")]
    return [shlex.split(each)[1:] for each in quoted]


def number_of(checkpoint: Path) -> int:
    return int(checkpoint.name.removeprefix("chk-"))
