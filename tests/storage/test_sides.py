"""The storages of a side, by their scheme."""

import pytest

from cpreplicate.errors import UsageError
from cpreplicate.storage import Side
from cpreplicate.storage.sides import SCHEMES, register
from tests.support.memory import MemoryStorage
from tests.support.registry import serving


def test_a_registered_factory_gets_the_filesystem_its_options_and_the_side():
    calls = []

    def factory(filesystem, options, side):
        calls.append((filesystem, options, side))
        return MemoryStorage()

    side = Side(options=(("example://a", (("key", "value"),)),))
    assert register("example", factory) is None
    try:
        storage = side.storage("example://a/x")
        assert side.storage("example://a/y") is storage, "one storage a filesystem and side"
        assert side.storage("example://b/x") is not storage
    finally:
        del SCHEMES["example"]
    assert calls == [("example://a", {"key": "value"}, side), ("example://b", {}, side)]


def test_a_scheme_that_is_not_registered_is_a_usage_error_that_lists_the_supported_ones():
    with pytest.raises(UsageError, match=r"the scheme example: is not supported.* file, hdfs,"):
        Side().storage("example://a/x")


def test_a_replaced_factory_can_be_registered_again():
    local = Side().storage("file:/a")
    replacement = MemoryStorage()
    with serving("file", replacement):
        assert Side().storage("file:/a") is replacement
    assert type(Side().storage("file:/a")) is type(local)
