"""`completion`: what bash, zsh and fish complete with the script, each as its users install it."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from cpreplicate.cli.commands import completion
from cpreplicate.cli.commands.replication import cli
from cpreplicate.cli.options.option import OptionParameter
from tests.support.commandline import printed

ZSH = Path(__file__).parents[2] / "support" / "completing.zsh"
NAMES = {"bash": "cpreplicate", "zsh": "_cpreplicate", "fish": "cpreplicate.fish"}
each_shell = pytest.mark.parametrize(
    "shell",
    [
        "bash",
        pytest.param("zsh", marks=pytest.mark.shells),
        pytest.param("fish", marks=pytest.mark.shells),
    ],
)
# as bash-completion loads the file and calls the function that it registers
BASH = """
source "$1"
registered=$(complete -p cpreplicate) && [[ $registered =~ -F\\ ([^ ]+) ]] || exit 1
eval "COMP_WORDS=($2)"
[[ $2 != *' ' ]] || COMP_WORDS+=('')
COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 ))
compopt() { compgen -f -- "${COMP_WORDS[COMP_CWORD]}"; }
"${BASH_REMATCH[1]}" cpreplicate
[ ${#COMPREPLY[@]} = 0 ] || printf '%s\\n' "${COMPREPLY[@]}"
"""


def run(words, environment, **options):
    done = subprocess.run(
        list(map(str, words)),
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        stdin=subprocess.DEVNULL,
        **options,
    )
    return done.stdout


class Shell:
    """A shell in which the script is installed."""

    def __init__(self, name, directory):
        self._name, self._directory = name, directory
        (directory / "bin").mkdir()
        program = directory / "bin" / "cpreplicate"
        program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m cpreplicate "$@"\n')
        program.chmod(0o755)
        path = f"{program.parent}:{os.environ['PATH']}"
        self.environment = {**os.environ, "PATH": path, "HOME": str(directory), "TERM": "dumb"}
        self._script = directory / NAMES[name]
        self._script.write_text(run([program, "completion", name], self.environment))

    def completes(self, line):
        """The words that a command line is completed to, without their descriptions."""
        if self._name == "bash":
            words = ["bash", "--norc", "-c", BASH, "bash", self._script, line]
        elif self._name == "zsh":
            words = ["zsh", "-f", ZSH, self._directory, line]
        else:
            command = f"source {self._script}; complete -C {shlex.quote(line)}"
            words = ["fish", "--no-config", "-c", command]
        lines = run(words, self.environment, cwd=self._directory).splitlines()
        return {line.partition("\t")[0] for line in lines}


@each_shell
def test_a_shell_completes_commands_options_values_and_files(shell, tmp_path):
    installed = Shell(shell, tmp_path)
    (tmp_path / "jobs.toml").touch()
    assert installed.completes("cpreplicate sy") == {"sync"}
    assert {"sync", "fleet", "config"} <= installed.completes("cpreplicate ")
    assert installed.completes("cpreplicate config ") == {"check", "schema"}
    assert installed.completes("cpreplicate sync --runn") == {"--runner"}
    assert installed.completes("cpreplicate sync --runner ") == {"auto", "inline", "spark"}
    assert installed.completes("cpreplicate sync --hdfs-client n") == {"native"}
    assert installed.completes("cpreplicate fleet jo") == {"jobs.toml"}
    assert installed.completes("cpreplicate sync --config jo") == {"jobs.toml"}


@each_shell
def test_a_file_of_options_with_a_mistake_does_not_keep_a_shell_from_completing(shell, tmp_path):
    installed = Shell(shell, tmp_path)
    broken = tmp_path / ".config" / "cpreplicate" / "config.toml"
    broken.parent.mkdir(parents=True)
    broken.write_text("[sync]\nkepp =\n")
    del installed.environment["CPREPLICATE_CONFIG"]
    assert installed.completes("cpreplicate sy") == {"sync"}
    assert installed.completes("cpreplicate sync --runner i") == {"inline"}


@pytest.mark.parametrize("words", [("completion", "bash"), ("version",), ("help", "sync")])
def test_a_file_of_options_with_a_mistake_does_not_matter_to_what_uses_none(words, tmp_path):
    (tmp_path / "c.toml").write_text("[sync]\nkepp = 3\n")
    done = printed(*words, CPREPLICATE_CONFIG=str(tmp_path / "c.toml"))
    assert (done.returncode, done.stderr) == (0, "")


def test_a_file_behind_a_command_replaces_one_with_a_mistake(tmp_path):
    (tmp_path / "c.toml").write_text("[sync]\nkepp = 3\n")
    (tmp_path / "d.toml").write_text("[sweep]\nverbose = true\n")
    words = ("sweep", tmp_path / "absent", "--config", tmp_path / "d.toml")
    assert printed(*words, CPREPLICATE_CONFIG=str(tmp_path / "c.toml")).returncode == 10
    done = printed(*words[:2], CPREPLICATE_CONFIG=str(tmp_path / "c.toml"))
    assert (done.returncode, "c.toml:2: unknown key 'kepp'" in done.stderr) == (2, True)


def test_an_unknown_shell_is_a_mistake():
    done = printed("completion", "tcsh")
    assert (done.returncode, done.stdout) == (2, "")
    assert "'bash', 'zsh', 'fish'" in done.stderr


def completed(command, parameter):
    context = click.Context(command, info_name=command.name, parent=click.Context(cli))
    return parameter.shell_complete(context, "")


@pytest.mark.parametrize("name", sorted(cli.commands))
def test_a_shell_completes_each_argument_and_each_choice(name):
    command = cli.commands[name]
    arguments = [each for each in command.params if isinstance(each, click.Argument)]
    choices = [
        each
        for each in command.params
        if isinstance(each, OptionParameter) and each.option.kind.name == "choice"
    ]
    for parameter in (*arguments, *choices):
        assert completed(command, parameter), parameter


def test_completion_imports_nothing_that_is_slow():
    words = "import sys, runpy; sys.argv = ['cpreplicate']\n"
    words += "try: runpy.run_module('cpreplicate', run_name='__main__')\n"
    words += "finally: print(sorted(m for m in sys.modules if '.' not in m), file=sys.stderr)"
    asked = {"_CPREPLICATE_COMPLETE": "bash_complete", "COMP_WORDS": "cpreplicate sync --"}
    done = subprocess.run(
        [sys.executable, "-c", words],
        env={**os.environ, **asked, "COMP_CWORD": "2"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "plain,--dry-run" in done.stdout.splitlines()
    imported = done.stderr
    assert not [name for name in ("numpy", "pyarrow", "fsspec", "rich") if repr(name) in imported]


def test_the_script_is_that_of_click():
    for shell in completion.SHELLS:
        script = CliRunner().invoke(cli, ["completion", shell]).stdout
        assert f"_CPREPLICATE_COMPLETE={shell}_complete" in script


def test_the_lines_of_the_readme_write_the_scripts_in_a_fresh_home(tmp_path):
    readme = (Path(__file__).parents[3] / "README.md").read_text()
    (block,) = re.findall(r"(?:^    .*\n)*^    .*completion bash >.*\n(?:^    .*\n)*", readme, re.M)
    program = f'cpreplicate() {{ {shlex.quote(sys.executable)} -m cpreplicate "$@"; }}\n'
    environment = {**os.environ, "HOME": str(tmp_path)}
    subprocess.run(["bash", "-euc", program + block], env=environment, check=True)
    scripts = {path.name for path in tmp_path.rglob("*") if path.is_file()}
    assert scripts == set(NAMES.values())
