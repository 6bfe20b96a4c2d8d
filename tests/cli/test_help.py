"""Help texts: options under headings, examples, exit codes in ascending order."""

import re
from itertools import chain

import click
import pytest
from click.testing import CliRunner

from cpreplicate.cli.commands import doctor, fleet, maintenance
from cpreplicate.cli.commands.replication import cli
from cpreplicate.cli.files.config import with_options
from cpreplicate.cli.options.option import GROUPS
from cpreplicate.cli.running.advice import DOCUMENTATION
from cpreplicate.cli.running.groups import SECTIONS, GroupedCommand

COMMANDS = sorted(cli.commands)
OPERATIONS = sorted(with_options(cli.commands))  # not `help` and the like
assert doctor.doctor in cli.commands.values()
assert fleet.fleet in cli.commands.values()
assert maintenance.sweep in cli.commands.values()


MOST = 20  # options of a help text


def short_help_of(*words):
    return CliRunner().invoke(cli, [*words, "--help"], prog_name="cpreplicate").stdout


def help_of(*words):
    """The help with every option; that of a command of few options has all of them anyway."""
    option = "--help-all" if set(words) & set(OPERATIONS) else "--help"
    return CliRunner().invoke(cli, [*words, option], prog_name="cpreplicate").stdout


def command_of(name):
    command = cli.commands[name]
    assert isinstance(command, GroupedCommand)
    return command


def options_in(text):
    """The options that a help text shows."""
    return re.findall(r"^  (?:-\w, )?(--[\w-]+)", text, re.MULTILINE)


def sections_of(text):
    """The lines below each heading, by heading."""
    headings = re.findall(r"^(\w[\w ]*):$", text, re.MULTILINE)
    bodies = re.split(r"^\w[\w ]*:$", text, flags=re.MULTILINE)[1:]
    return dict(zip(headings, bodies, strict=True))


def test_options_of_sync_stand_under_headings():
    sections = sections_of(help_of("sync"))
    groups = tuple(group for group in GROUPS if group != "Service")  # it is none
    assert tuple(heading for heading in sections if heading in GROUPS) == groups
    for option, heading in (
        ("--dry-run", "Basics"),
        ("--keep", "Basics"),
        ("--remap", "Paths"),
        ("--hdfs-client", "Storage"),
        ("--runner", "Spark"),
        ("--bandwidth", "Limits"),
        ("--progress", "Output"),
        ("--help", "Output"),
    ):
        assert re.search(rf"^  .*{option}\b", sections[heading], re.MULTILINE), option


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_in_the_help_exactly_once(name):
    options = [item for item in cli.commands[name].params if isinstance(item, click.Option)]
    text = help_of(name)
    for option in options:
        longest = max(option.opts, key=len)
        assert len(re.findall(rf"^  (?:-\w, )?{longest}\b(?!-)", text, re.MULTILINE)) == 1, longest


@pytest.mark.parametrize("name", OPERATIONS)
def test_help_opens_with_two_examples_of_its_command(name):
    text = help_of(name)
    examples = sections_of(text)["Examples"].splitlines()[1:3]
    assert all(line.startswith(f"  cpreplicate {name} ") for line in examples)
    assert text.index("Examples:") < text.index("Output:")


@pytest.mark.parametrize("name", OPERATIONS)
def test_exit_codes_are_in_ascending_order(name):
    codes = re.findall(r"^ +(\d+)  ", sections_of(help_of(name))["Exit codes"], re.MULTILINE)
    assert codes[0] == "0"
    assert [int(code) for code in codes] == sorted({int(code) for code in codes})


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_command_has_the_options_of_its_messages(name):
    output = sections_of(help_of(name))["Output"]
    assert "--progress [auto|bar|lines|ndjson|none]" in output
    assert "-q, --quiet" in output


@pytest.mark.parametrize("name", COMMANDS)
def test_the_summary_of_a_command_is_not_cut_off(name):
    line = next(line for line in help_of().splitlines() if line.startswith(f"  {name} "))
    assert line.endswith(".")
    assert not line.endswith("...")


@pytest.mark.parametrize("name", OPERATIONS)
def test_the_help_shows_what_most_need_and_where_the_rest_is(name):
    command, text = command_of(name), short_help_of(name)
    shown, every = options_in(text), options_in(help_of(name))
    assert len(shown) <= MOST
    assert {f"--{option}" for option in command.essentials} == set(shown) - {"--help", "--help-all"}
    assert set(shown) < set(every)
    assert f"{len(every) - len(shown)} more options: cpreplicate {name} --help-all" in text


@pytest.mark.parametrize("name", OPERATIONS)
def test_no_example_has_an_option_that_the_help_does_not_show(name):
    used = {word for each in command_of(name).examples for word in re.findall(r"--[\w-]+", each)}
    assert used <= set(options_in(short_help_of(name)))


def test_commands_stand_under_the_occasion_for_them():
    sections = sections_of(help_of())
    names = {
        heading: re.findall(r"^  ([\w-]+) ", body, re.MULTILINE)
        for heading, body in sections.items()
    }
    assert names["Daily"] >= ["doctor"]
    assert set(names["Switch"]) == {"promote", "switch", "rebase", "unseal"}
    assert set(names["Repair"]) == {"sweep", "relocate", "forget"}
    assert sorted(chain.from_iterable(map(names.get, SECTIONS))) == COMMANDS


@pytest.mark.parametrize("words", [(), *((name,) for name in COMMANDS)])
def test_a_help_text_names_no_path_of_the_repository(words):
    text = help_of(*words)
    assert "docs/" not in text.replace(DOCUMENTATION, "")
    page = "-".join(["cpreplicate", *words])
    assert text.endswith(f"Documentation:\n  man {page}\n  {DOCUMENTATION}\n")


def test_hdfs3_is_not_offered():
    assert "--hdfs-client [native|hadoop] " in help_of("sync")
    assert "hdfs3" not in help_of("sync")
