"""`help` and `version`."""

import pytest

from cpreplicate import __version__
from cpreplicate.cli.commands.replication import cli
from tests.support.commandline import printed


@pytest.mark.parametrize("command", [*cli.commands, "config check"])
def test_help_of_a_command_is_its_help(command):
    words = command.split()
    asked, own = printed("help", *words), printed(*words, "--help")
    assert (asked.returncode, asked.stdout) == (0, own.stdout)


def test_help_shows_every_option_if_asked_to():
    assert printed("help", "--all", "sync").stdout == printed("sync", "--help-all").stdout


def test_help_alone_is_that_of_all_commands():
    assert printed("help").stdout == printed("--help").stdout


def test_help_of_exit_codes_has_each_with_its_commands():
    lines = printed("help", "exit-codes").stdout.splitlines()
    codes = {int(line.split()[0]) for line in lines}
    assert codes >= {0, 2, 3, 4, 5, 6, 7, 10, 11, 12, 20, 130}
    assert any(line.startswith(" 12  source moved on") and "sync" in line for line in lines)


def test_an_unknown_topic_names_the_nearest_one():
    done = printed("help", "snyc")
    assert done.returncode == 2
    assert "Did you mean 'sync'?" in done.stderr


def test_version_names_what_a_report_of_a_bug_needs():
    lines = printed("version").stdout.splitlines()
    assert lines[0] == f"cpreplicate {__version__}"
    assert {line.split()[0] for line in lines} >= {"Python", "pyarrow", "hdfs-native"}
    assert printed("-V").stdout == printed("--version").stdout


def test_n_is_dry_run(tmp_path):
    done = printed("sweep", "-n", tmp_path / "absent")
    assert done.returncode == 10
