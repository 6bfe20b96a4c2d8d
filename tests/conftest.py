"""Fixtures that several test modules share."""

from tests.support.flink import flink

__all__ = ["flink"]
