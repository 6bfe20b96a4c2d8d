"""Worker processes that hang, that die at once, and that leave a plan to the service."""

import contextlib
import logging
import os
import re
import shutil
import signal
import sys
from dataclasses import replace

import pytest

from cpreplicate.core.lag import Newest
from cpreplicate.operations.jobs.job import Checkpoint, Job
from cpreplicate.operations.jobs.service import Service, ServiceSettings
from cpreplicate.operations.jobs.workers.messages import Begin
from cpreplicate.operations.jobs.workers.process import start_command
from cpreplicate.operations.jobs.workers.workers import Workers
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.sync.sync import sync
from cpreplicate.runners import ExecutionOptions, WarmRunners
from cpreplicate.storage import Sides
from cpreplicate.storage.waiting.side_call import in_thread
from tests.operations.jobs.test_service import Jobs, job_id, write
from tests.support.processes import stop
from tests.support.replicas import NEXT
from tests.support.waiting import wait_until

INLINE = ExecutionOptions(runner="inline")
COUNT = 4  # jobs
AT_SPARK = """
import socket, sys
from cpreplicate.operations.jobs.workers.messages import Answer, Channel, Order
channel = Channel(socket.socket(fileno=int(sys.argv[1])))
while True:
    for message in channel.receive():
        if isinstance(message, Order):
            channel.send(Answer(message.number, "spark"))
"""
ENDS_BEFORE_IT_ANSWERS = """
import os, socket, sys
from cpreplicate.operations.jobs.workers.messages import Channel, Order
channel, orders = Channel(socket.socket(fileno=int(sys.argv[1]))), 0
while orders < 2:
    orders += sum(isinstance(message, Order) for message in channel.receive())
os._exit(5)
"""


def ignored(_line):
    """Take a line for the operator."""


def served(tmp_path, number):
    request = SyncRequest(
        source=f"file:{tmp_path}/dcA/{job_id(number)}",
        target_root=f"file:{tmp_path}/dcB",
        execution=INLINE,
    )
    return Job(f"job-{number}", request)


def has(tmp_path, number, checkpoint):
    return (tmp_path / "dcB" / job_id(number) / f"chk-{checkpoint}/_metadata").exists()


class Turning:
    """A service with workers, whose loop turns while a test waits."""

    def __init__(self, tmp_path, stack, count=2, command=None, **options):
        self.lines: list[str] = []
        self.warnings: list[str] = []
        self.shown: list[object] = []
        self.count = count
        settings = ServiceSettings(interval=0.2, max_backoff=0.2, slots=20)
        begin = Begin(Sides(), INLINE, 0.2, 600.0, 5.0, logging.INFO)
        self.workers = stack.enter_context(
            Workers(
                lambda _jobs, _now: self.count,
                command or start_command(),
                begin,
                self.shown.append,
                self.lines.append,
                self.warnings.append,
                **options,
            )
        )
        runners = stack.enter_context(WarmRunners(Sides(), INLINE, 60.0))
        self.jobs = Jobs(*(served(tmp_path, number) for number in range(1, 1 + COUNT)))
        self.service = Service(
            self.jobs,
            runners,
            in_thread,
            settings,
            self.lines.append,
            self.warnings.append,
            spread=self.workers.helping,
        )

    def until(self, is_so, what="it"):
        def turned():
            self.service.turn()
            return is_so()

        wait_until(turned, what)

    def pids(self):
        return [seat.pid for seat in self.workers.running()]

    def error(self, name):
        """Return the last error of a job, None also before a discovery has found it."""
        errors = {each.name: each.last_error for each in self.service.observations()}
        return errors.get(name)


@pytest.fixture
def turning(tmp_path):
    """Return what begins a service with workers, of jobs that have a checkpoint each."""
    for number in range(1, 1 + COUNT):
        write(tmp_path, number, 1)
    with contextlib.ExitStack() as stack:

        def begin(**options):
            service = Turning(tmp_path, stack, **options)
            stack.callback(service.workers.cancel)
            return service

        yield begin


def all_have(tmp_path, checkpoint):
    return all(has(tmp_path, number, checkpoint) for number in range(1, 1 + COUNT))


def write_next(tmp_path, checkpoint=2):
    for number in range(1, 1 + COUNT):
        write(tmp_path, number, checkpoint, NEXT)


@pytest.mark.parametrize("count", [1, 2])
def test_what_is_handed_out_for_a_former_job_is_in_the_replica_also_with_workers(
    tmp_path, turning, count
):
    """Of a service that stands by, for a job that Flink has forgotten: the active one goes on."""
    jobs = [served(tmp_path, number) for number in range(1, 1 + COUNT)]
    for job in jobs:
        sync(job.request, ignored)
    service = turning(count=count)

    def of_others():  # what a try finds that has nothing to do
        found = service.service.observations()
        return len(found) == COUNT and all(each.last_success for each in found)

    service.until(of_others, "the replicas of another service")
    service.jobs.found = jobs[1:]
    service.until(lambda: len(service.service.observations()) == COUNT - 1, "the end of a job")
    write(tmp_path, 1, 2, NEXT)
    sync(jobs[0].request, ignored)

    def handed_out():
        [point] = service.service.restore_points("job-1")
        return point.starting.checkpoint.rpartition("/")[2]

    wait_until(lambda: handed_out() == "chk-2", "a look at the replica")
    assert not has(tmp_path, 1, 1)


