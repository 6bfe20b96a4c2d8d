"""The loop of a service: jobs that come and go, that fail, and that matter more than others."""

import contextlib
import gc
import itertools
import math
import os
import re
import shutil
import threading
import weakref
from collections import Counter
from dataclasses import replace

import pytest
from prometheus_client import generate_latest

from cpreplicate.core.lag import Newest, reported
from cpreplicate.errors import SourceBroken, UsageError
from cpreplicate.operations.handover.promote import PromoteRequest, promote
from cpreplicate.operations.jobs.coverage import Coverage
from cpreplicate.operations.jobs.job import Checkpoint, Job
from cpreplicate.operations.jobs.service import Service, ServiceSettings
from cpreplicate.operations.jobs.state import JobState
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.sync.sync import sync
from cpreplicate.output.metrics import registry_of
from cpreplicate.protocol.lease import acquire
from cpreplicate.runners import ExecutionOptions, WarmRunners
from cpreplicate.storage import Side, Sides, Transient
from cpreplicate.storage.waiting.side_call import in_thread
from cpreplicate.storage.wrappers.limits import new_limits
from tests.support import jobs, parts
from tests.support.faults import Faulty
from tests.support.registry import serving
from tests.support.replicas import DAY, FILES, NEXT, aged, sealed
from tests.support.stepping import ManualClock, Stepped, Steps
from tests.support.waiting import PATIENCE, wait_until

INLINE = ExecutionOptions(runner="inline")
BACKOFF = 4.0  # seconds: the longest
UNSEEN = 6.0  # seconds after which a source is unseen: longer than `least_look_within`
LOOK_AGAIN = 600.0  # seconds after which a replica is looked at that has nothing new


class Jobs:
    """Discovery that returns what a test has put there."""

    target_roots = ()

    def __init__(self, *found):
        self.found = list(found)
        self.error = None
        self.looks = 0

    def jobs(self):
        self.looks += 1
        if self.error is not None:
            raise self.error
        return self.found


def job_id(number):
    return f"{number:032x}"


def write(tmp_path, number, checkpoint, files=FILES):
    jobs.JOB = job_id(number)
    try:
        return jobs.write_checkpoint(tmp_path / "dcA", checkpoint, files)
    finally:
        jobs.JOB = "0123456789abcdef0123456789abcdef"


def served(tmp_path, number, priority=0, is_discovered=False, **options):
    request = SyncRequest(
        f"file:{tmp_path}/dcA/{job_id(number)}", f"file:{tmp_path}/dcB", execution=INLINE, **options
    )
    return Job(f"job-{number}", request, priority, is_discovered)


@contextlib.contextmanager
def stepping(discovery, warnings=None, lines=None, coverage=None, clock=None, **settings):
    """A service that does something only when a test lets it."""
    warnings = warnings if warnings is not None else []
    notify = lines.append if lines is not None else lambda _line: None
    chosen = ServiceSettings(**{"interval": 1.0, "max_backoff": BACKOFF, **settings})
    clock, tries, glances = clock or ManualClock(), Steps(), Steps()
    with WarmRunners(Sides(), INLINE, 60.0) as runners:
        service = Service(
            discovery,
            runners,
            tries,
            chosen,
            notify,
            warnings.append,
            coverage=coverage,
            clock=clock,
            glances=glances,
        )
        yield Stepped(service, clock, tries, glances)


@contextlib.contextmanager
def running(discovery, warnings=None, sides=None, **settings):
    """A service in a thread of its own, whose tries have threads of their own."""
    chosen = ServiceSettings(
        interval=0.1, max_backoff=0.4, grace=3600.0, least_look_within=1800.0, **settings
    )
    warnings = warnings if warnings is not None else []
    with WarmRunners(sides or Sides(), INLINE, 60.0) as runners:
        service = Service(
            discovery, runners, in_thread, chosen, lambda _line: None, warnings.append
        )
        thread = threading.Thread(target=service.run, args=[pytest.fail])
        thread.start()
        try:
            yield service
        finally:
            service.stop()
            thread.join(PATIENCE)
            assert not thread.is_alive()


def replicate(tmp_path, number):
    """Replicate a job by a service that ends after that."""
    with stepping(Jobs(served(tmp_path, number))) as stepped:
        stepped.step()
        assert replica_ids(stepped.service) == {f"job-{number}": 1}


def readiness(service):
    return [observation.readiness for observation in service.observations()]


def replica_ids(service):
    return {
        job.name: job.replica_newest.checkpoint_id if job.replica_newest else None
        for job in service.observations()
    }


def test_each_checkpoint_of_each_job_is_replicated_and_observed(tmp_path):
    for number in range(3):
        write(tmp_path, number, 1)
    warnings: list[str] = []
    with stepping(Jobs(*(served(tmp_path, number) for number in range(3))), warnings) as stepped:
        service = stepped.service
        assert not service.is_ready()
        stepped.step()
        assert service.is_ready()
        assert set(replica_ids(service).values()) == {1}
        write(tmp_path, 1, 2, NEXT)
        stepped.step(1.0)
        assert replica_ids(service) == {"job-0": 1, "job-1": 2, "job-2": 1}
        assert service.is_alive()
        assert [job.lag(stepped.clock.now()) for job in service.observations()] == [0, 0, 0]
    assert warnings == []


def test_the_time_of_all_jobs_stays_when_one_leaves(tmp_path):
    for number in (1, 2):
        write(tmp_path, number, 1)
    discovery = Jobs(served(tmp_path, 1), served(tmp_path, 2))
    with stepping(discovery) as stepped:
        stepped.step()
        total = stepped.service.total()
        assert total.sync_durations[math.inf] == 2
        assert total.seconds["copy"] > 0
        discovery.found.pop()
        stepped.step(1.0)
        assert stepped.service.total().sync_durations[math.inf] == 2


