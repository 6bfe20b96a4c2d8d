"""What real session clusters do when they are asked to, and how they refuse."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from cpreplicate.errors import CpreplicateError, FlinkRefused
from cpreplicate.flink.client import RequestLimits
from cpreplicate.flink.control import FlinkControl, Operation, Restored, Run, claim_field
from cpreplicate.storage import Transient
from tests.support.flink import Flink
from tests.support.hostile import answer, hostile
from tests.support.sessions import Session, arguments_of, session
from tests.support.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.xdist_group("flink")

JOB = "0123456789abcdef0123456789abcdef"
AMPLE = RequestLimits(PATIENCE, 100_000)  # met only by a hang


def new_id() -> str:
    return uuid.uuid4().hex


@pytest.fixture
def cluster(flink: Flink) -> Iterator[Session]:
    with session(flink) as started:
        yield started


@pytest.fixture
def control(cluster: Session) -> Iterator[FlinkControl]:
    client = FlinkControl(cluster.url, limits=RequestLimits(PATIENCE))
    yield client
    client.close()


def done(control: FlinkControl, job_id: str, trigger_id: str, verb: str) -> Operation:
    """What became of what was triggered, once that is known."""
    ask = getattr(control, f"{verb}_result")
    wait_until(lambda: ask(job_id, trigger_id).is_done)
    result: Operation = ask(job_id, trigger_id)
    return result


def test_a_mark_is_remembered_for_a_job_that_does_not_exist(control: FlinkControl) -> None:
    no_job, mark = new_id(), new_id()
    assert not control.is_marked(no_job, mark)
    assert control.mark(no_job, mark)
    assert control.mark(no_job, mark)  # once more changes nothing
    assert control.is_marked(no_job, mark)
    assert not control.is_marked(no_job, new_id())
    assert no_job not in {job.job_id for job in control.jobs().jobs}


def test_a_job_is_checkpointed_cancelled_and_run_again_from_its_checkpoint(
    cluster: Session, control: FlinkControl, tmp_path: Path
) -> None:
    job_id = cluster.start(tmp_path)
    assert control.cluster().can_submit
    assert control.slots() == (4, 2)
    assert control.slots_needed(job_id) == 2
    checkpointing = control.checkpointing(job_id)
    assert checkpointing is not None
    assert checkpointing.is_retained

    trigger_id = new_id()
    assert control.trigger_checkpoint(job_id, trigger_id)
    assert control.trigger_checkpoint(job_id, trigger_id)
    taken = done(control, job_id, trigger_id, "checkpoint")
    assert taken.failure is None
    assert not control.checkpoint_result(job_id, new_id()).is_known

    control.cancel(job_id)
    wait_until(lambda: control.state(job_id) == "CANCELED")
    control.cancel(job_id)  # once more is no error
    newest = control.newest_checkpoint(job_id)
    assert newest is not None
    assert newest.checkpoint_id >= (taken.checkpoint_id or 0) > 0

    second, version = new_id(), control.cluster().version
    asked = Run(second, newest.path, "NO_CLAIM", arguments=tuple(arguments_of(tmp_path)))
    jar_id = control.upload(str(cluster.jar))
    assert control.jars()[0].jar_id == jar_id
    assert control.run(jar_id, asked, version) == second
    with pytest.raises(FlinkRefused, match="already been submitted"):
        control.run(jar_id, asked, version)
    wait_until(lambda: (control.restored(second) or Restored(None, 0)).checkpoints > 0)
    assert control.restored(second) == cluster_restored(control, second, newest.path)


@pytest.mark.parametrize("flink", ["2"], indirect=True)
def test_a_job_is_stopped_with_a_savepoint(
    cluster: Session, control: FlinkControl, tmp_path: Path
) -> None:
    # it is refused for union state of which some subtasks have finished
    job_id, version = cluster.start(tmp_path, "--parallelism", "1"), control.cluster().version
    stop_id = new_id()
    assert control.stop_with_savepoint(job_id, stop_id, version, f"file:{tmp_path}/s") == stop_id
    savepoint = done(control, job_id, stop_id, "savepoint")
    assert savepoint.path is not None
    assert Path(savepoint.path.removeprefix("file:"), "_metadata").exists()
    wait_until(lambda: control.state(job_id) == "FINISHED")
    named = control.checkpoints(job_id).savepoint  # whoever did not stop it knows it so
    assert named is not None
    assert named.path == savepoint.path


def cluster_restored(control: FlinkControl, job_id: str, path: str) -> Restored:
    """What is expected of a job that was restored from a path."""
    known = control.restored(job_id)
    assert known is not None
    return Restored(path, known.checkpoints)


def test_what_a_cluster_refuses_is_raised_with_its_reason(
    cluster: Session, control: FlinkControl, tmp_path: Path
) -> None:
    jar_id, version = control.upload(str(cluster.jar)), control.cluster().version
    nowhere = f"file:{tmp_path}/chk-1"
    arguments = tuple(arguments_of(tmp_path))
    for asked, reason in (
        (Run(new_id(), nowhere, arguments=arguments), "Cannot find checkpoint or savepoint"),
        (Run(new_id(), nowhere, "BOGUS", arguments=arguments), "RecoveryClaimMode|RestoreMode"),
        (Run(new_id(), nowhere, entry_class="Nowhere"), "Nowhere"),
    ):
        with pytest.raises(FlinkRefused, match=reason):
            control.run(jar_id, asked, version)
    assert cluster.running() == []
    with pytest.raises(FlinkRefused):
        control.run("none.jar", Run(new_id(), nowhere), version)
    assert control.state(JOB) is None
    assert control.checkpointing(JOB) is None
    assert control.restored(JOB) is None


@pytest.mark.rest
def test_a_cluster_that_takes_no_jars_reports_so(flink: Flink) -> None:
    with session(flink, "--submit", "false") as cluster:
        control = FlinkControl(cluster.url)
        assert not control.cluster().can_submit
        control.close()


@pytest.mark.parametrize(
    ("version", "field"),
    [((1, 13), None), ((1, 17), "restoreMode"), ((1, 20), "claimMode"), ((2, 3), "claimMode")],
)
def test_the_claim_mode_has_the_field_of_the_version(version, field):
    assert claim_field(version) == field


def test_a_request_that_changes_something_follows_no_redirect_and_states_it():
    with hostile(answer(json.dumps({"jobid": JOB}).encode())) as other:
        moved = answer(b"", "307 Temporary", f"Location: {other.url}/jars")
        with hostile(moved) as server:
            control = FlinkControl(server.url, limits=AMPLE)
            with pytest.raises(FlinkRefused, match="status 307"):
                control.cancel(JOB)
            control.close()
    assert other.requests == []


@pytest.mark.parametrize("status", ["502 Bad Gateway", "503 Unavailable", "504 Timeout"])
def test_what_a_proxy_answers_does_not_prove_that_a_job_was_not_started(status: str) -> None:
    with hostile(answer(b"{}", status)) as server:
        control = FlinkControl(server.url, limits=AMPLE)
        with pytest.raises(Transient, match="not known whether it was done"):
            control.run("job.jar", Run(JOB, "file:///replica/chk-1"), (2, 3))
        control.close()


@pytest.mark.parametrize(
    ("states", "is_at_work"), [("RUNNING FINISHED", True), ("RUNNING DEPLOYING", False)]
)
def test_a_task_that_has_reached_its_end_is_not_waited_for(states: str, is_at_work: bool) -> None:
    vertices = [{"status": state} for state in states.split()]
    with hostile(answer(json.dumps({"vertices": vertices}).encode())) as server:
        control = FlinkControl(server.url, limits=AMPLE)
        assert control.has_all_tasks(JOB) is is_at_work
        control.close()


@pytest.mark.parametrize(
    ("status", "kind", "is_stopping"),
    [
        ("IN_PROGRESS", "SYNC_SAVEPOINT", True),
        ("COMPLETED", "SYNC_SAVEPOINT", False),  # as a failed one, from which the job runs on
        ("IN_PROGRESS", "SAVEPOINT", False),
        ("IN_PROGRESS", "CHECKPOINT", False),
    ],
)
def test_a_savepoint_with_which_a_job_ends_is_known_while_it_is_taken(
    status: str, kind: str, is_stopping: bool
) -> None:
    """The fields are those that Flink 1.13, 1.20 and 2.3 answered with."""
    one, other = (
        {"id": number, "status": state, "is_savepoint": "SAVEPOINT" in of, "checkpoint_type": of}
        for number, state, of in ((6, status, kind), (5, "COMPLETED", "CHECKPOINT"))
    )
    with hostile(answer(json.dumps({"history": [one, other]}).encode())) as server:
        control = FlinkControl(server.url, limits=AMPLE)
        assert control.is_stopping(JOB) is is_stopping
        control.close()


def questions(control: FlinkControl) -> list[Callable[[], object]]:
    """Everything that a cluster is asked for."""
    return [
        control.cluster,
        control.configuration,
        control.slots,
        control.jars,
        *(
            partial(ask, JOB)
            for ask in (
                control.slots_needed,
                control.has_all_tasks,
                control.checkpointing,
                control.restored,
                control.is_stopping,
            )
        ),
        *(partial(ask, JOB, JOB) for ask in (control.checkpoint_result, control.savepoint_result)),
    ]


def test_an_answer_that_is_not_flinks_is_an_error_that_a_program_expects():
    bodies = (b"{}", b"7", b"", b'{"jobid": "../x"}', b'{"status": {"id": 7}}', b'{"a":' * 9)
    for body in bodies:
        with hostile(answer(body)) as server:
            control = FlinkControl(server.url, limits=AMPLE)
            for ask in questions(control):
                with pytest.raises(CpreplicateError):
                    ask()
            control.close()
