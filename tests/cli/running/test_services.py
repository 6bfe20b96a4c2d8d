"""The commands that run for months, as processes: they find jobs, reload, are probed, and end."""

import contextlib
import http.server
import json
import re
import resource
import shutil
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request

import pytest

from cpreplicate.cli.running.signals import Stopped
from cpreplicate.core.clock import Clock
from cpreplicate.operations.jobs.service import Service
from cpreplicate.storage.waiting import side_call
from tests.support import jobs
from tests.support.commandline import printed
from tests.support.hostile import answer, endless, hostile
from tests.support.replicas import FILES, NEXT
from tests.support.stepping import ManualClock, Stepped, Steps
from tests.support.waiting import PATIENCE, wait_until

JOBS = [f"{number:032x}" for number in range(1, 5)]
INTERVAL = 0.2  # seconds, of the services
ROWS = "--output=json"  # a document for each checkpoint
URL_FOLLOWS = "metrics and probes at "


def write(root, job, checkpoint, files=FILES):
    named, jobs.JOB = jobs.JOB, job
    try:
        return jobs.write_checkpoint(root, checkpoint, files)
    finally:
        jobs.JOB = named


def has(tmp_path, job, checkpoint):
    return (tmp_path / "dcB" / job / f"chk-{checkpoint}" / "_metadata").exists()


class Running:
    """A command that runs until it is ended; its lines are read from files."""

    def __init__(self, tmp_path, *words, program=("-m", "cpreplicate")):
        self._stdout, self._stderr = tmp_path / "stdout", tmp_path / "stderr"
        with self._stdout.open("w") as stdout, self._stderr.open("w") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, *program, *map(str, words), "--runner", "inline"],
                stdout=stdout,
                stderr=stderr,
            )

    @property
    def stdout(self):
        return self._stdout.read_text()

    @property
    def stderr(self):
        return self._stderr.read_text()

    def end(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)

    def url(self):
        wait_until(lambda: URL_FOLLOWS in self.stderr)
        return url_in(self.stderr)


@contextlib.contextmanager
def running(tmp_path, *words, **options):
    started = Running(tmp_path, *words, **options)
    try:
        yield started
    finally:
        started.process.kill()
        started.process.wait()


@pytest.fixture
def by_hand(monkeypatch):
    """Return what runs a service in this process by the steps of a function, then stops it."""
    clock, tries = ManualClock(), Steps()
    monkeypatch.setattr(Clock, "now", lambda _machine: clock.now())
    monkeypatch.setattr(Clock, "monotonic", lambda _machine: clock.monotonic())
    monkeypatch.setattr(side_call, "in_pool", lambda _pool: tries)

    def run(follow, *words):
        def run_by_hand(service, _leave_behind, each_turn):
            follow(Stepped(service, clock, tries, Steps(), each_turn))
            raise Stopped(signal.SIGTERM)

        monkeypatch.setattr(Service, "run", run_by_hand)
        return printed(*words, "--runner", "inline")

    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield run
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def url_in(stderr):
    return stderr.partition(URL_FOLLOWS)[2].split()[0]


def read(url):
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def lags(url):
    """The lag of each replica, as Prometheus reads it."""
    metrics = read(f"{url}/metrics")[1]
    return list(map(float, re.findall(r"cpreplicate_replica_lag_seconds\{.*\} (\S+)", metrics)))


def tries(url):
    """How often all jobs were tried."""
    metrics = read(f"{url}/metrics")[1]
    return sum(map(float, re.findall(r"cpreplicate_tries_total\{.*\} (\S+)", metrics)))


