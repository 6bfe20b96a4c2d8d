"""The tables `[places.NAME]` of a TOML file, each with the URL of a place."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import click

from cpreplicate.cli.files.toml_file import FileTable, TomlFile
from cpreplicate.cli.options.named_places import NAME, PLACES
from cpreplicate.core import uri
from cpreplicate.errors import CpreplicateError
from cpreplicate.storage.sides import STORAGES

_URL = "url"


def places_of(file: TomlFile, absolute: Callable[[str], str]) -> dict[str, str]:
    """Return the URL of each `[places.NAME]` table, which `absolute` has checked.

    Raises `click.UsageError` with the line of a mistake.
    """
    tables = file.tables.get(PLACES, {})
    if not isinstance(tables, dict):
        raise file.error(f"{PLACES!r} must hold tables, such as [{PLACES}.dcA]", PLACES)
    return {
        name: _url(FileTable(file, f"[{PLACES}.{name}]", (PLACES, name)), name, table, absolute)
        for name, table in tables.items()
    }


def _url(at: FileTable, name: str, table: Any, absolute: Callable[[str], str]) -> str:
    _refuse_name(at, name)
    if not isinstance(table, dict) or not isinstance(table.get(_URL), str):
        raise at.error(f"{at.title} must have a `{_URL}`, such as {_URL} = 'hdfs://dcA/flink'")
    for key in table.keys() - {_URL}:
        raise at.error(
            f"unknown key {key!r} in {at.title}; how its storage is reached stands in"
            ' [storage."hdfs://…"]',
            key,
        )
    return _checked(at, table[_URL], absolute)


def _refuse_name(at: FileTable, name: str) -> None:
    if name.lower() in STORAGES:
        raise at.error(f"a place cannot have the name of a scheme, {name!r}")
    if not re.fullmatch(NAME, name):
        raise at.error(
            f"{name!r} is no name of a place: two or more letters, digits, '.', '_' and '-'"
        )


def _checked(at: FileTable, url: str, absolute: Callable[[str], str]) -> str:
    """Return the URL of a place as a URI. Raise at its line if it names no directory."""
    try:
        found = absolute(url)
    except (click.BadParameter, CpreplicateError) as error:
        message = error.message if isinstance(error, click.BadParameter) else str(error)
        raise at.error(f"`{_URL}` in {at.title}: {message}", _URL) from error
    if uri.is_relative(url):  # it would be another place in each working directory
        raise at.error(
            f"`{_URL}` in {at.title} must be a URI or an absolute path, such as {found}, not"
            f" {url!r}",
            _URL,
        )
    if found.partition(":")[0] not in STORAGES:
        raise at.error(f"`{_URL}` in {at.title} has no known scheme: {', '.join(STORAGES)}", _URL)
    return found