@pytest.mark.rest
def test_what_only_a_collection_frees_is_freed_while_the_service_rests():
    class Cycle:
        def __init__(self):
            self.itself = self

    with stepping(Jobs()) as stepped:
        gc.disable()
        try:
            cycle = weakref.ref(Cycle())

            def each_turn():
                stepped.tries.run()
                stepped.clock.pass_(60.0)
                if cycle() is None:
                    stepped.service.stop()

            stepped.service.run(pytest.fail, each_turn)
        finally:
            gc.enable()


def test_a_new_job_is_followed_and_one_that_is_gone_is_no_longer_observed(tmp_path):
    write(tmp_path, 1, 1)
    write(tmp_path, 2, 1)
    discovery = Jobs(served(tmp_path, 1))
    with stepping(discovery) as stepped:
        stepped.step()
        assert replica_ids(stepped.service) == {"job-1": 1}
        discovery.found = [served(tmp_path, 2)]
        stepped.step(1.0)
        assert replica_ids(stepped.service) == {"job-2": 1}
    assert (tmp_path / "dcB" / job_id(1) / "chk-1" / "_metadata").exists()


def test_a_discovery_that_fails_is_reported_and_the_jobs_known_before_are_followed(tmp_path):
    write(tmp_path, 1, 1)
    discovery = Jobs(served(tmp_path, 1))
    warnings: list[str] = []
    with stepping(discovery, warnings) as stepped:
        stepped.step()
        assert replica_ids(stepped.service) == {"job-1": 1}
        discovery.error = UsageError("no more")
        write(tmp_path, 1, 2, NEXT)
        stepped.step(1.0)
        assert replica_ids(stepped.service) == {"job-1": 2}
    assert warnings == ["no more. The jobs known before are followed"]


def test_a_job_that_fails_is_reported_and_counted_and_holds_up_no_other(tmp_path):
    write(tmp_path, 1, 1)
    broken = write(tmp_path, 2, 1)
    (broken / "_metadata").write_bytes(b"not Flink's")
    warnings: list[str] = []
    with stepping(Jobs(served(tmp_path, 1), served(tmp_path, 2)), warnings) as stepped:
        service = stepped.service
        stepped.step()
        assert replica_ids(service).get("job-1") == 1
        for _ in range(2):
            stepped.step(BACKOFF)
        assert service.observations()[1].failures[5] == 3
        write(tmp_path, 1, 2, NEXT)
        stepped.step(1.0)
        assert replica_ids(service).get("job-1") == 2
        write(tmp_path, 2, 2, NEXT)  # the next checkpoint supersedes the failure
        stepped.step(BACKOFF)
        assert replica_ids(service).get("job-2") == 2
    assert len(warnings) == 1
    assert "job-2:" in warnings[0]
    assert "It is tried again" in warnings[0]


def test_a_service_that_starts_with_a_failure_knows_the_lag_of_its_replicas(tmp_path):
    first = write(tmp_path, 1, 1)
    replicate(tmp_path, 1)
    second = write(tmp_path, 1, 2, NEXT)
    (second / "_metadata").write_bytes(b"not Flink's")
    completed = (first / "_metadata").stat().st_mtime
    with stepping(Jobs(served(tmp_path, 1)), least_look_within=60.0) as stepped:
        stepped.step()
        assert stepped.service.is_ready()
        observed = stepped.service.observations()[0]
        assert observed.lag(completed + 50.0) == pytest.approx(50.0, abs=0.1)


def test_a_replica_that_was_sealed_or_deleted_is_noticed_without_a_new_checkpoint(tmp_path):
    write(tmp_path, 1, 1)
    replica = tmp_path / "dcB" / job_id(1)
    with stepping(Jobs(served(tmp_path, 1))) as stepped:
        service = stepped.service
        stepped.step()
        assert replica_ids(service) == {"job-1": 1}
        replica.rename(tmp_path / "gone")
        stepped.step(LOOK_AGAIN)
        assert (replica / "chk-1" / "_metadata").exists()
        sealed(replica, "chk-1")
        stepped.step(LOOK_AGAIN)
        assert [each.is_sealed for each in service.observations()] == [True]
        assert service.observations()[0].last_exit_code == 6


def test_how_a_job_is_started_is_answered_without_a_call_to_a_storage(tmp_path):
    write(tmp_path, 1, 1)
    calls = []

    def note(verb, place):
        calls.append((verb, place))

    with (
        serving("file", Faulty(Side().storage("file:/"), note)),
        stepping(Jobs(served(tmp_path, 1))) as stepped,
    ):
        service = stepped.service
        stepped.step()
        assert replica_ids(service) == {"job-1": 1}
        assert calls
        calls.clear()
        (point,) = service.restore_points("job-1")
        assert service.restore_points() == service.restore_points(job_id(1)) != []
        assert service.restore_points("job") == []
        assert calls == []
    assert point.starting.checkpoint == f"file:{tmp_path}/dcB/{job_id(1)}/chk-1"
    assert (point.starting.restore.claim_mode, point.unready) == ("NO_CLAIM", None)


def test_while_the_source_is_lost_a_new_service_knows_how_the_job_is_started(tmp_path):
    write(tmp_path, 1, 1)
    replicate(tmp_path, 1)

    def fail(_verb, place):
        return Transient("dcA is dark") if "/dcA/" in place else None

    with (
        serving("file", Faulty(Side().storage("file:/"), fail)),
        stepping(Jobs(served(tmp_path, 1))) as stepped,
    ):
        stepped.step()
        (point,) = stepped.service.restore_points()
    assert point.starting.checkpoint == f"file:{tmp_path}/dcB/{job_id(1)}/chk-1"
    assert (point.unready, point.lag) == (None, None)
    assert "dcA is dark" in point.error


