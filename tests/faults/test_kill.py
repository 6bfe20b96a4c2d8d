"""kill -9 of real runs at random times, beside a job that completes checkpoints.

The part on HDFS: `test_kill_hdfs.py`.
"""

import contextlib
import itertools
import signal
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest

from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.upkeep.sweep import SweepRequest, check
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import Side
from tests.support import checker, parts
from tests.support.corpus import DataCentre
from tests.support.jobs import JOB
from tests.support.killing import (
    LocalPlace,
    Moment,
    RunningJob,
    Shape,
    Standby,
    kill,
    kill_all,
    started,
)

pytestmark = pytest.mark.xdist_group("kill")

REFUSED = 6
HELD = 11  # the watch has the lease
CORPUS_JOB = "55d11b0e36f1bfdaa08cb74d9bea9f76"
FEW_LARGE = Shape(interval=0.3, new=12, lives=3, length=100_000)
MANY_SMALL = Shape(interval=0.5, new=60, lives=2, length=1_000)
FOR_SPARK = Shape(interval=2, new=16, lives=3, length=100_000, retained=40)
PLANNED = "a run that died was about to write it, and nothing proves that it did"
SLOWLY = ("--bandwidth", "8MB/s", "--parallelism", 2)
TO_COMPLETE = Shape(interval=2, new=60, lives=1, length=20_000, retained=1_000_000)
SPARK = ("sync", "--runner", "spark", "--bandwidth")


@pytest.fixture
def standby_of(tmp_path):
    """Starts a job, and makes a replica of it that holds a checkpoint already."""
    with contextlib.ExitStack() as stack:

        def standby(shape):
            job = stack.enter_context(RunningJob(shape, Side(), f"file:{tmp_path}/dcA"))
            request = SyncRequest(
                job.source, f"file:{tmp_path}/dcB", execution=ExecutionOptions(runner="inline")
            )
            made = Standby(job, LocalPlace(tmp_path / "dcB"), request, Random(20261121))
            made.converge()
            return made

        yield standby


@pytest.fixture
def places(tmp_path):
    """The job's directory, and the target's."""
    return tmp_path / "dcA" / JOB, tmp_path / "dcB"


@pytest.mark.parametrize("kills", [4, parts.rest(18)])
def test_a_sync_killed_until_its_commit_leaves_whole_checkpoints_and_the_next_run_completes(
    standby_of, places, kills
):
    moments = (Moment("start", 0.6), Moment("lease", 0.2), Moment("copy", 0.4), Moment("copy", 0.1))
    words = ("sync", *places, "--runner", "inline", *SLOWLY)
    standby_of(FEW_LARGE).kill_runs(
        kills, moments, *words, enough=lambda died: died["copying"] >= kills / 4
    )


@pytest.mark.parametrize("kills", [3, parts.rest(10)])
def test_a_sync_killed_after_its_commit_leaves_whole_checkpoints_and_the_next_run_completes(
    standby_of, places, kills
):
    moments = (Moment("commit", 0.02), Moment("commit", 0.05))
    standby_of(MANY_SMALL).kill_runs(
        kills,
        moments,
        *("sync", *places, "--runner", "inline"),
        enough=lambda died: died["committed"] + died["deleting"] >= kills / 3,
    )


@pytest.mark.rest
def test_a_sync_of_a_real_checkpoint_killed_at_any_time_leaves_the_old_one_whole(
    tmp_path,
):
    source, draw, killed = DataCentre("2.3.0-rocks-incr", tmp_path), Random(20261121), 0
    first, second, third = source.numbers(CORPUS_JOB)
    for attempt in itertools.count():
        if attempt >= 4 and killed:
            break
        replica = tmp_path / f"dcB-{attempt}" / CORPUS_JOB
        synced(source, first, replica)
        with started(*words_of(source, second, replica)) as victim:
            time.sleep(draw.uniform(0.1, 0.6))
            killed += victim.kill()
        assert checker.faults(replica) == []
        assert any(checker.needs(metadata) for metadata in replica.glob("chk-*/_metadata"))
        synced(source, third, replica)
        assert [each.parent.name for each in replica.glob("chk-*/_metadata")] == [f"chk-{third}"]


def synced(source, number, replica):
    with started(*words_of(source, number, replica)) as run:
        assert run.ended() == 0, run.messages()
    assert checker.faults(replica) == []


def words_of(source, number, replica):
    remap = f"{source.remap.recorded}={source.path}"
    return (
        "sync",
        source.job_root(CORPUS_JOB) / f"chk-{number}",
        replica.parent,
        "--remap",
        remap,
        "--runner",
        "inline",
    )