def test_jobs_under_a_root_are_followed_also_new_ones(tmp_path, by_hand):
    write(tmp_path / "dcA", JOBS[0], 1)

    def follow(service):
        service.step()
        assert has(tmp_path, JOBS[0], 1)
        write(tmp_path / "dcA", JOBS[1], 5)
        service.step(INTERVAL)
        assert has(tmp_path, JOBS[1], 5)
        write(tmp_path / "dcA", JOBS[0], 2, NEXT)
        service.step(INTERVAL)
        assert has(tmp_path, JOBS[0], 2)
        url = url_in(sys.stderr.getvalue())
        assert read(f"{url}/readyz")[0] == 200
        assert read(f"{url}/healthz")[0] == 200
        assert lags(url) == [0, 0]

    words = ["--jobs-under", tmp_path / "dcA", tmp_path / "dcB", "--interval", "0.2s"]
    ended = by_hand(follow, "watch", *words, "--metrics", "0", ROWS)
    assert ended.returncode == 143
    rows = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [(row["job"], row["checkpoint"]) for row in rows] == [
        (JOBS[0], "chk-1"),
        (JOBS[1], "chk-5"),
        (JOBS[0], "chk-2"),
    ]
    assert "Traceback" not in ended.stderr


@pytest.fixture
def configured(tmp_path):
    """A fleet of one job, and the function that writes its configuration."""
    write(tmp_path / "dcA", JOBS[0], 1)
    write(tmp_path / "dcA", JOBS[1], 1)

    def configure(*numbers, target="dcB"):
        tables = "".join(f'[[job]]\nsource = "{tmp_path}/dcA/{JOBS[n]}"\n' for n in numbers)
        (tmp_path / "fleet.toml").write_text(
            f'[defaults]\ntarget = "{tmp_path}/{target}"\n{tables}'
        )

    configure(0)
    return configure


def test_the_configuration_of_a_fleet_is_read_again_and_a_mistake_ends_nothing(
    tmp_path, configured
):
    with running(tmp_path, "fleet", "--every", "0.2s", tmp_path / "fleet.toml") as service:
        wait_until(lambda: has(tmp_path, JOBS[0], 1))
        configured(0, 1)
        service.process.send_signal(signal.SIGHUP)
        wait_until(lambda: has(tmp_path, JOBS[1], 1))
        assert "the configuration was read again" in service.stderr
        (tmp_path / "fleet.toml").write_text("[[jobb]]\n")
        service.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "did you mean 'job'" in service.stderr)
        write(tmp_path / "dcA", JOBS[1], 2, NEXT)
        wait_until(lambda: has(tmp_path, JOBS[1], 2))
        assert service.end() == 143


def test_a_root_without_jobs_holds_up_no_other_job_of_a_fleet(tmp_path, configured, by_hand):
    configured(0)
    root = f'[[root]]\nsource = "{tmp_path}/dcC"\n'
    with (tmp_path / "fleet.toml").open("a") as file:
        file.write(root)

    def follow(service):
        service.step()
        assert has(tmp_path, JOBS[0], 1)
        assert "Waiting for jobs" in sys.stderr.getvalue()
        write(tmp_path / "dcC", JOBS[2], 1)
        service.step(INTERVAL)
        assert has(tmp_path, JOBS[2], 1)

    ended = by_hand(follow, "fleet", "--every", "0.2s", tmp_path / "fleet.toml")
    assert ended.returncode == 143


def test_two_fleets_of_cron_divide_the_jobs(tmp_path, configured):
    write(tmp_path / "dcA", JOBS[2], 1)
    configured(0, 1, 2)
    replicated = []
    for shard in ("1/2", "2/2"):
        ended = printed("fleet", "--shard", shard, tmp_path / "fleet.toml")
        assert ended.returncode == 0
        replicated.append(sum(has(tmp_path, job, 1) for job in JOBS))
    assert replicated == [1, 3]


def test_headers_of_the_environment_may_have_blanks(tmp_path, monkeypatch, by_hand):
    monkeypatch.setenv("CPREPLICATE_WATCH_HEADER", "Authorization: Bearer abc\nX-Other: 1")
    words = ("--flink", "http://127.0.0.1:1", "--all-jobs", tmp_path / "dcB")
    ended = by_hand(lambda service: service.step(), "watch", "--interval", "0.2s", *words)
    assert ended.returncode == 143
    assert "Its jobs are followed by their directories" in ended.stderr


