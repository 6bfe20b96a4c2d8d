"""Read options from files: the TOML file of `--config`, and files of Spark properties."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from cpreplicate.cli.storage_options import is_property_name
from cpreplicate.cli.toml_file import TomlFile
from cpreplicate.cli.toml_options import checked, converted, parameters_of, spelled
from cpreplicate.core import uri
from cpreplicate.errors import UsageError
from cpreplicate.storage.backends.hadoop_conf import read
from cpreplicate.storage.option_names import described, unknown_options
from cpreplicate.storage.sides import SCHEMES, Options

STORAGE = "storage"
_CONF_DIR = "conf-dir"
_PROPERTY = re.compile(r"([^\s=:]+)\s*[=:\s]\s*(.*)")


def load(
    path: str, commands: Mapping[str, click.Command]
) -> tuple[dict[str, Any], dict[str, Options]]:
    """Return the tables of a TOML file: parameters by command, and options by filesystem.

    Keys are spelled as on the command line or with `_`. Raises `click.UsageError` with the line of
    a mistake.
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
    """Return the raw values of a command's table, by parameter: click converts defaults itself."""
    parameters = parameters_of(command)
    values = {}
    for key, value in file.tables[name].items():
        parameter = parameters.get(spelled(key))
        if parameter is None:
            raise file.unknown("key", key, f" in [{name}]", parameters, name, key)
        raw = checked(file, f"[{name}]", parameter, value, name, key)
        converted(file, f"[{name}]", parameter, raw, name, key)  # for its errors
        values[parameter.name or ""] = raw
    return values


def storages_of(file: TomlFile) -> dict[str, Options]:
    """Return the `[storage."…"]` tables: the options of each filesystem.

    The files of a `conf-dir` are read and replaced by their properties.
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
    if not all(map(is_property_name, table)):
        raise file.error(
            f'a key in [{STORAGE}."{name}"] has a blank, a colon or an equals sign. It is not shown'
            " here, because it may hold a secret",
            STORAGE,
            name,
        )
    for key, value in table.items():
        _check_storage_value(file, name, key, value)
    single = {key: _text(value) for key, value in table.items() if spelled(key) != _CONF_DIR}
    _refuse_unknown(file, name, single)
    return tuple({**_directory(file, name, table), **single}.items())


def _refuse_unknown(file: TomlFile, name: str, options: Mapping[str, str]) -> None:
    """Raise for a table that would hold for no filesystem, or with an option that has no effect."""
    if not name:
        return  # options for every filesystem: each is checked where it is used
    scheme = name.partition(":")[0]
    if ":" not in name or scheme not in SCHEMES:
        raise file.unknown(
            "filesystem",
            name,
            f" in [{STORAGE}]",
            [f"{each}:" for each in SCHEMES],
            STORAGE,
            name,
        )
    if uri.filesystem(name) != name:
        raise file.error(
            f"{name!r} in [{STORAGE}] must be a filesystem, such as {uri.filesystem(name)!r}: the"
            " options of a storage hold for all of it",
            STORAGE,
            name,
        )
    for key in unknown_options(scheme, options):
        raise file.error(described(scheme, key, [_CONF_DIR]), STORAGE, name, key)


def _check_storage_value(file: TomlFile, name: str, key: str, value: object) -> None:
    if spelled(key) == _CONF_DIR:
        is_valid, expected = isinstance(value, str), "a string"
    else:
        is_valid = isinstance(value, (str, int, float))
        expected = "a string, a number, true or false"
    if isinstance(value, dict):
        expected += '; write a key with dots in quotes, "dfs.nameservices"'
    if not is_valid:
        raise file.error(f'{key!r} in [{STORAGE}."{name}"] must be {expected}', STORAGE, name, key)


def _directory(file: TomlFile, name: str, table: Mapping[str, Any]) -> dict[str, str]:
    key = next((key for key in table if spelled(key) == _CONF_DIR), None)
    try:
        return read(Path(table[key])) if key is not None else {}
    except UsageError as error:
        raise file.error(
            f'{key!r} in [{STORAGE}."{name}"]: {error}', STORAGE, name, str(key)
        ) from error


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def spark_properties(path: str) -> tuple[tuple[str, str], ...]:
    """Return the properties of a file as spark-submit reads it.

    Each line has a name and a value, separated by blanks, `=` or `:`. `#` begins a comment. Raises
    `click.UsageError` if the file cannot be read.
    """
    try:
        lines = Path(path).read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"--properties-file {path}: {error}") from error
    matches = (_PROPERTY.fullmatch(line.strip()) for line in lines)
    return tuple(
        (match[1], match[2])
        for match in matches
        if match is not None and not match[1].startswith(("#", "!"))
    )
