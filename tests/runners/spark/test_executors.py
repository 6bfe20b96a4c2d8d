"""Whether an executor runs what the driver runs."""

from importlib import metadata

import pytest

from cpreplicate.runners.spark.executors import Differs, Needs, check, needs, refuse_unlimited
from cpreplicate.runners.spark.failures import difference
from cpreplicate.storage import Side, Sides
from cpreplicate.storage.backends.objects.clients import PACKAGES, PROTOCOLS


def test_an_executor_like_the_driver_passes():
    # the promise is that nothing is raised
    check(needs(["hdfs", "s3", "file"], Sides()))


def test_it_is_asked_for_the_clients_of_the_storages_that_the_batches_name():
    assert ("hdfs-native", metadata.version("hdfs-native")) in needs(
        ["file", "hdfs"], Sides()
    ).versions
    assert ("s3fs", metadata.version("s3fs")) in needs(["s3a"], Sides()).versions
    hadoop = Sides(Side(hdfs_client="hadoop"), Side(hdfs_client="hadoop"))
    assert "hdfs-native" not in dict(needs(["hdfs"], hadoop).versions)
    assert "hdfs-native" not in dict(needs(["file"], Sides()).versions)


@pytest.mark.parametrize("scheme", PROTOCOLS)
def test_executors_must_have_the_client_of_every_object_store_that_is_supported(scheme):
    assert PACKAGES[PROTOCOLS[scheme]] in dict(needs([scheme], Sides()).versions)


@pytest.mark.parametrize("name", ["Python", "cpreplicate", "hdfs-native"])
def test_another_version_is_reported_in_one_line_with_the_host(name):
    with pytest.raises(
        Differs,
        match=rf"the executor on \S+ has {name} \S+, the driver 0\.0\.1; .*docs/clusters\.md",
    ) as raised:
        check(Needs(((name, "0.0.1"),)))
    assert "\n" not in str(raised.value)


def test_a_package_that_is_not_installed_is_reported():
    with pytest.raises(Differs, match=r"has no-such-package \(none\)"):
        check(Needs((("no-such-package", "1"),)))


def test_a_driver_with_limits_that_is_not_reached_is_reported_in_one_line_with_its_port():
    with pytest.raises(Differs) as raised:
        refuse_unlimited(("driver", 7080))
    assert "does not reach the driver at driver:7080, which holds the run's limits" in str(
        raised.value
    )
    assert difference(Exception(f"…executors.Differs: {raised.value}\n")) == str(raised.value)
