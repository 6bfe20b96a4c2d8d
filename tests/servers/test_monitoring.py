"""Alert rules and dashboard of `deploy/`, on a real Prometheus."""

import json
import re
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml

from cpreplicate.core.lag import Newest
from cpreplicate.core.shard import WHOLE
from cpreplicate.operations.jobs.coverage import Discovered
from cpreplicate.operations.jobs.observation import Observation
from cpreplicate.operations.jobs.schedule import Load
from cpreplicate.operations.jobs.snapshots import SnapshotCounts
from cpreplicate.operations.jobs.workers.workers import ProcessCounts
from cpreplicate.operations.replicas.housekeeping import HousekeepingCounts
from cpreplicate.output.http import ListenAddress, serve
from cpreplicate.output.metrics import (
    DURATIONS,
    FAMILIES,
    HOUSEKEEPING,
    LOAD_GAUGES,
    PROCESS_MEMORY,
    SHARDS,
    SNAPSHOT_FAILURES,
    SNAPSHOTS_BEHIND,
    UNMATCHED,
    UNSEEN,
    WORKER_DEATHS,
    registry_of,
)
from tests.deploy import test_alerts, test_alerts_of_jobs
from tests.support.alerts import FIRED, SILENT
from tests.support.jobs import JOB, write_checkpoint
from tests.support.ports import free_port
from tests.support.prometheus import prometheus, promtool
from tests.support.replicas import FILES, NEXT
from tests.support.waiting import PATIENCE

DEPLOY = Path(__file__).parent.parent.parent / "deploy"
RULES = sorted((DEPLOY / "prometheus").glob("*.rules.yml"))
TESTS = sorted((DEPLOY / "prometheus" / "tests").glob("*.test.yml"))
DASHBOARD = json.loads((DEPLOY / "grafana" / "cpreplicate.json").read_text())
PROJECT = (DEPLOY.parent / "pyproject.toml").read_text()
REPOSITORY = re.findall(r'^Source = "(.+)"$', PROJECT, re.MULTILINE)[0] + "/blob/main/"
METRICS = {
    *(family.name for family in (*FAMILIES, *LOAD_GAUGES, UNSEEN, UNMATCHED, SHARDS)),
    *(each.name for each in (*HOUSEKEEPING, SNAPSHOTS_BEHIND, SNAPSHOT_FAILURES)),
    *(each.name for each in (PROCESS_MEMORY, WORKER_DEATHS)),
    f"{DURATIONS.name}_bucket",
    "cpreplicate_build_info",
}


SUFFIXES = {"counter": "_total", "histogram": "_bucket", "info": "_info"}
SERVED: dict[str, Any] = {
    "load": lambda: Load(0, 1, 20),
    "discovered": lambda: Discovered({"http://jm:8081": True}, {"orders": True}),
    "housekeeping": lambda: HousekeepingCounts(1, 1, 1, 1, 1),
    "processes": lambda: ProcessCounts({"service": 1}, 1),
}
"""What a service exports beside its jobs."""


def yaml_of(path):
    return yaml.safe_load(path.read_text())


def alerts():
    return [rule for path in RULES for group in yaml_of(path)["groups"] for rule in group["rules"]]


def queries():
    """The queries of the dashboard, with values for its variables."""
    values = {"$flink_job": ".*", "$max_lag": "900", "$__rate_interval": "1m"}
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", []):
            expression = target["expr"]
            for name, value in values.items():
                expression = expression.replace(name, value)
            yield panel["title"], expression


@pytest.mark.prometheus
@pytest.mark.parametrize("path", RULES, ids=lambda path: path.name)
def test_promtool_accepts_the_rules(path):
    done = promtool("check", "rules", "--lint-fatal", path)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.prometheus
def test_promtool_accepts_the_configuration_of_the_scrape():
    assert promtool("check", "config", DEPLOY / "prometheus" / "scrape.yml").returncode == 0