@pytest.mark.parametrize("rounds", [1, parts.rest(4)])
def test_a_watch_killed_again_and_again_beside_sweeps_that_are_leaves_whole_checkpoints(
    standby_of, places, rounds
):
    standby = standby_of(FEW_LARGE)
    died: Counter[str] = Counter()
    recorded: set[str] = set()
    for number in itertools.count():
        if number >= rounds and died["a sweep"]:
            break
        for moment in (Moment("start", 1.5), Moment("copy", 0.3), Moment("commit", 0.1)):
            died.update(killed_beside_sweeps(standby, moment, places))
            recorded.update(standby.recorded())
        standby.converge()
        recorded.update(standby.recorded())
        with sweep(places) as last:
            assert last.ended() == 0, last.messages()
        standby.looked_at()
        # copied by a run that was killed before its journal listed them, and not needed by the next
        assert set(standby.left()) == reported_as_planned(places)
        assert recorded.isdisjoint(standby.left())
    print(f"killed: {dict(died)}")


def reported_as_planned(places):
    """The files that a sweep leaves and reports as planned: nothing else is left to sweep.

    But for a file of a lease that was being taken over: it stays until no lease can be as old.
    """
    report = check(SweepRequest(f"file:{places[1] / JOB}", min_age=0.0))
    assert report.deletes == ()
    left = {
        path: why
        for path, why in report.found.left.items()
        if not path.startswith(".cpreplicate/lease-")
    }
    assert set(left.values()) <= {PLANNED}, left
    return set(left)


def killed_beside_sweeps(standby, moment, places):
    """Kills a watch; where it died, and a word for each sweep that was killed."""
    words = ("--interval", "0.2s", "--async-deletes", "--runner", "inline", *SLOWLY)
    with started("watch", *places, *words) as victim, sweeping(places) as killed:
        assert standby.kill(victim, moment), victim.messages()
        assert "Traceback" not in victim.messages(), victim.messages()
    return [standby.looked_at(), *killed]


@contextlib.contextmanager
def sweeping(places):
    """Sweep again and again while the block runs, and kill half of the sweeps; yield the kills."""
    over, killed, draw = threading.Event(), [], Random(20261121)

    def go_on():
        while not over.is_set():
            with sweep(places) as victim:
                if draw.random() < 0.5:
                    over.wait(draw.uniform(0.2, 0.7))
                    killed.extend(["a sweep"] if victim.kill() else [])
                assert victim.ended() in (-signal.SIGKILL, 0, REFUSED, HELD), victim.messages()

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(go_on)
        try:
            yield killed
        finally:
            over.set()
        running.result()


def sweep(places):
    return started("sweep", places[1] / JOB, "--min-age", "0s", "--max-delete", "100%")


@pytest.mark.rest
def test_a_spark_driver_killed_at_any_time_leaves_whole_checkpoints_and_no_process(
    standby_of, places
):
    moments = (Moment("copy", 0.3), Moment("commit", 0.2))
    standby_of(FOR_SPARK).kill_runs(
        2,
        moments,
        *(*SPARK, "3MB/s", "--master", "local[2]", *places),
        enough=lambda died: died["copying"] > 0,
    )


@pytest.mark.rest
def test_a_run_whose_jvm_is_killed_ends_with_3_and_the_next_one_completes(standby_of, places):
    standby = standby_of(FOR_SPARK)
    standby.wait_for_work()
    with started(*SPARK, "100KB/s", "--master", "local[2]", *places) as victim:
        standby.wait_for("copy", victim)
        assert kill_all(victim.processes("SparkSubmit")), victim.messages()
        assert victim.ended() == 3, victim.messages()
        assert "Traceback" not in victim.messages(), victim.messages()
    assert standby.looked_at() == "copying"
    standby.converge()


@pytest.mark.rest
def test_a_run_completes_though_its_executors_and_their_workers_are_killed(standby_of, places):
    standby, draw = standby_of(TO_COMPLETE), Random(20261121)
    killed: Counter[str] = Counter()
    while killed["pyspark.daemon"] < 3 or not killed["CoarseGrainedExecutorBackend"]:
        killed += killed_below(standby, draw, places)
    print(f"killed: {dict(killed)}")


def killed_below(standby, draw, places):
    """Kill executors and workers of a run, which must complete; return what was killed."""
    killed: Counter[str] = Counter()
    standby.wait_for_work()
    with started(
        *SPARK, "300KB/s", "--master", "local-cluster[2,1,1024]", "--parallelism", 8, *places
    ) as victim:
        before = standby.newest
        standby.wait_for("copy", victim)
        for kind in [
            "pyspark.daemon",
            "CoarseGrainedExecutorBackend",
            "pyspark.daemon",
            "pyspark.daemon",
        ] * 2:
            time.sleep(draw.uniform(0.2, 0.8))
            standby.looked_at()
            if standby.newest == before and (found := victim.processes(kind)):
                kill(draw.choice(found))
                killed[kind] += 1
        assert victim.ended() == 0, victim.messages()
    standby.looked_at()
    assert standby.newest > before
    return killed
