"""The shipped alert rules over what a service exports: each beside the nearest healthy case."""

import contextlib
import itertools
import os
import shutil
from dataclasses import replace

import pytest
from prometheus_client.samples import Sample

from cpreplicate.core.lag import reported
from cpreplicate.core.shard import WHOLE, Shard
from cpreplicate.operations.jobs.job import Checkpoint, Job
from cpreplicate.operations.jobs.service import Service, ServiceSettings
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.sync.sync import sync
from cpreplicate.output.metrics import registry_of
from cpreplicate.runners import ExecutionOptions, WarmRunners
from cpreplicate.storage import Side, Sides, Transient
from tests.support import parts
from tests.support.alerts import SERVICE_RULES, check_firing, check_replayed, fires, silent
from tests.support.faults import Faulty
from tests.support.jobs import JOB, write_checkpoint
from tests.support.registry import serving
from tests.support.replicas import FILES, NEXT, sealed
from tests.support.stepping import ManualClock, Stepped, Steps

pytestmark = [pytest.mark.prometheus, pytest.mark.xdist_group("alerts"), *parts.NIGHTLY]

INLINE = ExecutionOptions(runner="inline")


class Site:
    """A service of one job, and what it exports."""

    def __init__(self, directory, runners):
        self.directory, self.shard = directory, WHOLE
        root = f"file:{directory}/dcB"
        self.target_roots, self.replica = {root}, f"{root}/{JOB}"
        self.found = [Job("orders", SyncRequest(f"file:{directory}/dcA/{JOB}", root))]
        self.source = write_checkpoint(directory / "dcA", 1, FILES)
        self.warnings: list[str] = []
        self.exports: list[tuple[float, list[Sample]]] = []
        self.clock, tries, glances = ManualClock(), Steps(), Steps()
        self._service = Service(
            self,
            runners,
            tries,
            ServiceSettings(interval=30.0),
            lambda _line: None,
            self.warnings.append,
            clock=self.clock,
            glances=glances,
        )
        self.step = Stepped(self._service, self.clock, tries, glances).step
        self.observations = self._service.observations

    def jobs(self):
        return self.found

    def samples(self):
        service = self._service
        registry = registry_of(
            service.observations,
            self.clock,
            service.load,
            service.discovered,
            sharing=lambda: (self.shard, service.target_roots()),
        )
        return [Sample("up", {}, 1), *(each for one in registry.collect() for each in one.samples)]

    def check(self, samples, *names, minutes=14, rules=SERVICE_RULES):
        """Check that 14 minutes later these alerts on the job fire, and no others."""
        job = {"flink_job": "orders", "replica": self.replica}
        expected = [{"alertname": name, **job} for name in names]
        check_firing(self.directory, rules, samples, minutes, expected, self.clock.now())

    def check_job(self, *names):
        """Check that this goes on for 16 minutes, as far as the rules of a job are concerned."""
        self.check(self.samples(), *names, minutes=16, rules=SERVICE_RULES[:1])

    def complete(self, number):
        """Let the job complete a checkpoint now."""
        self.source = write_checkpoint(self.directory / "dcA", number, (FILES, NEXT)[number % 2])
        times = (self.clock.now(), self.clock.now())
        os.utime(self.source / "_metadata", times)

    def export(self):
        """Keep what is exported now for `replay`."""
        self.exports.append((self.clock.now(), self.samples()))

    def go_on(self, minutes, every=10, then=lambda: None):
        """Let the service run for some minutes, and export each few: `then` comes before."""
        for _ in range(0, minutes, every):
            then()
            self.step(every * 60.0)
            self.export()

    def replay(self, *names, interval=10, within=0):
        """Check that these alerts on the job fire at the end, or did in so many minutes before."""
        job = {"flink_job": "orders", "replica": self.replica}
        minutes = round((self.clock.now() - self.exports[0][0]) / 60)
        check_replayed(
            self.directory,
            SERVICE_RULES,
            self.exports,
            minutes,
            [{"alertname": name, **job} for name in names],
            interval,
            within,
        )

    def discover(self, **options):
        """Let discovery report the job so from now on."""
        self.found = [replace(self.found[0], is_discovered=True, **options)]


