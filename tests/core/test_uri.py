"""Recorded paths mean what Flink's `Path` means by them."""

from functools import partial

import pytest

from cpreplicate.core import uri
from cpreplicate.core.uri import Remap
from cpreplicate.errors import Refused, UsageError

BASE = "hdfs://dcA/flink/job/chk-7"


@pytest.mark.parametrize(
    ("recorded", "place"),
    [
        ("5f1c", f"{BASE}/5f1c"),
        ("../shared/x", "hdfs://dcA/flink/job/shared/x"),
        ("./a//b/", f"{BASE}/a/b"),
        ("file:///x/y", "file:/x/y"),
        ("file:/x//y/", "file:/x/y"),
        ("hdfs://other/a/./b/../c", "hdfs://other/a/c"),
        ("s3a://bucket/_entropy_/x", "s3a://bucket/_entropy_/x"),
        (" hdfs://ns/x ", "hdfs://ns/x"),
        ("hdfs://ns/50% off?#1 ü", "hdfs://ns/50% off?#1 ü"),
    ],
)
def test_a_recorded_path_resolves_as_flink_resolves_it(recorded, place):
    assert uri.resolve(recorded, BASE) == place


def test_a_path_without_scheme_stays_on_the_filesystem_of_its_checkpoint():
    assert uri.resolve("/elsewhere/x", BASE) == "hdfs://dcA/elsewhere/x"


@pytest.mark.parametrize(
    "hostile", ["../" * 9 + "etc/passwd", "file:/../x", "a\0b", "file:x", "hdfs://ns/\ud800"]
)
def test_a_path_that_names_no_file_is_refused(hostile):
    with pytest.raises(Refused):
        uri.resolve(hostile, BASE)


def below(working_directory):
    """What a text means in a working directory."""
    return partial(uri.absolute, working_directory=working_directory)


def test_the_longest_remap_wins_and_whole_components_only():
    texts = ["hdfs://old=hdfs://new", "hdfs://old/a=file:/mnt", "s3a=s3"]
    remaps = uri.parse_remaps(map(uri.remap_pair, texts), below("/"))
    assert uri.remap("hdfs://old/x", remaps) == "hdfs://new/x"
    assert uri.remap("hdfs://old/a/x", remaps) == "file:/mnt/x"
    assert uri.remap("hdfs://old/ab", remaps) == "hdfs://new/ab"
    assert uri.remap("hdfs://older/x", remaps) == "hdfs://older/x"
    assert uri.remap("s3a://bucket/x", remaps) == "s3://bucket/x"


def test_a_local_argument_is_resolved_against_the_working_directory():
    assert uri.absolute("ckpt/../job", "/data") == "file:/data/job"
    assert uri.parse_remaps([("file:/srv", "dcA")], below("/tmp")) == (
        Remap("file:/srv", "file:/tmp/dcA"),
    )


@pytest.mark.parametrize("text", ["nonsense", "=x", "x="])
def test_a_remap_that_is_none_is_a_usage_error(text):
    with pytest.raises(UsageError):
        uri.remap_pair(text)


def test_a_remap_may_be_of_a_directory_with_an_equals_sign():
    remaps = uri.parse_remaps([("file:/env=old", "file:/env=new")], below("/"))
    assert uri.remap("file:/env=old/x", remaps) == "file:/env=new/x"
    for pair in (("", "/a"), ("/a", "")):
        with pytest.raises(UsageError):
            uri.parse_remaps([pair], below("/"))


def test_a_place_is_within_a_directory_a_filesystem_or_a_scheme():
    assert uri.within("hdfs://ns/a/b", "hdfs://ns/a")
    assert uri.within("hdfs://ns/a/b", "hdfs://ns")
    assert uri.within("file:/a", "file:")
    assert uri.within("hdfs:/a", "hdfs:/")
    assert uri.within("hdfs://other/a", "hdfs:")
    assert not uri.within("hdfs://other/a", "hdfs:/")
    assert not uri.within("hdfs://ns2/a", "hdfs://ns")
    assert not uri.within("hdfs://ns/ab", "hdfs://ns/a")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("hdfs://user:pw@nn:8020/a@b", "hdfs://nn:8020/a@b"),
        ("s3://key:se/cr+et@bucket/a@b", "s3://bucket/a@b"),
        ("https://user:p@ss@jm:8081/x", "https://jm:8081/x"),
        ("hdfs://nn:8020/a@b", "hdfs://nn:8020/a@b"),
        ("http://[::1]:8081/a@b", "http://[::1]:8081/a@b"),
        ("abfss://c@account/x:y@z", "abfss://c@account/x:y@z"),
        ("file:///a:b/c@d", "file:///a:b/c@d"),
        ("(http://nn:80), b@c", "(http://nn:80), b@c"),
    ],
)
def test_the_user_and_the_password_of_a_uri_are_masked_and_nothing_else(text, shown):
    assert uri.without_password(text) == shown
