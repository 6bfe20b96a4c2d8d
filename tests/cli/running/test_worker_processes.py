"""A service of several processes: what holds for all together, and what the death of one costs."""

import http.server
import json
import os
import re
import signal
import threading
import time
import uuid
from pathlib import Path

import pytest

from cpreplicate.core.shard import Shard
from tests.cli.running.test_services import CANCELS_SOON, has, read, running, write
from tests.support.commandline import printed
from tests.support.processes import children, stop
from tests.support.replicas import NEXT
from tests.support.s3 import side_options
from tests.support.waiting import wait_until

JOBS = [f"{number:032x}" for number in range(1, 7)]
LARGE = {"shared/large": 60_000_000}
SLOW = ("--bandwidth", "100KB/s")  # LARGE takes ten minutes


@pytest.fixture
def configured(tmp_path):
    """Return what writes a configuration with jobs; each of them has a checkpoint."""
    for job in JOBS:
        write(tmp_path / "dcA", job, 1)

    def configure(jobs, target=f"{tmp_path}/dcB", **defaults):
        lines = [f"{name} = {json.dumps(value)}" for name, value in defaults.items()]
        tables = [f'[[job]]\nsource = "{tmp_path}/dcA/{job}"' for job in jobs]
        head = [f'[defaults]\ntarget = "{target}"', *lines]
        (tmp_path / "fleet.toml").write_text("\n".join([*head, *tables]) + "\n")

    configure(JOBS)
    return configure


def served(tmp_path, *words, **options):
    fixed = ("--every", "0.2s", "--processes", "2", "--metrics", "0")
    return running(tmp_path, "fleet", *fixed, *words, tmp_path / "fleet.toml", **options)


def workers(service):
    return children(service.process.pid)


def both(service):
    wait_until(lambda: len(workers(service)) == 2, "two workers run")
    return workers(service)


def all_have(tmp_path, checkpoint, jobs=JOBS):
    return all(has(tmp_path, job, checkpoint) for job in jobs)


def metric(service, name):
    return [
        (labels, float(value))
        for labels, value in re.findall(
            rf"^{name}(?:\{{(.*)\}})? (\S+)$", read(f"{service.url()}/metrics")[1], re.MULTILINE
        )
    ]


def copying(pids, of="/dcB/"):
    """Return which processes have a file of a replica open, or of this part of it."""
    return [pid for pid in pids if any(of in name for name in open_files(pid))]


def open_files(pid):
    for link in Path(f"/proc/{pid}/fd").glob("*"):
        try:
            yield str(link.readlink())
        except OSError:  # it was closed meanwhile
            continue


@pytest.mark.usefixtures("configured")
def test_a_worker_that_is_killed_in_the_midst_of_a_sync_is_replaced_and_its_jobs_go_on(tmp_path):
    with served(tmp_path, *SLOW, "--max-backoff", "1s") as service:
        wait_until(lambda: all_have(tmp_path, 1))
        before = both(service)
        tries = dict(metric(service, "cpreplicate_tries_total"))
        write(tmp_path / "dcA", JOBS[0], 2, LARGE)
        # the other worker may still be at the end of a sync of before
        copied = f"/dcB/{JOBS[0]}/shared/"
        (victim,) = wait_until(lambda: copying(before, copied), "the copy begins")
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda: f"(process {victim}) died: it was killed by SIGKILL" in service.stderr)
        for job in JOBS:
            write(tmp_path / "dcA", job, 3, NEXT)
        wait_until(lambda: all_have(tmp_path, 3))
        after = both(service)
        assert victim not in after
        assert len({*before} & {*after}) == 1
        assert f"Tried again: {JOBS[0]}" in service.stderr
        wait_until(lambda: metric(service, "cpreplicate_worker_deaths_total") == [("", 1)])
        now = dict(metric(service, "cpreplicate_tries_total"))
        assert all(now[labels] >= count for labels, count in tries.items())
        assert service.end() == 143


@pytest.mark.usefixtures("configured")
def test_sigterm_ends_a_service_and_its_workers(tmp_path):
    with served(tmp_path) as service:
        wait_until(lambda: all_have(tmp_path, 1))
        pids = both(service)
        assert service.end() == 143
        # one that takes long to end is killed, and not waited for
        wait_until(lambda: not any(is_running(pid) for pid in pids), "the workers end")
        assert "died" not in service.stderr
        assert "6 of 6 replicas hold a committed checkpoint" in service.stderr