@pytest.fixture
def site(tmp_path):
    with contextlib.ExitStack() as stack:
        yield Site(tmp_path, stack.enter_context(WarmRunners(Sides(), INLINE, 60.0)))


@silent("CpreplicateLag", "CpreplicateNeverSucceeded", "CpreplicateServiceStalled")
def test_a_first_copy_of_hours_fires_nothing(site, monkeypatch):
    during = []

    def sync_for_long(*words):
        during.extend(site.samples())
        return sync(*words)

    monkeypatch.setattr("cpreplicate.operations.jobs.attempt.sync", sync_for_long)
    site.step()
    assert {each.value for each in during if each.name == "cpreplicate_slots_busy"} == {1}
    site.check(during)
    site.check(site.samples())


@fires("CpreplicateLag")
def test_a_first_copy_that_failed_fires(site):
    for file in (site.directory / "dcA" / JOB / "shared").iterdir():
        file.unlink()
    site.step()
    assert site.warnings
    site.check(site.samples(), "CpreplicateLag")


@fires("CpreplicateJobLost")
@silent("CpreplicateJobLost")
def test_a_job_that_nobody_reports_fires_until_it_is_reported_or_has_ended(site):
    site.step()
    (job,) = site.found
    site.found = [replace(job, is_lost=True)]
    site.step(30.0)
    site.check(site.samples(), "CpreplicateJobLost")
    site.found = [job]
    site.step(30.0)
    site.check(site.samples())


@fires("CpreplicateNotReady", "CpreplicateFailing", "CpreplicateSealedButScheduled")
@silent("CpreplicateNotReady")
def test_a_replica_into_which_a_job_writes_is_not_ready_and_a_promoted_one_is(site):
    replica = site.directory / "dcB" / JOB
    site.step()
    site.check_job()
    shutil.copytree(replica / "chk-1", replica / "chk-9")
    write_checkpoint(site.directory / "dcA", 2, NEXT)
    site.step(30.0)
    site.check_job("CpreplicateNotReady", "CpreplicateFailing")
    shutil.rmtree(replica / "chk-9")
    site.step(600.0)
    site.check_job()
    sealed(replica, "chk-2")
    write_checkpoint(site.directory / "dcA", 3, FILES)
    site.step(30.0)
    site.check_job("CpreplicateSealedButScheduled", "CpreplicateFailing")


@silent("CpreplicateSealedButScheduled")
def test_a_promoted_replica_whose_job_was_removed_from_the_schedule_fires_nothing_of_its_seal(site):
    site.step()
    sealed(site.directory / "dcB" / JOB, "chk-1")
    write_checkpoint(site.directory / "dcA", 2, NEXT)
    site.step(30.0)
    job = [each for each in site.samples() if "replica" in each.labels]
    expected = [
        {"alertname": name, "flink_job": "orders", "replica": site.replica}
        for name in ("CpreplicateFailing", "CpreplicateNoSuccess")  # it is exported for ever
    ]
    check_firing(site.directory, SERVICE_RULES[:1], job, 80, expected, site.clock.now())


@pytest.mark.parametrize("apart", [300.0, -300.0])
@silent("CpreplicateLag")
def test_clocks_that_are_apart_fire_nothing(site, apart):
    metadata = site.source / "_metadata"
    then = site.clock.now() + apart
    os.utime(metadata, (then, then))
    site.discover(newest=Checkpoint(f"file:{site.source}", reported(1, site.clock.now() - apart)))
    site.step()
    site.step(30.0)
    site.check(site.samples())


@silent("CpreplicateNoSuccess")
def test_a_job_that_only_takes_savepoints_fires_nothing(site):
    shutil.rmtree(site.source)
    site.discover()
    site.step()
    site.step(30.0)
    site.check(site.samples())


def test_a_batch_job_that_ends_and_leaves_no_checkpoint_fires_nothing(site):
    site.discover()
    site.step()
    shutil.rmtree(site.source)
    site.discover(has_ended=True)
    site.step(30.0)
    site.check(site.samples())


