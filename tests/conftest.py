"""Fixtures that several test modules share."""

import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.support.flink import flink
from tests.support.hdfs import clusters, ha_cluster, hdfs_cluster
from tests.support.s3 import s3

# A shell that starts the tests in the background has them ignore SIGINT, and every process that
# they start inherits that.
signal.signal(signal.SIGINT, signal.default_int_handler)

__all__ = ["clusters", "flink", "ha_cluster", "hdfs_cluster", "s3"]

# JVMs of Spark that start quickly: they take most of the time of the tests that start them. Not for
# measuring.
_QUICKLY = (
    "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData -XX:+UnlockDiagnosticVMOptions"
    " -XX:-BytecodeVerificationRemote"
)
os.environ["SPARK_LAUNCHER_OPTS"] = os.environ["SPARK_SUBMIT_OPTS"] = _QUICKLY

# Time by the clock, which other work on this machine takes from an example; each test has its own
# time limit.
settings.register_profile("no deadline", settings.default, deadline=None)
settings.load_profile("no deadline")

_LONGEST_FIRST = ["hdfs", "flink", "kill", "spark"]  # the marks `xdist_group`


_FIXTURES = {  # what starts a server, by the mark of the tests that need it
    "hdfs": {"hdfs_cluster", "clusters", "ha_cluster"},
    "flink": {"flink"},
    "s3": {"s3"},
}
_SLOW = {  # modules of many seeds, and of processes that are killed
    "test_crash_points",
    "test_races",
    "test_stateful",
    "test_fault_seeds",
    "test_cotenant",
    "test_kill",
    "test_kill_hdfs",
    "test_fuzz",
    "test_cluster",
    "test_yarn",
    "test_protocol",
    "test_runners",
    "test_session",
    "test_spark_lost",
    "test_spark_sync",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs a server or is slow, and have the longest groups first: at the end all would
    wait for them.
    """
    for item in items:
        for name in _marks_of(item):
            item.add_marker(name)
    items.sort(key=_turn)


def _marks_of(item: pytest.Item) -> Iterator[str]:
    groups = {mark.args[0] for mark in item.iter_markers("xdist_group")}
    fixtures = set(getattr(item, "fixturenames", ()))
    yield from (
        name for name, starting in _FIXTURES.items() if name in groups or starting & fixtures
    )
    if "spark" in groups:
        yield "spark"
    if "kill" in groups or item.path.stem in _SLOW:
        yield "slow"


def _turn(item: pytest.Item) -> int:
    names = [mark.args[0] for mark in item.iter_markers("xdist_group")]
    return min(map(_LONGEST_FIRST.index, names), default=len(_LONGEST_FIRST))


@pytest.fixture(autouse=True, scope="module")
def _same_hadoop_user() -> Iterator[None]:
    """hdfs-native takes the user from the environment only, so tests that are another user would
    leave that to the next.
    """
    before = os.environ.get("HADOOP_USER_NAME")
    yield
    os.environ.pop("HADOOP_USER_NAME", None)
    if before is not None:
        os.environ["HADOOP_USER_NAME"] = before
