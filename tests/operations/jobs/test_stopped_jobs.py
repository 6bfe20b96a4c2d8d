"""The end of a job: a service prints the savepoint, and a command that does what it is for."""

import re
import shlex
import shutil
from pathlib import Path

import pytest

from cpreplicate.operations.jobs.chosen import Chosen
from cpreplicate.operations.jobs.flink_jobs import FlinkJobs
from cpreplicate.operations.jobs.job import Job
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.sync.sync import sync
from cpreplicate.runners import ExecutionOptions
from tests.operations.jobs.test_flink_jobs import HANG, answering, connect
from tests.operations.jobs.test_service import Jobs, stepping
from tests.support import jobs
from tests.support.commandline import run
from tests.support.jobs import JOB, write_checkpoint
from tests.support.replicas import FILES

INLINE = ExecutionOptions(runner="inline")
FIXED = "0" * 32


@pytest.fixture(params=[JOB, FIXED])
def job_id(request, monkeypatch):
    monkeypatch.setattr(jobs, "JOB", request.param)
    return request.param


def taken(directory: Path, job_id: str, number: int) -> Path:
    """A savepoint that a job took."""
    savepoint = directory / f"savepoint-{job_id[:6]}-{number:012x}"
    savepoint.mkdir(parents=True)
    (savepoint / "state").write_bytes(b"s" * 50)
    metadata = jobs.metadata_of(number, {f"file:{savepoint}/state": 50})
    (savepoint / "_metadata").write_bytes(metadata)
    return savepoint


def checkpoints(path: Path, number: int, savepoint: Path | None = None, taken_as: int = 0):
    """What a JobManager reports of a job."""
    completed = {"id": number, "external_path": f"file:{path}", "latest_ack_timestamp": 1000}
    last = {"id": taken_as, "external_path": f"file:{savepoint}", "latest_ack_timestamp": 2000}
    return {"latest": {"completed": completed, "savepoint": last if savepoint else None}}


def overview(job_id: str, state: str):
    return {"jobs": [{"jid": job_id, "name": "pay", "start-time": 0, "state": state}]}


def follow_until_stopped(tmp_path: Path, job_id: str, savepoint: Path, taken_as: int) -> list[str]:
    """Follow a job that is stopped with a savepoint, and return the lines about its end."""
    path, lines = write_checkpoint(tmp_path / "dcA", 1, FILES), list[str]()
    template = SyncRequest("", f"file:{tmp_path}/dcB", execution=INLINE)
    answers = {
        "/jobs/overview": overview(job_id, "RUNNING"),
        f"/jobs/{job_id}/checkpoints": checkpoints(path, 1),
    }
    with answering(answers) as (place, _):
        found = FlinkJobs(
            lambda: [f"http://{place}"], connect, Chosen(every=True), template, lines.append,
            patience=HANG,
        )  # fmt: skip
        with stepping(found, lines=lines) as stepped:
            stepped.step()
            shutil.rmtree(path)
            answers["/jobs/overview"] = overview(job_id, "FINISHED")
            answers[f"/jobs/{job_id}/checkpoints"] = checkpoints(path, 1, savepoint, taken_as)
            for _ in range(3):
                stepped.step(1.0)
    return [line for line in lines if "the job has ended" in line]


def replicate_another(tmp_path: Path) -> None:
    """Another job of the same id, which came first, is replicated into the same TARGET_ROOT."""
    write_checkpoint(tmp_path / "other", 1, FILES)
    source = f"file:{tmp_path}/other/{jobs.JOB}"
    sync(SyncRequest(source, f"file:{tmp_path}/dcB", execution=INLINE), lambda _line: None)


def assert_advice_holds(line: str, replica: str, savepoint: Path) -> None:
    """The command of a line is run as it is printed: the savepoint is a point of the replica."""
    (command,) = re.findall("`cpreplicate ([^`]+)`", line)
    done = run(*shlex.split(command), "--output", "json", "--runner", "inline").json()
    assert (done["replica"], done["source"]) == (replica, f"file:{savepoint}")