@pytest.mark.prometheus
@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.name)
def test_the_rules_pass_their_tests(path):
    done = promtool("test", "rules", path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_has_a_test_in_which_it_fires_and_one_in_which_it_does_not():
    cases = [
        case
        for path in TESTS
        for test in yaml_of(path)["tests"]
        for case in test["alert_rule_test"]
    ]
    fires = {case["alertname"] for case in cases if case.get("exp_alerts")}
    silent = {case["alertname"] for case in cases if not case.get("exp_alerts")}
    always_labelled = {"CpreplicateSealedButScheduled"}  # its test has jobs that do not match
    assert fires == {alert["alert"] for alert in alerts()}
    assert fires - silent == always_labelled


def used_metrics():
    expressions = [alert["expr"] for alert in alerts()] + [query for _, query in queries()]
    return {name for text in expressions for name in re.findall(r"\bcpreplicate_\w+", text)}


def test_each_alert_fires_by_its_real_situation_and_not_by_the_nearest_healthy_one():
    """As the tests of `deploy/` show over what services and runs really exported."""
    names = {alert["alert"] for alert in alerts()}
    assert {test_alerts, test_alerts_of_jobs}  # whose tests are marked
    assert (names - FIRED, names - SILENT) == (set(), set())
    page = (DEPLOY.parent / "docs" / "monitoring.md").read_text()
    assert {name for name in names if f"| `{name}` | " not in page} == set()


def test_rules_and_dashboard_use_metrics_that_exist():
    assert used_metrics() <= METRICS
    assert {"cpreplicate_replica_lag_seconds", "cpreplicate_last_exit_code"} <= used_metrics()


def test_what_a_service_serves_without_the_option_for_details_is_used_by_a_rule_or_a_panel():
    job = orders()
    service = {**SERVED, "snapshots": lambda: SnapshotCounts(1, 1)}
    registry = registry_of(
        lambda: [job], total=lambda: job, sharing=lambda: (WHOLE, ["file:/r"]), **service
    )
    served = {
        f"{each.name}{SUFFIXES.get(each.type, '')}"
        for each in registry.collect()
        if not each.name.startswith("process_")
    }
    detail = {each.name for each in FAMILIES if each.is_detail and not each.name.endswith("_total")}
    assert served == used_metrics()
    assert METRICS - served == detail


def test_each_alert_is_explained():
    page = (DEPLOY.parent / "docs" / "monitoring.md").read_text()
    for alert in alerts():
        assert f"### {alert['alert']}\n" in page


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: alert["alert"])
def test_each_alert_links_to_what_to_do(alert):
    """To its section of monitoring.md, or to a step of lost.md that links to that section."""
    url, _, anchor = alert["annotations"]["runbook_url"].partition("#")
    assert url.startswith(REPOSITORY)
    page = DEPLOY.parent / url.removeprefix(REPOSITORY)
    section = f"monitoring.md#{alert['alert'].lower()}"
    assert anchor in anchors(page)
    if page.name == "lost.md":
        assert f"({section})" in page.read_text()
    else:
        assert f"{page.name}#{anchor}" == section


def anchors(page):
    """GitHub's anchors of the headings: in lower case, `-` for blanks, without punctuation."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in headings}


def test_panels_have_distinct_ids_and_do_not_overlap():
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (column, line)
        for panel in panels
        for column in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for line in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(column for column, _ in cells) < 24


def orders() -> Observation:
    """A job of which every metric is known; it lags, fails and is sealed."""
    job = Observation("orders", replica="file:/r/55d1", orphan_bytes=5, is_restorable=False)
    job.look_within, job.looked, job.is_unreported = 1e12, 1000.0, True
    job.clock_ahead, job.fingerprints_lacking = -2.0, 3
    job.source_newest, job.replica_newest = Newest(42, 990.0), Newest(40, 970.0)
    job.unchanged(1000.0)
    job.failed(6, "sealed", 1010.0, is_sealed=True, obstacle="foreign")
    job.took(20.0)
    for counter in (job.files, job.bytes, job.seconds):
        counter["copied"] += 1
    return job


@pytest.mark.prometheus
def test_each_panel_shows_something_of_a_service_that_prometheus_scrapes(tmp_path):
    job = orders()

    def observed():
        job.failed(6, "sealed", 1010.0, True, "foreign")  # so that the counters rise
        job.files["copied"] += 1
        job.took(20.0)
        return [job]

    with (
        serve(
            ListenAddress("127.0.0.1", 0),
            observed,
            lambda: True,
            lambda: True,
            snapshots=lambda: SnapshotCounts(1, 1),
            **SERVED,
        ) as address,
        prometheus(tmp_path, [str(address)], RULES) as server,
    ):
        server.wait_for("increase(cpreplicate_failures_total[1h]) > 0")
        for _title, query in queries():
            server.wait_for(query)  # no series has a value right after a scrape that was too slow
        firing = server.wait_for('ALERTS{alertname="CpreplicateNoSuccess", alertstate="firing"}')
        assert firing[0].labels["flink_job"] == "orders"


@pytest.mark.prometheus
def test_prometheus_follows_a_watch_and_promtool_accepts_its_metrics(tmp_path):
    write_checkpoint(tmp_path / "dcA", 1, FILES)
    address = f"127.0.0.1:{free_port()}"
    words = ["watch", f"dcA/{JOB}", "dcB", "--interval", "100ms", "-q", "--metrics", address]
    command = [sys.executable, "-m", "cpreplicate", *words]
    with (
        subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL) as process,
        prometheus(tmp_path, [address]) as server,
    ):
        try:
            server.wait_for("cpreplicate_replica_checkpoint_id == 1")
            write_checkpoint(tmp_path / "dcA", 2, NEXT)
            server.wait_for("cpreplicate_replica_checkpoint_id == 2")
            server.wait_for("cpreplicate_replica_lag_seconds == 0")
            with urllib.request.urlopen(f"http://{address}/metrics", timeout=PATIENCE) as answer:
                done = promtool("check", "metrics", stdin=answer.read().decode())
            assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
            with urllib.request.urlopen(f"http://{address}/readyz", timeout=PATIENCE) as answer:
                assert answer.status == 200
        finally:
            process.terminate()
