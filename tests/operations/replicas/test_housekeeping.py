"""A service sweeps what it follows, and forgets what has ended, and neither stops a replication."""

import contextlib
import errno
import json
import shutil
import subprocess
import sys
import zlib

import pytest

from cpreplicate.core.plan import Cap
from cpreplicate.core.shard import Shard
from cpreplicate.errors import CopyFailed
from cpreplicate.flink.control import FlinkControl
from cpreplicate.operations.jobs.job import Job
from cpreplicate.operations.jobs.service import Service, ServiceSettings
from cpreplicate.operations.replicas.housekeeping import (
    Housekeeper,
    HousekeepingCounts,
    HousekeepingSettings,
)
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.sync.sync import sync
from cpreplicate.protocol import lease
from cpreplicate.runners import ExecutionOptions, RunnerStopped, WarmRunners
from cpreplicate.storage import Side, Sides, Transient
from cpreplicate.storage.backends.local.local import LocalStorage
from tests.support.faults import Faulty
from tests.support.jobs import JOB
from tests.support.registry import serving
from tests.support.replicas import DAY, FILES, NEXT, aged, paths, recorded, sealed, synced
from tests.support.roots import FIRST, HOUR, NOON, SECOND, THIRD, Roots
from tests.support.simulated_flink import SimulatedControl, SimulatedFlink
from tests.support.stepping import ManualClock, Stepped, Steps

INLINE = ExecutionOptions(runner="inline")
CLICKS = "2d" * 16


class Kept:
    """A service that follows one job, or none, and what keeps its replicas."""

    def __init__(self, root, stepped, jobs, **settings):
        self.target, self.jobs, self.stepped = root / "dcB", jobs, stepped
        self.lines: list[str] = []
        self.warnings: list[str] = []
        chosen = HousekeepingSettings(execution=INLINE, **settings)
        self.keeper = Housekeeper(
            stepped.service, chosen, self.lines.append, self.warnings.append, stepped.clock
        )

    def round(self, **changed):
        stepped = self.stepped
        stepped.step(1.0)
        self.keeper.round()
        return self.keeper.counts()._replace(**changed)


class Discovered:
    def __init__(self, target, jobs):
        self.target_roots, self.found = (target,), jobs

    def jobs(self):
        return self.found


@contextlib.contextmanager
def kept(root, *sources, options=None, **settings):
    """What keeps the replicas of a service of jobs with these sources, on no day of a sweep."""
    target = f"file:{root}/dcB"
    requests = [
        SyncRequest(f"file:{source}", target, execution=INLINE, **(options or {}))
        for source in sources
    ]
    found = [Job(each.source.rpartition("/")[2], each, is_discovered=True) for each in requests]
    tries, glances = Steps(), Steps()
    with WarmRunners(Sides(), INLINE, 60.0) as runners:
        service = Service(
            Discovered(target, found),
            runners,
            tries,
            ServiceSettings(interval=1.0),
            lambda _line: None,
            lambda _line: None,
            clock=off_day(f"{target}/{JOB}"),
            glances=glances,
        )
        yield Kept(root, Stepped(service, service.clock, tries, glances), found, **settings)


def off_day(replica):
    """A clock of now, on a day on which a replica is not swept without a reason."""
    clock = ManualClock()
    if is_its_day(replica, clock.now()):
        clock = ManualClock(clock.now() + DAY)
    return clock


