"""A job whose checkpoints are gone at the source is not taken back without a word."""

import json
import re
import shlex
import shutil
import time
from dataclasses import replace

import pytest

from cpreplicate.errors import Lagging, NotThere, Refused
from cpreplicate.flink import FlinkRest
from cpreplicate.operations.handover.promote import PromoteRequest, promote
from cpreplicate.operations.handover.promote_all import PromoteAllRequest, candidates, promote_all
from cpreplicate.operations.replicas.replicas import replicas_below
from cpreplicate.operations.replicas.status import status
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.sync.sync import sync
from cpreplicate.protocol import seal
from cpreplicate.protocol.replica import Replica
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import Side, Sides
from tests.operations.jobs.test_flink_jobs import answering
from tests.support import jobs
from tests.support.commandline import run
from tests.support.corpus import DataCentre
from tests.support.jobs import JOB, write_checkpoint
from tests.support.replicas import FILES, synced

INLINE = ExecutionOptions(runner="inline")


def silent(_line):
    pass


class Stopped:
    """A job of Flink 2.3 that was stopped with a savepoint after its last sync.

    With `action`, its savepoint records that; the one of the corpus was taken while the job ran on.
    """

    def __init__(self, tmp_path, action=b"SUSPEND"):
        self.centre = DataCentre("2.3.0-sp-canonical", tmp_path / "dcA")
        (self.job,) = (self.centre.path / "ckpt").iterdir()
        (self.savepoint,) = (self.centre.path / "sp").iterdir()
        self.root = tmp_path / "dcB"
        ending = b"t\0" + bytes([len(action)]) + action
        metadata = self.savepoint / "_metadata"
        metadata.write_bytes(metadata.read_bytes().replace(b"t\0\4NONE", ending))
        self.replica = self.sync(self.job).plan.replica
        for checkpoint in self.job.glob("chk-*"):
            shutil.rmtree(checkpoint)

    def sync(self, place):
        request = SyncRequest(
            f"file:{place}", f"file:{self.root}", remaps=(self.centre.remap,), execution=INLINE
        )
        return sync(request, silent)

    @property
    def request(self):
        return PromoteRequest(self.replica, side=Side(), source=Side(), dry_run=True)

    @property
    def of_all(self):
        replicas = replicas_below(f"file:{self.root}", (), Sides())
        return PromoteAllRequest(tuple(replicas), dry_run=True)


def test_promote_refuses_to_go_back_and_names_the_savepoint(tmp_path):
    job = Stopped(tmp_path)
    with pytest.raises(Refused) as refused:
        promote(replace(job.request, dry_run=False), silent)
    command = f"cpreplicate sync file:{job.savepoint} file:{job.root} --job {job.job.name}"
    assert "holds no checkpoint any more" in str(refused.value)
    assert f"`{command}`" in str(refused.value)
    assert not seal.is_sealed(Replica(job.replica, Side()))
    (failed,) = promote_all(candidates(job.of_all), job.of_all, silent).jobs
    assert (failed.outcome, failed.exit_code) == ("failed", Refused.exit_code)


def test_a_word_of_the_operator_lets_promote_go_back(tmp_path):
    job = Stopped(tmp_path)
    promotion = promote(replace(job.request, allow_older=True), silent)
    assert (promotion.checkpoint, promotion.behind.seconds) == ("chk-2", None)
    assert promote(replace(job.request, checkpoint="chk-2"), silent).starting is not None
    with pytest.raises(Lagging):
        promote(replace(job.request, allow_older=True, max_lag=0.0), silent)
    asked = replace(job.of_all, allow_older=True)
    (done,) = promote_all(candidates(asked), asked, silent).jobs
    assert done.outcome == "can be promoted"


def status_of(job):
    (row,) = status(replicas_below(f"file:{job.root}", (), Sides()), Sides()).replicas
    return row


def test_status_shows_as_ready_what_promote_does_not_refuse(tmp_path):
    job = Stopped(tmp_path)
    row = status_of(job)
    assert "holds no checkpoint any more" in row.unready
    assert (row.lag(time.time()), row.is_lagging(0.0, time.time())) == (None, True)
    assert row.has_point
    job.sync(job.savepoint)
    row = status_of(job)
    assert (row.checkpoint, row.unready, row.lag(time.time())) == ("chk-3", None, 0.0)


def test_status_shows_as_not_ready_a_savepoint_that_did_not_stop_its_job(tmp_path):
    job = Stopped(tmp_path, action=b"NONE")
    job.sync(job.savepoint)
    assert "To start it from chk-3" in status_of(job).unready
    promote(replace(job.request, allow_older=True, dry_run=False), silent)
    row = status_of(job)
    assert (row.unready, row.lag(time.time())) == (None, 0.0)  # promoted already


@pytest.mark.parametrize("limit", [0.0, 9e9])
def test_the_lag_of_a_job_that_has_ended_ends_promote_all_as_promote(tmp_path, limit):
    job = Stopped(tmp_path)
    code, message = 0, "at most its age"
    try:
        promote(replace(job.request, allow_older=True, max_lag=limit), silent)
    except Lagging as error:
        code, message = error.exit_code, str(error)
    assert "at most its age" in message
    assert "not seen" not in message
    asked = replace(job.of_all, allow_older=True, max_lag=limit)
    (done,) = promote_all(candidates(asked), asked, silent).jobs
    assert (done.exit_code, done.lag) == (code, None)
    assert code == (0 if limit else Lagging.exit_code)


def test_a_limit_of_the_lag_hides_no_savepoint_of_a_job_that_has_ended(tmp_path):
    job = Stopped(tmp_path)
    asked = replace(job.of_all, max_lag=0.0)
    (failed,) = promote_all(candidates(asked), asked, silent).jobs
    assert failed.exit_code == Refused.exit_code
    assert f"file:{job.savepoint}" in failed.error


