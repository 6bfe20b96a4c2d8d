"""Fixtures that several test modules share."""

import gc
import json
import logging
import math
import os
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from cpreplicate.operations.sync import request as request_of_sync
from tests.support import environment, parts, reached
from tests.support.browser import browser
from tests.support.flink import flink
from tests.support.hdfs import clusters, ha_cluster, hdfs_cluster
from tests.support.kafka import kafka
from tests.support.kerberos import realms, secure
from tests.support.s3 import s3
from tests.support.stores import azurite, fake_gcs_server, versitygw
from tests.support.waiting import PATIENCE

# Before anything is imported that reads them, and before processes are started that inherit them.
environment.reset_signals()
environment.reset_environment()

__all__ = [
    "azurite",
    "browser",
    "clusters",
    "fake_gcs_server",
    "flink",
    "ha_cluster",
    "hdfs_cluster",
    "kafka",
    "realms",
    "s3",
    "secure",
    "versitygw",
]

# The start of Spark's JVM takes most of the time of the tests that need it. These options start it
# quickly; they are not for measuring.
_QUICK_START = (
    "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData -XX:+UnlockDiagnosticVMOptions"
    " -XX:-BytecodeVerificationRemote"
)
os.environ["SPARK_LAUNCHER_OPTS"] = os.environ["SPARK_SUBMIT_OPTS"] = _QUICK_START

# No deadline for an example: other work on the machine slows it. Each test has its own time limit.
# The same examples each time, so that what passed passes anywhere; `make nightly` draws others.
settings.register_profile(
    "tests",
    settings.default,
    deadline=None,
    derandomize="TESTS_OTHER_EXAMPLES" not in os.environ,
)
settings.load_profile("tests")

# A signal ends a command within five seconds, whatever it has to clean up. On a busy machine that
# takes longer, and tests look at what it leaves.
os.environ["CPREPLICATE_STOP_WITHIN"] = "1800s"

# A run looks for newer checkpoints by itself after minutes on a busy machine, and storages count
# calls: tests let it look when that is what they are about.
request_of_sync.LOOK_EVERY = math.inf

# Measured by `make durations`: the mean seconds of a test of each file.
_DURATIONS = json.loads((Path(__file__).parent / "durations.json").read_text())
_FIXTURES = {  # what starts a server, by the mark of the tests that need it
    "hdfs": {"hdfs_cluster", "clusters", "ha_cluster"},
    "flink": {"flink"},
    "kafka": {"kafka"},
    "kerberos": {"realms", "secure"},
    "s3": {"s3"},
    "chromium": {"browser"},
    "stores": {"azurite", "fake_gcs_server", "versitygw"},
}
_suites: set[str] = set()  # the test modules of which all tests are run
_at_night: set[str] = set()  # those of which only the tests of `make nightly` are run
_SLOW = {  # what `make check` leaves to `make test`: folders, modules, or modules of a folder
    # of many seeds, command lines or processes, of services, of silence
    "faults",
    "histories",
    "kerberos",
    "stores",
    "test_cluster",
    "test_frozen",
    "test_fuzz",
    "test_logs",
    "test_metrics_file",
    "test_missing_values",
    "test_other_clicks",
    "test_quiet",
    "test_runner",
    "test_runners",
    "test_services",
    "test_session",
    "test_space",
    "test_spark_sync",
    "test_streams",
    "test_toml_keys",
    "test_yarn",
    # whose matrices take more than two seconds: their operations have other tests there, too
    "change/test_full_disk",
    "change/test_probe",
    "cli/test_cli",
    "cli/test_report",
    "cli/test_retention",
    "commands/test_completion",
    "core/test_shard",
    "doctor/test_doctor",
    "handover/test_as_of",
    "handover/test_promote_all",
    "handover/test_unseal",
    "inspect/test_references",
    "jobs/test_namesakes",
    "jobs/test_policy",
    "jobs/test_service",
    "jobs/test_spread",
    "kafka/test_check",
    "kafka/test_rebase",
    "metadata/test_trees",
    "operations/test_extents",
    "operations/test_verify_and_promote",
    "output/test_http",
    "output/test_restore_server",
    "protocol/test_census",
    "protocol/test_lease_interrupted",
    "protocol/test_needed",
    "protocol/test_ownership",
    "replicas/test_forget",
    "replicas/test_housekeeping",
    "replicas/test_points",
    "replicas/test_replica_status",
    "replicas/test_status",
    "results/test_results",
    "running/test_advice",
    "running/test_signals",
    "running/test_worker_processes",
    "servers/test_monitoring",
    "spark/test_transport",
    "storage/test_rpc",
    "support/test_support",
    "switch",
    "sync/test_content",
    "sync/test_earlier_replicas",
    "sync/test_far",
    "sync/test_incomplete",
    "sync/test_packs",
    "sync/test_point_summary",
    "sync/test_retention",
    "upkeep/test_relocate",
    "upkeep/test_unpack",
    "users/test_advice",
    "users/test_approvals",
    "users/test_counts",
    "users/test_documented_commands",
    "users/test_errors_page",
    "users/test_mistakes",
    "users/test_pages_run",
    "users/test_without_spark",
    "waiting/test_deadlines",
    "web/test_webhdfs",
    "workers",
}


@pytest.fixture(scope="session", autouse=True)
def cache_of_the_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep startup times and rates of the tests apart from those of this user's runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session", autouse=True)
def no_wait_for_the_disk() -> Iterator[None]:
    """Have files of this process not be waited for until they are on the disk: no machine loses its
    power amid a test. That the calls are made, test_local sees; processes of their own make them.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _descriptor: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def one_table_however_busy_the_machine_is() -> Iterator[None]:
    """Have `status` in this process wait for all rows: after a second it prints them one by one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cpreplicate.output.results.status.PATIENCE", math.inf)
        yield


