"""Syncs over a real Spark cluster of two workers: what dies, fails or is raced there costs time,
never the replica.

Copying is slowed down by `--bandwidth`, so that there is a middle in which something can happen. If
it ends first, as on a busy machine, it is tried again more slowly.
"""

import contextlib
import functools
import json
import os
import shutil
import signal
import threading
import time

import pytest

from cpreplicate.runners import Copy, ExecutionOptions, Outcome, early
from cpreplicate.runners.spark.runner import SparkRunner
from cpreplicate.storage import Sides
from tests.support import checker
from tests.support.jobs import JOB, write_checkpoint
from tests.support.killing import started
from tests.support.s3 import FaultyProxy, S3Server, side_options
from tests.support.standalone import EXECUTORS_ONLY
from tests.support.waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.xdist_group("spark-cluster"), pytest.mark.rest]

FILES = {f"shared/{number:04}": 20_000 + number for number in range(300)}
LARGER = {f"shared/{number:04}": 1_100_000 + number for number in range(16)}
ONE_LONG = {
    "shared/long": 12_000_000,
    **{f"shared/{number:04}": 20_000 + number for number in range(15)},
}
LENGTH = 50_000
SMALL_AND_LONG = {
    **{f"shared/{number:04}": 20_000 + number for number in range(40)},
    **{f"shared/long-{number}": 3_000_000 for number in range(8)},
}
LIMIT = 1 << 20
BYTES = 1e6  # a second
CALLS = 20  # a second
MANY = {f"shared/{number:05}": 1000 for number in range(6000)}  # five minutes of calls, or more
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.01",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.efficiency.enabled": "false",
}
DYNAMIC = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "0",
    "spark.dynamicAllocation.maxExecutors": "2",
    "spark.dynamicAllocation.executorIdleTimeout": "1s",
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
}
PAUSE = 0.05


class EndedFirst(AssertionError):
    """A sync ended before something happened."""


class Copying:
    """Starts syncs below a directory; `slowness` is by how much they are to be slower."""

    def __init__(self, cluster, stack):
        self._cluster, self._stack = cluster, stack
        self.slowness = 1

    def at(self, kilobytes):
        """The words for a bandwidth of so many kB/s, or more slowly."""
        return "--bandwidth", f"{kilobytes // self.slowness}KB/s"

    @property
    def slowly(self):
        return self.at(2000)

    @property
    def very_slowly(self):
        return self.at(100)  # a minute, or more

    def start(self, place, files, whole, *words):
        """Start a sync of a checkpoint with these files; return once so many are at the target."""
        checkpoint = write_checkpoint(place / "dcA", 1, files)
        places = (checkpoint, place / "dcB", "--output", "json")
        runner = ("--runner", "spark", "--master", self._cluster.master, *EXECUTORS_ONLY)
        sync = self._stack.enter_context(started("sync", *places, *runner, *words))
        while_it_runs(sync, lambda: len(identities(place)) >= whole)
        return sync

    def end(self):
        """End all syncs."""
        self._stack.close()
        self._cluster.repair()


SLOWNESSES = (1, 5, 25)


def more_slowly_if_it_ends_first(test):
    """Let a test run in further directories, with slower syncs, where a sync ended first."""

    @functools.wraps(test)
    def tried(cluster, copying, tmp_path):
        for copying.slowness in SLOWNESSES:
            place = tmp_path / str(copying.slowness)
            place.mkdir()
            try:
                test(cluster, copying, place)
            except EndedFirst:
                if copying.slowness == SLOWNESSES[-1]:
                    raise
                copying.end()
            else:
                return

    return tried


@pytest.fixture
def copying(cluster):
    with contextlib.ExitStack() as stack:
        yield Copying(cluster, stack)


@more_slowly_if_it_ends_first
def test_two_workers_copy_at_the_same_time_and_the_replica_is_whole(cluster, copying, tmp_path):
    sync = copying.start(tmp_path, FILES, 1, *copying.slowly)
    while_it_runs(
        sync, lambda: all(cluster.opened(worker, tmp_path / "dcB") for worker in cluster.workers)
    )
    assert sync.ended() == 0, sync.messages()
    assert_replicated(tmp_path, FILES)