@pytest.mark.usefixtures("configured")
@pytest.mark.rest
def test_sigterm_cancels_what_workers_copy_after_half_of_the_grace(tmp_path):
    write(tmp_path / "dcA", JOBS[0], 2, LARGE)
    soon = ("-c", CANCELS_SOON)
    with served(tmp_path, *SLOW, "--grace", "30m", program=soon) as service:
        wait_until(lambda: copying(workers(service)), "the copy begins")
        assert service.end() == 143
        assert not has(tmp_path, JOBS[0], 2)
        assert not (tmp_path / "dcB" / JOBS[0] / ".cpreplicate/lease").exists()


@pytest.mark.usefixtures("configured")
def test_workers_die_with_a_service_that_is_killed_also_one_that_stands_still(tmp_path):
    with served(tmp_path) as service:
        wait_until(lambda: all_have(tmp_path, 1))
        pids = both(service)
        stop(pids[0])
        service.process.kill()
        service.process.wait()
        wait_until(lambda: not any(is_running(pid) for pid in pids), "the workers end")


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def test_jobs_and_options_that_are_read_again_reach_the_workers(tmp_path, configured):
    configured(JOBS[:3])
    with served(tmp_path) as service:
        wait_until(lambda: all_have(tmp_path, 1, JOBS[:3]))
        pids = both(service)
        configured(JOBS, keep=2)
        service.process.send_signal(signal.SIGHUP)
        wait_until(lambda: all_have(tmp_path, 1))
        for job in JOBS:
            write(tmp_path / "dcA", job, 2, NEXT)
        wait_until(lambda: all_have(tmp_path, 2))
        assert all_have(tmp_path, 1)
        assert workers(service) == pids
        assert service.end() == 143


@pytest.mark.usefixtures("configured")
@pytest.mark.rest
def test_the_slots_hold_for_all_workers_together(tmp_path):
    for job in JOBS:
        write(tmp_path / "dcA", job, 2, LARGE)
    with served(tmp_path, *SLOW, "--slots", "1") as service:
        wait_until(lambda: copying(workers(service)), "a copy begins")
        wait_until(lambda: metric(service, "cpreplicate_jobs_waiting") == [("", 5)])
        assert metric(service, "cpreplicate_slots_busy") == [("", 1)]
        assert len(copying(both(service))) < 2  # none between two files


@pytest.mark.usefixtures("configured")
def test_results_and_lines_of_workers_are_those_of_the_service(tmp_path):
    with served(tmp_path, "--output", "json", "--log-format", "json") as service:
        wait_until(lambda: all_have(tmp_path, 1))
        wait_until(lambda: len(service.stdout.splitlines()) == len(JOBS))
        assert service.end() == 143
        rows = [json.loads(line) for line in service.stdout.splitlines()]
        assert sorted(row["job"] for row in rows) == JOBS
        lines = [json.loads(line) for line in service.stderr.splitlines()]
        assert len({line["run"] for line in lines}) == 1
        committed = [line for line in lines if line["text"].startswith(f"{line['job']}: committed")]
        assert sorted(line["job"] for line in committed) == JOBS
        assert {line["checkpoint"] for line in committed} == {"chk-1"}


@pytest.mark.usefixtures("configured")
@pytest.mark.rest
def test_the_memory_of_each_process_is_reported(tmp_path):
    with served(tmp_path) as service:
        wait_until(lambda: all_have(tmp_path, 1))
        found = metric(service, "cpreplicate_process_memory_bytes")
        names = ['process="service"', 'process="worker-1"', 'process="worker-2"']
        assert [labels for labels, _ in found] == names
        assert min(size for _, size in found) > 10e6
        assert service.end() == 143


def test_what_others_must_not_see_is_no_argument_of_a_worker(tmp_path, configured):
    configured(JOBS)
    with (tmp_path / "fleet.toml").open("a") as file:
        file.write('[storage."s3a://elsewhere"]\nsecret = "hush-hush"\n')
    with served(tmp_path) as service:
        wait_until(lambda: all_have(tmp_path, 1))
        for pid in both(service):
            for name in ("cmdline", "environ"):
                assert b"hush-hush" not in Path(f"/proc/{pid}/{name}").read_bytes()
        assert service.end() == 143


