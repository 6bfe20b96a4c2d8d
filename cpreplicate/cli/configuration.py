"""The commands about the TOML file of options."""

from __future__ import annotations

import json
import os

import click

from cpreplicate.cli import groups
from cpreplicate.cli.commands import cli
from cpreplicate.cli.config import MACHINE, VARIABLE, default_path, load
from cpreplicate.cli.config_schema import schema
from cpreplicate.cli.option import files
from cpreplicate.cli.toml_file import TomlFile
from cpreplicate.errors import NotThere

_OF_JOBS = ("job", "root")


@cli.group("config", cls=groups.Commands, short_help="Check the file of options.")
def config() -> None:
    """Check the TOML file of options, and print its schema for an editor."""


@config.command(
    short_help="Check a file of options.",
    examples=("cpreplicate config check", "cpreplicate config check ./config.toml"),
    exit_codes={0: "no mistake", 2: "a mistake, with its line", 10: "there is no such file"},
)
@click.argument("file", required=False, shell_complete=files)
def check(file: str | None) -> None:
    """Check a file of options, by default the one that commands use."""
    path = file or os.environ.get(VARIABLE) or default_path()
    if path is None:
        raise NotThere(
            "commands use no file of options: there is neither ~/.config/cpreplicate/config.toml"
            f" nor {MACHINE}"
        )
    if not os.path.lexists(path):
        raise NotThere(f"there is no file {path}")
    if any(name in TomlFile(path).tables for name in _OF_JOBS):
        raise click.UsageError(
            f"{path} has jobs: it is a file of `fleet`, and `cpreplicate fleet --dry-run` checks it"
        )
    tables = load(path, cli.commands)
    commands = sum(map(bool, tables.parameters.values()))
    click.echo(
        f"{path}: no mistake. It sets options of {commands} commands, {len(tables.storages)}"
        f" storages and {len(tables.places)} places"
    )


@config.command(
    "schema",
    short_help="Print a JSON Schema of the file.",
    examples=("cpreplicate config schema > config.schema.json",),
    exit_codes={0: "done"},
)
def print_schema() -> None:
    """Print a JSON Schema of the file of options.

    An editor completes and checks a file that begins with `#:schema ./config.schema.json`.
    """
    click.echo(json.dumps(schema(cli.commands), indent=2, ensure_ascii=False))