def is_its_day(replica, now):
    return (int(now // DAY) + zlib.crc32(replica.encode())) % 7 == 0


@pytest.fixture
def replica(tmp_path):
    return synced(tmp_path, {1: FILES, 2: NEXT})


@pytest.fixture
def roots(tmp_path):
    """Three lives of orders, and another job; their source answers, and holds nothing."""
    roots = Roots(tmp_path)
    for job, since in ((FIRST, NOON), (SECOND, NOON + DAY), (THIRD, NOON + 2 * DAY)):
        roots.add(job, "orders", since, since + HOUR)
    roots.add(CLICKS, "clicks")
    (tmp_path / "dcA" / "another").mkdir(parents=True)
    return roots


def orphan(replica, name="shared/orphan"):
    """A file that a run which died two days ago completed, with its journal."""
    (replica / name).write_text("left")
    aged(replica / name)
    recorded(replica, name)


def left(roots):
    return {each.name for each in roots.targets.iterdir()}


def test_what_failed_runs_left_is_swept_once_the_job_is_in_step(replica, tmp_path):
    before = paths(replica)
    orphan(replica)
    with kept(tmp_path, tmp_path / "dcA" / JOB) as found:
        counts = found.round()
    assert paths(replica) == before
    assert counts == HousekeepingCounts(swept=2, swept_bytes=counts.swept_bytes)
    assert "removing 2 files" in found.lines[0]


def test_of_many_rounds_that_failed_nothing_is_left_a_day_after_a_good_one(tmp_path):
    def fails(_verb, uri):
        return OSError(errno.EIO, "fails", uri) if uri.endswith("-b") else None

    replica = synced(tmp_path, {1: FILES})
    before = paths(replica)
    for number in range(2, 6):
        files = {f"shared/{number}-{name}": 40 for name in "abc"}
        with serving("file", Faulty(LocalStorage(), fails)), pytest.raises(CopyFailed):
            synced(tmp_path, {number: files})
        aged(replica)
    assert len(paths(replica)) >= len(before) + 4 * 2
    synced(tmp_path, {6: NEXT})
    fresh = synced(tmp_path / "another", {6: NEXT})
    with kept(tmp_path, tmp_path / "dcA" / JOB) as found:
        found.round()  # what the last good round wrote is of now, its journal, too
    of_now = (".cpreplicate/copied-", ".cpreplicate/late.json")
    assert {path for path in paths(replica) if not path.startswith(of_now)} == paths(fresh)
    synced(tmp_path, {7: NEXT})
    assert not list(replica.glob(".cpreplicate/copied-*"))


def test_what_failed_runs_left_serves_the_next_try_while_a_job_is_not_in_step(replica, tmp_path):
    orphan(replica)
    shutil.rmtree(tmp_path / "dcA")
    with kept(tmp_path, tmp_path / "dcA" / JOB) as found:
        assert found.round() == HousekeepingCounts()
    assert (replica / "shared" / "orphan").exists()


def test_what_is_younger_than_a_day_may_be_of_a_run_at_work(replica, tmp_path):
    (replica / "shared" / "young").write_text("left")
    recorded(replica, "shared/young", days=0)
    with kept(tmp_path, tmp_path / "dcA" / JOB) as found:
        assert found.round() == HousekeepingCounts()
    assert (replica / "shared" / "young").exists()


def test_a_replica_without_a_trace_is_swept_on_its_day_of_the_week_only(replica, tmp_path):
    unrecorded = replica / "shared" / ".cpreplicate-tmp-1"
    unrecorded.write_text("half")
    aged(unrecorded)
    with kept(tmp_path, tmp_path / "dcA" / JOB) as found:
        found.round()
        assert unrecorded.exists()
        while not is_its_day(f"file:{replica}", found.stepped.clock.now()):
            found.stepped.clock.pass_(DAY)
        found.round()
    assert not unrecorded.exists()


def test_a_look_at_a_replica_without_a_trace_lists_no_directory_of_files(replica, tmp_path):
    calls = []
    disk = Faulty(LocalStorage(), lambda verb, uri: calls.append((verb, uri)))
    with kept(tmp_path, tmp_path / "dcA" / JOB) as found:
        found.stepped.step()
        with serving("file", disk):
            found.keeper.round()
    assert f"file:{replica}/.cpreplicate" in {uri for _verb, uri in calls}
    assert f"file:{replica}/shared" not in {uri for _verb, uri in calls}


def test_the_cap_of_the_job_holds_for_sweeps_too_and_is_reported_once(replica, tmp_path):
    for number in range(9):
        orphan(replica, f"shared/orphan-{number}")
    options = {"max_delete": Cap(5)}
    with kept(tmp_path, tmp_path / "dcA" / JOB, options=options) as found:
        assert found.round().failures == 1
        assert found.round().failures == 2
    assert (replica / "shared" / "orphan-0").exists()
    (warning,) = found.warnings
    assert "--max-delete allows 5 files" in warning


def test_a_file_that_cannot_be_removed_is_reported_once_and_once_more_after_a_good_round(
    replica, tmp_path
):
    stuck = {"shared/orphan"}

    def fails(verb, uri):
        is_stuck = verb == "delete" and uri.removeprefix(f"file:{replica}/") in stuck
        return OSError(errno.EIO, "fails", uri) if is_stuck else None

    orphan(replica)
    with (
        serving("file", Faulty(LocalStorage(), fails)),
        kept(tmp_path, tmp_path / "dcA" / JOB) as found,
    ):
        assert [found.round().failures for _round in range(3)] == [1, 2, 3]
        journals = [each.rename(tmp_path / each.name) for each in replica.glob(".cpreplicate/*-*")]
        assert found.round().failures == 3  # nothing shows that a run died: it is not swept
        for each in journals:
            each.rename(replica / ".cpreplicate" / each.name)
        assert found.round().failures == 4
        assert len(found.warnings) == 1
        stuck.clear()
        assert found.round().failures == 4
        orphan(replica)
        stuck.add("shared/orphan")
        found.round()
    first, again = found.warnings
    assert "shared/orphan" in first
    assert again == first


def test_many_orphans_go_in_slices_so_that_the_lease_is_free_in_between(
    replica, tmp_path, monkeypatch
):
    before = paths(replica)
    for number in range(5):
        orphan(replica, f"shared/orphan-{number}")
    monkeypatch.setattr("cpreplicate.operations.replicas.housekeeping._SLICE", 2)
    with kept(tmp_path, tmp_path / "dcA" / JOB) as found:
        found.round()
    assert paths(replica) == before
    assert len(found.lines) == 3


@pytest.mark.parametrize("is_so", ["sealed", "held"])
def test_a_replica_that_a_job_or_another_run_uses_is_left_and_that_is_no_failure(
    replica, tmp_path, is_so, monkeypatch
):
    monkeypatch.setattr("cpreplicate.operations.replicas.housekeeping._WAIT", 0.0)
    orphan(replica)
    with kept(tmp_path, tmp_path / "dcA" / JOB) as found, contextlib.ExitStack() as stack:
        found.stepped.step()
        if is_so == "sealed":
            sealed(replica, "chk-2")
        else:
            stack.enter_context(lease.acquire(f"file:{replica}", Side()))
        found.keeper.round()
        assert (found.keeper.counts(), found.warnings) == (HousekeepingCounts(), [])
    assert (replica / "shared" / "orphan").exists()


def test_no_sweeps_if_they_are_switched_off(replica, tmp_path):
    orphan(replica)
    with kept(tmp_path, tmp_path / "dcA" / JOB, sweep_every=0.0) as found:
        assert found.round() == HousekeepingCounts()


def test_replicas_of_earlier_lives_go_by_policy_and_what_stays_is_reported_once(roots, tmp_path):
    with kept(tmp_path, forget_ended=30 * DAY) as found:
        assert found.round() == HousekeepingCounts(forgotten=2, kept=2)
        assert left(roots) == {THIRD, CLICKS}
        assert found.round() == HousekeepingCounts(forgotten=2, kept=2)
    assert sum("was removed" in line for line in found.lines) == 2
    assert sum(f"{THIRD} is older than --forget-ended, and stays" in each for each in found.lines)
    assert (len(found.lines), found.warnings) == (4, [])


def test_nothing_goes_that_is_younger_than_the_policy_or_without_one(roots, tmp_path):
    with kept(tmp_path, forget_ended=36500 * DAY) as found:
        assert found.round() == HousekeepingCounts()
    with kept(tmp_path) as found:
        assert found.round() == HousekeepingCounts()
    assert left(roots) == {FIRST, SECOND, THIRD, CLICKS}


def test_one_refusal_is_reported_once_and_counted_and_the_others_go(roots, tmp_path):
    (roots.targets / FIRST / "shared" / "theirs").write_text("of somebody")
    with kept(tmp_path, forget_ended=30 * DAY) as found:
        assert found.round() == HousekeepingCounts(forgotten=1, kept=2, failures=1)
        assert found.round().failures == 2
    assert left(roots) == {FIRST, THIRD, CLICKS}
    (warning,) = found.warnings
    assert "theirs (not recorded as written by cpreplicate)" in warning


def test_a_root_that_fails_again_after_a_good_round_is_reported_again(roots, tmp_path):
    failing = {"is": True}

    def fault(verb, uri):
        is_it = failing["is"] and verb == "list" and uri == f"file:{roots.targets}"
        return OSError(errno.EINVAL, "does not list", uri) if is_it else None

    with (
        kept(tmp_path, forget_ended=36500 * DAY) as found,
        serving("file", Faulty(LocalStorage(), fault)),
    ):
        for fails in (True, True, False, True):
            failing["is"] = fails
            found.round()
    assert len(found.warnings) == 2


def test_a_removal_that_failed_half_way_goes_on_in_the_next_round(roots, tmp_path):
    first = roots.targets / FIRST

    def fault(verb, uri):
        is_it = verb == "delete" and uri.endswith(f"{FIRST}/shared/h")
        return OSError(errno.EIO, "does not delete", uri) if is_it else None

    for replica in roots.targets.iterdir():
        aged(replica, days=40)
    with kept(tmp_path, forget_ended=30 * DAY) as found:
        with serving("file", Faulty(LocalStorage(), fault)):
            assert found.round() == HousekeepingCounts(forgotten=1, kept=2, failures=1)
        assert not list(first.glob("chk-*/_metadata"))
        assert found.round() == HousekeepingCounts(forgotten=2, kept=2, failures=1)
    assert left(roots) == {THIRD, CLICKS}


@pytest.mark.usefixtures("roots")
def test_a_replica_from_which_a_job_of_the_other_cluster_runs_stays_as_long_as_it_runs(tmp_path):
    cluster = SimulatedFlink("http://b:8081", "file:/elsewhere")
    cluster.start("ab" * 16, "orders", restored=f"hdfs://b/x/{FIRST}/chk-1")
    control = SimulatedControl(cluster)
    with kept(tmp_path, forget_ended=30 * DAY, clusters=[control]) as found:
        assert found.round() == HousekeepingCounts(forgotten=1, kept=2, failures=1)
        (warning,) = found.warnings
        assert "was restored from, or writes" in warning
        assert "without --forget-flink" in warning
        control.cancel("ab" * 16)
        assert found.round().forgotten == 2


def test_while_the_other_cluster_does_not_answer_nothing_is_removed(roots, tmp_path):
    silent = FlinkControl("http://127.0.0.1:1")
    with kept(tmp_path, forget_ended=30 * DAY, clusters=[silent]) as found:
        assert found.round() == HousekeepingCounts(kept=2, failures=2)
    assert left(roots) == {FIRST, SECOND, THIRD, CLICKS}
    assert all("whether a job runs from it is not known" in each for each in found.warnings)


def test_what_a_removal_left_that_was_killed_after_the_marker_goes_in_the_next_round(
    roots, tmp_path
):
    killed, bare, first_sync = ("ee" * 16, "dd" * 16, "bb" * 16)
    (roots.targets / bare / ".cpreplicate").mkdir(parents=True)
    taken = "; ".join(
        [
            "import os, sys",
            "from cpreplicate.protocol.lease import acquire",
            "from cpreplicate.storage import Side",
            "acquire(sys.argv[1], Side()).__enter__()",
            "os._exit(9)",
        ]
    )
    place = f"file:{roots.targets}/{killed}"
    assert subprocess.run([sys.executable, "-c", taken, place], check=False).returncode == 9
    (roots.targets / "empty").mkdir()
    with lease.acquire(f"file:{roots.targets}/{first_sync}", Side()):
        with kept(tmp_path, forget_ended=30 * DAY) as found:
            assert found.round() == HousekeepingCounts(forgotten=4, kept=2)
        assert left(roots) == {THIRD, CLICKS, first_sync, "empty"}


@pytest.mark.parametrize("is_so", ["sealed", "held", "later one is lost"])
def test_what_forget_refuses_stays(roots, tmp_path, is_so):
    with kept(tmp_path, forget_ended=30 * DAY) as found, contextlib.ExitStack() as stack:
        if is_so == "sealed":
            sealed(roots.targets / FIRST, "chk-1")
        elif is_so == "held":
            stack.enter_context(lease.acquire(f"file:{roots.targets / FIRST}", Side()))
        else:
            for job in (SECOND, THIRD):
                shutil.rmtree(roots.targets / job)
        found.round()
        assert (FIRST in left(roots), found.warnings) == (True, [])


def test_a_replica_whose_source_holds_a_checkpoint_stays_where_directories_are_followed(
    roots, tmp_path
):
    shutil.copytree(tmp_path / "made" / "dcA" / JOB, tmp_path / "dcA" / FIRST)
    aged(tmp_path / "dcA" / FIRST, days=30_000)
    with kept(tmp_path, forget_ended=30 * DAY) as found:
        found.round()
    assert left(roots) == {FIRST, THIRD, CLICKS}


def test_a_replica_of_a_job_that_is_followed_stays_as_long_as_its_source_holds_a_checkpoint(
    roots, tmp_path
):
    source = tmp_path / "dcA" / FIRST
    shutil.copytree(tmp_path / "made" / "dcA" / JOB, source)
    with kept(tmp_path, source, forget_ended=30 * DAY, lists_sources=False) as found:
        found.round()
        assert FIRST in left(roots)


def test_nothing_is_started_any_more_from_a_replica_that_was_removed(roots, tmp_path):
    source = tmp_path / "dcA" / FIRST
    shutil.copytree(tmp_path / "made" / "dcA" / JOB, source)
    with kept(tmp_path, source, forget_ended=30 * DAY) as found:
        found.stepped.step()
        (point,) = found.stepped.service.restore_points()
        assert point.starting is not None
        shutil.rmtree(source / "chk-1")  # it ended
        aged_record(roots.targets / FIRST)
        found.round()
        (point,) = found.stepped.service.restore_points()
    assert FIRST not in left(roots)
    assert point.starting is None


def aged_record(replica):
    """Have the checkpoint of a replica be one of long ago."""
    record = replica / ".cpreplicate" / "chk-1.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), "completed": NOON}))


def test_of_several_services_each_removes_those_of_its_shard(roots, tmp_path):
    mine = {job for job in (FIRST, SECOND) if Shard(1, 2).has(job)}
    with kept(tmp_path, forget_ended=30 * DAY, shard=Shard(1, 2)) as found:
        assert found.round().forgotten == len(mine)
    with kept(tmp_path, forget_ended=30 * DAY, shard=Shard(2, 2)) as found:
        assert found.round().forgotten == 2 - len(mine)
    assert left(roots) == {THIRD, CLICKS}


def test_a_storage_that_is_lost_ends_the_round_and_the_end_of_a_service_ends_it(replica, tmp_path):
    orphan(replica)
    lost = Faulty(LocalStorage(), lambda _verb, _uri: Transient("the NameNode does not answer"))
    with kept(tmp_path, tmp_path / "dcA" / JOB) as found:
        found.stepped.step()
        with serving("file", lost), pytest.raises(Transient):
            found.keeper.round()
        found.stepped.service.stop()
        with pytest.raises(RunnerStopped):
            found.keeper.round()
    assert (replica / "shared" / "orphan").exists()


def test_a_replica_that_cannot_be_reached_does_not_keep_the_others_from_being_swept(
    replica, tmp_path
):
    source = tmp_path / "dcA" / CLICKS
    shutil.copytree(tmp_path / "dcA" / JOB, source)
    target = f"file:{tmp_path}/dcB"
    sync(SyncRequest(f"file:{source}", target, execution=INLINE), lambda _line: None)
    other = replica.parent / CLICKS
    (other / "shared").mkdir(exist_ok=True)
    for each in (replica, other):
        orphan(each)

    def fault(_verb, uri):
        return Transient("does not answer") if JOB in uri else None

    with kept(tmp_path, tmp_path / "dcA" / JOB, source) as found:
        found.stepped.step()
        with serving("file", Faulty(LocalStorage(), fault)), pytest.raises(Transient):
            found.keeper.round()
    assert (replica / "shared" / "orphan").exists()
    assert not (other / "shared" / "orphan").exists()
