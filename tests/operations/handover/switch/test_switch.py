"""Jobs move between two real session clusters, whatever ends the switch in the middle."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from cpreplicate.core.notify import silent
from cpreplicate.errors import NotSwitched, NotThere, Refused, SwitchUnclear
from cpreplicate.flink.control import FlinkControl, Run, Version
from cpreplicate.operations.handover.switch.request import (
    Clusters,
    JobSwitch,
    Program,
)
from cpreplicate.operations.handover.switch.switch import switch
from cpreplicate.operations.handover.switch.switch_all import switch_all
from cpreplicate.protocol import seal
from cpreplicate.protocol.replica import Replica
from cpreplicate.protocol.switch_record import Stop, read_switch
from cpreplicate.storage import Side
from tests.support import parts
from tests.support.commandline import run
from tests.support.flink import Flink
from tests.support.sessions import Session, arguments_of, session
from tests.support.switching import RETAINED, HurriedTime, Pair
from tests.support.waiting import wait_until

pytestmark = pytest.mark.xdist_group("flink")

SLOTS = 4


class Killed(BaseException):
    """What ends a switch as SIGKILL does: nothing of it runs any more."""


@pytest.fixture(scope="module")
def sessions(flink: Flink) -> Iterator[tuple[Session, Session]]:
    with session(flink, slots=SLOTS) as a, session(flink, slots=SLOTS) as b:
        yield a, b


@pytest.fixture
def pair(sessions: tuple[Session, Session], tmp_path: Path) -> Iterator[Pair]:
    for name in ("dcA", "dcB"):
        (tmp_path / name / "replicas").mkdir(parents=True)
    pair = Pair(*sessions, f"file:{tmp_path}/dcA", f"file:{tmp_path}/dcB")
    yield pair
    pair.close()
    for cluster in sessions:
        for job_id in cluster.running():
            cluster.cancel(job_id)
        cluster.delete_jars()


def replicas(place: Path) -> list[str]:
    """The replicas in B."""
    return [f"file:{each}" for each in (place / "dcB" / "replicas").iterdir()]


def test_a_job_is_switched_and_switched_back_and_continues_exactly(pair: Pair) -> None:
    job_id = pair.start()
    done = switch(pair.request(), pair.clusters(), silent)
    assert done.outcome == "switched"
    assert done.job_id == job_id
    assert done.new_job is not None
    assert pair.b.restored(done.new_job) == f"{done.replica}/{done.checkpoint}"
    pair.assert_runs_only(pair.b, done.new_job)
    names = ["ended", "copied", "promoted", "accepted", "running", "first_checkpoint"]
    assert list(done.phases) == names
    assert list(done.phases.values()) == sorted(done.phases.values())
    assert done.standstill == done.phases["running"]
    assert seal.is_sealed(Replica(str(done.replica), Side()))

    again = switch(pair.request(), pair.clusters(), silent)
    assert (again.outcome, again.new_job) == ("switched before", done.new_job)

    back = switch(pair.request(is_back=True), pair.back(), silent)
    assert back.outcome == "switched"
    assert back.new_job is not None
    pair.assert_runs_only(pair.a, back.new_job)


def test_a_dry_run_shows_the_switch_and_changes_nothing(pair: Pair, tmp_path: Path) -> None:
    job_id = pair.start()
    seen = switch(pair.request(dry_run=True), pair.clusters(), silent)
    assert seen.outcome == "can be switched"
    assert seen.preview is not None
    assert seen.preview.slots == (2, SLOTS)
    assert seen.preview.behind.bytes > 0
    assert replicas(tmp_path) == []
    pair.assert_runs_only(pair.a, job_id)


def command_line(pair: Pair, place: Path) -> list[object]:
    """The command that switches the job to B."""
    of_each = []
    for option, root in (("--arguments", pair.dc_b), ("--origin-arguments", pair.dc_a)):
        lines = arguments_of(f"{root}/checkpoints", *RETAINED)
        file = place / option.strip("-")
        file.write_text("\n".join(lines).replace("orders", "{job}") + "\n")
        of_each += [option, file]
    return [
        *("switch", "--flink", pair.a.url, "--job", "orders", "--start-at", pair.b.url),
        *("--jar", pair.a.jar, "--runner", "inline", "--patience", "20m", *of_each),
        f"{pair.dc_b}/replicas",
    ]


def test_the_command_line_shows_switches_and_shows_again(pair: Pair, tmp_path: Path) -> None:
    job_id = pair.start()
    words = command_line(pair, tmp_path)
    seen = run(*words, "--dry-run", "--output", "json").json()["jobs"][0]
    assert (seen["outcome"], seen["job_id"]) == ("can_be_switched", job_id)
    done = run(*words, "--output", "json").json()["jobs"][0]
    assert done["outcome"] == "switched"
    assert done["standstill_seconds"] == done["phases"]["running"]
    pair.assert_runs_only(pair.b, done["new_job_id"])
    text = run(*words).out
    assert "switched before" in text
    assert run(*words, "--take-back").code == 10


@pytest.mark.parametrize(
    ("words", "changes", "reason"),
    [
        pytest.param(
            ["--retention", "DELETE_ON_CANCELLATION"],
            {},
            "not retained when it is cancelled",
            id="not retained",
        ),
        parts.rest([], {"stop": "savepoint"}, "has no directory for savepoints", id="no place"),
        parts.rest(
            [],
            {"program": Program()},
            "has no jar: it is not clear which one is run",
            id="unclear jar",
        ),
        parts.rest([], {"program": Program("./none.jar")}, r"none\.jar is not there", id="no file"),
        parts.rest([], {"program": Program("none.jar")}, r"has no jar none\.jar", id="no jar"),
        pytest.param(
            [], {"program": Program(None, None, (), SLOTS + 1)}, "free slots of", id="no slots"
        ),
    ],
)
def test_what_is_in_the_way_is_refused_before_the_job_is_stopped(
    pair: Pair, words: list[str], changes: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    job_id = pair.start(*words)
    if "program" in changes and changes["program"].parallelism:
        changes = {"program": changes["program"]._replace(jar=str(pair.a.jar))}
    with pytest.raises(Refused, match=reason):
        switch(pair.request(**changes), pair.clusters(), silent)
    shown = switch(pair.request(dry_run=True, **changes), pair.clusters(), silent)
    assert (shown.outcome, shown.exit_code) == ("failed", 6)
    pair.assert_runs_only(pair.a, job_id)
    assert replicas(tmp_path) == []


@pytest.mark.rest
def test_a_cluster_that_is_both_ends_or_runs_the_job_already_is_refused(pair: Pair) -> None:
    job_id = pair.start()
    same = Clusters(pair.of(FlinkControl, pair.a), pair.of(FlinkControl, pair.a))
    with pytest.raises(Refused, match="the same JobManager"):
        switch(pair.request(), same, silent)
    second = pair.b.start(f"{pair.dc_b}/other")
    with pytest.raises(Refused, match=r"runs at .* already"):
        switch(pair.request(), pair.clusters(), silent)
    with pytest.raises(NotThere, match="no job 'invoices' runs"):
        switch(pair.request(job="invoices"), pair.clusters(), silent)
    assert (pair.a.running(), pair.b.running()) == ([job_id], [second])


class DiesAfterTrigger(FlinkControl):
    def trigger_checkpoint(self, job_id: str, trigger_id: str) -> bool:
        super().trigger_checkpoint(job_id, trigger_id)
        raise Killed


class DiesAfterCancel(FlinkControl):
    def cancel(self, job_id: str) -> None:
        super().cancel(job_id)
        raise Killed


class DiesWhenEnded(FlinkControl):
    def newest_checkpoint(self, job_id: str) -> Any:
        if self.state(job_id) == "CANCELED":
            raise Killed
        return super().newest_checkpoint(job_id)


class DiesBeforeStart(FlinkControl):
    def run(self, jar_id: str, run: Run, version: Version) -> str:
        if self.state(run.job_id) is None:
            raise Killed
        return super().run(jar_id, run, version)


class DiesAfterStart(FlinkControl):
    def run(self, jar_id: str, run: Run, version: Version) -> str:
        super().run(jar_id, run, version)
        raise Killed


DEATHS = {
    "after the trigger": {"a": DiesAfterTrigger},
    "after the cancel": {"a": DiesAfterCancel},
    "when it has ended": {"a": DiesWhenEnded},
    "before the start": {"b": DiesBeforeStart},
    "after the start": {"b": DiesAfterStart},
}


# each of these deaths is also of clusters in memory, in test_steps.py
@pytest.mark.parametrize("death", [parts.rest(each, id=name) for name, each in DEATHS.items()])
def test_a_switch_that_died_is_continued_by_the_same_command(
    pair: Pair, death: dict[str, type[FlinkControl]]
) -> None:
    pair.start()
    with contextlib.suppress(Killed):
        switch(pair.request(), pair.clusters(**death), silent)
        pytest.fail("it did not die")
    assert len(pair.a.running()) + len(pair.b.running()) <= 1
    done = switch(pair.request(), pair.clusters(), silent)
    assert done.outcome == "switched"
    assert done.new_job is not None
    assert pair.b.restored(done.new_job) == f"{done.replica}/{done.checkpoint}"
    pair.assert_runs_only(pair.b, done.new_job)


@pytest.mark.parametrize(
    "death", [parts.rest(each, id=name) for name, each in list(DEATHS.items())[1:]]
)
def test_a_switch_that_died_is_taken_back_if_that_is_asked_for(
    pair: Pair, death: dict[str, type[FlinkControl]], tmp_path: Path
) -> None:
    pair.start()
    with contextlib.suppress(Killed):
        switch(pair.request(), pair.clusters(**death), silent)
        pytest.fail("it did not die")
    if death == DEATHS["before the start"]:
        # that B does not know the job proves nothing: it may be about to start
        with pytest.raises(SwitchUnclear, match="proves nothing"):
            switch(pair.request(take_back=True), pair.clusters(), silent)
        assert pair.a.running() == []
        return
    done = switch(pair.request(take_back=True), pair.clusters(), silent)
    assert done.outcome == "taken back"
    (replica,) = replicas(tmp_path)
    record = read_switch(Side(), replica)
    assert record is not None
    pair.assert_runs_only(pair.a, record.back_job)
    assert not seal.is_sealed(Replica(replica, Side()))


class RefusesTheJar(FlinkControl):
    def run(self, jar_id: str, run: Run, version: Version) -> str:
        return super().run(jar_id, run._replace(entry_class="Nowhere"), version)


class StartsWithoutState(FlinkControl):
    """It ignores the path, as newer versions do with the name of a field that is misspelled."""

    def run(self, jar_id: str, run: Run, version: Version) -> str:
        assert version
        self._post(f"jars/{jar_id}/run", {"jobId": run.job_id, "programArgsList": run.arguments})
        return run.job_id


@pytest.mark.rest
@pytest.mark.parametrize(
    ("target", "reason"),
    [(RefusesTheJar, "does not start the job"), (StartsWithoutState, "from empty state")],
)
def test_a_job_that_the_target_does_not_start_as_asked_runs_again_where_it_ran(
    pair: Pair, target: type[FlinkControl], reason: str, tmp_path: Path
) -> None:
    pair.start()
    with pytest.raises(NotSwitched, match=reason) as raised:
        switch(pair.request(), pair.clusters(b=target), silent)
    assert "it runs again at" in str(raised.value)
    (job_id,) = pair.a.running()
    pair.assert_runs_only(pair.a, job_id)
    (replica,) = replicas(tmp_path)
    assert not seal.is_sealed(Replica(replica, Side()))
    restored = pair.a.restored(job_id)
    record = read_switch(Side(), replica)
    assert record is not None
    assert restored == record.point


@pytest.mark.rest
def test_a_job_whose_end_was_not_seen_is_not_started_anywhere(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = HurriedTime(monkeypatch)

    class ForgetsItsJobs(FlinkControl):
        """A JobManager that was restarted without high availability, once the job was cancelled."""

        def cancel(self, job_id: str) -> None:
            super().cancel(job_id)
            clock.is_lost = True

        def state(self, job_id: str) -> str | None:
            return None if clock.is_lost else super().state(job_id)

    pair.start()
    with pytest.raises(SwitchUnclear, match="was not seen within"):
        switch(pair.request(), pair.clusters(a=ForgetsItsJobs), silent)
    assert pair.b.running() == []


@pytest.mark.rest
@pytest.mark.parametrize("stop", ["checkpoint", "savepoint"])
def test_a_second_switch_of_a_job_is_refused_while_the_first_is_under_way(
    pair: Pair, tmp_path: Path, stop: Stop
) -> None:
    """It leads into the same TARGET_ROOT, or into another one: then the JobManager knows."""
    job_id = pair.start("--parallelism", "1")  # 1.20 refuses a savepoint else
    (tmp_path / "dcB" / "other").mkdir()
    asked = pair.request(stop=stop, savepoints=f"{pair.dc_a}/savepoints")
    other = replace(asked, sync=replace(asked.sync, target_root=f"{pair.dc_b}/other"))
    seconds: list[BaseException] = []

    class SwitchesTwice(FlinkControl):
        def cancel(self, job_id: str) -> None:
            self._again()
            super().cancel(job_id)

        def stop_with_savepoint(self, *words: Any) -> str:
            self._again()
            return super().stop_with_savepoint(*words)

        def _again(self) -> None:
            for each in (asked, other):
                with contextlib.suppress(Killed):
                    try:
                        switch(each, pair.clusters(), silent)
                    except BaseException as error:
                        seconds.append(error)
                        raise Killed from error

    done: JobSwitch = switch(asked, pair.clusters(a=SwitchesTwice), silent)
    assert done.outcome == "switched"
    assert done.job_id == job_id
    same, another = seconds
    assert type(same).__name__ == "LeaseHeld"
    assert "into another TARGET_ROOT, has claimed it at " in str(another)
    pair.assert_runs_only(pair.b, str(done.new_job))


def test_a_job_stops_with_a_savepoint_and_starts_from_it(pair: Pair) -> None:
    # 1.20 refuses it for union state of which some subtasks have finished
    pair.start("--parallelism", "1")
    asked = pair.request(stop="savepoint", savepoints=f"{pair.dc_a}/savepoints")
    done = switch(asked, pair.clusters(), silent)
    assert done.outcome == "switched"
    assert done.repeated == 0
    pair.assert_runs_only(pair.b, str(done.new_job))


@pytest.mark.rest
def test_without_a_target_the_replica_is_promoted_and_the_start_is_left_to_the_operator(
    pair: Pair,
) -> None:
    pair.start()
    alone = Clusters(pair.of(FlinkControl, pair.a))
    done = switch(pair.request(), alone, silent)
    assert done.outcome == "promoted"
    assert done.starting is not None
    assert (pair.a.running(), pair.b.running()) == ([], [])
    assert seal.is_sealed(Replica(str(done.replica), Side()))
    with pytest.raises(SwitchUnclear, match="its start was left to you"):
        switch(pair.request(take_back=True), alone, silent)


@pytest.mark.rest
def test_several_jobs_move_at_the_same_time_and_back(pair: Pair) -> None:
    names = ["orders", "invoices", "returns", "stock"]
    move_and_move_back(pair, names)


@pytest.mark.rest
def test_ten_jobs_move_one_after_another_and_back_at_the_same_time(
    flink: Flink, tmp_path: Path
) -> None:
    for name in ("dcA", "dcB"):
        (tmp_path / name / "replicas").mkdir(parents=True)
    names = [f"job-{number}" for number in range(10)]
    with session(flink, slots=10) as a, session(flink, slots=10) as b:
        pair = Pair(a, b, f"file:{tmp_path}/dcA", f"file:{tmp_path}/dcB")
        move_and_move_back(pair, names, at_once=(1, 16))
        pair.close()


def move_and_move_back(pair: Pair, names: list[str], at_once: tuple[int, int] = (16, 16)) -> None:
    """Move jobs to B, and back: each goes on exactly, or its program fails."""
    place = f"{pair.dc_a}/checkpoints"
    pair.words = (*RETAINED, "--parallelism", "1")
    ids = {name: pair.a.start(place, *pair.words, name=name) for name in names}
    for is_back, connect in ((False, pair.clusters), (True, pair.back)):
        asked = pair.request(is_back=is_back)
        number = at_once[is_back]
        programs = [asked.program, asked.origin_program]
        of_each, of_origin = (
            each._replace(arguments=tuple(a.replace("orders", "{job}") for a in each.arguments))
            for each in programs
        )
        asked = replace(asked, program=of_each, origin_program=of_origin)
        done = switch_all(names, asked, connect, silent, True, number)
        assert [(job.name, job.outcome, job.error) for job in done.jobs] == [
            (name, "switched", None) for name in names
        ]
        assert [job.job_id for job in done.jobs] == list(ids.values())
        ids = {job.name: str(job.new_job) for job in done.jobs}
        here, there = (pair.a, pair.b) if is_back else (pair.b, pair.a)
        assert (sorted(here.running()), there.running()) == (sorted(ids.values()), [])
        for job_id in ids.values():
            here.wait_for_checkpoints(job_id, 2)


KILLS = list(product(["stopping", "ended", "promoted", "starting"], [False, True]))


@pytest.mark.parametrize(
    ("step", "is_taken_back"),
    [each if each == KILLS[2] else parts.rest(*each) for each in KILLS],
)
def test_a_switch_that_is_killed_at_a_step_is_continued_or_taken_back(
    pair: Pair, tmp_path: Path, step: str, is_taken_back: bool
) -> None:
    job_id = pair.start()
    words = command_line(pair, tmp_path)
    record = tmp_path / "dcB" / "replicas" / job_id / ".cpreplicate" / "switch.json"
    process = subprocess.Popen([sys.executable, "-m", "cpreplicate", *map(str, words)])
    try:
        steps = ("stopping", "ended", "promoted", "starting", "started")
        wanted = steps[steps.index(step) :]
        wait_until(lambda: record.exists() and step_of(record) in wanted, pause=0.005)
    finally:
        process.kill()
        process.wait()
    assert len(pair.a.running()) + len(pair.b.running()) <= 1
    if is_taken_back:
        ended = run(*words, "--take-back")
        if ended.code == 23:  # B does not know the job yet, which proves nothing
            assert "Run the same `switch` again" in ended.message
            ended = run(*words)
        assert ended.code in (0, 10), ended  # 10: it was over
    else:
        assert run(*words).code == 0
    running = (pair.a.running(), pair.b.running())
    assert sum(map(len, running)) == 1
    if not is_taken_back:
        assert running[0] == []
    for cluster, jobs in zip((pair.a, pair.b), running, strict=True):
        for each in jobs:
            cluster.wait_for_checkpoints(each, 2)


def step_of(record: Path) -> str:
    """The step that a record has."""
    return str(json.loads(record.read_text())["step"])
