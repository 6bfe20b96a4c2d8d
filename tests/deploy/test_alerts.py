"""The shipped alert rules over what the shipped files of cron, systemd and Kubernetes write."""

import contextlib
import functools
import http.server
import json
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from prometheus_client.samples import Sample

from tests.support import parts
from tests.support.alerts import SERVICE_RULES, check_firing, check_replayed, fires, silent
from tests.support.jobs import JOB, write_checkpoint
from tests.support.nodeexporter import scraped, textfile_samples
from tests.support.ports import free_port
from tests.support.replicas import FILES
from tests.support.shipped import cron_commands, cronjob_command, programs, unit_command
from tests.support.waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.prometheus, pytest.mark.xdist_group("alerts"), *parts.NIGHTLY]

CRON_RULES = ("cpreplicate.rules.yml", "cpreplicate-cron.rules.yml")
WRITTEN = ("sync-orders", "fleet", "sync-clicks", "sync-payments")
FILE_NAMES = {f"cpreplicate-{name}.prom" for name in WRITTEN}


class Site:
    """Two data centres, with a job for each of the shipped files that write metrics files."""

    def __init__(self, directory):
        self.directory, self.metrics = directory, directory / "state/cpreplicate/metrics"
        self.metrics.mkdir(parents=True)
        for name in ("orders", "fleet", "clicks", "payments"):
            write_checkpoint(directory / name, 1, FILES)
        self._write_fleet()
        self._commands = [*self._cron(), self._timer(), self._cronjob()]

    def source(self, name):
        return f"file:{self.directory}/{name}/{JOB}"

    def target(self, name):
        return f"file:{self.directory}/replicas-{name}"

    def run(self):
        """Run each command once, and return the exit codes."""
        return [
            subprocess.run(words, env=environment, capture_output=True, check=False).returncode
            for words, environment in self._commands
        ]

    def lose_sources(self):
        for name in ("orders", "fleet", "clicks", "payments"):
            shutil.rmtree(self.directory / name)

    def _write_fleet(self):
        job = {"name": "fleet", "source": self.source("fleet"), "target": self.target("fleet")}
        lines = [f"{key} = {json.dumps(value)}" for key, value in job.items()]
        (self.directory / "fleet.toml").write_text("\n".join(["[[job]]", *lines, ""]))

    def _cron(self):
        values = {
            "PATH": str(programs(self.directory / "bin")),
            "METRICS": str(self.metrics),
            "ORDERS": self.source("orders"),
            "TARGET_ROOT": self.target("orders"),
        }
        for words, environment in cron_commands(values):
            placed = words[-1].replace("/etc/cpreplicate", str(self.directory))
            yield [*words[:-1], placed], environment

    def _timer(self):
        given = {"SOURCE": self.source("clicks"), "TARGET_ROOT": self.target("clicks")}
        state = self.directory / "state"
        return unit_command("cpreplicate-sync@.service", "clicks", state, given)

    def _cronjob(self):
        # the names of the example are to be changed
        replaced = {
            "s3://dcA/flink/checkpoints/55d1b2f1ab2d4b6f8a1f1f2c3d4e5f60": self.source("payments"),
            "s3://dcB/flink/replicas": self.target("payments"),
        }
        words = cronjob_command()
        assert replaced.keys() <= set(words)
        words = [replaced.get(word, word).replace("sync-orders", "sync-payments") for word in words]
        mounted = "/var/lib/cpreplicate/metrics"
        return [word.replace(mounted, str(self.metrics)) for word in words], None


def of_each_job(alertname, site):
    """Return that alert on each of the jobs; `sync` names a job by its directory."""
    names = {"fleet": "fleet", "orders": JOB, "clicks": JOB, "payments": JOB}
    return [
        {"alertname": alertname, "flink_job": name, "replica": f"{site.target(place)}/{JOB}"}
        for place, name in names.items()
    ]


def stale(site):
    """Return the alerts on files that no run writes any more."""
    return [
        {"alertname": "CpreplicateMetricsFileStale", "file": f"{site.metrics}/{name}"}
        for name in FILE_NAMES
    ]


@pytest.fixture(scope="module")
def healthy(tmp_path_factory):
    """A site whose commands ran once, what node_exporter exports of them, and the time."""
    site = Site(tmp_path_factory.mktemp("healthy"))
    assert site.run() == [0, 0, 0, 0]
    return site, textfile_samples(site.metrics), time.time()