@more_slowly_if_it_ends_first
def test_a_killed_driver_leaves_no_executor_at_work_and_running_again_completes(
    cluster, copying, tmp_path
):
    sync = copying.start(tmp_path, FILES, 10, *copying.very_slowly)
    assert sync.kill()
    wait_until(lambda: not at_work(cluster), pause=PAUSE)
    whole = assert_nothing_moves(tmp_path)
    assert len(whole) < len(FILES)
    with started("sync", tmp_path / "dcA" / JOB, tmp_path / "dcB", "--runner", "inline") as again:
        assert again.ended() == 0, again.messages()
    assert_replicated(tmp_path, FILES)


@more_slowly_if_it_ends_first
def test_what_executors_of_a_killed_driver_have_written_goes_with_the_next_syncs(
    cluster, copying, tmp_path
):
    """They stand still when it is killed, and go on after another run has committed."""
    sync = copying.start(tmp_path, FILES, 0, *copying.very_slowly, "--pack", "on")
    while_it_runs(sync, lambda: unfinished(tmp_path))
    with contextlib.ExitStack() as standstill:
        for worker in cluster.workers:
            standstill.enter_context(cluster.paused(worker))
        assert sync.kill()
        shutil.rmtree(tmp_path / "dcA" / JOB / "chk-1")
        replicate_next(tmp_path, 2)
        assert unfinished(tmp_path) == []
    wait_until(lambda: not at_work(cluster), pause=PAUSE)
    replicate_next(tmp_path, 3)
    kept = [name for name in names(tmp_path / "dcB" / JOB) if name[0] != "."]
    assert sorted(kept) == ["chk-3/_metadata", "shared/next-3"]
    assert not list((tmp_path / "dcB" / JOB / ".cpreplicate").glob("copied-*"))


def replicate_next(tmp_path, number):
    """Replicate a checkpoint that has nothing of the former ones."""
    checkpoint = write_checkpoint(tmp_path / "dcA", number, {f"shared/next-{number}": 1000})
    with started("sync", checkpoint, tmp_path / "dcB", "--runner", "inline") as sync:
        assert sync.ended() == 0, sync.messages()
    assert checker.faults(tmp_path / "dcB" / JOB) == []


def names(directory):
    return [str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()]


def unfinished(tmp_path):
    """The files of the replica that are not whole, but for those of the protocol."""
    found = [name for name in names(tmp_path / "dcB" / JOB) if "/.cpreplicate-tmp-" in name]
    return [name for name in found if not name.startswith(".cpreplicate/")]


@more_slowly_if_it_ends_first
def test_an_interrupt_ends_with_130_at_once_and_no_task_runs_on(cluster, copying, tmp_path):
    sync = copying.start(tmp_path, FILES, 10, *copying.very_slowly)
    os.kill(sync.pid, signal.SIGINT)
    assert sync.ended() == 130, sync.messages()
    wait_until(lambda: not at_work(cluster), pause=PAUSE)
    assert len(assert_nothing_moves(tmp_path)) < len(FILES)
    assert not list((tmp_path / "dcB" / JOB).glob("chk-*/_metadata"))
    assert "Traceback" not in sync.messages()


@more_slowly_if_it_ends_first
def test_copies_that_speculation_races_are_byte_for_byte_the_source(cluster, copying, tmp_path):
    conf = [word for key, value in SPECULATION.items() for word in ("--conf", f"{key}={value}")]
    sync = copying.start(tmp_path, ONE_LONG, 0, *copying.at(1000), "--batch-files", 5, *conf)
    long = tmp_path / "dcA" / JOB / "shared" / "long"
    first, *_ = while_it_runs(sync, lambda: readers(cluster, long))
    with cluster.paused(first):
        while_it_runs(sync, lambda: len(readers(cluster, long)) == 2)
    assert sync.ended() == 0, sync.messages()
    assert_replicated(tmp_path, ONE_LONG)


