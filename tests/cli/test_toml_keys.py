"""Each key that a TOML file may hold reaches the command, or the job, that it is about."""

import ast
import json
from inspect import signature
from pathlib import Path

import click
import pytest
from click.core import ParameterSource

import cpreplicate.cli
from cpreplicate.cli.commands.fleet import _configured
from cpreplicate.cli.commands.replication import cli
from cpreplicate.cli.files.toml_file import TomlFile
from cpreplicate.cli.files.toml_options import by_name, is_general, options_of, parameters_of
from cpreplicate.cli.options import options
from cpreplicate.cli.options.kinds import FLAG
from cpreplicate.cli.running.services import FollowOptions, ServiceOptions
from cpreplicate.core.packs import PackOptions
from cpreplicate.core.retention import Retention
from cpreplicate.operations.handover.promote import PromoteRequest
from cpreplicate.operations.handover.promote_all import PromoteAllRequest
from cpreplicate.operations.handover.unseal_all import UnsealAllRequest
from cpreplicate.operations.kafka.rebase import RebaseRequest
from cpreplicate.operations.replicas.forget import ForgetRequest
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.upkeep.relocate import RelocateRequest
from cpreplicate.operations.upkeep.sweep import SweepRequest
from cpreplicate.operations.verify.verify import Sample
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import Side, Sides, WriteSettings
from tests.support import parts
from tests.support.option_values import text_of, toml_of

COMMANDS = {name: each for name, each in cli.commands.items() if options_of(each)}
BUILT = (
    *(FollowOptions, ServiceOptions, PackOptions, Retention, SyncRequest, PromoteRequest),
    *(PromoteAllRequest, UnsealAllRequest, RebaseRequest, RelocateRequest, SweepRequest, Sample),
    *(ForgetRequest, ExecutionOptions, Side, Sides, WriteSettings),
)
OF_SIDES = {  # read by names that are made of these words
    f"{side}_{what}" for side in ("source", "target") for what in ("conf", "keytab", "principal")
}
MODULES = sorted(Path(cpreplicate.cli.__file__).parent.rglob("*.py"))


def places(command):
    return ["/a" for each in command.params if isinstance(each, click.Argument) and each.required]


def parsed(name, file, *words):
    """The context of a command with a file of options."""
    root = cli.make_context("cpreplicate", ["--config", str(file), name], resilient_parsing=False)
    with root:
        command = cli.commands[name]
        return command.make_context(name, [*places(command), *words], parent=root)


def written(path, table, key, value):
    path.write_text(f"[{table}]\n{key} = {json.dumps(value)}\n")
    return path


def on_command_line(name, option):
    command = cli.commands[name]
    value = [] if option.kind is FLAG else [text_of(option)]
    words = [*places(command), f"--{option.name}", *value]
    return command.make_context(name, words, parent=click.Context(cli)).params[option.field]


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("spelling", ["-", parts.rest("_")])
def test_a_key_of_a_command_is_what_its_option_is(name, spelling, tmp_path):
    for key, each in options_of(COMMANDS[name]).items():
        if spelling == "_" and "-" not in key:
            continue  # spelled one way only
        option = each.option
        file = written(tmp_path / "c.toml", name, key.replace("-", spelling), toml_of(option))
        context = parsed(name, file)
        assert context.get_parameter_source(option.field) is ParameterSource.DEFAULT_MAP, key
        assert context.params[option.field] == on_command_line(name, option), key


@pytest.mark.parametrize("name", COMMANDS)
def test_a_key_of_all_commands_is_what_the_option_of_each_is(name, tmp_path):
    general = {key for key, having in by_name(COMMANDS).items() if is_general(having.values())}
    for key in general.intersection(options_of(COMMANDS[name])):
        option = options_of(COMMANDS[name])[key].option
        context = parsed(name, written(tmp_path / "c.toml", "options", key, toml_of(option)))
        assert context.params[option.field] == on_command_line(name, option), key


@pytest.mark.parametrize(
    ("name", "key"),
    [
        (name, each)
        for name, command in COMMANDS.items()
        for each in sorted({*parameters_of(command)} - {*options_of(command)})
    ],
)
def test_an_argument_may_stand_in_the_table_of_its_command(name, key, tmp_path):
    command = cli.commands[name]
    keys = [each.name.replace("_", "-") for each in command.params if each.name in vars_of(command)]
    lines = "\n".join(f'{each} = "/in/file"' for each in keys)
    (tmp_path / "c.toml").write_text(f"[{name}]\n{lines}\n")
    root = cli.make_context("cpreplicate", ["--config", str(tmp_path / "c.toml"), name])
    with root:
        context = command.make_context(name, [], parent=root)
    assert str(context.params[key.replace("-", "_")]).endswith("/in/file")


def vars_of(command):
    return {each.name for each in command.params if isinstance(each, click.Argument)}


# the jobs of a fleet


def configured(path, text):
    path.write_text(text)
    with click.Context(cli):
        return _configured(TomlFile(str(path)), Sides(), {}, {})


IN_TABLES = [(table, each) for table, keys in options.FLEET_TABLES.items() for each in keys]


@pytest.mark.parametrize(
    ("table", "option"), IN_TABLES, ids=lambda each: getattr(each, "name", each)
)
def test_a_key_of_a_fleet_changes_the_jobs_that_it_is_about(table, option, tmp_path):
    line = f"{option.name} = {json.dumps(toml_of(option))}\n"
    if option.name == "kafka-source-conf":  # it is read, for the Kafka that is named beside it
        (tmp_path / "client.properties").write_text("client.id=a\n")
        conf = json.dumps(str(tmp_path / "client.properties"))
        line = f'kafka-source = "k:9092"\n{option.name} = {conf}\n'
    known = 'source = "/a/job"\n' if option.name != "source" else ""
    target = 'target = "/b"\n' if option.name != "target" else ""
    kinds = {"job": ("job",), "root": ("root",), "defaults": ("job", "root")}[table]
    for kind in kinds:
        if (kind, option.name) == ("job", "exclude"):
            continue  # of roots
        if table == "defaults":
            text = f"[defaults]\n{line}[[{kind}]]\n{known}{target}"
        else:
            text = f"[[{kind}]]\n{known}{target}{line}"
        plain = f'[[{kind}]]\nsource = "/a/job"\ntarget = "/b"\n'
        file = tmp_path / "fleet.toml"
        assert configured(file, text) != configured(file, plain), kind


# what is done with a value


def names_read():
    """Every text and every parameter of the modules of the command line."""
    for module in MODULES:
        for node in ast.walk(ast.parse(module.read_text())):
            if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
                yield str(node.slice.value)
            elif isinstance(node, ast.Call):
                yield from (str(x.value) for x in node.args if isinstance(x, ast.Constant))


@pytest.mark.parametrize("name", COMMANDS)
def test_each_value_is_a_parameter_a_field_of_a_request_or_read_by_its_name(name):
    callback = COMMANDS[name].callback
    parameters = set(callback.__code__.co_varnames[: callback.__code__.co_argcount])
    fields = {field for kind in BUILT for field in signature(kind).parameters}
    filled = {each.option.field for each in options_of(COMMANDS[name]).values()}
    assert filled - parameters - fields - OF_SIDES - {*names_read()} == set()