def test_the_shipped_files_write_metrics_files_that_the_alerts_know(healthy):
    site, samples, _ = healthy
    assert {file.name for file in site.metrics.iterdir()} == FILE_NAMES
    read = {x.labels["file"] for x in samples if x.name == "node_textfile_mtime_seconds"}
    assert {Path(file).name for file in read} == FILE_NAMES
    assert {x.value for x in samples if x.name == "node_textfile_scrape_error"} == {0}


@silent("CpreplicateMetricsFileStale", "CpreplicateMetricsFileAbsent")
@silent("CpreplicateMetricsFileRejected")
def test_healthy_runs_fire_no_alert(healthy, tmp_path):
    _, samples, now = healthy
    check_firing(tmp_path, CRON_RULES, samples, 20, [], now)


@fires("CpreplicateMetricsFileStale", "CpreplicateNoSuccess")
def test_runs_that_stop_fire_for_each_file_and_each_job(healthy, tmp_path):
    site, samples, now = healthy
    expected = [*stale(site), *of_each_job("CpreplicateNoSuccess", site)]
    check_firing(tmp_path, CRON_RULES, samples, 35, expected, now)


def test_sources_that_are_gone_fire_for_each_job(tmp_path):
    site = Site(tmp_path)
    assert site.run() == [0, 0, 0, 0]
    now = time.time()
    site.lose_sources()
    assert site.run() == [10, 10, 10, 10]
    expected = of_each_job("CpreplicateFailing", site)
    check_firing(tmp_path, CRON_RULES, textfile_samples(site.metrics), 20, expected, now)


@fires("CpreplicateNeverSucceeded")
def test_jobs_that_were_never_replicated_fire(tmp_path):
    site = Site(tmp_path)
    site.lose_sources()
    assert site.run() == [10, 10, 10, 10]
    samples, now = textfile_samples(site.metrics), time.time()
    names = ("CpreplicateFailing", "CpreplicateNeverSucceeded")
    expected = [*stale(site), *(each for name in names for each in of_each_job(name, site))]
    check_firing(tmp_path, CRON_RULES, samples, 35, expected, now)


@fires("CpreplicateMetricsFileAbsent")
def test_no_run_at_all_fires_as_absent(tmp_path):
    expected = [{"alertname": "CpreplicateMetricsFileAbsent"}]
    check_firing(tmp_path, CRON_RULES, textfile_samples(tmp_path), 20, expected, time.time())


@contextlib.contextmanager
def running(directory, words, environment):
    """Run a service until the block ends; yield the process and its file of messages."""
    messages = directory / "messages"
    with messages.open("w") as stderr:
        process = subprocess.Popen(
            words, env=environment, cwd=directory, stdout=subprocess.DEVNULL, stderr=stderr
        )
    try:
        yield process, messages
    finally:
        process.kill()
        process.wait()


def wait_for(process, condition):
    """Wait for a condition, as long as the process runs."""
    wait_until(lambda: process.poll() is not None or condition())
    assert process.poll() is None


def has_tried(address):
    """Whether a service has tried its job."""
    with contextlib.suppress(OSError):
        samples = scraped(f"http://{address}/metrics")
        return any(each.name == "cpreplicate_last_exit_code" for each in samples)
    return False


def up(value):
    return Sample("up", {}, value)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    """What Prometheus scrapes of the unit for fleets, once all jobs were tried, and the time."""
    site = Site(tmp_path_factory.mktemp("fleet"))
    given = {"METRICS": f"127.0.0.1:{free_port()}"}
    words, environment = unit_command("cpreplicate-fleet.service", "", site.directory, given)
    words = [word.replace("/etc/cpreplicate", str(site.directory)) for word in words]
    with running(site.directory, words, environment) as (process, _):
        wait_for(process, lambda: has_tried(given["METRICS"]))
        samples = scraped(f"http://{given['METRICS']}/metrics")
        process.terminate()
        assert process.wait(PATIENCE) == 128 + signal.SIGTERM
    return [up(1), *samples], time.time()


def test_a_healthy_service_fires_no_alert(fleet, tmp_path):
    samples, now = fleet
    assert {x.value for x in samples if x.name == "cpreplicate_last_exit_code"} == {0}
    check_firing(tmp_path, SERVICE_RULES, samples, 10, [], now)