@fires("CpreplicateShardsDisagree")
@silent("CpreplicateShardsDisagree")
def test_shards_that_do_not_fit_fire_and_those_that_do_fire_nothing(site):
    site.step()

    def exported(*shards):
        for site.shard in shards:
            yield from (each for each in site.samples() if each.name == "cpreplicate_shards")

    rest = [each for each in site.samples() if each.name != "cpreplicate_shards"]
    now = site.clock.now()
    for shards, names in (
        ([Shard(1, 2), Shard(2, 2)], []),
        ([Shard(1, 2), Shard(2, 3)], ["CpreplicateShardsDisagree"]),
        ([Shard(1, 2)], ["CpreplicateShardsDisagree"]),
    ):
        expected = [{"alertname": name} for name in names]
        samples = [*rest, *exported(*shards)]
        check_firing(site.directory, ["cpreplicate-service.rules.yml"], samples, 15, expected, now)


def test_a_job_that_completes_a_checkpoint_a_day_fires_nothing_once_that_is_known(site):
    for number in (1, 2, 3):
        site.complete(number)
        site.step(30.0)
        site.export()
        site.go_on(24 * 60 - 10)
    site.replay(within=24 * 60)


@fires("CpreplicateNoNewCheckpoints")
@silent("CpreplicateNoNewCheckpoints")
@pytest.mark.parametrize("hours", [1, 25], ids=["new", "known"])
def test_a_job_that_completes_no_more_checkpoints_fires_beside_a_service_that_looks(site, hours):
    numbers = itertools.count(2)
    site.go_on(hours * 60, then=lambda: site.complete(next(numbers)))
    site.replay(within=hours * 60)
    site.go_on(120)
    site.replay("CpreplicateNoNewCheckpoints")
    site.go_on(24 * 60)
    site.replay()  # it has ended


@fires("CpreplicateSourceUnseen", "CpreplicateNoSuccess", "CpreplicateLag", "CpreplicateFailing")
@silent("CpreplicateNoNewCheckpoints", "CpreplicateSourceUnseen")
def test_a_source_that_is_dead_for_hours_fires_as_unseen_and_not_as_a_job_without_checkpoints(site):
    is_dead, numbers = list[bool](), itertools.count(2)

    def fail(_verb, place):
        return Transient("dcA is dark") if is_dead and "/dcA/" in place else None

    with serving("file", Faulty(Side().storage("file:/"), fail)):
        site.go_on(60, 1, lambda: site.complete(next(numbers)))
        is_dead.append(True)  # for a minute first
        site.go_on(1, 1)
        is_dead.clear()
        site.go_on(20, 1)
        site.replay(interval=1, within=80)
        is_dead.append(True)
        site.go_on(4 * 60, 1)
    site.replay(
        "CpreplicateSourceUnseen",
        "CpreplicateLag",
        "CpreplicateFailing",
        "CpreplicateNoSuccess",
        "CpreplicateFailsOften",
        interval=1,
    )


@fires("CpreplicateFailsOften")
@silent("CpreplicateFailsOften", "CpreplicateFailing")
@pytest.mark.parametrize("failures", [1, 8])
def test_tries_that_fail_now_and_then_fire_only_if_they_are_many(site, failures):
    numbers, left = itertools.count(2), [0]

    def fail(verb, place):
        is_hit = left[0] > 0 and verb == "put" and "/dcB/" in place
        left[0] -= is_hit
        return Transient("dcB is busy") if is_hit else None

    def complete():
        if left[0] == 0 and len(site.exports) % 5 == 3 and len(site.exports) < failures * 5:
            left[0] = 1
        site.complete(next(numbers))

    with serving("file", Faulty(Side().storage("file:/"), fail)):
        site.go_on(60, 1, complete)
    (observed,) = site.observations()
    assert (sum(observed.failures.values()), observed.last_exit_code) == (failures, 0)
    site.replay(*(["CpreplicateFailsOften"] if failures > 5 else []), interval=1)
