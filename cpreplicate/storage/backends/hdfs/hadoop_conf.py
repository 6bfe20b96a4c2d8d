"""Hadoop's configuration files. They are read where the run starts, and travel with batches.

They are read as `org.apache.hadoop.conf.Configuration` of Hadoop 3.5 does it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

from cpreplicate.errors import UsageError

_FILES = ("core-site.xml", "hdfs-site.xml")
_VARIABLE = re.compile(r"\$\{([^}$\s]+)\}")
_OF_ENVIRONMENT = re.compile(r"env\.([^:-]+)(?:(:?-)(.*))?")
_INCLUDE = "{http://www.w3.org/2001/XInclude}include"
_FALLBACK = "{http://www.w3.org/2001/XInclude}fallback"
_NESTED = 20  # files that include each other
_DEPTH = 20  # substitutions of one value, as in org.apache.hadoop.conf.Configuration


def read(directory: Path) -> dict[str, str]:
    """The properties of `core-site.xml` and `hdfs-site.xml`, `${other}` in a value replaced.

    Names without a dot are left out: no property of Hadoop has one, and files may hold some for
    `${other}`. Raises `UsageError`.
    """
    files = [directory / name for name in _FILES if (directory / name).is_file()]
    if not files:
        raise UsageError(
            f"{directory} holds neither {_FILES[0]} nor {_FILES[1]}; name the directory of a Hadoop"
            " configuration"
        )
    properties: dict[str, str] = {}
    final: set[str] = set()
    for file in files:
        for name, value, is_final in _properties(file):
            if name not in final:
                properties[name] = value
                final |= {name} if is_final else set()
    return {
        name: _substituted(value, properties) for name, value in properties.items() if "." in name
    }


def _properties(file: Path, depth: int = 0) -> Iterator[tuple[str, str, bool]]:
    """Yield the properties of a file and of those that it includes: name, value, is final."""
    try:
        root = ElementTree.parse(file).getroot()
    except (ElementTree.ParseError, OSError) as error:
        raise UsageError(f"{file} cannot be read as a Hadoop configuration: {error}") from error
    if depth > _NESTED:
        raise UsageError(f"{file} includes itself")
    yield from _of_element(root, file, depth)


def _of_element(
    element: ElementTree.Element, file: Path, depth: int
) -> Iterator[tuple[str, str, bool]]:
    for child in element:
        if child.tag == _INCLUDE:
            yield from _included(child, file, depth)
        elif child.tag == "property":
            name, value = _field(child, "name"), _field(child, "value")
            if name and value is not None:
                yield name, value, _field(child, "final") == "true"
        else:
            yield from _of_element(child, file, depth)


def _included(
    include: ElementTree.Element, file: Path, depth: int
) -> Iterator[tuple[str, str, bool]]:
    """Yield the properties of a file that another one includes, or of what stands in its place."""
    place = Path(file.parent, include.get("href", "").removeprefix("file://"))
    fallback = include.find(_FALLBACK)
    if place.is_file():
        yield from _properties(place, depth + 1)
    elif fallback is not None:
        yield from _of_element(fallback, file, depth)
    else:
        raise UsageError(
            f"{file} includes {place}, which is not there. Copy the file to that place, too"
        )


def _field(entry: ElementTree.Element, name: str) -> str | None:
    """Return a field of a property: an element, or else an attribute."""
    text = entry.findtext(name)
    text = entry.get(name) if text is None else text
    return None if text is None else text.strip()


def _substituted(value: str, properties: dict[str, str]) -> str:
    for _ in range(_DEPTH):
        replaced = _VARIABLE.sub(lambda match: _value_of(match, properties), value)
        if replaced == value:
            break
        value = replaced
    return value


def _value_of(variable: re.Match[str], properties: dict[str, str]) -> str:
    """Return what stands for `${name}`, or for `${env.NAME}` with or without a default."""
    of_environment = _OF_ENVIRONMENT.fullmatch(variable[1])
    if of_environment is None:
        return properties.get(variable[1], variable[0])
    name, separator, default = of_environment.groups()
    value = os.environ.get(name)
    if separator and (value is None or (separator == ":-" and not value)):
        return str(default)
    return variable[0] if value is None else value