@fires("CpreplicateServiceStalled")
def test_a_service_that_tries_nothing_any_more_is_stalled(fleet, tmp_path):
    samples, now = fleet
    expected = [{"alertname": "CpreplicateServiceStalled"}]
    check_firing(tmp_path, SERVICE_RULES, samples, 20, expected, now)


@pytest.mark.parametrize("samples", [[], [up(0)]], ids=["unknown", "dead"])
@fires("CpreplicateServiceDown")
def test_a_service_that_is_gone_is_down(samples, tmp_path):
    expected = [{"alertname": "CpreplicateServiceDown"}]
    check_firing(tmp_path, SERVICE_RULES, samples, 10, expected, 0.0)


@silent("CpreplicateServiceDown")
def test_a_service_that_is_restarted_fires_nothing(fleet, tmp_path):
    samples, now = fleet
    exports = [(now, samples), (now + 120, [up(0)]), (now + 300, samples)]
    check_replayed(tmp_path, SERVICE_RULES, exports, 12, [], within=12)


@pytest.fixture
def verified(tmp_path):
    """What node_exporter exports of a `verify` of a replica, after a change of that, and when."""
    metrics, scratch = tmp_path / "metrics", tmp_path / "promtool"
    metrics.mkdir()
    scratch.mkdir()
    source = write_checkpoint(tmp_path / "dcA", 1, FILES).parent
    program = [sys.executable, "-m", "cpreplicate"]
    subprocess.run([*program, "sync", "-q", f"file:{source}", f"file:{tmp_path}/dcB"], check=True)
    replica = tmp_path / "dcB" / JOB

    def verify(change=lambda _replica: None):
        change(replica)
        file = metrics / "cpreplicate-verify.prom"
        words = [*program, "verify", f"file:{replica}", "--metrics-file", str(file)]
        subprocess.run(words, check=False, capture_output=True)
        return textfile_samples(metrics)

    def check(samples, minutes, *names):
        job = {"flink_job": JOB, "replica": f"file:{replica}"}
        expected = [{"alertname": name, **job} for name in names]
        check_firing(scratch, CRON_RULES[:1], samples, minutes, expected, time.time())

    return verify, check


def damage(replica):
    """Cut off the end of a file, as a filesystem does that was full."""
    file = max((replica / "shared").iterdir(), key=lambda each: each.stat().st_size)
    file.write_bytes(file.read_bytes()[:-1])


@fires("CpreplicateNotRestorable")
@silent("CpreplicateNotRestorable")
def test_a_damaged_replica_fires_once_it_is_verified_and_a_whole_one_does_not(verified):
    verify, check = verified
    check(verify(), 20)
    check(verify(damage), 5, "CpreplicateNotRestorable")


@fires("CpreplicateNoCheckOrSweep")
@silent("CpreplicateNoCheckOrSweep")
def test_a_verify_a_week_fires_nothing_and_none_for_nine_days_does(verified):
    verify, check = verified
    samples = verify()
    day = 24 * 60
    check(samples, 7 * day)
    check(samples, 9 * day, "CpreplicateNoCheckOrSweep")


