"""The TOML file of options."""

from __future__ import annotations

import sys
from typing import Any

import click

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def defaults(path: str) -> dict[str, Any]:
    """The tables of a TOML file: command to option to value, options spelled as on the command line or with `_`."""
    try:
        with open(path, "rb") as file:
            tables = tomllib.load(file)
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise click.UsageError(f"--config {path}: {error}") from error
    return {command: _options(path, command, table) for command, table in tables.items()}


def _options(path: str, command: str, table: object) -> dict[str, Any]:
    if not isinstance(table, dict):
        raise click.UsageError(f"--config {path}: {command} must be a table of options, such as [sync]")
    return {str(name).replace("-", "_"): value for name, value in table.items()}