def test_a_savepoint_that_only_the_jobmanager_knows_is_named_by_a_service(tmp_path, job_id):
    savepoint = taken(tmp_path / "far" / "away" / "savepoints", job_id, 2)
    (line,) = follow_until_stopped(tmp_path, job_id, savepoint, 2)
    assert f"names its last savepoint, file:{savepoint}, completed 1970-01-01T00:00:02" in line
    (replica,) = (f"file:{each}" for each in (tmp_path / "dcB").iterdir())
    assert_advice_holds(line, replica, savepoint)


def test_the_advice_for_one_of_several_jobs_of_an_id_names_its_replica(tmp_path, job_id):
    replicate_another(tmp_path)
    others = set((tmp_path / "dcB").iterdir())
    savepoint = taken(tmp_path / "far" / "away" / "savepoints", job_id, 2)
    (line,) = follow_until_stopped(tmp_path, job_id, savepoint, 2)
    (own,) = set((tmp_path / "dcB").iterdir()) - others
    assert_advice_holds(line, f"file:{own}", savepoint)


def test_a_savepoint_older_than_the_last_checkpoint_is_not_what_the_job_was_stopped_with(
    tmp_path, job_id
):
    savepoint = taken(tmp_path / "far" / "away" / "savepoints", job_id, 2)
    (line,) = follow_until_stopped(tmp_path, job_id, savepoint, 0)
    assert "Flink deleted them. Its replica stays" in line


@pytest.mark.parametrize("is_first", [True, False])
def test_a_savepoint_that_is_seen_for_a_fixed_id_is_replicated_by_the_command_that_is_printed(
    tmp_path, monkeypatch, is_first
):
    monkeypatch.setattr(jobs, "JOB", FIXED)
    if not is_first:
        replicate_another(tmp_path)
    others = set((tmp_path / "dcB").iterdir()) if not is_first else set()
    path, lines = write_checkpoint(tmp_path / "dcA", 1, FILES), list[str]()
    request = SyncRequest(f"file:{path.parent}", f"file:{tmp_path}/dcB", execution=INLINE)
    with stepping(Jobs(Job("pay", request, is_discovered=True)), lines=lines) as stepped:
        stepped.step()
        if is_first:
            replicate_another(tmp_path)
        (own,) = (
            each
            for each in set((tmp_path / "dcB").iterdir()) - others
            if f"{tmp_path}/dcA" in (each / ".cpreplicate" / "replica.json").read_text()
        )
        savepoint = taken(tmp_path / "dcA", FIXED, 2)
        shutil.rmtree(path)
        stepped.step(1.0)
    (line,) = [line for line in lines if "the job has ended" in line]
    assert " --job " in line
    assert_advice_holds(line, f"file:{own}", savepoint)


def test_a_service_that_begins_after_the_end_names_the_savepoint_too(tmp_path, job_id):
    savepoint = taken(tmp_path / "far" / "away" / "savepoints", job_id, 2)
    follow_until_stopped(tmp_path, job_id, savepoint, 2)
    root, lines = tmp_path / "dcA" / job_id, list[str]()
    answers = {
        "/jobs/overview": overview(job_id, "FINISHED"),
        f"/jobs/{job_id}/checkpoints": checkpoints(root / "chk-1", 1, savepoint, 2),
    }
    with answering(answers) as (place, _):
        found = FlinkJobs(
            lambda: [f"http://{place}"], connect, Chosen(every=True),
            SyncRequest("", f"file:{tmp_path}/dcB", execution=INLINE), lines.append, patience=HANG,
        )  # fmt: skip
        with stepping(found, lines=lines) as stepped:
            for _ in range(3):
                stepped.step(1.0)
    assert len([line for line in lines if f"file:{savepoint}" in line]) == 1
