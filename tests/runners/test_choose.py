"""Which runner carries out a plan, and the reason that is reported."""

import pwd

import pytest

from cpreplicate.errors import CpreplicateError, UsageError
from cpreplicate.runners import (
    ExecutionOptions,
    Read,
    choose_runner,
    seconds_by_spark,
    startup_times,
)
from cpreplicate.runners.choose import runner_choice, spark_speed
from cpreplicate.storage import Sides

CLUSTER = ExecutionOptions(master="spark://driver:7077", parallelism=8)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "cpreplicate" / "spark-start.json"


def chosen(execution, files, size):
    return choose_runner(execution, files, size, Sides())


def test_auto_starts_no_spark_for_little_and_spark_for_much():
    assert chosen(ExecutionOptions(), 10, 1 << 20).name == "inline"
    assert chosen(CLUSTER, 10_000, 1 << 20).name == "spark"
    assert chosen(CLUSTER, 10, 20 << 30).name == "spark"


def test_a_session_on_yarn_is_not_taken_for_as_quick_as_a_local_one():
    conf = (("spark.executor.instances", "4"),)
    on_yarn = ExecutionOptions(master="yarn", conf=conf)
    assert chosen(on_yarn, 3000, 200 << 20).name == "inline"
    assert chosen(on_yarn, 6000, 200 << 20).name == "spark"


def test_what_was_asked_for_is_taken():
    assert chosen(ExecutionOptions(runner="spark"), 1, 1).name == "spark"
    assert (
        chosen(ExecutionOptions(runner="inline", master="spark://driver:7077"), 10**6, 1 << 50).name
        == "inline"
    )


def test_the_reason_names_both_estimates_and_their_origin():
    reason = chosen(CLUSTER, 10, 20 << 30).reason
    assert "10 files of 20.0 GiB" in reason
    assert (
        "inline about 107 s, Spark about 24 s: 12.5 s to start (not measured here yet), then 8.0"
        " times as fast" in reason
    )


def test_a_session_that_took_long_to_start_here_is_worth_less_from_then_on():
    assert chosen(CLUSTER, 10, 4 << 30).name == "spark"
    startup_times.record("spark://driver:7077", 60.0)
    assert chosen(CLUSTER, 10, 4 << 30).name == "inline"
    assert "as measured at its last start here" in chosen(CLUSTER, 10, 4 << 30).reason


def test_the_slots_of_a_cluster_are_computed_from_its_properties():
    properties = (("spark.executor.instances", "10"), ("spark.executor.cores", "4"))
    assert spark_speed(ExecutionOptions(master="yarn", conf=properties)).speedup == 40
    most = (("spark.master", "yarn"), ("spark.cores.max", "6"))
    assert spark_speed(ExecutionOptions(conf=most)).speedup == 6


@pytest.mark.parametrize(
    ("properties", "slots"),
    [
        ({"spark.executor.instances": "4", "spark.executor.cores": "8"}, 32),
        (
            {
                "spark.executor.instances": "4",
                "spark.executor.cores": "8",
                "spark.task.cpus": "8",
            },
            4,
        ),
        ({"spark.cores.max": "8", "spark.task.cpus": "4"}, 2),
        (
            {
                "spark.dynamicAllocation.enabled": "True",
                "spark.dynamicAllocation.maxExecutors": "2",
            },
            2,
        ),
    ],
)
def test_no_more_slots_are_counted_than_there_are_cores_for(properties, slots):
    execution = ExecutionOptions(master="yarn", conf=tuple(properties.items()))
    assert spark_speed(execution).speedup == slots


@pytest.mark.parametrize("name", ["spark.cores.max", "spark.executor.instances", "spark.task.cpus"])
def test_a_property_that_is_no_number_is_named(name):
    execution = ExecutionOptions(master="yarn", conf=((name, "2.5"),))
    with pytest.raises(UsageError, match=f"{name}=2.5 is no whole number"):
        chosen(execution, 3000, 200 << 20)


def test_where_the_bandwidth_is_the_limit_spark_gains_nothing():
    assert runner_choice(CLUSTER, 10, 20 << 30).runner == "spark"
    limited = runner_choice(CLUSTER, 10, 20 << 30, bandwidth=1e6)
    assert limited.runner == "inline"
    assert "inline about 21475 s, Spark about 21475 s" in limited.reason


@pytest.fixture
def without_passwd_entry(monkeypatch):
    def fail(_number):
        raise KeyError("getpwuid(): uid not found")

    monkeypatch.setattr(pwd, "getpwuid", fail)


@pytest.mark.usefixtures("without_passwd_entry")
def test_auto_does_without_spark_under_a_user_id_without_a_passwd_entry():
    runner = chosen(CLUSTER, 10, 20 << 30)
    assert (runner.name, "without a passwd entry" in runner.reason) == ("inline", True)
    assert seconds_by_spark(CLUSTER, 1e9) == float("inf")


@pytest.mark.usefixtures("without_passwd_entry")
def test_auto_takes_spark_that_runs_already_whatever_the_user_id_is(monkeypatch):
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert chosen(CLUSTER, 10, 20 << 30).name == "spark"


@pytest.mark.usefixtures("without_passwd_entry")
def test_spark_that_was_asked_for_names_the_missing_passwd_entry_before_its_jvm_starts():
    runner = chosen(ExecutionOptions(runner="spark"), 1, 1)
    with pytest.raises(CpreplicateError, match="has no passwd entry"), runner:
        runner.run([Read("file:/x", 1)])
