"""The commands about the TOML file of options."""

from __future__ import annotations

import json
import os

import click

from cpreplicate.cli.commands.replication import cli
from cpreplicate.cli.files.config import MACHINE, VARIABLE, read_file, used_file
from cpreplicate.cli.files.config_schema import schema
from cpreplicate.cli.options.option import files, given
from cpreplicate.cli.running import groups
from cpreplicate.core.sizes import counted
from cpreplicate.errors import NotThere


@cli.group("config", cls=groups.Commands, short_help="Check the file of options.")
def config() -> None:
    """Check the TOML file of options, and print its schema for an editor."""


@config.command(
    short_help="Check a file of options.",
    only_reads=True,
    examples=("cpreplicate config check", "cpreplicate config check ./config.toml"),
    exit_codes={0: "no mistake", 2: "a mistake, with its line", 10: "there is no such file"},
)
@click.argument("file", required=False, callback=given, shell_complete=files)
def check(file: str | None) -> None:
    """Check a file of options, by default the one that commands use."""
    context = click.get_current_context()
    used = used_file(context) if file is None else read_file(file, cli.commands)
    if used is None:
        raise NotThere(f"commands use no file of options: {_why_none()}")
    if not os.path.lexists(used.path):
        raise NotThere(f"there is no file {used.path}")
    tables = used.correct()
    commands = sum(map(bool, tables.parameters.values()))
    click.echo(
        f"{used.path}: no mistake. It sets options of {counted(commands, 'command')},"
        f" {counted(len(tables.storages), 'storage')} and {counted(len(tables.places), 'place')}"
    )


def _why_none() -> str:
    if VARIABLE in os.environ:
        return f"the environment variable {VARIABLE} is empty"
    return f"there is neither ~/.config/cpreplicate/config.toml nor {MACHINE}"


@config.command(
    "schema",
    short_help="Print a JSON Schema of the file.",
    only_reads=True,
    examples=("cpreplicate config schema > config.schema.json",),
    exit_codes={0: "done"},
)
def print_schema() -> None:
    """Print a JSON Schema of the file of options.

    An editor completes and checks a file that begins with `#:schema ./config.schema.json`.
    """
    click.echo(json.dumps(schema(cli.commands), indent=2, ensure_ascii=False))
