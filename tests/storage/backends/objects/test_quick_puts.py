"""Small objects that are put without s3fs, on a real S3 server."""

from __future__ import annotations

import pytest
import s3fs

from cpreplicate.storage import Side
from cpreplicate.storage.backends.objects.quick_puts import QuickPuts
from tests.support.s3 import FaultyProxy, S3Server, side_options
from tests.support.waiting import PATIENCE

BUCKET = "quick"
DEADLINE = PATIENCE


@pytest.fixture
def server(s3: S3Server) -> S3Server:
    s3.make_bucket(BUCKET)
    return s3


def quick(endpoint: str, **more: str) -> QuickPuts:
    return QuickPuts(BUCKET, {**side_options(endpoint), **more}, DEADLINE)


@pytest.mark.parametrize("key", ["shared/a", "50%/a?b#c+ü", "a b/c&d=e;f", "chk-1/_metadata"])
def test_an_object_is_put_under_its_literal_name_and_replaced(server, key):
    puts = quick(server.endpoint)
    assert puts.put(key, b"former") is True
    assert puts.put(key, b"content") is True
    client = s3fs.S3FileSystem(**server.options, use_listings_cache=False)
    assert client.cat_file(f"{BUCKET}/{key}") == b"content"


@pytest.mark.parametrize(
    "more",
    [{"anon": "true"}, {"cache_regions": "true"}, {"key": "a\n"}, {"secret": "ü"}],
    ids=str,
)
def test_s3fs_puts_where_an_option_is_given_that_only_it_has_or_explains(server, more):
    assert quick(server.endpoint, **more).put("a", b"") is False


@pytest.mark.parametrize("bucket", ["a b", "ü", ""])
def test_s3fs_explains_what_is_no_bucket(server, bucket):
    assert QuickPuts(bucket, side_options(server.endpoint), DEADLINE).put("a", b"") is False


def test_s3fs_puts_without_credentials_that_are_given(server):
    options = {"endpoint_url": server.endpoint, "region": "us-east-1"}
    assert QuickPuts(BUCKET, options, DEADLINE).put("a", b"") is False


def test_s3fs_puts_what_may_take_longer_than_the_deadline(server):
    puts = quick(server.endpoint)
    assert puts.put("small", bytes(1000)) is True
    assert puts.put("large", bytes(int(DEADLINE * (128 << 10)) + 1)) is False  # without a request


def test_after_three_failures_in_a_row_only_s3fs_puts(server):
    with FaultyProxy(server.endpoint) as proxy:
        puts = quick(proxy.endpoint)
        proxy.slow_down(2)
        assert [puts.put("a", b"") for _ in range(3)] == [False, False, True]
        proxy.slow_down(3)
        assert [puts.put("a", b"") for _ in range(3)] == [False] * 3
        proxy.requests.clear()
        assert puts.put("a", b"") is False
        assert proxy.requests == []


def test_a_storage_puts_small_objects_so_and_s3fs_what_fails(server):
    with FaultyProxy(server.endpoint) as proxy:
        uri = f"s3://{BUCKET}/through the storage"
        options = (*side_options(proxy.endpoint).items(), ("deadline", f"{DEADLINE}s"))
        storage = Side((("s3:", options),)).storage(uri).unwrapped
        assert storage.put(uri, lambda: [b"one"]) == 3
        assert len(proxy.requests) == 1
        proxy.slow_down(1)
        assert storage.put(uri, lambda: [b"two"]) == 3
        assert len(proxy.requests) == 3
        assert storage.read(uri) == b"two"
