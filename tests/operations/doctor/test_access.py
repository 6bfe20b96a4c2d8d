"""What the configuration of a side says, before anything is asked."""

import pytest

from cpreplicate.operations.doctor.access import check_configuration
from cpreplicate.operations.doctor.case import CaseSide
from cpreplicate.storage import Side

HERE, NOWHERE = "localhost:1", "nowhere.invalid:8020"


def place(uri, options=(), configured=()):
    return CaseSide("target", Side((("", tuple(options)),)), uri, configured)


def pair(first, second):
    return [
        ("dfs.ha.namenodes.ns", "nn1, nn2"),
        ("dfs.namenode.rpc-address.ns.nn1", first),
        ("dfs.namenode.rpc-address.ns.nn2", second),
    ]


@pytest.fixture(autouse=True)
def _no_hadoop_here(monkeypatch):
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)


def test_the_namenodes_of_a_nameservice_are_shown_with_where_they_were_configured():
    result = check_configuration(place("hdfs://ns/x", pair(HERE, "localhost:2"), ("/etc/dcB",)))
    assert result.status == "ok"
    nodes = "hdfs://ns is localhost:1, localhost:2"
    assert result.message == f"{nodes}, new files have permission 0644, by /etc/dcB"


def test_one_of_two_names_that_does_not_resolve_is_a_warning():
    result = check_configuration(place("hdfs://ns/x", pair(HERE, NOWHERE)))
    assert result.status == "warning"
    assert f"the host name of {NOWHERE} cannot be resolved" in result.message


def test_names_of_which_none_resolves_fail_with_the_code_of_an_unreachable_storage():
    result = check_configuration(place("hdfs://ns/x", pair(NOWHERE, NOWHERE)))
    assert (result.status, result.exit_code) == ("failed", 7)


def test_a_view_is_shown_by_the_cluster_behind_it():
    table = "fs.viewfs.mounttable.view"
    links = [(f"{table}.link./x", f"hdfs://{HERE}/y"), (f"{table}.linkFallback", f"hdfs://{HERE}/")]
    result = check_configuration(place("viewfs://view/x/replicas", links))
    assert HERE in result.message


def test_a_conf_dir_of_the_environment_that_is_none_is_a_warning(monkeypatch):
    monkeypatch.setenv("HADOOP_CONF_DIR", "/nonexistent")
    result = check_configuration(place(f"hdfs://{HERE}/x"))
    assert result.status == "warning"
    assert "/nonexistent" in result.message
    assert "--target-conf" in (result.remedy or "")
    assert check_configuration(place("file:/x")).status == "ok"
    assert check_configuration(place(f"hdfs://{HERE}/x", (), ("/etc/dcB",))).status == "ok"


def test_the_endpoint_of_s3_is_shown():
    given = [("endpoint_url", "http://127.0.0.1:9"), ("key", "k"), ("secret", "s")]
    assert "http://127.0.0.1:9" in check_configuration(place("s3://bucket/x", given)).message
    assert "the default endpoint" in check_configuration(place("s3://bucket/x")).message
