"""What is particular to object stores: how long S3 is waited for, and what a directory is."""

import pytest
import s3fs

from cpreplicate.storage import Side
from cpreplicate.storage.backends.objects.flat_listings import listed
from cpreplicate.storage.backends.objects.objects import ObjectStorage
from cpreplicate.storage.base import Transient
from tests.support.s3 import FaultyProxy, S3Server, side_options
from tests.support.waiting import PATIENCE

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


def test_files_of_a_name_are_found_beside_whatever_objects_other_tools_leave(s3: S3Server):
    bucket = s3.make_bucket("named").removeprefix("s3://")
    client = s3fs.S3FileSystem(**s3.options, use_listings_cache=False)
    for key in ("chk-1/_metadata", "chk-2/a/_metadata", "chk-3/_metadata", "chk-5/_metadata"):
        client.pipe_file(f"{bucket}/r/{key}", b"content")
    for key in ("chk-1", "chk-4"):  # beside a directory, and in place of one
        client.pipe_file(f"{bucket}/r/{key}", b"")
    for key in ("chk-3/", "chk-4/_metadata/", "chk-6//_metadata", "chk-7/_metadata/", "/chk-8/_m"):
        client.call_s3("put_object", Bucket=bucket, Key=f"r/{key}", Body=b"")
    storage = ObjectStorage(f"s3://{bucket}", side_options(s3.endpoint))
    found = storage.files_named(f"s3://{bucket}/r", "chk-", "_metadata", 1)
    assert found is not None
    assert sorted(found) == ["chk-1", "chk-3", "chk-5"]
    for name, status in found.items():
        assert storage.list(f"s3://{bucket}/r/{name}") == [status]


class Truncating(s3fs.S3FileSystem):
    """As a service that cuts a listing short and does not say how it goes on."""

    def call_s3(self, method, **arguments):
        return {**super().call_s3(method, **arguments), "IsTruncated": True}


def test_a_listing_of_which_the_service_does_not_say_how_it_goes_on_counts_for_none(s3: S3Server):
    bucket = s3.make_bucket("truncated").removeprefix("s3://")
    client = s3fs.S3FileSystem(**s3.options, use_listings_cache=False)
    client.call_s3("put_object", Bucket=bucket, Key="r/chk-1/_metadata", Body=b"")
    truncating = Truncating(**s3.options, use_listings_cache=False)
    assert len(listed(client, "s3", bucket, "r/chk-", 9) or ()) == 1
    assert listed(truncating, "s3", bucket, "r/chk-", 9) is None


def test_of_a_bucket_with_versions_the_latest_is_found_and_an_earlier_one_is_as_it_was(
    s3: S3Server,
):
    bucket = s3.make_bucket("versions").removeprefix("s3://")
    client = s3fs.S3FileSystem(**s3.options, use_listings_cache=False)
    client.call_s3(
        "put_bucket_versioning", Bucket=bucket, VersioningConfiguration={"Status": "Enabled"}
    )
    storage = ObjectStorage(f"s3://{bucket}", side_options(s3.endpoint))
    place = {"Bucket": bucket, "Key": "r/chk-1/_metadata"}

    def found():
        return storage.files_named(f"s3://{bucket}/r", "chk-", "_metadata", 1)

    client.call_s3("put_object", Body=b"first", **place)
    first = found()
    version = client.call_s3("put_object", Body=b"other", **place)["VersionId"]
    assert found()["chk-1"].tag != first["chk-1"].tag
    client.call_s3("delete_object", VersionId=version, **place)
    assert found() == first
    client.call_s3("delete_object", **place)
    assert found() == {}


def test_an_object_for_a_directory_gives_it_no_time(s3: S3Server):
    """It would be that of the object, whatever happens in the directory."""
    bucket = s3.make_bucket("untimed")
    storage = ObjectStorage(bucket, side_options(s3.endpoint))
    for key in ("r/chk-1", "r/chk-1/_metadata"):
        storage.put(f"{bucket}/{key}", lambda: [b""])
    assert [each.dated for each in storage.list(f"{bucket}/r")] == [None]


def test_a_small_file_is_read_by_one_request_whose_cut_answer_is_not_taken(s3: S3Server):
    bucket = s3.make_bucket("small")
    with FaultyProxy(s3.endpoint) as proxy:
        options = dict(side_options(proxy.endpoint))
        storage = ObjectStorage(bucket, options, deadline=PATIENCE)
        storage.put(f"{bucket}/file", lambda: [b"0123456789"])
        proxy.heal()
        assert storage.read(f"{bucket}/file", 0, 1 << 16) == b"0123456789"
        with pytest.raises(FileNotFoundError):
            storage.read(f"{bucket}/none", 0, 1 << 16)
        assert [line.partition(" ")[0] for line in proxy.requests] == ["GET", "GET"]
        proxy.cut_response(1, after=4, only="GET")
        with pytest.raises(Transient):
            storage.read(f"{bucket}/file", 0, 1 << 16)