@pytest.fixture(scope="session", autouse=True)
def no_source_is_lost_however_busy_the_machine_is() -> Iterator[None]:
    """Have commands in this process wait for a source: after seconds they go on without it."""
    source_look = "cpreplicate.operations.replicas.source_look"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"{source_look}._A_CALL", PATIENCE)
        patch.setattr(f"{source_look}._DEADLINE", PATIENCE)
        yield


def pytest_addoption(parser: pytest.Parser) -> None:
    words = "main: each promise once; rest: what main leaves out; all: both"
    parser.addoption("--part", choices=parts.PARTS, default="all", help=words)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave slow modules out where no slow test is run: to import them takes time, too."""
    is_quick = re.fullmatch(r"not \(.*\bslow\)", config.option.markexpr or "")
    return True if is_quick and _is_slow(collection_path) else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect the tests without a garbage collection, and leave them out of later ones: a worker
    holds all tests in memory, and to walk them again and again takes a third of its start.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.freeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests of other parts, mark those that need a server or are slow, and put the
    longest groups first.

    A worker runs a whole group. If a long one started last, the others would wait for it.
    """
    part = config.getoption("--part")
    others = [item for item in items if not parts.belongs(item, part)]
    items[:] = [item for item in items if parts.belongs(item, part)]
    config.hook.pytest_deselected(items=others)
    for item in items:
        for name in _marks_of(item):
            item.add_marker(name)
        if parts.is_rest_twice(item):
            item.add_marker("nightly")
    seconds = _seconds_of_groups(items)
    # stable: the order within a group or file stays
    items.sort(key=lambda item: _seconds(item, seconds), reverse=True)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Note the suites of this process: of a part of one, no states are demanded."""
    config = session.config
    is_whole = not config.option.keyword and not any("::" in each for each in config.args)
    if is_whole:
        _suites.update(map(_suite, session.items))
        by_day = [item for item in session.items if item.get_closest_marker("nightly") is None]
        _at_night.update(_suites.difference(map(_suite, by_day)))


def _suite(item: pytest.Item) -> str:
    return item.path.relative_to(item.config.rootpath).as_posix()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Collect what a worker reached."""
    output = getattr(node, "workeroutput", {})
    reached.reached.update(output.get("reached", {}))
    _suites.update(output.get("suites", ()))
    _at_night.update(output.get("at_night", ()))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Pass on what this worker reached; without workers, or for all of them, judge it."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output.update(
            reached=dict(reached.reached), suites=sorted(_suites), at_night=sorted(_at_night)
        )
    elif _unreached(session.config) and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """List the states that no test has reached: `tests/support/reached.py`."""
    for state in _unreached(config):
        terminalreporter.write_line(f"NEVER REACHED {state}", red=True)


def _unreached(config: pytest.Config) -> list[str]:
    return reached.missing(_suites, config.getoption("--part"), reached.reached, _at_night)


def _marks_of(item: pytest.Item) -> Iterator[str]:
    groups = {group.partition("-")[0] for group in _groups_of(item)}  # "flink" of "flink-packs"
    fixtures = set(getattr(item, "fixturenames", ()))
    for name, starting in _FIXTURES.items():
        if name in groups or starting & fixtures:
            yield name
    if "spark" in groups:
        yield "spark"
    if "kill" in groups or _is_slow(item.path):
        yield "slow"


def _is_slow(path: Path) -> bool:
    folder, module = path.parent.name, path.stem
    return not _SLOW.isdisjoint({folder, module, f"{folder}/{module}"})


def _groups_of(item: pytest.Item) -> set[str]:
    return {mark.args[0] for mark in item.iter_markers("xdist_group")}


def _seconds_of_groups(items: list[pytest.Item]) -> dict[str, float]:
    """Return how long the selected tests of each group take together.

    A group with a file that was never measured comes first, because it may be long.
    """
    seconds: dict[str, float] = defaultdict(float)
    for item in items:
        for group in _groups_of(item):
            seconds[group] += _mean_seconds(item, math.inf)
    return seconds


def _seconds(item: pytest.Item, of_groups: dict[str, float]) -> float:
    """Return the seconds that the test's group takes, or the test itself if it has no group."""
    groups = _groups_of(item)
    if groups:
        return max(of_groups[group] for group in groups)
    return _mean_seconds(item, 0.0)


def _mean_seconds(item: pytest.Item, otherwise: float) -> float:
    return float(_DURATIONS.get(_suite(item), otherwise))


@pytest.fixture
def still_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a sync whose source lacks files not wait whether its `_metadata` goes, too.

    For tests in which nobody deletes at the source meanwhile.
    """
    monkeypatch.setattr(request_of_sync, "SUBSUMPTION_WAIT", 0.0)


@pytest.fixture
def no_collection() -> Iterator[None]:
    """Have no garbage collected: what closes the connections of earlier tests fails amid a parser
    that is nested as deep as Python allows, and a connection left open is an error.
    """
    gc.disable()
    yield
    gc.enable()


@pytest.fixture(autouse=True)
def _new_log() -> None:
    """Begin each test with the log of a new process: commands of others were to write to stderr."""
    log = logging.getLogger("cpreplicate")
    log.handlers.clear()
    log.setLevel(logging.NOTSET)
    log.propagate = True


@pytest.fixture(autouse=True, scope="module")
def _same_hadoop_user() -> Iterator[None]:
    """Restore the user of Hadoop after each module.

    hdfs-native takes the user from the environment only, so a test that is another user would pass
    it on to the next module.
    """
    before = os.environ.get("HADOOP_USER_NAME")
    yield
    os.environ.pop("HADOOP_USER_NAME", None)
    if before is not None:
        os.environ["HADOOP_USER_NAME"] = before
