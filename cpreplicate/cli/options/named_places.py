"""Named places: `dcA:path` is the path below the URL of `[places.dcA]` in the TOML file."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from typing import Any

import click

from cpreplicate.cli.files.toml_file import FileTable, TomlFile
from cpreplicate.core import uri
from cpreplicate.errors import CpreplicateError
from cpreplicate.storage.sides import STORAGES

PLACES = "places"  # the table of the file
_IN_USE = "cpreplicate.places"  # the key of click's `meta` under which they are kept
NAME = r"[A-Za-z0-9][A-Za-z0-9._-]+"
_URL = "url"
# `word:` that does not begin a URI; a path with a slash before the colon names a file
_WORD = re.compile(rf"({NAME}):(?!//)")


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


def use(context: click.Context, places: Mapping[str, str]) -> None:
    """Let the arguments and options of a command use these places."""
    context.meta[_IN_USE] = dict(places)


def placed(text: str) -> str:
    """Return the URI that `NAME:PATH` stands for, and every other text as it is.

    Raises `click.BadParameter` for a path that leads out of its place, and for a name that no place
    has where there are some.
    """
    places = _places_in_use()
    match = _WORD.match(text)
    if match is None or not places or match[1].lower() in STORAGES:
        return text
    name, path = match[1], text[match.end() :].strip("/")
    if name not in places:
        near = difflib.get_close_matches(name, places, 1)
        hint = f"Did you mean {near[0]}:{path}?" if near else f"There are {', '.join(places)}."
        raise click.BadParameter(
            f"{text}: no [{PLACES}.{name}] is in the configuration. {hint} Write ./{text} for a"
            " local path"
        )
    found = _below(places[name], path)
    if found is None:
        raise click.BadParameter(f"{text} leads out of {name}:, with `..`. Name a path below it")
    return found


def _below(place: str, path: str) -> str | None:
    """Return the URI of a path below a place, None for a path that leads out of it.

    Flink takes a backslash for a slash.
    """
    if ".." in path.replace("\\", "/").split("/"):
        return None
    found = uri.absolute(uri.join(place, path), "/")
    return found if found == place or uri.below(found, place) is not None else None


def _places_in_use() -> Mapping[str, str]:
    """Return the places given to `use`, none outside a command."""
    context = click.get_current_context(silent=True)
    found: Mapping[str, str] = context.meta.get(_IN_USE, {}) if context is not None else {}
    return found


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