@pytest.mark.parametrize(("others", "expected"), [((), "ready"), (("chk-9",), "foreign")])
def test_while_the_source_is_lost_a_new_service_knows_whether_its_replica_is_ready(
    tmp_path, others, expected
):
    write(tmp_path, 1, 1)
    replicate(tmp_path, 1)
    for name in others:
        shutil.copytree(tmp_path / "dcB" / job_id(1) / "chk-1", tmp_path / "dcB" / job_id(1) / name)
    (tmp_path / "dcA" / job_id(1)).rename(tmp_path / "lost")
    with stepping(Jobs(served(tmp_path, 1))) as stepped:
        stepped.step()
        (point,) = stepped.service.restore_points()
        assert readiness(stepped.service) == [expected]
    assert (point.unready is None) == (expected == "ready")


def test_a_replica_that_is_promoted_meanwhile_is_known_as_sealed_for_its_checkpoint(tmp_path):
    write(tmp_path, 1, 1)
    with stepping(Jobs(served(tmp_path, 1))) as stepped:
        stepped.step()
        assert replica_ids(stepped.service) == {"job-1": 1}
        promoted = promote(PromoteRequest(f"file:{tmp_path}/dcB/{job_id(1)}"), print)
        stepped.step(LOOK_AGAIN)
        (point,) = stepped.service.restore_points()
    assert point.restore_state.sealed
    assert point.unready is None
    assert point.starting == promoted.starting


def test_a_checkpoint_of_another_makes_a_replica_unready_until_it_is_gone(tmp_path):
    write(tmp_path, 1, 1)
    replica = tmp_path / "dcB" / job_id(1)
    with stepping(Jobs(served(tmp_path, 1))) as stepped:
        service = stepped.service
        stepped.step()
        assert readiness(service) == ["ready"]
        shutil.copytree(replica / "chk-1", replica / "chk-9")
        stepped.step(LOOK_AGAIN)
        assert readiness(service) == ["foreign"]
        shutil.rmtree(replica / "chk-9")
        stepped.step(BACKOFF)
        assert readiness(service) == ["ready"]


def test_the_lease_of_the_service_itself_is_no_reason_against_a_replica(tmp_path):
    write(tmp_path, 1, 1)
    lease = tmp_path / "dcB" / job_id(1) / ".cpreplicate" / "lease"
    seen = []

    def look(verb, uri):
        if verb == "open" and uri.endswith("/dcA/" + job_id(1) + "/shared/new"):
            seen.append((lease.exists(), readiness(stepped.service)))

    with (
        serving("file", Faulty(Side().storage("file:/"), look)),
        stepping(Jobs(served(tmp_path, 1))) as stepped,
    ):
        stepped.step()
        assert readiness(stepped.service) == ["ready"]
        write(tmp_path, 1, 2, {"shared/new": 10})
        stepped.step(1.0)
    assert seen == [(True, ["ready"])]


@pytest.mark.slow
@pytest.mark.parametrize(("number_of_jobs", "slots"), [(40, 10), parts.rest(200, 20)])
def test_a_critical_job_is_never_behind_others(tmp_path, number_of_jobs, slots):
    """All slots are taken by jobs whose storage does not answer."""
    critical = set(range(0, number_of_jobs, 20))
    for number in range(number_of_jobs):
        write(tmp_path, number, 1, {"shared/a": 10})
    released = threading.Event()
    blocked: list[int] = []

    def block(verb, uri):
        if verb == "open" and "/dcA/" in uri:
            number = int(uri.split("/dcA/")[1].split("/")[0], 16)
            if number not in critical and "chk-2" in uri:
                blocked.append(number)
                released.wait(PATIENCE)

    found = [
        served(tmp_path, number, priority=9 if number in critical else 0)
        for number in range(number_of_jobs)
    ]
    with (
        serving("file", Faulty(Side().storage("file:/"), block)),
        running(Jobs(*found), slots=slots) as service,
    ):
        wait_until(lambda: set(replica_ids(service).values()) == {1})
        for number in set(range(number_of_jobs)) - critical:
            write(tmp_path, number, 2, {"shared/b": 10})
        wait_until(lambda: len(blocked) == slots)
        for number in critical:
            write(tmp_path, number, 2, {"shared/b": 10})
        important = {f"job-{number}" for number in critical}
        wait_until(lambda: all(replica_ids(service)[name] == 2 for name in important))
        assert len(blocked) == slots
        load = service.load()
        assert (load.busy >= slots, load.waiting > 0, load.slots) == (True, True, slots)
        assert 2 not in {replica_ids(service)[f"job-{number}"] for number in range(1, 20)}
        released.set()
        wait_until(lambda: set(replica_ids(service).values()) == {2})


def test_a_job_that_another_process_replicates_is_left_to_it_and_no_failure(tmp_path):
    write(tmp_path, 1, 1)
    warnings: list[str] = []
    with stepping(Jobs(served(tmp_path, 1)), warnings) as stepped:
        with acquire(f"file:{tmp_path}/dcB/{job_id(1)}", Side()):
            stepped.step()
            assert stepped.service.is_ready()
            observed = stepped.service.observations()[0]
            assert (observed.is_lease_held, dict(observed.failures)) == (True, {})
        stepped.step(1.0)
        assert replica_ids(stepped.service) == {"job-1": 1}
    assert warnings == []


