"""The storages of a side, by their scheme."""

from typing import Any

import pytest

from cpreplicate.errors import UsageError
from cpreplicate.storage import Side, Sides
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


def _side(**options: str) -> Side:
    return Side((("", tuple((name.replace("__", "."), value) for name, value in options.items())),))


_VIEW = "fs__viewfs__mounttable__cmt__link"
_AZURE = "account_name"
ALIKE = {  # one URI, and what it means to two sides
    "the default cluster": (
        "hdfs:/cp/job",
        {"fs__defaultFS": "hdfs://a"},
        {"fs__defaultFS": "hdfs://b"},
    ),
    "a view": (
        "viewfs://cmt/cp/job",
        {f"{_VIEW}__/cp": "hdfs://a/x"},
        {f"{_VIEW}__/cp": "hdfs://b/x"},
    ),
    "another directory of a view": (
        "viewfs://cmt/cp/job",
        {f"{_VIEW}__/cp": "hdfs://a/x"},
        {f"{_VIEW}__/cp": "hdfs://a/y"},
    ),
    "what a view has beside its links": (
        "viewfs://cmt/cp/job",
        {f"{_VIEW}__/tmp": "hdfs://c/", f"{_VIEW}Fallback": "hdfs://a/"},
        {f"{_VIEW}__/tmp": "hdfs://c/", f"{_VIEW}Fallback": "hdfs://b/"},
    ),
    "the root of a view": (
        "viewfs:/cp/job",
        {"fs__defaultFS": "viewfs://cmt", f"{_VIEW}MergeSlash": "hdfs://a/"},
        {"fs__defaultFS": "viewfs://cmt", f"{_VIEW}MergeSlash": "hdfs://b/"},
    ),
    "expressions of a view": (
        "viewfs://cmt/cp/job",
        {f"{_VIEW}Fallback": "hdfs://c/", f"{_VIEW}Regex__^/cp": "hdfs://a:1/"},
        {f"{_VIEW}Fallback": "hdfs://c/", f"{_VIEW}Regex__^/cp": "hdfs://b:1/"},
    ),
    "a link to the default cluster": (
        "viewfs://cmt/cp/job",
        {"fs__defaultFS": "hdfs://a", f"{_VIEW}__/cp/": "hdfs:/x"},
        {"fs__defaultFS": "hdfs://b", f"{_VIEW}__/cp/": "hdfs:/x"},
    ),
    "a bucket of Google": (
        "gs://flink/cp/job",
        {"endpoint_url": "http://a.example"},
        {"endpoint_url": "http://b.example"},
    ),
    "a bucket of Alibaba": ("oss://flink/cp", {"endpoint": "a.example"}, {"endpoint": "b.example"}),
    "a connection of Azure": (
        "abfs://flink/cp/job",
        {"connection_string": "accountname=a;accountkey=a2V5"},
        {"connection_string": "accountname=b;accountkey=a2V5"},
    ),
    "a container of Azure": ("abfs://flink/cp/job", {_AZURE: "a"}, {_AZURE: "b"}),
    "a bucket": (
        "s3://flink/cp/job",
        {"endpoint_url": "http://a.example"},
        {"endpoint_url": "http://b.example"},
    ),
}


@pytest.mark.parametrize(("uri", "one", "other"), ALIKE.values(), ids=ALIKE)
def test_one_uri_is_two_places_where_two_sides_mean_two_clusters_by_it(uri, one, other):
    source, target = _side(**one), _side(**other)
    assert source.place(uri) != target.place(uri)
    assert source.place(uri) == _side(**one).place(uri)
    assert not Sides(source, target).overlap(uri, f"{uri}/below")
    assert Sides(source, source).overlap(uri, f"{uri}/below")
    assert Sides(source, source).overlap(f"{uri}/below", uri)
    assert not Sides(source, source).overlap(uri, f"{uri}s")


