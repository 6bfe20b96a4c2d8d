"""A small check of JSON against a schema: the words of JSON Schema that docs/schemas uses."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

_SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"
_TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "number": (int, float),
    "null": type(None),
}
_NO_CHECKS = {"$schema", "title", "description"}
_CHECKS = {
    "type", "const", "enum", "required", "properties", "additionalProperties", "items", "format",
    "minimum",
}  # fmt: skip


def schema(name: str) -> dict[str, Any]:
    """The schema of a document, such as `jobs`."""
    found: dict[str, Any] = json.loads((_SCHEMAS / f"{name}.schema.json").read_text())
    return found


def mistakes(value: Any, rules: Mapping[str, Any], place: str = "$") -> Iterator[str]:
    """Yield what is wrong with a value. A word that is not known here is an error."""
    assert rules.keys() <= _CHECKS | _NO_CHECKS, f"{place}: unknown words in the schema"
    if "type" in rules and not _is_of(value, rules["type"]):
        yield f"{place}: {value!r} is not of the type {rules['type']}"
        return
    if "const" in rules and value != rules["const"]:
        yield f"{place}: {value!r} is not {rules['const']!r}"
    if "enum" in rules and value not in rules["enum"]:
        yield f"{place}: {value!r} is none of {rules['enum']}"
    if value is not None and "minimum" in rules and value < rules["minimum"]:
        yield f"{place}: {value!r} is too small"
    if value is not None and rules.get("format") == "date-time" and not _is_time(value):
        yield f"{place}: {value!r} is no time"
    if isinstance(value, dict):
        yield from _of_object(value, rules, place)
    if isinstance(value, list) and "items" in rules:
        for index, each in enumerate(value):
            yield from mistakes(each, rules["items"], f"{place}[{index}]")


def undescribed(value: Any, rules: Mapping[str, Any], place: str = "$") -> Iterator[str]:
    """Yield the fields of a value that a schema which lists fields does not list."""
    listed = rules.get("properties", {})
    if isinstance(value, dict) and listed:
        for name, each in value.items():
            if name not in listed:
                yield f"{place}.{name}"
            yield from undescribed(each, listed.get(name, {}), f"{place}.{name}")
    if isinstance(value, list):
        for each in value:
            yield from undescribed(each, rules.get("items", {}), f"{place}[]")


def _of_object(value: dict[str, Any], rules: Mapping[str, Any], place: str) -> Iterator[str]:
    listed = rules.get("properties", {})
    for name in rules.get("required", []):
        if name not in value:
            yield f"{place}.{name} is missing"
    for name, each in value.items():
        more = rules.get("additionalProperties", {})
        yield from mistakes(each, listed.get(name, more), f"{place}.{name}")


def _is_of(value: Any, types: str | list[str]) -> bool:
    names = [types] if isinstance(types, str) else types
    if isinstance(value, bool):
        return "boolean" in names
    return any(isinstance(value, _TYPES[name]) for name in names)


def _is_time(text: str) -> bool:
    try:
        datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ")  # only its form counts
    except ValueError:
        return False
    return True
