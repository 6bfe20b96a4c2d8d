"""Fixtures that several test modules share."""

import signal

from tests.support.flink import flink
from tests.support.hdfs import clusters, ha_cluster, hdfs_cluster
from tests.support.s3 import s3

# A shell that starts the tests in the background has them ignore SIGINT, and every process that they start inherits that.
signal.signal(signal.SIGINT, signal.default_int_handler)

__all__ = ["clusters", "flink", "ha_cluster", "hdfs_cluster", "s3"]