@fires("CpreplicateMetricsFileRejected")
def test_a_file_that_was_copied_in_part_fires_as_rejected(tmp_path):
    site = Site(tmp_path)
    assert site.run() == [0, 0, 0, 0]
    whole = (site.metrics / "cpreplicate-fleet.prom").read_bytes()
    (site.metrics / "cpreplicate-fleet-2.prom").write_bytes(whole[: len(whole) // 2])
    samples = textfile_samples(site.metrics)
    expected = [{"alertname": "CpreplicateMetricsFileRejected"}]
    check_firing(tmp_path, CRON_RULES[1:], samples, 20, expected, time.time())


@contextlib.contextmanager
def watching(directory, site, url, *words):
    """Run a service that follows jobs of a JobManager; yield its process and its metrics."""
    address = f"127.0.0.1:{free_port()}"
    target = site.target("orders")
    command = [sys.executable, "-m", "cpreplicate", "watch", "--flink", url, *words, target]
    options = ["--interval", "1s", "--metrics", address, "--runner", "inline", "-q"]
    with running(directory, [*command, *options], None) as (process, _):
        yield process, f"http://{address}/metrics"


def waited_for(process, url, name, value):
    """Return what is exported once a metric has a value, and when."""
    found: list[Sample] = []

    def has_value():
        with contextlib.suppress(OSError):
            found[:] = [up(1), *scraped(url)]
        return value in {each.value for each in found if each.name == name}

    wait_for(process, has_value)
    return time.time(), list(found)


@fires("CpreplicateDiscoveryUnseen")
@silent("CpreplicateDiscoveryUnseen")
def test_a_jobmanager_that_is_gone_fires_and_one_that_is_restarted_does_not(tmp_path):
    site, port = Site(tmp_path), free_port()
    unseen = "cpreplicate_discovery_unseen"
    with watching(tmp_path, site, f"http://127.0.0.1:{port}", "--all-jobs") as (process, url):
        at, samples = waited_for(process, url, unseen, 1)
        with jobmanager(tmp_path, site, port):
            later, seen = waited_for(process, url, "cpreplicate_last_exit_code", 0)
            later, seen = waited_for(process, url, unseen, 0)
    expected = [{"alertname": "CpreplicateDiscoveryUnseen"}]
    check_firing(tmp_path, SERVICE_RULES, samples, 6, expected, at)
    exports = [(at, samples), (at + 180, shifted(seen, at + 180 - later))]
    check_replayed(tmp_path, SERVICE_RULES, exports, 12, [], within=12)


def shifted(samples, seconds):
    """Return what would have been exported so much later."""
    return [
        each._replace(value=each.value + seconds) if each.name.endswith("_seconds") else each
        for each in samples
    ]


@fires("CpreplicateJobNotFound")
@silent("CpreplicateJobNotFound")
def test_a_name_that_no_job_has_fires_and_one_of_a_job_that_restarts_does_not(tmp_path):
    site = Site(tmp_path)
    unmatched = "cpreplicate_discovery_unmatched"
    with (
        jobmanager(tmp_path, site) as jobs,
        watching(tmp_path, site, jobs, "--job-name", "order") as (process, url),
    ):
        at, samples = waited_for(process, url, unmatched, 1)
        overview = tmp_path / "rest" / "jobs" / "overview"
        overview.write_text(overview.read_text().replace('"orders"', '"order"'))
        later, found = waited_for(process, url, "cpreplicate_last_exit_code", 0)
        later, found = waited_for(process, url, unmatched, 0)
    check_firing(
        tmp_path, SERVICE_RULES, samples, 16, [{"alertname": "CpreplicateJobNotFound"}], at
    )
    exports = [(at, samples), (at + 600, shifted(found, at + 600 - later))]
    check_replayed(tmp_path, SERVICE_RULES, exports, 20, [], within=20)


@contextlib.contextmanager
def jobmanager(directory, site, port=0):
    """Serve the REST API of a JobManager with the job `orders`; yield its URL."""
    answers = directory / "rest"
    (answers / "jobs" / JOB).mkdir(parents=True)
    job = {"jid": JOB, "name": "orders", "start-time": 0, "state": "RUNNING"}
    (answers / "jobs" / "overview").write_text(json.dumps({"jobs": [job]}))
    path = f"{site.source('orders')}/chk-1"
    completed = {"id": 1, "external_path": path, "latest_ack_timestamp": int(time.time() * 1000)}
    latest = {"latest": {"completed": completed}}
    (answers / "jobs" / JOB / "checkpoints").write_text(json.dumps(latest))
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(answers))
    with http.server.ThreadingHTTPServer(("127.0.0.1", port), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize("has_metrics", [True, False])
def test_the_unit_of_watch_serves_metrics_only_if_it_has_an_address(tmp_path, has_metrics):
    site = Site(tmp_path)
    address = f"127.0.0.1:{free_port()}"
    with jobmanager(tmp_path, site) as url:
        given = {"FLINK": url, "JOB_NAME": "orders", "TARGET_ROOT": site.target("orders")}
        if has_metrics:
            given["METRICS"] = address
        words, environment = unit_command("cpreplicate-watch@.service", "orders", tmp_path, given)
        with running(tmp_path, words, environment) as (process, messages):
            replica = tmp_path / "replicas-orders" / JOB / "chk-1" / "_metadata"
            wait_for(process, replica.exists)
            assert ("metrics and probes at" in messages.read_text()) == has_metrics
            if has_metrics:
                wait_for(process, lambda: has_tried(address))
                samples, now = [up(1), *scraped(f"http://{address}/metrics")], time.time()
                check_firing(tmp_path, SERVICE_RULES, samples, 10, [], now)
            process.terminate()
            assert process.wait(PATIENCE) == 128 + signal.SIGTERM