@pytest.mark.usefixtures("configured")
@pytest.mark.parametrize("words", [("--every", "0s"), ("--every", "1s", "--max-backoff", "0")])
def test_a_service_without_a_pause_is_a_usage_error(tmp_path, words):
    ended = printed("fleet", *words, tmp_path / "fleet.toml")
    assert ended.returncode == 2
    assert "must be longer than 0 s" in ended.stderr


def test_a_mistake_in_the_first_configuration_ends_the_service_with_2(tmp_path):
    (tmp_path / "fleet.toml").write_text("[[jobb]]\n")
    ended = printed("fleet", "--every", "1s", tmp_path / "fleet.toml")
    assert ended.returncode == 2
    assert "did you mean 'job'" in ended.stderr


@pytest.mark.usefixtures("configured")
def test_a_stand_in_takes_over_when_the_active_service_is_killed_during_a_copy(tmp_path):
    write(tmp_path / "dcA", JOBS[0], 2, {"shared/large": 6_000_000})  # ten minutes at 10KB/s
    words = ["fleet", "--every", "0.3s", tmp_path / "fleet.toml", "--slots", "1"]
    (tmp_path / "active").mkdir()
    with running(tmp_path / "active", *words, "--bandwidth", "10KB/s") as active:
        wait_until(lambda: list((tmp_path / "dcB").glob("*/shared/*")))
        with running(tmp_path, *words, "--metrics", "0") as stand_in:
            url = stand_in.url()
            held = re.compile(r"cpreplicate_lease_held\{.*\} 1.0")
            wait_until(lambda: held.search(read(f"{url}/metrics")[1]))
            assert not has(tmp_path, JOBS[0], 2)
            active.process.kill()
            wait_until(lambda: has(tmp_path, JOBS[0], 2))
            assert stand_in.end() == 143
            assert "It is tried again" not in stand_in.stderr


# A command that cancels after a small part of its grace, and has the rest of it to end.
CANCELS_SOON = """
import runpy
from cpreplicate.operations.jobs import service
service._CANCEL_SHARE = 0.001
runpy.run_module("cpreplicate", run_name="__main__")
"""


@pytest.mark.usefixtures("configured")
def test_sigterm_ends_within_the_grace_also_while_a_large_file_is_copied(tmp_path):
    write(tmp_path / "dcA", JOBS[0], 2, {"shared/large": 60_000_000})
    words = ["--every", "1s", tmp_path / "fleet.toml", "--bandwidth", "10KB/s", "--grace", "30m"]
    with running(tmp_path, "fleet", *words, program=("-c", CANCELS_SOON)) as service:
        wait_until(lambda: list((tmp_path / "dcB").glob("*/shared/*")))
        assert service.end() == 143
        assert "stopping: waiting up to 1.8 s" in service.stderr
    replica = tmp_path / "dcB" / JOBS[0]
    assert not has(tmp_path, JOBS[0], 2)
    assert list(replica.glob("shared/*")) == []
    assert [each.name for each in replica.glob(".cpreplicate/lease*")] == ["lease-room"]


@pytest.mark.usefixtures("configured")
def test_the_heartbeat_is_sent_only_while_every_job_is_in_time(tmp_path, by_hand):
    calls = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            calls.append(self.path)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_words):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    words = ["fleet", "--every", "0.2s", tmp_path / "fleet.toml"]
    heartbeat = ["--heartbeat", f"http://127.0.0.1:{server.server_port}/ping"]

    def follow(service):
        service.step()
        service.step(60.0)  # the next heartbeat is due
        wait_until(lambda: calls)

    def fail(service):
        for _ in range(5):
            service.step(60.0)  # the next heartbeat and the next try are due
        assert tries(url_in(sys.stderr.getvalue())) == 5

    try:
        assert by_hand(follow, *words, *heartbeat).returncode == 143
        assert set(calls) == {"/ping"}
        calls.clear()
        shutil.rmtree(tmp_path / "dcB")
        (tmp_path / "dcA" / JOBS[0] / "chk-1" / "_metadata").write_bytes(b"damaged")
        ended = by_hand(fail, *words, *heartbeat, "--max-backoff", "0.2s", "--metrics", "0")
        assert "It is tried again" in ended.stderr
        assert calls == []
    finally:
        server.shutdown()
        server.server_close()


