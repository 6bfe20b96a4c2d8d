"""A variable CPREPLICATE_… that sets nothing ends a command before it does anything."""

import os
import subprocess
import sys

import pytest

from cpreplicate.cli.commands.replication import cli
from cpreplicate.cli.files.toml_options import options_of
from cpreplicate.cli.running.environment import known
from tests.support.commandline import printed
from tests.support.jobs import JOB
from tests.support.replicas import FILES, synced
from tests.support.waiting import PATIENCE

WITH_OPTIONS = [name for name, command in cli.commands.items() if options_of(command)]


@pytest.fixture
def data(tmp_path):
    synced(tmp_path, {1: FILES})
    return tmp_path


def arguments(name):
    needed = {
        "help": [],
        "completion": ["bash"],
        "version": [],
        "spark-script": [],
        "config": ["schema"],
    }
    count = 2 if name in ("sync", "diff", "watch", "doctor") else 1
    return needed.get(name, ["/nowhere/a"] * count)


@pytest.mark.parametrize("name", WITH_OPTIONS)
def test_an_unknown_variable_ends_each_command_with_options(name):
    done = printed(name, *arguments(name), CPREPLICATE_SYNC_KEPT="3")
    assert (done.returncode, "CPREPLICATE_SYNC_KEPT sets nothing" in done.stderr) == (2, True)


def test_nothing_was_done(data):
    words = ["sync", data / "dcA" / JOB, data / "new"]
    assert printed(*words, CPREPLICATE_SYNC_KEPT="3").returncode == 2
    assert not (data / "new").exists()
    assert printed(*words).returncode == 0


@pytest.mark.parametrize("name", sorted({*cli.commands} - {*WITH_OPTIONS}))
def test_a_command_without_options_does_not_ask_the_environment(name):
    assert printed(name, *arguments(name), CPREPLICATE_SYNC_KEPT="3").returncode == 0


@pytest.mark.parametrize("name", [[], *([name] for name in cli.commands)])
def test_help_is_printed_whatever_is_set(name):
    assert printed(*name, "--help", CPREPLICATE_SYNC_KEPT="3").returncode == 0


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("CPREPLICATE_SYNC_KEPT", "CPREPLICATE_SYNC_KEEP"),
        ("CPREPLICATE_SNYC_KEEP_DAILY", "CPREPLICATE_SYNC_KEEP_DAILY"),
        ("CPREPLICATE_WATCH_HEADERS", "CPREPLICATE_WATCH_HEADER"),
        ("CPREPLICATE_MAX_DELETE", "CPREPLICATE_SYNC_MAX_DELETE"),
        ("CPREPLICATE_SYNC_REMAPS", "CPREPLICATE_SYNC_REMAP"),
        ("CPREPLICATE_CONFIGURATION", "CPREPLICATE_CONFIG"),
        ("CPREPLICATE_STOPWITHIN", "CPREPLICATE_STOP_WITHIN"),
    ],
)
def test_the_nearest_variable_is_named(name, near):
    done = printed("status", "/nowhere", **{name: "s3cret"})
    assert f"{name} sets nothing. Did you mean {near}? Correct it, or unset it" in done.stderr
    assert "s3cret" not in done.stderr


@pytest.mark.parametrize(
    "name",
    ["CPREPLICATE_X", "CPREPLICATE_DEBUG", "CPREPLICATE_VERSION", "CPREPLICATE_", "CPREPLICATE__"],
)
def test_what_is_like_no_variable_is_refused_too(name):
    done = printed("status", "/nowhere", **{name: ""})
    assert (done.returncode, f"{name} sets nothing" in done.stderr) == (2, True)


def test_each_variable_of_an_option_is_known():
    names = set(known(cli.commands.values()))
    for name, command in cli.commands.items():
        assert {each.option.variable(name) for each in options_of(command).values()} <= names


@pytest.mark.parametrize(
    "name", ["CPREPLICATE_SYNC_KEEP", "CPREPLICATE_STOP_WITHIN", "CPREPLICATE_PYTHON"]
)
def test_a_variable_of_another_command_is_no_mistake(name, data):
    assert printed("status", data / "dcB", **{name: "3"}).returncode == 0


@pytest.mark.parametrize("service", ["", "_METRICS", "_WATCH", "_FLEET_0"])
def test_the_variables_that_kubernetes_sets_for_a_service_are_no_mistake(service, data):
    links = {
        "SERVICE_HOST": "10.0.0.7",
        "SERVICE_PORT": "9464",
        "SERVICE_PORT_METRICS": "9464",
        "PORT": "tcp://10.0.0.7:9464",
        "PORT_9464_TCP": "tcp://10.0.0.7:9464",
        "PORT_9464_TCP_PROTO": "tcp",
        "PORT_9464_TCP_PORT": "9464",
        "PORT_9464_TCP_ADDR": "10.0.0.7",
    }
    given = {f"CPREPLICATE{service}_{name}": value for name, value in links.items()}
    assert printed("status", data / "dcB", **given).returncode == 0
    assert not {*given} & {*known(cli.commands.values())}


def test_a_shell_completes_whatever_is_set():
    environment = {
        **os.environ,
        "_CPREPLICATE_COMPLETE": "bash_complete",
        "COMP_WORDS": "cpreplicate sync --keep-da",
        "COMP_CWORD": "2",
        "CPREPLICATE_SYNC_KEPT": "3",
        "CPREPLICATE_SYNC_KEEP_DAILY": "",
    }
    done = subprocess.run(
        [sys.executable, "-m", "cpreplicate"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert (done.stdout, done.stderr) == ("plain,--keep-daily\n", "")


def test_a_failure_by_the_environment_is_reported_in_the_form_that_was_asked_for():
    done = printed("status", "/nowhere", "--output", "json", CPREPLICATE_SYNC_KEPT="3")
    assert '"exit_code": 2' in done.stdout