@pytest.mark.parametrize("keep", [1, 3])
def test_a_stand_in_names_what_is_committed_at_that_moment_as_the_active_service_does(
    tmp_path, keep, monkeypatch
):
    # else who asks waits for 2 s, and gets what was seen before
    monkeypatch.setattr("cpreplicate.operations.jobs.attempt._MOST_LOOK", PATIENCE)
    write(tmp_path, 1, 1)
    found = Jobs(served(tmp_path, 1, keep=keep))
    replica = tmp_path / "dcB" / job_id(1)

    def named(stepped):
        (point,) = stepped.service.restore_points("job-1")
        return point.starting.checkpoint.rpartition("/")[2]

    with stepping(found) as active, stepping(found) as standing_in:
        for each in (active, standing_in):
            each.step()
        for number in (2, 3):  # no turn of the stand-in sees how the active one goes on
            write(tmp_path, 1, number, NEXT)
            active.step(1.0)
            assert named(active) == named(standing_in) == f"chk-{number}"
        with acquire(f"file:{replica}", Side()):
            write(tmp_path, 1, 4, NEXT)
            standing_in.step(1.0)
            (replica / "chk-4").mkdir()  # it is being copied
            assert named(standing_in) == "chk-3"
        (replica / "chk-4").rmdir()
        active.step(1.0)
        assert named(standing_in) == "chk-4"
        sealed(replica, "chk-4")
        assert standing_in.service.restore_points("job-1")[0].restore_state.sealed is not None


def test_a_storage_that_does_not_answer_lets_a_stand_in_answer_with_what_it_saw(tmp_path):
    write(tmp_path, 1, 1)
    replicate(tmp_path, 1)
    silent, released = threading.Event(), threading.Event()

    def wait(_verb, place):
        if silent.is_set() and "/dcB/" in place:
            released.wait(PATIENCE)

    with (
        serving("file", Faulty(Side().storage("file:/"), wait)),
        stepping(Jobs(served(tmp_path, 1))) as stepped,
    ):
        stepped.step()
        silent.set()
        (point,) = stepped.service.restore_points("job-1")
        released.set()
    assert point.starting.checkpoint.endswith("/chk-1")


def test_two_services_replicate_each_checkpoint_once(tmp_path):
    warnings: list[str] = []
    for number in range(5):
        write(tmp_path, number, 1)
    found = [served(tmp_path, number) for number in range(5)]
    with running(Jobs(*found), warnings) as one, running(Jobs(*found), warnings) as two:
        for checkpoint in range(2, 8):
            for number in range(5):
                write(tmp_path, number, checkpoint, FILES if checkpoint % 2 else NEXT)
            for service in (one, two):
                wait_until(
                    lambda seen=service, number=checkpoint: (
                        set(replica_ids(seen).values()) == {number}
                    )
                )
        failures = [job.failures for job in (*one.observations(), *two.observations())]
    assert (failures, warnings) == ([Counter()] * 10, [])


def test_a_job_without_a_checkpoint_is_awaited_if_it_was_discovered_else_reported(tmp_path):
    warnings: list[str] = []
    (tmp_path / "dcA" / job_id(1)).mkdir(parents=True)
    (tmp_path / "dcA" / job_id(2)).mkdir()
    found = [served(tmp_path, 1, is_discovered=True), served(tmp_path, 2)]
    with stepping(Jobs(*found), warnings) as stepped:
        stepped.step()
        assert stepped.service.is_ready()
        write(tmp_path, 1, 1)
        stepped.step(1.0)
        assert replica_ids(stepped.service).get("job-1") == 1
    assert [warning.split(":")[0] for warning in warnings] == ["job-2"]


def test_a_replica_below_the_root_is_not_replicated_again(tmp_path):
    write(tmp_path, 1, 1)
    replicate(tmp_path, 1)
    replica = SyncRequest(f"file:{tmp_path}/dcB/{job_id(1)}", f"file:{tmp_path}/dcC")
    standby = Job("standby", replica, is_discovered=True)
    lines: list[str] = []
    with stepping(Jobs(standby), lines=lines) as stepped:
        for _ in range(3):
            stepped.step(1.0)
        assert stepped.service.is_ready()
        assert [each.tries for each in stepped.service.observations()] == [3]
    assert not (tmp_path / "dcC").exists()
    assert len(lines) == 1
    assert "is a replica that no job writes to" in lines[0]


def test_of_two_reports_of_a_directory_the_newer_checkpoint_counts(tmp_path):
    first, second = (write(tmp_path, 1, number, files) for number, files in ((1, FILES), (2, NEXT)))
    ended, running_job = (
        replace(
            served(tmp_path, 1), newest=Checkpoint(f"file:{path}", Newest(number, float(number)))
        )
        for number, path in ((1, first), (2, second))
    )
    with stepping(Jobs(ended, running_job)) as stepped:
        stepped.step()
        assert replica_ids(stepped.service) == {"job-1": 2}


def test_a_job_that_ended_and_left_no_checkpoint_is_no_failure(tmp_path):
    path = write(tmp_path, 1, 1)
    job = served(tmp_path, 1, is_discovered=True)
    discovery = Jobs(job)
    warnings: list[str] = []
    with stepping(discovery, warnings) as stepped:
        service = stepped.service
        stepped.step()
        assert replica_ids(service) == {"job-1": 1}
        discovery.found = [replace(job, has_ended=True)]
        stepped.step(1.0)
        shutil.rmtree(path.parent)
        tries = service.observations()[0].tries
        for _ in range(4):
            stepped.step(1.0)
        assert service.observations()[0].tries == tries + 4
        assert service.observations()[0].lag(stepped.clock.now()) == 0
    assert warnings == []
    assert (tmp_path / "dcB" / job_id(1) / "chk-1" / "_metadata").exists()


def test_a_job_is_tried_again_after_a_failure_that_nobody_expected(tmp_path, monkeypatch):
    broken = write(tmp_path, 1, 1)
    (broken / "_metadata").write_bytes(b"not Flink's")

    def fail(_request):
        raise ValueError("a defect")

    monkeypatch.setattr("cpreplicate.operations.jobs.attempt.newest_of_replica", fail)
    warnings: list[str] = []
    with stepping(Jobs(served(tmp_path, 1)), warnings) as stepped:
        stepped.step()
        assert warnings
        write(tmp_path, 1, 2, NEXT)
        stepped.step(BACKOFF)
        assert replica_ids(stepped.service) == {"job-1": 2}
    assert "unexpected ValueError: a defect" in warnings[0]