@more_slowly_if_it_ends_first
def test_the_bandwidth_is_that_of_all_workers_together_also_while_one_dies_and_another_comes(
    cluster, copying, tmp_path
):
    few = ("--streams", 4)  # the fewer, the less has a worker that dies moved in vain
    sync = copying.start(
        tmp_path, steady(copying.slowness), 20, "--bandwidth", "1MB/s", "--batch-files", 30, *few
    )
    while_it_runs(
        sync, lambda: all(cluster.opened(worker, tmp_path / "dcB") for worker in cluster.workers)
    )
    undisturbed = rate(tmp_path, lambda: None, seconds=5.0)
    with Moved(cluster) as moved:
        disturbed = rate(tmp_path, lambda: replace_a_worker(cluster))
    # the new worker takes part; how much of the limit is used depends on the machine
    while_it_runs(
        sync, lambda: all(cluster.opened(worker, tmp_path / "dcB") for worker in cluster.workers)
    )
    assert max(undisturbed, disturbed, moved.rate) <= 1.1 * BYTES


def test_the_calls_are_limited_for_all_workers_together_also_while_one_dies_and_another_comes(
    cluster, tmp_path
):
    with S3Server() as server, FaultyProxy(server.endpoint) as proxy:
        bucket, checkpoint = (
            server.make_bucket("dcb"),
            write_checkpoint(tmp_path / "dcA", 1, MANY),
        )
        options = [f"{name}={value}" for name, value in side_options(proxy.endpoint).items()]
        conf = [word for option in options for word in ("--target-conf", option)]
        # each stream of a worker that dies has reserved a call, which is lost
        few = (
            "--batch-files",
            30,
            "--streams",
            8,
        )
        words = (
            "--runner",
            "spark",
            "--master",
            cluster.master,
            *EXECUTORS_ONLY,
            "--max-rps",
            CALLS,
            *few,
            *conf,
        )
        with started("sync", checkpoint, bucket, *words) as sync:
            while_it_runs(sync, lambda: len(proxy.requests) > CALLS)
            # what streams have reserved before counts, too: the longer, the less it weighs
            undisturbed = calls_a_second(proxy, lambda: None, seconds=30.0)
            disturbed = calls_a_second(proxy, lambda: replace_a_worker(cluster), seconds=30.0)
            so_far = len(proxy.requests)
            while_it_runs(sync, lambda: len(proxy.requests) > so_far + CALLS)
    assert max(undisturbed, disturbed) <= 1.1 * CALLS


@more_slowly_if_it_ends_first
def test_a_worker_on_which_every_write_fails_does_not_fail_the_run(cluster, copying, tmp_path):
    cluster.kill_worker(cluster.workers[0])
    poisoned = cluster.start_worker(file_size_limit=LIMIT)
    sync = copying.start(tmp_path, LARGER, 0, *copying.at(5000), "--batch-files", 4)
    # a file is open there for an instant only, which a look may miss
    while_it_runs(
        sync, lambda: cluster.opened(poisoned, tmp_path / "dcB") or "retried" in sync.messages()
    )
    assert sync.ended() == 0, sync.messages()
    # a thread of the worker's own writes what the executor printed
    wait_until(lambda: "File too large" in cluster.log(poisoned), pause=PAUSE)
    assert_replicated(tmp_path, LARGER)


@more_slowly_if_it_ends_first
def test_a_worker_that_dies_costs_a_second_copy_of_its_last_seconds_at_most(
    cluster, copying, tmp_path
):
    """Tasks report once a second.

    What is not reported is copied again, for whoever wrote it is not known.
    """
    sync = copying.start(tmp_path, SMALL_AND_LONG, 10, *copying.slowly, "--progress", "ndjson")
    dying = cluster.workers[0]
    reported = while_it_runs(
        sync, lambda: cluster.opened(dying, tmp_path / "dcB") and reported_files(sync, tmp_path)
    )
    cluster.kill_worker(dying)
    assert sync.ended() == 0, sync.messages()
    assert_kept(reported, identities(tmp_path))
    assert_replicated(tmp_path, SMALL_AND_LONG)


