"""Options stand in one table: commands, environment, TOML keys and requests follow from it."""

import click
import pytest
from click.core import ParameterSource

from cpreplicate.cli.commands.replication import cli
from cpreplicate.cli.files.toml_options import options_of
from cpreplicate.cli.options import options
from cpreplicate.cli.options.option import GROUPS
from cpreplicate.cli.running.requests import build, execution_of, planned_sync, sample_of, sides_of
from cpreplicate.core.packs import PackOptions
from cpreplicate.core.retention import Retention
from cpreplicate.errors import UsageError
from cpreplicate.operations.handover.promote import PromoteRequest
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.upkeep.relocate import RelocateRequest
from cpreplicate.operations.upkeep.sweep import SweepRequest
from cpreplicate.operations.verify.verify import NOTHING
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import WriteSettings
from tests.support.option_values import text_of

EACH = [
    (command, each.option)
    for command in cli.commands.values()
    for each in options_of(command).values()
]


def of(command, option):
    return f"{command.name} --{option.name}"


def parse(command, *words):
    """The values of a command line, and the context that has them."""
    context = cli.commands[command].make_context(command, list(words), parent=click.Context(cli))
    return context.params, context


@pytest.mark.parametrize(("command", "option"), EACH, ids=lambda each: each.name)
def test_each_option_can_be_listed_with_all_that_a_reference_page_needs(command, option):
    assert option.help.endswith(".")
    assert option.group in GROUPS
    assert option.kind.name
    assert option.variable(command.name).startswith(f"CPREPLICATE_{command.name.upper()}_")


@pytest.mark.parametrize(("command", "option"), EACH, ids=lambda each: each.name)
def test_each_option_takes_its_environment_variable(command, option, monkeypatch):
    monkeypatch.setenv(option.variable(command.name), text_of(option))
    arguments = sum(isinstance(each, click.Argument) for each in command.params)
    _, context = parse(command.name, *["/a"] * arguments)
    assert context.get_parameter_source(option.field) is ParameterSource.ENVIRONMENT


def test_a_value_of_the_environment_is_not_taken_for_the_field_that_it_fills(monkeypatch):
    monkeypatch.setenv("CPREPLICATE_SYNC_REMAPS", "no remap")
    monkeypatch.setenv("CPREPLICATE_SYNC_MODE", "no mode")
    assert parse("sync", "/a", "/b")[0]["remaps"] == ()


def test_a_command_line_without_options_is_a_request_with_its_defaults():
    values, context = parse("sync", "/a", "/b")
    with context:
        sides = sides_of(values)
        execution = execution_of(values)
        request = planned_sync(values)
    assert execution == ExecutionOptions()
    by = request.stated_by
    expected = SyncRequest("file:/a", "file:/b", sides=sides, execution=execution, stated_by=by)
    assert request == expected
    assert by.command == "cpreplicate sync"
    assert (sides.source.hdfs_client, sides.source.retry_for) == ("native", 60.0)
    assert (sides.target.write, sides.preserve) == (WriteSettings(), False)
    assert request.packing == PackOptions()


@pytest.mark.parametrize(
    ("command", "request_type", "others"),
    [
        ("relocate", RelocateRequest, {}),
        ("sweep", SweepRequest, {}),
        ("promote", PromoteRequest, {"content": NOTHING}),
    ],
)
def test_a_request_about_a_replica_has_the_defaults_of_its_command(command, request_type, others):
    values, _ = parse(command, "/a")
    assert build(request_type, values, **others) == request_type("file:/a")


@pytest.mark.parametrize(
    ("words", "sample"),
    [
        ([], (0.0, 0)),
        (["--content"], (1.0, 0)),
        (["--sample", "5%", "--seed", "3"], (0.05, 3)),
    ],
)
def test_content_and_sample_are_the_share_of_a_sample(words, sample):
    values, context = parse("verify", "/a", *words)
    with context:
        assert sample_of(values) == sample


@pytest.mark.parametrize("command", ["verify", "promote"])
@pytest.mark.parametrize("words", [["--content", "--sample", "5%"], ["--content", "--seed", "3"]])
def test_a_sample_of_everything_and_the_seed_of_no_sample_are_refused(command, words):
    values, context = parse(command, "/a", *words)
    with context, pytest.raises(UsageError, match="--sample"):
        sample_of(values)


@pytest.mark.parametrize(
    ("request_type", "given", "command"),
    [
        (
            SyncRequest,
            {
                "sides",
                "keep",
                "stated_by",
                "packing",
                "execution",
                "subsumption_wait",
                "follows",
                "has_namesake",
                "look_every",
                "savepoint_of",
                "reported_by",
            },
            "sync",
        ),
        (Retention, set(), "sync"),
        (PackOptions, set(), "sync"),
        (ExecutionOptions, {"show"}, "sync"),
        (WriteSettings, set(), "sync"),
        (RelocateRequest, {"side", "execution"}, "relocate"),
        (SweepRequest, {"sides", "execution", "most"}, "sweep"),
        (
            PromoteRequest,
            {"content", "side", "execution", "source", "seen", "clusters", "is_synced"},
            "promote",
        ),
    ],
)
def test_each_field_of_a_request_is_filled_by_a_parameter_of_its_command(
    request_type, given, command
):
    fields = set(request_type.__annotations__) - given
    assert fields <= {parameter.name for parameter in cli.commands[command].params}


def test_a_job_of_a_fleet_has_the_options_of_sync_that_are_about_one_replica():
    of_sync = {name: each.option for name, each in options_of(cli.commands["sync"]).items()}
    for table, keys in options.FLEET_TABLES.items():
        shared = {option for option in keys if option.name in of_sync and option.name != "name"}
        assert {option.name for option in shared} == {
            *("keep", "keep-within", "keep-hourly", "keep-daily"),
            *("allow-older", "same-source", "adopt", "paths", "remap", "source-root"),
            *("pack", "pack-below", "lock-wait", "max-delete", "async-deletes"),
            *("kafka-source", "kafka-source-conf"),
        }
        assert all(of_sync[option.name] is option for option in shared), table