def test_a_worker_that_stands_still_is_replaced_and_holds_up_no_job(tmp_path, turning):
    service = turning(silent_seconds=10)
    service.until(lambda: all_have(tmp_path, 1))
    victim, other = service.pids()
    _, healthy = service.workers.running()

    def is_replicated():
        # as busy as the machine is: the one that goes on is heard between two looks at its silence
        wait_until(lambda: healthy._silence <= 0 or healthy.death, "a sign of life")
        return all_have(tmp_path, 2)

    stop(victim)
    write_next(tmp_path)
    service.until(is_replicated)
    assert victim not in service.pids()
    assert other in service.pids()
    assert "did not answer any more, and was killed" in service.warnings[0]


def test_workers_that_die_at_once_stop_neither_the_service_nor_hide_why(tmp_path, turning):
    service = turning(command=(sys.executable, "-c", "raise SystemExit(9)"))
    # no try may come before the third death is followed by the next
    reason = r"died ([3-9]|\d\d+) times in a row, the last time: it ended with exit code 9"
    service.until(lambda: re.search(reason, service.error("job-1") or ""))
    assert service.workers.counts().deaths >= 3
    assert service.service.is_alive()
    service.workers.command = start_command()
    service.until(lambda: all_have(tmp_path, 1))
    service.until(lambda: service.error("job-1") is None)


def test_the_line_on_a_death_names_each_job_that_was_under_way(turning):
    service = turning(command=(sys.executable, "-c", ENDS_BEFORE_IT_ANSWERS))

    def first_deaths():
        """The line on the first death of each worker: one may die again before the other does."""
        lines = [line for line in service.warnings if "died: it ended with exit code 5" in line]
        return {line.partition(" (")[0]: line for line in reversed(lines)}

    service.until(lambda: len(first_deaths()) == 2)
    named = [name for line in first_deaths().values() for name in re.findall("job-[0-9]", line)]
    assert sorted(named) == ["job-1", "job-2", "job-3", "job-4"]


def test_a_plan_that_is_worth_spark_is_carried_out_by_the_service(tmp_path, turning):
    service = turning(command=(sys.executable, "-c", AT_SPARK))
    service.until(lambda: all_have(tmp_path, 1))
    write_next(tmp_path)
    service.until(lambda: all_have(tmp_path, 2))
    assert service.warnings == []


@pytest.mark.rest
def test_a_worker_goes_on_from_what_the_service_knew_when_another_one_died(tmp_path, turning):
    service = turning()
    service.until(lambda: all_have(tmp_path, 1))
    service.until(lambda: all(each.tries > 2 for each in service.service.observations()))
    before = {each.name: each for each in service.service.observations()}
    for pid in service.pids():
        os.kill(pid, signal.SIGKILL)
    write_next(tmp_path)
    service.until(lambda: all_have(tmp_path, 2))
    for seen in service.service.observations():
        assert seen.tries >= before[seen.name].tries
        assert seen.files["copied"] >= before[seen.name].files["copied"]
        assert seen.known_since == before[seen.name].known_since


@pytest.mark.rest
def test_jobs_go_on_when_the_number_of_workers_changes(tmp_path, turning):
    service = turning(count=3)
    service.until(lambda: all_have(tmp_path, 1))
    pids = service.pids()
    assert len(pids) == 3
    for count, checkpoint in ((2, 2), (1, 3), (2, 4)):
        service.count = count
        write(tmp_path, 10 + count, 1)
        service.jobs.found = [*service.jobs.found, served(tmp_path, 10 + checkpoint)]
        write(tmp_path, 10 + checkpoint, 1)
        service.until(lambda: len(service.pids()) == (count if count > 1 else 0))  # noqa: B023
        write_next(tmp_path, checkpoint)
        service.until(lambda: all_have(tmp_path, checkpoint))  # noqa: B023
    assert service.warnings == []
    assert service.service.total().sync_seconds > 0


def test_what_a_jobmanager_reports_reaches_the_worker(tmp_path, turning):
    service = turning()
    source = f"file:{tmp_path}/dcA/{job_id(1)}"
    for checkpoint in (1, 2):
        write(tmp_path, 1, checkpoint)
        newest = Checkpoint(f"{source}/chk-{checkpoint}", Newest(checkpoint, 1000.0 + checkpoint))
        service.jobs.found = [replace(served(tmp_path, 1), newest=newest)]
        service.until(lambda: has(tmp_path, 1, checkpoint))  # noqa: B023

    def shown():
        seen = service.service.observations()
        return [(each.behind(), each.source_newest.checkpoint_id) for each in seen]

    service.until(lambda: shown() == [(0, 2)])
    (seen,) = service.service.observations()
    assert seen.replica_newest.acknowledged == seen.source_newest.acknowledged


def test_a_replica_that_was_removed_is_replicated_again(tmp_path, turning):
    service = turning()
    service.until(lambda: all_have(tmp_path, 1))
    service.until(lambda: all(each.last_success for each in service.service.observations()))
    replica = f"file:{tmp_path}/dcB/{job_id(1)}"
    shutil.rmtree(tmp_path / "dcB" / job_id(1))
    service.service.forgot(replica)
    service.until(lambda: has(tmp_path, 1, 1))
    assert service.warnings == []