@pytest.mark.parametrize(
    ("uri", "options", "other"),
    [
        ("hdfs:/cp/job", {"fs__defaultFS": "hdfs://a"}, "hdfs://a:8020/cp/job"),
        ("viewfs://cmt/cp/job", {f"{_VIEW}__/cp": "hdfs://a/x"}, "hdfs://a/x/job"),
        ("abfs://c/cp", {_AZURE: "mine"}, "abfss://c@mine.dfs.core.windows.net/cp"),
        (
            "abfs://c/cp",
            {"connection_string": "AccountName=mine;AccountKey=a2V5"},
            "abfs://c@mine.dfs.core.windows.net/cp",
        ),
    ],
    ids=["default", "view", "account", "connection"],
)
def test_two_names_of_one_place_are_that_place(uri, options, other):
    side = _side(**options)
    assert side.place(uri) == side.place(other)
    assert Sides(side, side).overlap(uri, f"{other}/below")


def test_a_cluster_behind_a_view_is_reached_by_the_options_of_the_view():
    of_view = (
        (f"{_VIEW}./cp".replace("__", "."), "hdfs://ns/x"),
        ("dfs.ha.namenodes.ns", "a"),
        ("dfs.namenode.rpc-address.ns.a", "nn1:8020"),
    )
    by_table, by_directory = Side((("viewfs://cmt", of_view),)), Side((("", of_view),))
    assert by_table.place("viewfs://cmt/cp/job") == by_directory.place("viewfs://cmt/cp/job")
    assert by_table.namenodes("viewfs://cmt/cp") == ("nn1:8020",)
    assert by_table.namenodes("viewfs://cmt") == ("nn1:8020",)


def test_the_namenodes_of_a_path_without_a_cluster_are_those_of_the_default_one():
    assert _side(fs__defaultFS="hdfs://a:1").namenodes("hdfs:/cp") == ("a:1",)


_OF_MINE = {
    "its name": {"account_name": "Mine", "account_key": "a2V5"},
    "its server": {"account_host": "mine.blob.core.windows.net", "account_key": "a2V5"},
    "a connection string": {"connection_string": "accountname=mine;accountkey=a2V5"},
    "a signature": {
        "connection_string": "BlobEndpoint=https://mine.blob.core.windows.net/;"
        "SharedAccessSignature=sv=1&sig=abc"
    },
}


@pytest.mark.parametrize("options", _OF_MINE.values(), ids=_OF_MINE)
def test_a_uri_that_names_another_account_than_its_options_is_a_usage_error(options):
    side = _side(**options)
    side.place("abfs://c@mine.dfs.core.windows.net/cp")
    with pytest.raises(UsageError, match=r"another account, mine\.blob"):
        side.storage("abfs://c@theirs.dfs.core.windows.net/cp")
    with pytest.raises(UsageError, match="another account"):
        side.place("abfs://c@theirs/cp")


def test_an_account_of_another_cloud_is_another_account():
    side = _side(account_name="mine", account_key="a2V5")
    with pytest.raises(UsageError, match="another account"):
        side.storage("abfs://c@mine.dfs.core.chinacloudapi.cn/cp")
    key = _side(account_key="a2V5")
    place = key.place("abfs://c@mine.dfs.core.chinacloudapi.cn/cp")
    assert place.service == "abfs://c at mine.blob.core.chinacloudapi.cn"


def test_the_account_of_a_uri_needs_no_option():
    side = _side(account_key="a2V5")
    client: Any = side.storage("abfs://c@mine.dfs.core.windows.net/cp").unwrapped
    assert client._fs.account_url == "https://mine.blob.core.windows.net"


def test_no_signature_of_azure_is_in_the_name_of_a_place():
    text = "BlobEndpoint=https://mine.example/?sig=abc;AccountName=mine"
    assert "sig" not in _side(connection_string=text).place("abfs://c/cp").service


def test_a_variable_of_azure_that_decides_nothing_is_none_of_its_matter(monkeypatch):
    for name in ("ANON", "CLIENT_ID", "ACCOUNT_HOST"):
        monkeypatch.setenv(f"AZURE_STORAGE_{name}", "false")
    _side(account_name="unset", account_key="a2V5").storage("abfs://c/cp")


def test_a_variable_that_adlfs_would_prefer_to_the_options_is_a_usage_error(monkeypatch):
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", "AccountName=theirs;AccountKey=a2V5")
    with pytest.raises(UsageError, match="AZURE_STORAGE_CONNECTION_STRING is set"):
        _side(account_name="ours", account_key="a2V5").storage("abfs://c/cp")
