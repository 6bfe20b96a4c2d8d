"""Fixtures that several test modules share."""

import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.support.flink import flink
from tests.support.hdfs import clusters, ha_cluster, hdfs_cluster
from tests.support.s3 import s3

# A shell that starts the tests in the background has them ignore SIGINT, and every process that they start inherits that.
signal.signal(signal.SIGINT, signal.default_int_handler)

__all__ = ["clusters", "flink", "ha_cluster", "hdfs_cluster", "s3"]

# JVMs of Spark that start quickly: they take most of the time of the tests that start them. Not for measuring.
_QUICKLY = (
    "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
os.environ["SPARK_LAUNCHER_OPTS"] = os.environ["SPARK_SUBMIT_OPTS"] = _QUICKLY

# Time by the clock, which other work on this machine takes from an example; each test has its own time limit.
settings.register_profile("no deadline", settings.default, deadline=None)
settings.load_profile("no deadline")

_LONGEST_FIRST = ["hdfs", "flink", "kill", "spark"]  # the marks `xdist_group`


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Workers take groups, and tests that are in none, in this order: with the longest at the end all would wait for it."""
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    names = [mark.args[0] for mark in item.iter_markers("xdist_group")]
    return min(map(_LONGEST_FIRST.index, names), default=len(_LONGEST_FIRST))


@pytest.fixture(autouse=True, scope="module")
def _same_hadoop_user() -> Iterator[None]:
    """hdfs-native takes the user from the environment only, so tests that are another user would leave that to the next."""
    before = os.environ.get("HADOOP_USER_NAME")
    yield
    os.environ.pop("HADOOP_USER_NAME", None)
    if before is not None:
        os.environ["HADOOP_USER_NAME"] = before
