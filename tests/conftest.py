"""Fixtures that several test modules share."""

import signal

from tests.support.flink import flink

# A shell that starts the tests in the background has them ignore SIGINT, and every process that they start inherits that.
signal.signal(signal.SIGINT, signal.default_int_handler)

__all__ = ["flink"]
