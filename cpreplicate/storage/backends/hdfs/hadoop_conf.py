"""Hadoop's configuration files. They are read where the run starts, and travel with batches."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

from cpreplicate.errors import UsageError

_FILES = ("core-site.xml", "hdfs-site.xml")
_VARIABLE = re.compile(r"\$\{([^}$\s]+)\}")
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
    for file in files:
        properties.update(_properties(file))
    return {
        name: _substituted(value, properties) for name, value in properties.items() if "." in name
    }


def _properties(file: Path) -> dict[str, str]:
    try:
        root = ElementTree.parse(file).getroot()
    except (ElementTree.ParseError, OSError) as error:
        raise UsageError(f"{file} cannot be read as a Hadoop configuration: {error}") from error
    pairs = [(entry.findtext("name"), entry.findtext("value")) for entry in root.iter("property")]
    return {name.strip(): value.strip() for name, value in pairs if name and value is not None}


def _substituted(value: str, properties: dict[str, str]) -> str:
    for _ in range(_DEPTH):
        replaced = _VARIABLE.sub(lambda match: properties.get(match[1], match[0]), value)
        if replaced == value:
            break
        value = replaced
    return value
