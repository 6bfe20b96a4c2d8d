"""The options and pages that a message names are ones that its reader has."""

import re

import pytest

from cpreplicate.cli.commands.replication import cli
from cpreplicate.cli.files.config import with_options
from cpreplicate.cli.running.advice import advised
from cpreplicate.cli.running.groups import GroupedCommand
from tests.support.commandline import printed
from tests.support.jobs import JOB, write_checkpoint
from tests.support.raised import raised

COMMANDS = with_options(cli.commands)
OPTION = re.compile(r"(?<![\w-])--[a-z]+(?:-[a-z]+)*")


def options_of(command):
    return {option for parameter in command.params for option in parameter.opts}


def shown(name, message):
    command = cli.commands[name]
    assert isinstance(command, GroupedCommand)
    return advised(message, command, cli.commands, command.keys)


def having(option):
    return {name for name, command in COMMANDS.items() if option in options_of(command)}


@pytest.mark.parametrize("name", COMMANDS)
def test_each_option_of_a_message_is_one_of_the_command_or_has_its_command_beside_it(name):
    for each in raised():
        message = shown(name, each.text)
        for option in OPTION.findall(message):
            others = having(option)
            if others and name not in others:
                said = [part for part in message.split(". ") if option in part]
                words = [set(re.findall(r"[a-z]+", part.lower())) for part in said]
                assert any(not others.isdisjoint(part) for part in words), message


def test_an_option_of_another_command_is_named_with_it():
    message = "x does not answer. Let the job retain more, or raise --bandwidth"
    assert shown("sync", message) == message
    noted = "--wait-for-source is an option of `cpreplicate watch`"
    assert (
        shown("sync", "no job. Give --wait-for-source")
        == f"no job. Give --wait-for-source. {noted}"
    )
    assert shown("sync", shown("sync", f"Give --wait-for-source. {noted}")).count(noted) == 1
    named = "Run `cpreplicate relocate R --moved-from OLD`"
    assert shown("sync", named) == named


def test_a_key_of_a_file_of_jobs_is_named_as_the_file_has_it():
    assert shown(
        "fleet", "Run again with --remap hdfs://a=hdfs://b instead of --remap 'c d=e'."
    ) == (
        'Run again with `remap = "hdfs://a=hdfs://b"` in its table of the file instead of'
        ' `remap = "c d=e"` in its table of the file.'
    )
    assert '`remap = ["a=b", "c=d"]`' in shown("fleet", "with --remap a=b --remap c=d. Missing")
    assert "give a higher `max-delete`" in shown("fleet", "give a higher --max-delete")
    stated = "--keep-daily 30, stated by `cpreplicate sync` of root"
    assert stated in shown("fleet", f"--keep 3 is less than what is recorded: {stated}")
    assert "give --allow-older" in shown("fleet", "give --allow-older"), "fleet has it, too"


def test_a_page_of_the_documentation_has_its_address():
    address = "https://github.com/cpreplicate/cpreplicate/blob/main/docs/clusters.md"
    assert shown("sync", "see docs/clusters.md") == f"see {address}"


class TestAFleetWhoseSourceWasMoved:
    @pytest.fixture
    def directory(self, tmp_path):
        """Two jobs, recorded below one root, that are read from another one; and their file."""
        for name in ("one", "two"):
            write_checkpoint(tmp_path / "old" / name, 1, {"shared/a": 5, "chk-1/x": 7})
        (tmp_path / "old").rename(tmp_path / "new")
        self.write(tmp_path)
        return tmp_path

    @staticmethod
    def write(directory, line=""):
        tables = (
            f'[[job]]\nname = "{name}"\nsource = "{directory}/new/{name}/{JOB}"\n'
            f'target = "{directory}/to/{name}"\n{line}\n'
            for name in ("one", "two")
        )
        (directory / "jobs.toml").write_text("\n".join(tables))

    def test_gets_the_line_that_solves_it_once_for_all_jobs(self, directory):
        failed = printed("fleet", directory / "jobs.toml")
        assert failed.returncode == 10
        assert "2 jobs, one cause: one; two" in failed.stdout
        (line,) = set(re.findall(r"`(remap = .*?)`", failed.stdout))
        self.write(directory, line)
        done = printed("fleet", directory / "jobs.toml")
        assert done.returncode == 0, done.stdout
        assert "replicated  2 jobs" in done.stdout


@pytest.mark.parametrize("job", ["orders", "0123"])
def test_unseal_names_its_option_for_the_name_of_a_job(tmp_path, job):
    write_checkpoint(tmp_path / "dcA", 1, {"shared/a": 5})
    printed("sync", "--name", "orders", tmp_path / "dcA" / JOB, tmp_path / "dcB")
    done = printed("unseal", tmp_path / "dcB", "--job", job, cwd=tmp_path)
    assert done.returncode == 2
    assert f"give --replica-of {job}" in done.stderr
    other = printed("unseal", tmp_path / "dcB", "--replica-of", "01", "--no-job-uses-it")
    assert "--replica-of 01: an id is selected by" in other.stderr