def reported_files(sync, tmp_path):
    """Return the files that are whole if the driver knows of every one, else none."""
    whole = identities(tmp_path)
    lines = [line for line in sync.messages().splitlines() if line.endswith("}")]
    known = max((json.loads(line).get("files", 0) for line in lines), default=0)
    return whole if known == len(whole) and identities(tmp_path) == whole else {}


class Moved:
    """What all Python workers wrote while the block ran, those that were killed too, in bytes a
    second.
    """

    def __init__(self, cluster):
        self._cluster, self._ended, self._known = cluster, threading.Event(), {}
        self._thread = threading.Thread(target=self._follow)

    def __enter__(self):
        self._began = time.monotonic()  # before it counts: a pause here makes the rate lower
        self._known = self._cluster.written()
        self._before = sum(self._known.values())
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ended.set()
        self._thread.join()
        self.rate = (sum(self._known.values()) - self._before) / (time.monotonic() - self._began)

    def _follow(self):
        while not self._ended.wait(PAUSE):
            self._known.update(self._cluster.written())


def while_it_runs(sync, condition):
    """Wait until the condition is met, and return what it returned.

    Raises `EndedFirst` if the sync has ended with success before.
    """
    while not (found := condition()) and sync.code is None:
        time.sleep(PAUSE)
    assert sync.code in (None, 0), f"it ended first, with {sync.code}: {sync.messages()}"
    if sync.code == 0:
        raise EndedFirst(sync.messages())
    return found


def rate(tmp_path, disturb, seconds=10.0):
    """Bytes a second of files that became whole meanwhile."""
    began, before = time.monotonic(), len(identities(tmp_path))
    disturb()
    time.sleep(max(0.0, began + seconds - time.monotonic()))
    files = len(identities(tmp_path)) - before
    return files * LENGTH / (time.monotonic() - began)


def calls_a_second(proxy, disturb, seconds):
    """Requests that came to a server meanwhile."""
    began, before = time.monotonic(), len(proxy.requests)
    disturb()
    time.sleep(max(0.0, began + seconds - time.monotonic()))
    return (len(proxy.requests) - before) / (time.monotonic() - began)


def steady(more=1):
    """Files of one length, which take 90 s at 1 MB/s, or so many times as long."""
    return {f"shared/{number:05}": LENGTH for number in range(1800 * more)}


def replace_a_worker(cluster):
    cluster.kill_worker(cluster.workers[0])
    cluster.start_worker()


def identities(tmp_path):
    """Each file that is whole at the target, with what is another once it is written again."""
    found = {}
    with (
        contextlib.suppress(FileNotFoundError),
        os.scandir(tmp_path / "dcB" / JOB / "shared") as entries,
    ):
        for entry in entries:
            if not entry.name.startswith("."):
                found[entry.name] = (entry.stat().st_mtime_ns, entry.inode())
    return found


def readers(cluster, file):
    return [
        worker for worker in cluster.workers if str(file) in cluster.opened(worker, file.parent)
    ]


def at_work(cluster):
    return [pid for pids in cluster.executors().values() for pid in pids]


def assert_nothing_moves(tmp_path, seconds=1.5):
    """What is whole, and stays all there is."""
    before, files = identities(tmp_path), sorted((tmp_path / "dcB").rglob("*"))
    time.sleep(seconds)
    assert (identities(tmp_path), sorted((tmp_path / "dcB").rglob("*"))) == (before, files)
    return before


def assert_kept(before, after):
    again = [name for name, identity in before.items() if after.get(name) != identity]
    assert not again, f"{len(again)} of {len(before)} whole files were written again: {again[:5]}"


def assert_replicated(tmp_path, files):
    """Committed, and every file has the source's bytes.

    Nothing else looks like a file of the checkpoint.
    """
    source, replica = tmp_path / "dcA" / JOB, tmp_path / "dcB" / JOB
    assert (replica / "chk-1" / "_metadata").exists()
    assert checker.faults(replica) == []
    assert set(identities(tmp_path)) == {name.removeprefix("shared/") for name in files}
    assert [
        name for name in files if (replica / name).read_bytes() != (source / name).read_bytes()
    ] == []


