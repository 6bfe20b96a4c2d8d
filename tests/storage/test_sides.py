"""The storages of a side, by their scheme."""

import pytest

from cpreplicate.errors import UsageError
from cpreplicate.storage import Side
from tests.support.memory import MemoryStorage
from tests.support.registry import serving


def test_there_is_one_storage_a_filesystem_and_side():
    side = Side(options=(("s3://a", (("endpoint_url", "http://127.0.0.1:9"),)),))
    assert side.storage("s3://a/x") is side.storage("s3://a/y")
    assert side.storage("s3://b/x") is not side.storage("s3://a/x")
    assert Side().storage("s3://a/x") is not side.storage("s3://a/x")


def test_a_scheme_that_no_storage_has_is_a_usage_error_that_lists_the_supported_ones():
    with pytest.raises(UsageError, match=r"the scheme example: is not supported.* file, hdfs,"):
        Side().storage("example://a/x")


def test_a_test_may_replace_the_storage_of_a_scheme_for_a_while():
    local = Side().storage("file:/a")
    replacement = MemoryStorage()
    with serving("file", replacement):
        assert Side().storage("file:/a") is replacement
    assert type(Side().storage("file:/a")) is type(local)


@pytest.mark.parametrize("name", ["fs.defaultFS", "fs.default.name"])
def test_a_path_without_a_cluster_is_of_the_default_filesystem(name):
    side = Side((("", ((name, "hdfs://127.0.0.1:1"),)),))
    assert side.storage("hdfs:/replicas") is not None
    with pytest.raises(UsageError, match="names no cluster"):
        Side().storage("hdfs:/replicas")
