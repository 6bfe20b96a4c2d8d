"""The TOML file of options."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import click

from cpreplicate.storage.hadoop_conf import read
from cpreplicate.storage.site import Options

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


STORAGE = "storage"


def load(path: str) -> tuple[dict[str, Any], dict[str, Options]]:
    """The tables of a TOML file: command to option to value, and filesystem to its options.

    Options are spelled as on the command line or with `_`.
    """
    found = tables(path)
    storages = storages_of(path, found)
    return {command: _options(path, command, table) for command, table in found.items() if command != STORAGE}, storages


def tables(path: str) -> dict[str, Any]:
    """What a TOML file holds. Raises `click.UsageError`."""
    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise click.UsageError(f"{path}: {error}") from error


def storages_of(path: str, tables: dict[str, Any]) -> dict[str, Options]:
    """The `[storage."…"]` tables among them."""
    return {name: _storage(path, table) for name, table in tables.get(STORAGE, {}).items()}


def spark_properties(path: str) -> tuple[tuple[str, str], ...]:
    """A file of Spark's properties: a line each, name and value parted by blanks, `=` or `:`; `#` begins a comment."""
    try:
        lines = Path(path).read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"--properties-file {path}: {error}") from error
    found = [re.fullmatch(r"([^\s=:]+)\s*[=:\s]\s*(.*)", line.strip()) for line in lines]
    return tuple((match[1], match[2]) for match in found if match is not None and not match[1].startswith(("#", "!")))


def _storage(path: str, table: object) -> Options:
    """A table `[storage."hdfs://dcA"]`: `conf-dir` and single options."""
    if not isinstance(table, dict):
        raise click.UsageError(f'--config {path}: storage must hold tables, such as [storage."hdfs://dcA"]')
    directory = table.pop("conf-dir", None)
    options = read(Path(directory)) if directory is not None else {}
    return tuple({**options, **{str(name): _text(value) for name, value in table.items()}}.items())


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _options(path: str, command: str, table: object) -> dict[str, Any]:
    if not isinstance(table, dict):
        raise click.UsageError(f"--config {path}: {command} must be a table of options, such as [sync]")
    return {str(name).replace("-", "_"): value for name, value in table.items()}