def test_a_cluster_that_tries_a_task_once_excludes_no_machine_and_runs_a_sync(cluster, tmp_path):
    checkpoint = write_checkpoint(tmp_path / "dcA", 1, FILES)
    places = (checkpoint, tmp_path / "dcB", *EXECUTORS_ONLY)
    runner = ("--runner", "spark", "--master", cluster.master)
    with started("sync", *places, *runner, "--conf", "spark.task.maxFailures=1") as sync:
        assert sync.ended() == 0, sync.messages()
    assert_replicated(tmp_path, FILES)


@pytest.mark.parametrize("more", [(), ("--parallelism", "8")])
def test_tasks_that_want_more_cores_than_an_executor_has_are_refused_by_the_name_of_the_property(
    cluster, tmp_path, more
):
    """Spark would wait for such an executor without end."""
    checkpoint = write_checkpoint(tmp_path / "dcA", 1, FILES)
    places = (checkpoint, tmp_path / "dcB", *EXECUTORS_ONLY, *more)
    runner = ("--runner", "spark", "--master", cluster.master, "--conf", "spark.task.cpus=64")
    with started("sync", *places, *runner) as sync:
        assert sync.ended() == 2
        assert "Spark starts no task: spark.task.cpus=64 is more than" in sync.messages()


def test_executors_that_spark_asks_for_by_need_copy_everything(cluster, tmp_path):
    """There is none before the first job, and none is waited for."""
    checkpoint = write_checkpoint(tmp_path / "dcA", 1, FILES)
    conf = [word for name, value in DYNAMIC.items() for word in ("--conf", f"{name}={value}")]
    places = (checkpoint, tmp_path / "dcB", *EXECUTORS_ONLY)
    runner = ("--runner", "spark", "--master", cluster.master)
    with started("sync", *places, *runner, *conf) as sync:
        assert sync.ended() == 0, sync.messages()
    assert checker.faults(tmp_path / "dcB" / JOB) == []


def copies_of_a_job(place):
    write_checkpoint(place / "dcA", 1, FILES)
    source, target = ((place / each / JOB).as_uri() for each in ("dcA", "dcB"))
    return [Copy(f"{source}/{name}", f"{target}/{name}", size) for name, size in FILES.items()]


def test_the_driver_copies_until_executors_are_there_which_copy_the_rest(cluster, tmp_path):
    """Its two streams are held up until an executor has copied a file."""
    copies = copies_of_a_job(tmp_path)
    here, by_executors, is_copied = [], [], threading.Event()

    def done(outcome):
        if not threading.current_thread().name.startswith("copy"):
            by_executors.append(outcome.target)
            is_copied.set()
        else:
            here.append(outcome.target)
            assert is_copied.wait(PATIENCE)

    options = ExecutionOptions(runner="spark", master=cluster.master, streams=2)
    with SparkRunner(Sides(), options) as runner:
        outcomes = runner.run(copies, done=done)
    assert [outcome.error for outcome in outcomes] == [None] * len(FILES)
    assert len(here) == 2
    assert sorted([*here, *by_executors]) == sorted(copy.target for copy in copies)


def test_what_the_driver_cannot_copy_executors_copy(cluster, tmp_path, monkeypatch):
    copies = copies_of_a_job(tmp_path)

    def fail(batch, _sides, _streams, _slots, watcher, _writers):
        for index, task in enumerate(batch):
            if watcher.is_wanted(index):
                watcher.done(index, Outcome(task.target, 0, None, 0.0, "OSError: not from here"))

    monkeypatch.setattr(early, "perform", fail)
    with SparkRunner(Sides(), ExecutionOptions(runner="spark", master=cluster.master)) as runner:
        outcomes = runner.run(copies)
    assert [outcome.error for outcome in outcomes] == [None] * len(FILES)
    assert {outcome.target for outcome in outcomes} == {copy.target for copy in copies}
