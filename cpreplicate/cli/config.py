"""The TOML file of options, and other files that options come from."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from cpreplicate.cli.tables import check_value, parameters_of, spelled
from cpreplicate.cli.toml_file import TomlFile
from cpreplicate.errors import UsageError
from cpreplicate.storage.backends.hadoop_conf import read
from cpreplicate.storage.sides import Options

STORAGE = "storage"


def load(
    path: str, commands: Mapping[str, click.Command]
) -> tuple[dict[str, Any], dict[str, Options]]:
    """Return the tables of a TOML file: command to parameter to value, and filesystem to its
    options.

    Options are spelled as on the command line or with `_`. Raises `click.UsageError` with the line
    of what is wrong.
    """
    file = TomlFile(path)
    for name, table in file.tables.items():
        _refuse_other_table(file, name, table, commands)
    tables = {name: _options(file, name, commands[name]) for name in file.tables if name != STORAGE}
    return tables, storages_of(file)


def _refuse_other_table(
    file: TomlFile, name: str, table: object, commands: Mapping[str, click.Command]
) -> None:
    if name in commands or name == STORAGE:
        if not isinstance(table, dict):
            raise file.error(f"{name!r} must be a table: write [{name}]", name)
    elif isinstance(table, (dict, list)):
        raise file.unknown("table", name, "", {*commands, STORAGE}, name)
    else:
        raise file.error(
            f"{name!r} is in no table; write it below the table of a command, such as [sync]", name
        )


def _options(file: TomlFile, name: str, command: click.Command) -> dict[str, Any]:
    parameters, found = parameters_of(command), {}
    for key, value in file.tables[name].items():
        parameter = parameters.get(spelled(key))
        if parameter is None:
            raise file.unknown("key", key, f" in [{name}]", parameters, name, key)
        found[parameter.name or ""] = check_value(file, f"[{name}]", parameter, value, name, key)
    return found


def storages_of(file: TomlFile) -> dict[str, Options]:
    """Return the `[storage."…"]` tables: filesystem to options, `conf-dir` replaced by what the
    directory holds.
    """
    tables = file.tables.get(STORAGE, {})
    if not isinstance(tables, dict):
        raise file.error(f'{STORAGE!r} must hold tables, such as [storage."hdfs://dcA"]', STORAGE)
    return {name: _storage(file, name, table) for name, table in tables.items()}


def _storage(file: TomlFile, name: str, table: object) -> Options:
    if not isinstance(table, dict):
        raise file.error(
            f'{name!r} in [{STORAGE}] must be a table, such as [storage."hdfs://dcA"]',
            STORAGE,
            name,
        )
    for key, value in table.items():
        is_right = (
            isinstance(value, str)
            if spelled(key) == "conf-dir"
            else isinstance(value, (str, int, float))
        )
        if not is_right:
            wanted = (
                "a string" if spelled(key) == "conf-dir" else "a string, a number, true or false"
            )
            wanted += (
                '; write a key with dots in quotes, "dfs.nameservices"'
                if isinstance(value, dict)
                else ""
            )
            raise file.error(
                f'{key!r} in [{STORAGE}."{name}"] must be {wanted}', STORAGE, name, key
            )
    single = {key: _text(value) for key, value in table.items() if spelled(key) != "conf-dir"}
    return tuple({**_directory(file, name, table), **single}.items())


def _directory(file: TomlFile, name: str, table: Mapping[str, Any]) -> dict[str, str]:
    key = next((key for key in table if spelled(key) == "conf-dir"), None)
    try:
        return read(Path(table[key])) if key is not None else {}
    except UsageError as error:
        raise file.error(
            f'{key!r} in [{STORAGE}."{name}"]: {error}', STORAGE, name, str(key)
        ) from error


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def spark_properties(path: str) -> tuple[tuple[str, str], ...]:
    """A file of Spark's properties: a line each, name and value parted by blanks, `=` or `:`.

    `#` begins a comment.
    """
    try:
        lines = Path(path).read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"--properties-file {path}: {error}") from error
    found = [re.fullmatch(r"([^\s=:]+)\s*[=:\s]\s*(.*)", line.strip()) for line in lines]
    return tuple(
        (match[1], match[2])
        for match in found
        if match is not None and not match[1].startswith(("#", "!"))
    )