def test_a_checkpoint_that_is_subsumed_before_its_sync_is_left_for_the_newest_without_a_failure(
    tmp_path, monkeypatch
):
    former = write(tmp_path, 1, 1)

    def sync_late(request, *others):
        if former.exists():
            write(tmp_path, 1, 2, NEXT)
            shutil.rmtree(former)
        return sync(request, *others)

    monkeypatch.setattr("cpreplicate.operations.jobs.attempt.sync", sync_late)
    with stepping(Jobs(served(tmp_path, 1)), max_backoff=60.0, interval=30.0) as stepped:
        stepped.step()
        assert replica_ids(stepped.service) == {"job-1": 2}
        assert stepped.service.observations()[0].failures == Counter()


def test_a_broken_checkpoint_beside_a_newer_one_is_a_failure_with_backoff(tmp_path, monkeypatch):
    write(tmp_path, 1, 1)
    numbers = itertools.count(2)

    def sync_broken(_request, *_others):
        write(tmp_path, 1, next(numbers), NEXT)
        raise SourceBroken("files are missing")

    monkeypatch.setattr("cpreplicate.operations.jobs.attempt.sync", sync_broken)
    with stepping(Jobs(served(tmp_path, 1)), max_backoff=60.0) as stepped:
        stepped.step()
        assert stepped.service.is_ready()
        stepped.step(0.4)  # less than half of the interval: the least backoff
        assert stepped.service.observations()[0].failures == Counter({10: 1})
        stepped.step(0.6)
        assert stepped.service.observations()[0].failures == Counter({10: 2})


def test_a_discovered_job_that_no_longer_completes_checkpoints_is_retired(tmp_path):
    aged(write(tmp_path, 1, 1))
    found = [served(tmp_path, 1, is_discovered=True)]
    with stepping(Jobs(*found), retire_after=DAY) as stepped:
        stepped.step()
        assert (tmp_path / "dcB" / job_id(1) / "chk-1" / "_metadata").exists()
        assert stepped.service.observations() == []
        write(tmp_path, 1, 2, NEXT)
        stepped.step(1.0)
        assert replica_ids(stepped.service) == {"job-1": 2}


def test_a_discovered_job_whose_checkpoints_nobody_dates_is_not_retired(tmp_path):
    """They may be young."""
    state = JobState(served(tmp_path, 1, is_discovered=True), lambda _line: None, math.inf)
    for completed, is_retired in ((1.0, True), (0.0, False)):
        state.done = Checkpoint("chk-1", Newest(1, completed))
        state.observation.source_newest = state.done.newest
        assert state.is_retired(DAY) is is_retired


def test_a_discovered_job_whose_last_checkpoint_is_not_replicated_is_not_retired(tmp_path):
    """Else nobody would see that its replica lacks what the job wrote last."""
    aged(write(tmp_path, 1, 1))
    failed: list[str] = []

    def fail(_verb, place):
        if not place.endswith(f"/dcA/{job_id(1)}/shared/y"):
            return None
        failed.append(place)
        return OSError("it cannot be read")

    with (
        serving("file", Faulty(Side().storage("file:/"), fail)),
        stepping(Jobs(served(tmp_path, 1, is_discovered=True)), retire_after=DAY) as stepped,
    ):
        stepped.step()
        assert stepped.service.is_ready()
        assert stepped.service.observations() == []
        aged(write(tmp_path, 1, 2, NEXT))
        stepped.step(1.0)
        assert failed
        (observation,) = stepped.service.observations()
    assert observation.behind() == 1
    assert stepped.clock.now() - observation.source_newest.completed > DAY


def test_a_job_whose_newest_checkpoint_is_reported_costs_no_call_until_there_is_another(tmp_path):
    path = write(tmp_path, 1, 1)
    listed: list[str] = []

    def note(verb, uri):
        if verb in ("list", "stat", "open"):
            listed.append(uri)

    known = replace(
        served(tmp_path, 1),
        newest=Checkpoint(f"file:{path}", Newest(1, (path / "_metadata").stat().st_mtime)),
    )
    with (
        serving("file", Faulty(Side().storage("file:/"), note)),
        stepping(Jobs(known)) as stepped,
    ):
        stepped.step()
        assert replica_ids(stepped.service) == {"job-1": 1}
        listed.clear()
        tries = stepped.service.observations()[0].tries
        for _ in range(4):
            stepped.step(1.0)
        assert stepped.service.observations()[0].tries == tries + 4
    assert listed == []


def test_the_end_waits_for_what_is_being_replicated_and_cancels_what_takes_too_long(
    tmp_path, monkeypatch
):
    """The wait has seconds of the grace, the cancellation the rest. The copy would take hours."""
    monkeypatch.setattr("cpreplicate.operations.jobs.service._CANCEL_SHARE", 0.0001)
    write(tmp_path, 1, 1, {f"shared/{number}": 3_000_000 for number in range(4)})
    sides = _limited(Sides(), 1000.0)
    with running(Jobs(served(tmp_path, 1)), sides=sides):
        wait_until(lambda: list((tmp_path / "dcB").glob("*/shared/*")))
    replica = tmp_path / "dcB" / job_id(1)
    assert not (replica / "chk-1" / "_metadata").exists()
    assert [each.name for each in replica.glob(".cpreplicate/lease*")] == ["lease-room"]
    replicate(tmp_path, 1)


def _limited(sides, bandwidth):
    limits = new_limits(None, bandwidth)
    return sides._replace(
        source=replace(sides.source, limits=limits), target=replace(sides.target, limits=limits)
    )


