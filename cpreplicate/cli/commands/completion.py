"""Shell completion: the command `completion`, and what completes for a path."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cpreplicate.cli.commands.replication import cli
from cpreplicate.cli.options.option import PREFIX
from cpreplicate.errors import UsageError

if TYPE_CHECKING:
    from click.shell_completion import ShellComplete

SHELLS = ("bash", "zsh", "fish")
_PROGRAM = "cpreplicate"
_VARIABLE = f"_{PREFIX}_COMPLETE"  # by which the shell asks what completes


@cli.command(
    short_help="Print the completion script of a shell.",
    only_reads=True,
    examples=(
        "cpreplicate completion bash > ~/.local/share/bash-completion/completions/cpreplicate",
        "cpreplicate completion zsh > ~/.zfunc/_cpreplicate",
        "cpreplicate completion fish > ~/.config/fish/completions/cpreplicate.fish",
    ),
    exit_codes={0: "done", 2: "no such shell"},
)
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the script with which a shell completes commands, options, their values and files.

    The shell sources the script, whose directory you may have to create. In bash it needs bash 4.4,
    in zsh `compinit`. For zsh, ~/.zfunc stands for a directory in `fpath`.
    """
    click.echo(_script_of(shell).source(), nl=False)


def _script_of(shell: str) -> ShellComplete:
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    if found is None:
        raise UsageError(f"this version of click has no completion for {shell}")
    return found(cli, {}, _PROGRAM, _VARIABLE)