def test_a_jobmanager_that_drips_and_a_file_of_garbage_hold_up_no_job(tmp_path):
    """Also the end does not wait for them, and nothing prints a password."""
    path = write(tmp_path / "dcA", JOBS[0], 1)
    overview = {"jobs": [{"jid": JOBS[0], "name": "orders", "start-time": 0, "state": "RUNNING"}]}
    newest = {
        "id": 1,
        "external_path": f"file:{path}",
        "latest_ack_timestamp": int((path / "_metadata").stat().st_mtime * 1000),
    }

    def script(connection, head):
        is_overview = b"/overview" in head
        found = overview if is_overview else {"latest": {"completed": newest}}
        answer(json.dumps(found).encode())(connection, head)

    file = tmp_path / "urls"
    words = ["--flink-file", file, "--all-jobs", tmp_path / "dcB", "--interval", "0.2s"]
    drip = endless(b"HTTP/1.1 200 OK\r\n", b"X", 0.05)
    with hostile(drip) as slow, hostile(script) as healthy:
        garbage = b"http://5f1c@[\n\xff\xfe\x00 \xff5f1c\nhttp://u:5f1c/\n# caf\xe9\n"
        lines = f"http://u:5f1c@{slow.place} # slow\n{healthy.url}\n"
        file.write_bytes(garbage + lines.encode())
        with running(tmp_path, "watch", *words, "--metrics", "0") as service:
            url = service.url()
            wait_until(lambda: lags(url) == [0])  # +Inf until it is replicated
            second = write(tmp_path / "dcA", JOBS[0], 2, NEXT)
            newest.update(id=2, external_path=f"file:{second}")
            wait_until(lambda: has(tmp_path, JOBS[0], 2))
            assert read(f"{url}/healthz")[0] == 200
            assert service.end() == 143
            assert "of 5 URLs of JobManagers are left out" in service.stderr
            assert "does not answer: ended without" not in service.stderr
            assert "5f1c" not in service.stderr
            assert "Traceback" not in service.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["watch", "--flink", "http://localhost:1", "dcB"], "--flink needs --job-name"),
        (["watch", "--job-name", "a", "dcA", "dcB"], "need --flink URL"),
        (["watch", "--jobs-under", "dcA", "dcA", "dcB"], "expected TARGET_ROOT only"),
        (["watch", "dcB"], "expected SOURCE and TARGET_ROOT"),
        (
            ["watch", "--jobs-under", "dcA", "--flink", "http://localhost:1", "dcB"],
            "either --flink or --jobs-under",
        ),
        (["watch", "dcA", "dcB", "--shard", "1/2"], "--shard divides many jobs"),
        (["watch", "--jobs-under", "dcA", "dcB", "--shard", "3/2"], "expected NUMBER/COUNT"),
        (["watch", "--jobs-under", "dcA", "dcB", "--shard", "0/2"], "expected NUMBER/COUNT"),
        (
            ["watch", "--flink", "http://u:5f1c/x", "--all-jobs", "dcB"],
            "a URL of a JobManager is none",
        ),
        (
            ["watch", "--flink", "http://h", "--all-jobs", "--header", "a b: c", "dcB"],
            "--header: expected NAME:VALUE",
        ),
        (["watch", "dcA", "dcB", "--retire-after", "7d"], "it needs --jobs-under"),
        (["watch", "--jobs-under", "dcA", "dcB", "--wait-for-source"], "it needs a SOURCE"),
        (["watch", "dcA", "dcB", "--metrics-detail"], "--metrics-detail needs --metrics"),
        (["fleet", "--metrics", "0", "fleet.toml"], "--metrics: of a service, which needs --every"),
        (
            ["fleet", "--slots", "3", "--grace", "9s", "fleet.toml"],
            "--grace, --slots: of",
        ),
        (["fleet", "--every", "1s", "--dry-run", "fleet.toml"], "does not go with --dry-run"),
    ],
)
def test_options_that_do_not_fit_together_are_usage_errors(tmp_path, words, message):
    ended = printed(*words, cwd=tmp_path, COLUMNS="200")
    assert (ended.returncode, message in ended.stderr) == (2, True), ended.stderr
    assert "5f1c" not in ended.stderr