def test_jobs_are_followed_by_their_directories_while_discovery_does_not_return(tmp_path):
    """What it found is old after two intervals: the lag must not stay 0."""
    path = write(tmp_path, 1, 1)
    known = replace(
        served(tmp_path, 1),
        newest=Checkpoint(f"file:{path}", Newest(1, (path / "_metadata").stat().st_mtime)),
    )
    with stepping(Jobs(known)) as stepped:
        stepped.step()
        assert replica_ids(stepped.service) == {"job-1": 1}
        write(tmp_path, 1, 2, NEXT)
        stepped.tries.hold("discover")
        stepped.step(UNSEEN)
        assert replica_ids(stepped.service) == {"job-1": 2}
        assert any("list of jobs is" in line for line in stepped.service.remarks())


def test_a_service_is_ready_when_each_place_was_asked_and_names_those_that_failed(tmp_path):
    write(tmp_path, 1, 1)
    clock = ManualClock()
    coverage = Coverage(["orders"], clock)
    coverage.expect(["http://jm-1", "http://jm-2"])
    with stepping(Jobs(served(tmp_path, 1)), coverage=coverage, clock=clock) as stepped:
        service = stepped.service
        stepped.step()
        assert replica_ids(service) == {"job-1": 1}
        assert not service.is_ready()
        coverage.answered("http://jm-1")
        coverage.failed("http://jm-2", "it is gone")
        assert service.is_ready()
        assert service.remarks() == ["no job is followed for: orders"]
        stepped.step(UNSEEN)
        assert service.discovered().unseen["http://jm-2"]
        assert "no jobs can be looked for at http://jm-2: it is gone" in service.remarks()
        assert service.is_blind(0.0)
        assert not service.is_blind(1800.0)


def test_a_source_that_nobody_can_look_at_has_an_age_and_no_lag_of_0(tmp_path):
    path = write(tmp_path, 1, 1)
    write(tmp_path, 2, 1)
    completed = (path / "_metadata").stat().st_mtime
    with stepping(Jobs(served(tmp_path, 1), served(tmp_path, 2))) as stepped:
        service = stepped.service
        stepped.step()
        assert replica_ids(service) == {"job-1": 1, "job-2": 1}
        stepped.tries.hold(f"job {job_id(1)}")
        stepped.glances.hold("ask")
        stepped.step(UNSEEN)
        assert any(line.endswith(": job-1") for line in service.remarks())
        observed, other = service.observations()
        now = stepped.clock.now()
        assert observed.is_unseen(now)
        assert observed.lag(now) == pytest.approx(now - completed)
        assert other.lag(now) == 0  # it is looked at all the time
        stepped.release()
        stepped.step()
        assert service.observations()[0].lag(stepped.clock.now()) == 0


def test_a_source_is_looked_at_while_its_target_cannot_be_reached_but_not_if_it_cannot_itself(
    tmp_path,
):
    followed = JobState(served(tmp_path, 1), print, 60.0)
    followed.observation.saw(Newest(1, 1000.0), 1000.0)
    followed.observation.failed(Transient.exit_code, "the target is gone", 1010.0)
    assert followed.is_overdue(30.0, 1050.0)
    with pytest.raises(Transient), followed.looking():
        raise Transient("the source is gone")
    assert not followed.is_overdue(30.0, 1050.0)
    with followed.looking():
        pass
    assert followed.is_overdue(30.0, 1050.0)


def test_a_try_that_cannot_reach_the_source_records_that(tmp_path):
    dark = threading.Event()
    write(tmp_path, 1, 1)

    def fail(_verb, place):
        if dark.is_set() and "/dcA/" in place:
            raise Transient("gone")

    with (
        serving("file", Faulty(Side().storage("file:/"), fail)),
        stepping(Jobs(served(tmp_path, 1))) as stepped,
    ):
        stepped.step()
        [followed] = stepped.service._followed.values()
        assert not followed.is_source_lost
        dark.set()
        stepped.step(1.0)
        assert followed.is_source_lost
        dark.clear()
        stepped.step(BACKOFF)
        assert not followed.is_source_lost


def test_a_source_is_looked_at_beside_a_sync_that_takes_long(tmp_path):
    write(tmp_path, 1, 1)
    seen: list[int | None] = []

    def take_long(verb, place):
        if verb == "open" and f"/dcA/{job_id(1)}/shared" in place and not seen:
            seen.append(None)
            write(tmp_path, 1, 5, NEXT)
            stepped.step(UNSEEN)
            seen[0] = stepped.service.observations()[0].source_newest.checkpoint_id

    with (
        serving("file", Faulty(Side().storage("file:/"), take_long)),
        stepping(Jobs(served(tmp_path, 1))) as stepped,
    ):
        stepped.step()
        assert seen == [5]
        stepped.step(1.0)
        assert replica_ids(stepped.service) == {"job-1": 5}


def test_where_two_jobs_have_one_name_lines_and_probes_name_them_with_their_ids(tmp_path):
    found = [served(tmp_path, number) for number in (1, 2, 3)]
    for index in (0, 1):
        write(tmp_path, index + 1, 1)
        found[index] = replace(found[index], name="orders")
    write(tmp_path, 3, 1)
    lines: list[str] = []
    with stepping(Jobs(*found), lines=lines) as stepped:
        stepped.step()
        assert sum(": committed " in line for line in lines) == 3
        stepped.tries.hold("job ")
        stepped.glances.hold("ask")
        stepped.step(UNSEEN)
        ids = [f"orders ({job_id(number)})" for number in (1, 2)]
        everyone = f": job-3, {', '.join(ids)}"
        assert any(line.endswith(everyone) for line in stepped.service.remarks())
    named = {line.partition(": committed")[0] for line in lines if ": committed " in line}
    assert named == {*ids, "job-3"}


def path_of(service, job=None):
    points = service.restore_points(job)
    return [point.starting and point.starting.checkpoint for point in points]


