"""Named places: `dcA:path` is the path below the URL of the place dcA, which a TOML file names."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping

import click

from cpreplicate.core import uri
from cpreplicate.storage.sides import STORAGES

PLACES = "places"  # the table of the file
_IN_USE = "cpreplicate.places"  # the key of click's `meta` under which they are kept
NAME = r"[A-Za-z0-9][A-Za-z0-9._-]+"
# `word:` that does not begin a URI; a path with a slash before the colon names a file
_WORD = re.compile(rf"({NAME}):(?!//)")


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
