"""A JSON Schema of the TOML file of options, by which editors complete and check it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from cpreplicate.cli.files.config import OPTIONS, STORAGE, with_options
from cpreplicate.cli.files.toml_options import by_name, is_general, parameters_of
from cpreplicate.cli.options.kinds import TEXT
from cpreplicate.cli.options.named_places import NAME, PLACES
from cpreplicate.cli.options.option import OptionParameter

_DIALECT = "http://json-schema.org/draft-07/schema#"  # what editors of TOML read
_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean", list: "array"}


def schema(commands: Mapping[str, click.Command]) -> dict[str, Any]:
    """Return the schema of a file for these commands."""
    having = with_options(commands)
    tables = {name: _table(_values(parameters_of(command))) for name, command in having.items()}
    for name, command in having.items():
        tables[name]["description"] = f"Options of `cpreplicate {name}`: {command.short_help}"
    return {
        "$schema": _DIALECT,
        "title": "Options of cpreplicate",
        "description": "The file of --config, or ~/.config/cpreplicate/config.toml.",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            OPTIONS: {
                **_table(_general(having)),
                "description": "Options of each command that has them.",
            },
            STORAGE: _storage(),
            PLACES: _places(),
            **tables,
        },
    }


def _general(commands: Mapping[str, click.Command]) -> dict[str, dict[str, Any]]:
    """Return the schemas of what `[options]` may hold.

    Where the commands have several defaults or descriptions, the schema has none of them.
    """
    return {
        key: _common([*map(_value, having.values())])
        for key, having in by_name(commands).items()
        if is_general(having.values())
    }


def _common(values: Sequence[dict[str, Any]]) -> dict[str, Any]:
    first = values[0]
    return {
        key: value for key, value in first.items() if all(each.get(key) == value for each in values)
    }


def _values(parameters: Mapping[str, click.Parameter]) -> dict[str, dict[str, Any]]:
    return {name: _value(parameter) for name, parameter in parameters.items()}


def _table(values: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the schema of a table; a key may be spelled with `_` instead of `-`."""
    properties = {name: values[name] for name in sorted(values)}
    others = {name: name.replace("-", "_") for name in properties if "-" in name}
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {**properties, **{other: properties[name] for name, other in others.items()}},
        "dependencies": {other: _without(name) for name, other in others.items()},
    }


def _without(key: str) -> dict[str, Any]:
    return {"properties": {key: False}}


def _value(parameter: click.Parameter) -> dict[str, Any]:
    option = parameter.option if isinstance(parameter, OptionParameter) else None
    kind = TEXT if option is None else option.kind
    types = sorted(_TYPES[each] for each in kind.toml_types)
    one: dict[str, Any] = {"type": types[0] if len(types) == 1 else types}
    if isinstance(kind.click_type, click.Choice):
        one["enum"] = list(kind.click_type.choices)
    if option is None:
        return one
    if option.is_multiple:
        one = {"anyOf": [one, {"type": "array", "items": one}]}
    default = {} if option.default is None else {"default": option.default}
    return {**one, "description": option.help, **default}


def _storage() -> dict[str, Any]:
    return {
        "type": "object",
        "description": 'How a filesystem is reached, such as [storage."hdfs://dcA"].',
        "additionalProperties": {
            "type": "object",
            "additionalProperties": {"type": ["boolean", "number", "string"]},
            "dependencies": {"conf_dir": _without("conf-dir")},
        },
    }


def _places() -> dict[str, Any]:
    return {
        "type": "object",
        "description": "Names of places: with [places.dcA], dcA:path is the path below its url.",
        "propertyNames": {"pattern": f"^{NAME}$"},
        "additionalProperties": {
            "type": "object",
            "additionalProperties": False,
            "required": ["url"],
            "properties": {"url": {"type": "string"}},
        },
    }