def test_the_older_checkpoint_that_was_promoted_is_what_the_job_is_started_from(tmp_path):
    write(tmp_path, 1, 1)
    replica = f"file:{tmp_path}/dcB/{job_id(1)}"
    with stepping(Jobs(served(tmp_path, 1, keep=2))) as stepped:
        stepped.step()
        assert path_of(stepped.service) == [f"{replica}/chk-1"]
        write(tmp_path, 1, 2, NEXT)
        stepped.step(1.0)
        assert path_of(stepped.service) == [f"{replica}/chk-2"]
        (tmp_path / "dcA").rename(tmp_path / "lost")
        promote(PromoteRequest(replica, "chk-1"), lambda _line: None)
        stepped.step(1.0)
        assert path_of(stepped.service) == [f"{replica}/chk-1"]


def test_a_checkpoint_of_another_job_in_the_replica_makes_it_unready(tmp_path):
    write(tmp_path, 1, 1)
    job = served(tmp_path, 1)
    sync(job.request, lambda _line: None)
    shutil.copytree(tmp_path / "dcA" / job_id(1) / "chk-1", tmp_path / "dcB" / job_id(1) / "chk-9")
    (tmp_path / "dcA").rename(tmp_path / "lost")
    with stepping(Jobs(job)) as stepped:
        stepped.step()
        (point,) = stepped.service.restore_points()
    assert point.observed
    assert "chk-9" in point.unready
    assert point.starting.checkpoint.endswith("/chk-1")


def test_the_name_of_a_job_that_restarted_means_the_newest_point_that_can_be_restored(tmp_path):
    """Flink has forgotten the former id, and the first copy of the new one has not ended."""
    for number in (1, 2):
        write(tmp_path, number, 1)
    former, new = (replace(served(tmp_path, number), name="orders") for number in (1, 2))
    place = f"file:{tmp_path}/dcB"

    def asked(service):
        return [point.replica for point in service.restore_points("orders")]

    discovery = Jobs(former)
    with stepping(discovery) as stepped:
        stepped.step()
        stepped.tries.hold("job")
        discovery.found = [new]
        stepped.step(1.0)
        assert [each.source for each in stepped.service.observations()] == [new.request.source]
        assert asked(stepped.service) == [f"{place}/{job_id(1)}"]
        assert len(stepped.service.restore_points(job_id(2))) == 1
        stepped.release()
        stepped.step(1.0)
        assert asked(stepped.service) == [f"{place}/{job_id(2)}"]
        discovery.found = []
        stepped.step(1.0)
        assert asked(stepped.service) == [f"{place}/{job_id(2)}"]


def test_jobs_of_one_name_that_run_at_the_same_time_are_all_meant_by_it(tmp_path):
    found = [replace(served(tmp_path, number), name="orders") for number in (1, 2)]
    for number in (1, 2):
        write(tmp_path, number, 1)
    with stepping(Jobs(*found)) as stepped:
        stepped.step()
        assert len(stepped.service.restore_points("orders")) == 2


@pytest.mark.parametrize("ahead", [5.0, 0.3, -5.0, 3600.0])
def test_a_replica_of_the_newest_checkpoint_has_no_lag_however_the_clocks_differ(tmp_path, ahead):
    path = write(tmp_path, 1, 1)
    written = path.joinpath("_metadata").stat().st_mtime
    found = Checkpoint(f"file:{path}", reported(1, written + ahead))
    with stepping(Jobs(replace(served(tmp_path, 1), newest=found))) as stepped:
        for _ in range(4):
            stepped.step(2.0)
        (seen,) = stepped.service.observations()
        assert (seen.behind(), seen.lag(stepped.clock.now())) == (0, 0)
        assert seen.replica_newest.clocks_apart == pytest.approx(ahead)
        assert seen.tries == 4


@pytest.mark.parametrize("ahead", [0.0, 300.0, -300.0])
def test_by_how_much_the_clock_of_the_source_is_ahead_is_a_metric_and_corrects_ages(
    tmp_path, ahead
):
    with stepping(Jobs(served(tmp_path, 1))) as stepped:
        for number in (1, 2, 3):
            stepped.clock.pass_(100.0)
            path = write(tmp_path, 1, number)
            completed = stepped.clock.now() + ahead - 1.0
            os.utime(path / "_metadata", (completed, completed))
            stepped.step(1.0)
        (seen,) = stepped.service.observations()
        text = generate_latest(registry_of(lambda: [seen], stepped.clock)).decode()
        found = re.search(r"^cpreplicate_source_clock_ahead_seconds{.*} (\S+)$", text, re.MULTILINE)
        assert found is not None
        assert float(found[1]) == pytest.approx(ahead, abs=110.0 if ahead < 0 else 5.0)
        assert (float(found[1]) == 0) == (ahead == 0)
        seen.source_newest = seen.source_newest._replace(checkpoint_id=4)
        assert seen.lag(stepped.clock.now()) == pytest.approx(2.0, abs=110.0 if ahead < 0 else 5.0)


def test_a_number_that_flink_uses_a_second_time_is_another_checkpoint(tmp_path):
    path = write(tmp_path, 1, 1)
    discovery = Jobs(
        replace(served(tmp_path, 1), newest=Checkpoint(f"file:{path}", reported(1, 1000.0)))
    )
    with stepping(discovery) as stepped:
        stepped.step()
        again = Checkpoint(f"file:{path}", reported(1, 2000.0))
        discovery.found = [replace(discovery.found[0], newest=again)]
        stepped.tries.hold("job")
        stepped.step(1.0)
        assert stepped.service.observations()[0].behind() == 1


def test_what_is_committed_is_known_before_what_is_needed_no_more_is_deleted(tmp_path):
    write(tmp_path, 1, 1)
    seen: list[tuple[str, int]] = []

    def note(verb, uri):
        if verb == "delete" and uri.endswith("_metadata"):
            (known,) = stepped.service.observations()
            seen.append((path_of(stepped.service)[0][-5:], known.replica_newest.checkpoint_id))

    with (
        serving("file", Faulty(Side().storage("file:/"), note)),
        stepping(Jobs(served(tmp_path, 1))) as stepped,
    ):
        stepped.step()
        write(tmp_path, 1, 2, NEXT)
        stepped.step(1.0)
    assert seen == [("chk-2", 2)]


