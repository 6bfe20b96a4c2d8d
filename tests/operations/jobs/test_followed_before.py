"""A service that starts knows which jobs were followed before, and misses those that are gone."""

import json

import pytest

from cpreplicate.core import uri
from cpreplicate.core.notify import silent
from cpreplicate.core.shard import WHOLE, Shard
from cpreplicate.flink import FlinkRest
from cpreplicate.operations.jobs.chosen import Chosen
from cpreplicate.operations.jobs.flink_jobs import FlinkJobs
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.sync.sync import sync
from tests.support import hostile, jobs
from tests.support.replicas import FILES, sealed
from tests.support.stepping import ManualClock
from tests.support.waiting import PATIENCE

ONE, TWO, THREE = (f"{number:032x}" for number in (1, 2, 3))
LINGER = 200.0  # seconds: longer than a job that is not reported is not yet lost


class JobManager:
    """A JobManager of jobs whose checkpoints are real, and the services that follow them."""

    def __init__(self, root, monkeypatch):
        self.root, self._set = root, monkeypatch.setattr
        self.clock, self.lines, self.ended = ManualClock(), list[str](), list[str]()
        self.running: dict[str, str] = {}
        self.ended_by_itself: set[str] = set()

    def script(self, connection, head):
        answer = json.dumps(self._answer(head.split()[1].decode()))
        hostile.answer(answer.encode())(connection, head)

    def _answer(self, path):
        if path == "/jobs/overview":
            return {"jobs": [self._reported(*each) for each in self.running.items()]}
        place = self.root / "dcA" / path.split("/")[2] / "chk-1"
        completed = {"id": 1, "external_path": f"file:{place}", "latest_ack_timestamp": 1000}
        return {"latest": {"completed": completed}}

    def _reported(self, job, name):
        state = "CANCELED" if job in self.ended_by_itself else "RUNNING"
        return {"jid": job, "name": name, "start-time": 0, "state": state}

    def start(self, job, name="orders"):
        self._set(jobs, "JOB", job)
        jobs.write_checkpoint(self.root / "dcA", 1, FILES)
        self.running[job] = name

    def service(self, url, shard=WHOLE, names=frozenset()):
        """Discovery as a service that starts has it."""
        return FlinkJobs(
            lambda: [url],
            FlinkRest,
            Chosen(names, every=not names),
            SyncRequest("", f"file:{self.root}/dcB"),
            self.lines.append,
            self.clock,
            shard,
            PATIENCE,
            lambda: self.ended,
        )

    def later(self, service):
        """Return which jobs it follows when a job could have been reported again, and is lost."""
        service.jobs()
        self.clock.pass_(LINGER)
        for _ in range(2):  # an end is recorded the next time
            found = service.jobs()
        return {uri.name(job.request.source): job.is_lost for job in found}


def replicate(service):
    for job in service.jobs():
        sync(job.request, silent)


@pytest.fixture
def site(tmp_path, monkeypatch):
    return JobManager(tmp_path, monkeypatch)


def test_a_job_that_vanishes_while_no_service_runs_is_lost_until_it_is_stated_to_have_ended(site):
    site.start(ONE)
    site.start(TWO, "clicks")
    with hostile.hostile(site.script) as server, hostile.hostile(site.script) as other:
        replicate(site.service(server.url))
        del site.running[ONE]
        assert [job.is_lost for job in site.service(server.url).jobs()] == [False, False]
        for _ in range(2):  # also over the restart of the one that found it
            assert site.later(site.service(server.url)) == {ONE: True, TWO: False}
        in_shards = [site.later(site.service(server.url, Shard(each, 2))) for each in (1, 2)]
        assert sorted(found.get(ONE, False) for found in in_shards) == [False, True]
        assert site.later(site.service(server.url, names=frozenset(["clicks"]))) == {TWO: False}
        assert site.later(site.service(other.url)) == {TWO: False}
        site.ended.append(ONE)
        assert site.later(site.service(server.url)) == {TWO: False}
        site.ended.clear()
        assert site.later(site.service(server.url)) == {TWO: False}  # its replica has it


def test_while_a_jobmanager_is_silent_the_jobs_of_before_are_followed_by_their_directories(site):
    site.start(ONE)
    with hostile.hostile(site.script) as server:
        replicate(site.service(server.url))
    (job,) = site.service(server.url).jobs()
    assert (job.key.name, job.newest, job.is_lost) == (ONE, None, False)


@pytest.mark.parametrize("restarts", [False, True])
def test_what_is_reported_to_have_ended_or_runs_under_another_id_is_not_missed(site, restarts):
    site.start(ONE)
    with hostile.hostile(site.script) as server:
        service = site.service(server.url)
        replicate(service)
        if restarts:
            del site.running[ONE]
            service.jobs()
            site.start(THREE)
        else:
            site.ended_by_itself.add(ONE)
        site.later(service)
        site.running.clear()
        assert site.later(site.service(server.url)) == {}
        site.ended_by_itself.clear()
        site.running[ONE] = "orders"  # under its id again
        replicate(service := site.service(server.url))
        site.running.clear()
        assert site.later(site.service(server.url)) == {ONE: True}
        sealed(site.root / "dcB" / ONE, "chk-1")  # somebody promoted it
        assert site.later(site.service(server.url)) == {}
        assert service.jobs()
