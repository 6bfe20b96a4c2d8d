"""An option that needs a value and is given none ends the command, and nothing is changed.

Every option and argument of every command is tried, as click lists them. Commands share their
options: `make test` tries each of them in some spellings and with some values, which differ from
command to command, and `make test-rest` in all. `test_other_clicks` runs this file with other
versions of click.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from cpreplicate.cli.commands.replication import cli
from cpreplicate.cli.options import kinds
from cpreplicate.cli.options.option import OptionParameter
from tests.support import parts
from tests.support.commandline import printed
from tests.support.jobs import JOB
from tests.support.replicas import FILES, NEXT, synced

MISUSED = 2
NO_VALUES = ("", " ", "-", "-x", "--quiet")
PLACES = {  # of what a test may write into; other arguments are a file that is not there
    "source": f"dcA/{JOB}",
    "target_root": "dcB",
    "target": "dcB",
    "replica": f"dcB/{JOB}",
    "checkpoint": f"dcA/{JOB}/chk-2",
    "later": f"dcA/{JOB}/chk-2",
}


class Command(NamedTuple):
    """A command, and the words that name it."""

    words: tuple[str, ...]
    command: click.Command

    @property
    def options(self) -> list[click.Option]:
        """The options that take a value."""
        found = [each for each in self.command.params if isinstance(each, click.Option)]
        return [each for each in found if not each.is_flag]

    @property
    def arguments(self) -> list[click.Argument]:
        """The arguments."""
        return [each for each in self.command.params if isinstance(each, click.Argument)]

    def places(self, data: Path) -> list[str]:
        """A word for each argument."""
        if self.words == ("watch",):
            return [str(data / PLACES[name]) for name in ("source", "target_root")]
        if self.words[:1] in (("help",), ("completion",)):
            return ["bash" if self.words == ("completion",) else "sync"]
        return [str(data / PLACES.get(str(each.name), "none")) for each in self.arguments]


def commands_of(group: click.Group, *words: str) -> Iterator[Command]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands_of(command, *words, name)
        else:
            yield Command((*words, name), command)


COMMANDS = list(commands_of(cli))
SOME = 7  # of as many command lines, one: of the spellings and values of an option two or three
of_each_command = pytest.mark.parametrize(
    "command", COMMANDS, ids=lambda each: " ".join(each.words)
)
of_all_lines = pytest.mark.parametrize("one_of", [SOME, parts.rest(1, id="all")])


def some(cases, command, one_of):
    """Every so manieth case, from one on that differs from command to command."""
    return list(cases)[COMMANDS.index(command) % one_of :: one_of]


@pytest.fixture
def data(tmp_path, monkeypatch):
    """A job whose replica is a checkpoint behind, so that most commands have something to do."""
    synced(tmp_path, {1: FILES, 2: NEXT})
    metadata = tmp_path / "dcA" / JOB / "chk-2" / "_metadata"
    later = metadata.parent.parent / "chk-3"
    later.mkdir()
    (later / "_metadata").write_bytes(metadata.read_bytes())
    monkeypatch.chdir(tmp_path)  # where a place that is empty would be
    return tmp_path


def tree(directory):
    """Every path below a directory, with its time and content."""
    return {
        path: (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in sorted(directory.rglob("*"))
    }


def mistakes(data, lines, **environment):
    """Run command lines, and return those that did not end as misused; none may change a file."""
    before = tree(data)
    found = []
    for line in lines:
        done = printed(*line, **environment)
        if done.returncode != MISUSED or "unexpected" in done.stderr:
            found.append((done.returncode, line, done.stderr[-200:]))
    assert tree(data) == before, f"one of {lines} changed files; not as misused: {found}"
    return found


def spellings(option):
    return [name for name in option.opts if name.startswith("-")]


@of_all_lines
@of_each_command
def test_no_option_goes_without_its_value(command, one_of, data):
    places = command.places(data)
    lines = []
    for option in command.options:
        for name in spellings(option):
            lines += [
                [*command.words, *places, name],
                *([*command.words, *places, name, value] for value in NO_VALUES),
                *([*command.words, name, value, *places] for value in NO_VALUES),
                *([*command.words, *places, f"{name}={value}"] for value in NO_VALUES),
            ]
    assert mistakes(data, some(lines, command, one_of)) == []


def test_no_option_of_the_program_goes_without_its_value(data):
    options = [each for each in cli.params if isinstance(each, click.Option) and not each.is_flag]
    assert [each.name for each in options] == ["config"]
    sync = ["sync", str(data / PLACES["source"]), str(data / "dcB")]
    lines = [["--config"], ["--config=", *sync]]
    lines += [["--config", value, *sync] for value in NO_VALUES]
    assert mistakes(data, lines) == []


@of_each_command
def test_no_argument_is_empty_or_an_option(command, data):
    places = command.places(data)
    lines = [
        [*command.words, *places[:index], value, *places[index + 1 :]]
        for index in range(len(places))
        for value in ("", " ", "-", "-x")
    ]
    lines += [[*command.words, *("" for _ in places)]] if places else []
    assert mistakes(data, lines) == []


def set_options(command):
    """The options of a command that a variable and a file can set."""
    return [each for each in command.command.params if isinstance(each, OptionParameter)]


@of_all_lines
@of_each_command
def test_no_variable_of_an_option_is_empty_or_begins_with_a_dash(command, one_of, data):
    line = [*command.words, *command.places(data)]
    cases = [
        (each.option.variable(command.words[-1]), value)
        for each in set_options(command)
        for value in (("", " ") if each.is_flag else ("", " ", "-x"))
    ]
    for variable, value in some(cases, command, one_of):
        assert mistakes(data, [line], **{variable: value}) == [], variable


@of_all_lines
@of_each_command
def test_no_key_of_a_file_is_empty_or_begins_with_a_dash(command, one_of, data, tmp_path_factory):
    file = tmp_path_factory.mktemp("config") / "config.toml"
    line = ["--config", str(file), *command.words, *command.places(data)]
    options = [each.option for each in set_options(command) if not each.is_flag]
    cases = [(option.name, value) for option in options for value in ("", " ", "-x")]
    for name, value in some(cases, command, one_of):
        file.write_text(f'[{command.words[-1]}]\n{name} = "{value}"\n')
        assert mistakes(data, [line]) == [], (name, value)


def test_an_empty_variable_of_an_option_that_is_given_is_not_asked(data):
    line = ["sync", data / PLACES["source"], data / "dcB", "--max-delete", "50"]
    assert printed(*line, CPREPLICATE_SYNC_MAX_DELETE="").returncode == 0


def test_the_empty_variable_of_the_file_of_options_means_none(data):
    line = ["sync", data / PLACES["source"], data / "dcB"]
    assert os.environ["CPREPLICATE_CONFIG"] == ""
    assert printed(*line, CPREPLICATE_CONFIG="").returncode == 0


def test_a_number_may_be_negative_where_it_is_no_amount(data):
    of_numbers = {
        option.option.name
        for each in COMMANDS
        for option in each.options
        if isinstance(option, OptionParameter) and option.option.kind is kinds.INTEGER
    }
    assert of_numbers == {"seed"}
    for words in (["--seed", "-3"], ["--seed=-3"]):
        line = ["verify", data / PLACES["replica"], "--sample", "50%", *words]
        assert printed(*line).returncode == 0


@pytest.mark.parametrize(
    ("words", "place"), [(["./-x"], "-x"), (["--", "./-x"], "-x"), (["a -x"], "a -x")]
)
def test_a_path_that_begins_with_a_dash_is_written_with_its_directory(words, place, data):
    assert printed("sync", data / PLACES["source"], *words).returncode == 0
    assert (data / place / JOB).is_dir()


def test_the_message_names_the_option_and_keeps_the_value_which_may_be_a_secret(data):
    line = ["sync", data / PLACES["source"], data / "dcB", "--target-conf"]
    missing = printed(*line, "-password=s3cret")
    assert "Invalid value for '--target-conf': the value is missing, or begins" in missing.stderr
    assert "s3cret" not in missing.stderr
    empty = printed(*line, "")
    assert "the value is empty, as that of a variable that is not set" in empty.stderr


def test_a_value_of_several_lines_in_a_variable_may_end_with_an_empty_one(data):
    line = ["promote", "--all", "--dry-run", data / "dcB"]
    done = printed(*line, CPREPLICATE_PROMOTE_INCLUDE="none-*\n*\n")
    assert (done.returncode, "1 " in done.stdout) == (0, True), done


@pytest.mark.parametrize("word", ["off", "OFF"])
def test_metrics_are_served_nowhere_if_they_are_off(word, data):
    (data / "fleet.toml").write_text(f"[[job]]\nsource = '{data / PLACES['source']}'\ntarget='dcB'")
    words = ["fleet", data / "fleet.toml", "--runner", "inline", "--metrics", word]
    assert printed(*words).returncode == 0  # else it would need --every
