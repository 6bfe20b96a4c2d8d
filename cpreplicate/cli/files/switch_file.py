"""The TOML file of `switch`: a table `[[job]]` for each job, with its program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from cpreplicate.cli.files.toml_file import FileTable, TomlFile
from cpreplicate.cli.files.toml_options import (
    checked,
    converted,
    parameters_of,
    refuse_two_spellings,
    spelled,
)

ENDING = ".toml"
_JOB = "job"
_NAME = "name"
_LISTS = ("arguments", "origin-arguments")
_OPTIONS = ("jar", "entry-class", "job-parallelism", "origin-jar")
_KEYS = (_NAME, *_OPTIONS, *_LISTS)


def jobs_of(path: str, command: click.Command) -> dict[str, dict[str, Any]]:
    """Return the parameters of the command that each job has of its own, in the order of the file.

    They are by the name, or the id, of the job. Keys are spelled as on the command line or with
    `_`. Arguments of a program are a list. Raises `click.UsageError` with the line of a mistake.
    """
    file, parameters = TomlFile(path), parameters_of(command)
    for name in file.tables:
        if name != _JOB:
            raise file.unknown("table", name, "", [_JOB], name)
    tables = file.tables.get(_JOB, [])
    if not isinstance(tables, list) or not all(isinstance(each, dict) for each in tables):
        raise file.error("write a table [[job]] for each job", _JOB)
    found: dict[str, dict[str, Any]] = {}
    for index, table in enumerate(tables):
        at = FileTable(file, f"[[job]] {index + 1}", (_JOB, index))
        name = _name(at, table)
        if name in found:
            raise at.error(f"{name!r} is the name of another [[job]], too", _NAME)
        found[name] = _own(at, table, parameters)
    return found


def _name(at: FileTable, table: Mapping[str, Any]) -> str:
    name = table.get(_NAME)
    if not isinstance(name, str) or not name.strip():
        raise at.error(f"{at.title} must have a `name`: the name or the id of a job", _NAME)
    return name


def _own(
    at: FileTable, table: Mapping[str, Any], parameters: Mapping[str, click.Parameter]
) -> dict[str, Any]:
    refuse_two_spellings(at, table)
    own = {}
    for written, value in table.items():
        key = spelled(written)
        if key not in _KEYS:
            raise at.unknown("key", written, _KEYS, written)
        if key in _LISTS:
            own[key.replace("-", "_")] = _list(at, written, value)
        elif key in _OPTIONS:
            parameter = parameters[key]
            raw = checked(at, written, parameter, value)
            own[parameter.name or key] = converted(at, written, parameter, raw)
    return own


def _list(at: FileTable, key: str, value: object) -> list[str]:
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return value
    raise at.error(f"{key!r} in {at.title} must be an array of the arguments, each a text", key)