def test_the_savepoint_with_which_the_job_was_stopped_needs_no_word(tmp_path):
    job = Stopped(tmp_path)
    job.sync(job.savepoint)
    promotion = promote(replace(job.request, max_lag=0.0), silent)
    assert (promotion.checkpoint, promotion.behind.seconds) == ("chk-3", 0.0)


def test_after_a_savepoint_that_did_not_stop_it_the_job_may_have_gone_further(tmp_path):
    job = Stopped(tmp_path, action=b"NONE")
    job.sync(job.savepoint)
    with pytest.raises(Refused, match="chk-3, completed"):
        promote(job.request, silent)


def test_a_savepoint_that_is_synced_already_is_not_advised_again(tmp_path):
    """Flink before 1.17 never records that a savepoint ended its job."""
    job = Stopped(tmp_path, action=b"NONE")
    job.sync(job.savepoint)
    with pytest.raises(Refused) as refused:
        promote(job.request, silent)
    assert f"That is its savepoint file:{job.savepoint} already" in str(refused.value)
    assert "cpreplicate sync" not in str(refused.value)
    assert "give --go-back" in str(refused.value)
    (failed,) = promote_all(candidates(job.of_all), job.of_all, silent).jobs
    assert "That is its savepoint" in str(failed.error)
    assert promote(replace(job.request, allow_older=True), silent).checkpoint == "chk-3"


def test_a_sync_of_its_directory_names_the_savepoint(tmp_path):
    job = Stopped(tmp_path)
    with pytest.raises(NotThere, match=f"file:{job.root} --job {job.job.name}`"):
        job.sync(job.job)
    shutil.rmtree(job.savepoint)
    with pytest.raises(NotThere, match=r"as SOURCE\. Its JobManager"):
        job.sync(job.job)


def reported(job, savepoint, number):
    """What the JobManager of a job that was stopped reports of it."""
    last = {"id": number, "external_path": f"file:{savepoint}", "latest_ack_timestamp": 2000}
    path = f"/jobs/{job.job.name}/checkpoints"
    return {path: {"latest": {"completed": None, "savepoint": last}}}


@pytest.mark.parametrize("words", [[], ["--all", "--dry-run"]])
def test_promote_names_the_savepoint_that_only_the_jobmanager_knows(tmp_path, words):
    job = Stopped(tmp_path)
    elsewhere = tmp_path / "far" / "away" / job.savepoint.name
    shutil.copytree(job.savepoint, elsewhere)
    shutil.rmtree(job.savepoint)
    place = f"file:{job.root}" if words else job.replica
    with answering(reported(job, elsewhere, 3)) as (address, _):
        asked = [*words, "--flink", f"http://{address}", "--output", "json"]
        ended = run("promote", place, *asked)
    message = json.loads(ended.out)["jobs"][0]["error"] if words else ended.message
    assert f"names its last savepoint, file:{elsewhere}, completed 1970-01-01T00:00:02" in message
    (command,) = re.findall("`cpreplicate ([^`]+)`", message)
    remap = f"{job.centre.remap.recorded}={job.centre.remap.actual}"
    assert run(*shlex.split(command), "--runner", "inline", "--remap", remap).code == 0
    assert promote(job.request, silent).checkpoint == "chk-3"


def test_a_jobmanager_that_does_not_answer_hides_no_savepoint_that_can_be_seen(tmp_path):
    job = Stopped(tmp_path)
    asked = replace(job.request, clusters=(FlinkRest("http://127.0.0.1:1"),))
    with pytest.raises(Refused, match=f"file:{job.savepoint}, completed .* if it is of this job"):
        promote(asked, silent)


def test_of_several_jobmanagers_none_is_believed_about_a_fixed_id(tmp_path, monkeypatch):
    monkeypatch.setattr(jobs, "JOB", "0" * 32)
    checkpoint = write_checkpoint(tmp_path / "dcA", 1, FILES)
    source = SyncRequest(f"file:{checkpoint.parent}", f"file:{tmp_path}/dcB", execution=INLINE)
    replica = sync(source, silent).plan.replica
    shutil.rmtree(checkpoint)
    last = {"id": 9, "external_path": "file:/of/another/job", "latest_ack_timestamp": 2000}
    answers = {f"/jobs/{jobs.JOB}/checkpoints": {"latest": {"completed": None, "savepoint": last}}}
    with answering(answers) as (address, _):
        both = [FlinkRest(f"http://{address}"), FlinkRest("http://127.0.0.1:1")]
        request = PromoteRequest(replica, source=Side(), clusters=tuple(both))
        with pytest.raises(Refused, match="names the savepoint: run"):
            promote(request, silent)
        with pytest.raises(Refused, match="file:/of/another/job, completed"):
            promote(replace(request, clusters=(both[0],)), silent)


def test_a_source_that_is_lost_with_its_data_centre_is_no_reason_to_refuse(tmp_path):
    replica = synced(tmp_path, {1: FILES})
    request = PromoteRequest(f"file:{replica}", side=Side(), source=Side())
    shutil.rmtree(tmp_path / "dcA")
    assert promote(request, silent).is_promoted


def test_a_replica_that_was_promoted_before_is_started_though_its_source_has_ended(tmp_path):
    replica = synced(tmp_path, {1: FILES})
    write_checkpoint(tmp_path / "dcA" / "other", 1, FILES)
    request = PromoteRequest(f"file:{replica}", side=Side(), source=Side())
    promote(request, silent)
    shutil.rmtree(tmp_path / "dcA" / JOB / "chk-1")
    assert promote(request, silent).is_promoted
