"""Fixtures that several test modules share."""

import os
import signal
from collections.abc import Iterator

import pytest

from tests.support.flink import flink
from tests.support.hdfs import clusters, ha_cluster, hdfs_cluster
from tests.support.s3 import s3

# A shell that starts the tests in the background has them ignore SIGINT, and every process that they start inherits that.
signal.signal(signal.SIGINT, signal.default_int_handler)

__all__ = ["clusters", "flink", "ha_cluster", "hdfs_cluster", "s3"]


@pytest.fixture(autouse=True, scope="module")
def _same_hadoop_user() -> Iterator[None]:
    """hdfs-native takes the user from the environment only, so tests that are another user would leave that to the next."""
    before = os.environ.get("HADOOP_USER_NAME")
    yield
    os.environ.pop("HADOOP_USER_NAME", None)
    if before is not None:
        os.environ["HADOOP_USER_NAME"] = before