@pytest.mark.usefixtures("configured")
def test_one_process_and_few_jobs_by_default_start_no_other(tmp_path):
    for words in (("--processes", "1"), ()):
        fixed = ("fleet", "--every", "0.2s", "--metrics", "0", *words)
        with running(tmp_path, *fixed, tmp_path / "fleet.toml") as service:
            wait_until(lambda: len(metric(service, "cpreplicate_tries_total")) == len(JOBS))
            assert children(service.process.pid) == []
            assert service.end() == 143


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["fleet", "--every", "1s", "--processes", "2", "fleet.toml"], "one Spark session"),
        (["watch", "dcA/1", "dcB", "--processes", "2"], "--processes shares many jobs"),
    ],
)
@pytest.mark.usefixtures("configured")
def test_processes_that_nothing_could_be_shared_between_are_usage_errors(
    tmp_path, words, message, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    ended = printed(*words, "--runner", "spark")
    assert ended.returncode == 2
    assert message in ended.stderr


@pytest.mark.usefixtures("configured")
@pytest.mark.rest
def test_the_bandwidth_holds_for_all_workers_together(tmp_path):
    with served(tmp_path, "--bandwidth", "200KB/s") as service:
        wait_until(lambda: all_have(tmp_path, 1))
        both(service)
        began = time.monotonic()
        for job in JOBS:
            write(tmp_path / "dcA", job, 2, {"shared/one": 200_000})
        wait_until(lambda: all_have(tmp_path, 2))
        # the last one begins when all but itself has been paid; two limits would take 2 s
        assert time.monotonic() - began > 4.5
        assert service.end() == 143


class Empty(http.server.BaseHTTPRequestHandler):
    """A WebHDFS that holds nothing, and notes when it was asked."""

    asked: list[float]

    def do_GET(self):
        self.asked.append(time.monotonic())
        error = {"exception": "FileNotFoundException", "message": "it is not there"}
        body = json.dumps({"RemoteException": error}).encode()
        self.send_response(404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.mark.rest
def test_the_calls_a_second_hold_for_all_workers_together(tmp_path):
    rate, calls = 10, 160
    under_way = 20  # at the most: all of them are noted at once if this process was paused
    asked: list[float] = []
    handler = type("Handler", (Empty,), {"asked": asked})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        root = f"webhdfs://127.0.0.1:{server.server_port}/jobs"
        tables = [f'[[job]]\nsource = "{root}/{job}"' for job in JOBS]
        head = f'[defaults]\ntarget = "{tmp_path}/dcB"'
        (tmp_path / "fleet.toml").write_text("\n".join([head, *tables]) + "\n")
        with served(tmp_path, "--max-rps", str(rate), "--max-backoff", "0.2s") as service:
            wait_until(lambda: len(asked) > calls)
            both(service)
            assert service.end() == 143
        server.shutdown()
    # two limits would let them make all of these in half of the time
    assert asked[calls] - asked[0] > 0.9 * (calls - under_way) / rate


@pytest.mark.s3
@pytest.mark.rest
def test_the_credentials_of_a_table_reach_the_workers(tmp_path, configured, s3, monkeypatch):
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    bucket = s3.make_bucket(f"workers-{uuid.uuid4().hex}")
    configured(JOBS, target=f"{bucket}/replicas")
    with (tmp_path / "fleet.toml").open("a") as file:
        file.write(f'[storage."{bucket}"]\n')
        file.writelines(f'{key} = "{value}"\n' for key, value in side_options(s3.endpoint).items())
    with served(tmp_path) as service:
        behind = "cpreplicate_replica_checkpoints_behind"
        wait_until(lambda: [lag for _, lag in metric(service, behind)] == [0] * len(JOBS))
        assert len(both(service)) == 2
        assert service.end() == 143


@pytest.mark.usefixtures("configured")
@pytest.mark.rest
def test_services_on_shards_with_workers_replicate_each_job(tmp_path):
    for shard in ("1/2", "2/2"):
        (tmp_path / shard[0]).mkdir()
        words = ("fleet", "--every", "0.2s", "--processes", "2", "--shard", shard)
        with running(tmp_path / shard[0], *words, tmp_path / "fleet.toml") as service:
            own = [job for job in JOBS if job_is_in(shard, job)]
            wait_until(lambda: all_have(tmp_path, 1, own))  # noqa: B023
            assert service.end() == 143
    assert all_have(tmp_path, 1)


def job_is_in(shard, job):
    number, count = map(int, shard.split("/"))
    return Shard(number, count).has(job)