def test_a_service_that_starts_during_an_outage_shows_what_it_misses(tmp_path, by_hand):
    shown: list[tuple[int, str]] = []

    def follow(service):
        service.step()
        service.step(6.0)  # the least time after which a place is unseen is over
        url = url_in(sys.stderr.getvalue())
        shown.extend(read(f"{url}/{page}") for page in ("metrics", "readyz", "healthz"))

    words = ["--flink", "http://user:5f1c@127.0.0.1:1", "--job-name", "orders", tmp_path / "dcB"]
    by_hand(follow, "watch", *words, "--interval", "0.2s", "--metrics", "0")
    (_, metrics), (ready, _), (status, text) = shown
    assert 'cpreplicate_discovery_unseen{source="http://127.0.0.1:1"} 1.0' in metrics
    assert 'cpreplicate_discovery_unmatched{name="orders"} 1.0' in metrics
    assert (ready, status) == (200, 200)
    assert "no jobs can be looked for at http://127.0.0.1:1: " in text
    assert "no job is followed for: orders" in text
    assert "5f1c" not in text


def test_a_service_may_open_as_many_files_as_the_system_lets_it(tmp_path):
    (tmp_path / "dcA").mkdir()
    inherited, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    words = ["--jobs-under", tmp_path / "dcA", tmp_path / "dcB", "--metrics", "0"]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(inherited, 512), hard))
    try:
        started = Running(tmp_path, "watch", *words)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (inherited, hard))
    try:
        started.url()
        soft, unchanged = resource.prlimit(started.process.pid, resource.RLIMIT_NOFILE)
    finally:
        started.process.kill()
        started.process.wait()
    assert unchanged == hard
    assert hard == resource.RLIM_INFINITY or soft >= min(hard, 65536)


def test_a_service_that_stops_before_any_checkpoint_claims_none(tmp_path, by_hand):
    (tmp_path / "dcA" / JOBS[0]).mkdir(parents=True)

    def follow(service):
        service.step()
        assert read(f"{url_in(sys.stderr.getvalue())}/readyz")[0] == 200

    words = ("--jobs-under", tmp_path / "dcA", tmp_path / "dcB", "--interval", "0.2s")
    ended = by_hand(follow, "watch", *words, "--metrics", "0")
    assert ended.returncode == 143
    assert "stopped. This run saw no committed checkpoint in the replicas of" in ended.stderr
    assert "can be restored" not in ended.stderr


def test_a_service_that_stops_counts_the_replicas_with_a_checkpoint(tmp_path, by_hand):
    write(tmp_path / "dcA", JOBS[0], 1)
    (tmp_path / "dcA" / JOBS[1]).mkdir()
    words = ("--jobs-under", tmp_path / "dcA", tmp_path / "dcB", "--interval", "0.2s")
    ended = by_hand(lambda service: service.step(), "watch", *words, ROWS)
    assert ended.returncode == 143
    assert "stopped. 1 of 2 replicas holds a committed" in ended.stderr
