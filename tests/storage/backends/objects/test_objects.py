"""What is particular to object stores: how long S3 is waited for, and what a directory is."""

import pytest
import s3fs

from cpreplicate.storage import Side
from cpreplicate.storage.backends.objects.objects import ObjectStorage
from cpreplicate.storage.base import Transient
from tests.support.s3 import FaultyProxy, S3Server, side_options

BUCKET = "markers"


def patience(filesystem):
    return filesystem.config_kwargs["read_timeout"]


def test_a_copy_within_the_service_is_waited_for_longer_than_other_calls():
    """Not every service sends a space now and then while it copies."""
    options = {"endpoint_url": "http://127.0.0.1:1", "key": "a", "secret": "b"}
    storage = ObjectStorage("s3://bucket", options, deadline=2.0)
    assert (patience(storage._fs), patience(storage._copier)) == (2.0, 60.0)
    storage = ObjectStorage("s3://bucket", options, deadline=90.0)
    assert patience(storage._copier) == 90.0


def test_a_directory_is_one_whatever_objects_other_tools_leave_for_it(s3: S3Server):
    """Hadoop and the browser of a service write an empty object, with a slash or without one."""
    s3.make_bucket(BUCKET)
    client = s3fs.S3FileSystem(**s3.options, use_listings_cache=False)
    for key in ("r/one", "r/two", "r/three"):
        client.pipe_file(f"{BUCKET}/{key}/chk-1/_metadata", b"content")
    for key in ("r/one", "r/one/chk-1"):
        client.pipe_file(f"{BUCKET}/{key}", b"")
    client.call_s3("put_object", Bucket=BUCKET, Key="r/two/", Body=b"")
    client.call_s3("put_object", Bucket=BUCKET, Key="r/empty", Body=b"")
    side = Side((("s3:", tuple(side_options(s3.endpoint).items())),))
    storage = side.storage(f"s3://{BUCKET}")
    listed = sorted((each.name, each.is_directory) for each in storage.list(f"s3://{BUCKET}/r"))
    assert listed == [("empty", False), ("one", True), ("three", True), ("two", True)]
    assert [each.name for each in storage.list(f"s3://{BUCKET}/r/one")] == ["chk-1"]
    for name, is_directory in listed:
        status = storage.stat(f"s3://{BUCKET}/r/{name}")
        assert status is not None
        assert status.is_directory == is_directory


def test_a_small_file_is_read_by_one_request_whose_cut_answer_is_not_taken(s3: S3Server):
    bucket = s3.make_bucket("small")
    with FaultyProxy(s3.endpoint) as proxy:
        options = dict(side_options(proxy.endpoint))
        storage = ObjectStorage(bucket, options, deadline=20.0)
        storage.put(f"{bucket}/file", lambda: [b"0123456789"])
        proxy.heal()
        assert storage.read(f"{bucket}/file", 0, 1 << 16) == b"0123456789"
        with pytest.raises(FileNotFoundError):
            storage.read(f"{bucket}/none", 0, 1 << 16)
        assert [line.partition(" ")[0] for line in proxy.requests] == ["GET", "GET"]
        proxy.cut_response(1, after=4, only="GET")
        with pytest.raises(Transient):
            storage.read(f"{bucket}/file", 0, 1 << 16)
