"""Each parameter of each public function and class is checked: a wrong type names the parameter."""

import inspect

import pytest

import cpreplicate
from cpreplicate import FleetJob, SyncOptions, errors
from cpreplicate.runners import ExecutionOptions
from tests.support.jobs import JOB

INLINE = SyncOptions(execution=ExecutionOptions(runner="inline"))


class Odd:
    """What no parameter takes: neither a number, a text or a path, nor a sequence or a function."""


@pytest.fixture
def arguments(places, tmp_path):
    """The arguments with which each public name can be called."""
    source, target = places
    cpreplicate.sync(source, target, INLINE)
    replica = tmp_path / "dcB" / JOB
    of_sync = {"source": source, "target": target}
    return {
        "Checkpoint": {"url": "/a"},
        "ExecutionOptions": {},
        "FleetJob": of_sync,
        "Place": {"url": "/a"},
        "Retention": {},
        "SyncOptions": {},
        "fleet": {"jobs": [FleetJob(source, target)]},
        "jobs_below": {"root": tmp_path / "dcA", "target": target},
        "list_points": {"target": target},
        "plan": of_sync,
        "promote": {"replica": replica, "dry_run": True},
        "status": {"target": target},
        "sweep": {"replica": replica, "dry_run": True},
        "sync": of_sync,
        "to_dict": {"result": cpreplicate.status(target)},
        "unseal": {"replica": replica, "no_job_uses_it": True, "dry_run": True},
        "verify": {"replica": replica},
    }


def refusals(name, given):
    """Yield each parameter of a public name with what is raised for a value of a wrong type."""
    called = getattr(cpreplicate, name)
    for parameter in inspect.signature(called).parameters:
        try:
            called(**{**given, parameter: Odd()})
            yield parameter, None
        except Exception as error:  # noqa: BLE001  # the tests name what may be raised
            yield parameter, error


def test_every_parameter_of_a_wrong_type_is_a_usage_error(arguments):
    for name, given in arguments.items():
        for parameter, error in refusals(name, given):
            where = f"{name}({parameter}=…): {error!r}"
            assert isinstance(error, errors.UsageError), where
            assert parameter in str(error), where


def test_every_public_name_that_takes_arguments_is_in_the_test_of_types(arguments):
    results = {"Cancellation", "Snapshot"}  # takes none; is made by the API only
    for name in set(cpreplicate.__all__) - set(arguments) - results:
        each = getattr(cpreplicate, name)
        assert not callable(each) or each.__module__.startswith("cpreplicate.operations."), name


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("ExecutionOptions", {"conf": [("spark.executor.cores", 4)]}),
        ("ExecutionOptions", {"conf": "spark.executor.cores=4"}),
        ("ExecutionOptions", {"engine_timeout": 10**400}),
        ("FleetJob", {"priority": True}),
        ("Place", {"url": " "}),
        ("Place", {"conf_dir": ""}),
        ("SyncOptions", {"kafka_source_conf": "/etc/kafka.properties"}),
        ("fleet", {"jobs": {}}),
        ("jobs_below", {"options": {}}),
        ("promote", {"flink": "http://jobmanager:8081"}),
        ("promote", {"kafka": ""}),
        ("promote", {"kafka_conf": "/etc/kafka.properties"}),
        ("promote", {"not_read": ["Sink: out"]}),
        ("promote", {"same_kafka": True}),
        ("promote", {"source": ""}),
    ],
    ids=str,
)
def test_a_value_that_would_have_another_meaning_or_none_is_a_usage_error(arguments, name, wrong):
    with pytest.raises(errors.UsageError):
        getattr(cpreplicate, name)(**{**arguments[name], **wrong})


def test_a_mistake_in_the_kafka_of_fingerprints_is_found_before_the_sync(places, tmp_path):
    conf = tmp_path / "kafka.properties"
    conf.write_text("no-property-of-kafka=1\n")
    source, target = places
    options = SyncOptions(kafka_source="kafka-a:9092", kafka_source_conf=conf)
    with pytest.raises(errors.UsageError, match="kafka"):
        cpreplicate.plan(source, target, options)
    assert not (tmp_path / "dcB").exists()