def test_a_report_that_is_older_than_what_was_replicated_is_no_work(tmp_path):
    first = write(tmp_path, 1, 1)
    old = Checkpoint(f"file:{first}", reported(1, 1000.0))
    discovery, warnings = Jobs(served(tmp_path, 1)), list[str]()
    with stepping(discovery, warnings) as stepped:
        write(tmp_path, 1, 2, NEXT)
        stepped.step()
        discovery.found = [replace(served(tmp_path, 1), newest=old)]
        for _ in range(3):
            stepped.step(1.0)
        (seen,) = stepped.service.observations()
        assert (seen.failures, seen.behind(), warnings) == (Counter(), 0, [])
    with stepping(discovery, warnings) as stepped:  # another one has replicated it
        stepped.step()
        (seen,) = stepped.service.observations()
        assert (seen.failures, seen.replica_newest.checkpoint_id, warnings) == (Counter(), 2, [])


def test_a_cancelled_job_whose_checkpoints_flink_deleted_has_ended_and_that_is_reported_once(
    tmp_path,
):
    path = write(tmp_path, 1, 1)
    job = served(tmp_path, 1, is_discovered=True)
    lines, warnings = list[str](), list[str]()
    with stepping(Jobs(job), warnings, lines) as stepped:
        stepped.step()
        shutil.rmtree(path)
        for _ in range(4):
            stepped.step(1.0)
        (seen,) = stepped.service.observations()
        assert (seen.last_exit_code, seen.lag(stepped.clock.now())) == (0, 0)
        assert len([line for line in lines if "the job has ended" in line]) == 1
        write(tmp_path, 1, 2, NEXT)
        stepped.step(1.0)
        assert replica_ids(stepped.service) == {"job-1": 2}
        shutil.rmtree(path.parent)  # lost, perhaps: Flink leaves the directory
        stepped.step(1.0)
        assert stepped.service.observations()[0].last_exit_code == 10
    assert len(warnings) == 1


def test_the_end_of_a_job_names_the_savepoint_that_it_was_stopped_with(tmp_path):
    path, lines = write(tmp_path, 1, 1), list[str]()
    root, job = f"file:{path.parents[1]}", path.parent.name
    savepoint = path.parents[1] / f"savepoint-{job[:6]}-0123456789ab"
    with stepping(Jobs(served(tmp_path, 1, is_discovered=True)), lines=lines) as stepped:
        stepped.step()
        shutil.copytree(path, savepoint)
        shutil.rmtree(path)
        stepped.step(1.0)
    (line,) = [line for line in lines if "the job has ended" in line]
    assert f"`cpreplicate sync {root}/{savepoint.name} file:{tmp_path}/" in line


def test_a_job_that_is_reported_as_running_has_not_ended_when_its_checkpoints_are_gone(tmp_path):
    path = write(tmp_path, 1, 1)
    found = Checkpoint(f"file:{path}", reported(1, 1000.0))
    job = replace(served(tmp_path, 1, is_discovered=True), newest=found)
    with stepping(Jobs(job)) as stepped:
        stepped.step()
        shutil.rmtree(path)
        stepped.step(LOOK_AGAIN)
        assert stepped.service.observations()[0].last_exit_code == 10


def test_a_new_job_leaves_a_service_ready_that_was(tmp_path):
    write(tmp_path, 1, 1)
    discovery = Jobs(served(tmp_path, 1))
    with stepping(discovery) as stepped:
        stepped.tries.hold("job")
        stepped.step()
        assert not stepped.service.is_ready()
        stepped.release()
        stepped.step()
        assert stepped.service.is_ready()
        write(tmp_path, 2, 1)
        discovery.found.append(served(tmp_path, 2))
        stepped.tries.hold("job")
        stepped.step(1.0)
        assert len(stepped.service.observations()) == 2
        assert stepped.service.is_ready()


def test_what_a_replica_holds_is_known_before_the_first_try_of_a_service_has_ended(
    tmp_path, monkeypatch
):
    write(tmp_path, 1, 1)
    replicate(tmp_path, 1)
    write(tmp_path, 1, 2, NEXT)
    seen = []

    def note(*words):
        seen.append((path_of(stepped.service)[0][-5:], replica_ids(stepped.service)["job-1"]))
        return sync(*words)

    monkeypatch.setattr("cpreplicate.operations.jobs.attempt.sync", note)
    with stepping(Jobs(served(tmp_path, 1))) as stepped:
        stepped.step()
    assert seen == [("chk-1", 1)]


def test_first_copies_hold_up_no_job_that_was_copied_before(tmp_path, monkeypatch):
    write(tmp_path, 1, 1)
    replicate(tmp_path, 1)
    for number in (2, 3, 4):
        write(tmp_path, number, 1)
    write(tmp_path, 1, 2, NEXT)
    begun, release = list[str](), threading.Event()

    def first_copies():
        return [each for each in begun if job_id(1) not in each]

    def sync_slowly(request, *others):
        begun.append(request.source)
        if job_id(1) not in request.source:
            assert release.wait(PATIENCE)
        return sync(request, *others)

    monkeypatch.setattr("cpreplicate.operations.jobs.attempt.sync", sync_slowly)
    found = [served(tmp_path, number) for number in (2, 3, 4, 1)]
    try:
        with running(Jobs(*found), slots=2) as service:
            wait_until(lambda: replica_ids(service).get("job-1") == 2 and first_copies())
            assert len(first_copies()) == 1
            release.set()
            wait_until(lambda: set(replica_ids(service).values()) == {1, 2})
    finally:
        release.set()
