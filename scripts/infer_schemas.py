"""Renew docs/schemas of the results by the documents that tests print.

    TESTS_RECORD=DIR python -m pytest tests/cli tests/users …
    python scripts/infer_schemas.py DIR

A key is required if each of many documents has it, and may be null even if no test prints it so.
Read the difference before it is committed: what no test prints is not in the schema.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.support.documents import path

_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}
_KEY = re.compile(r"[a-z][a-z0-9_]*")
# objects whose keys are names of what they hold, not of fields
_MAPS = {"rest", "others", "configuration", "deployment", "snapshot", "clusters", "topics_renamed"}
_FRACTION = re.compile("seconds|lag|rate|share|ratio|age")
_MANY = 20  # documents: of fewer, a key that all have may be absent elsewhere
_NEVER_NULL = {"", "schema", "started", "finished", "exit_code"}
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_NOTE = "Fields may be added. docs/json.md has what each one means."


def schema_of(values: Iterable[Any], key: str = "") -> dict[str, Any]:
    """Return the schema that all of these values have."""
    values = list(values)
    objects = [value for value in values if isinstance(value, dict)]
    arrays = [value for value in values if isinstance(value, list)]
    types = {_TYPES[type(value)] for value in values if not isinstance(value, (dict, list))}
    if "number" in types or ("integer" in types and _FRACTION.search(key)):
        types = types - {"integer"} | {"number"}
    found: dict[str, Any] = {}
    if objects:
        types.add("object")
        found |= _object(objects, key)
    if arrays:
        types.add("array")
        items = [item for array in arrays for item in array]
        found |= {"items": schema_of(items, key)} if items else {}
    if key not in _NEVER_NULL:
        types.add("null")
    kinds = sorted(types)
    return {} if kinds == ["null"] else {"type": kinds[0] if len(kinds) == 1 else kinds, **found}


def _object(objects: list[dict[str, Any]], key: str) -> dict[str, Any]:
    names = sorted({name for each in objects for name in each})
    if key in _MAPS or not all(map(_KEY.fullmatch, names)):
        return {}
    required = [name for name in names if all(name in each for each in objects)]
    properties = {
        name: schema_of([each[name] for each in objects if name in each], name) for name in names
    }
    are_many = len(objects) >= _MANY
    return {**({"required": required} if are_many else {}), "properties": properties}


def main() -> None:
    """Write a schema for each file of documents."""
    for file in sorted(Path(sys.argv[1]).glob("*.ndjson")):
        documents = [json.loads(line) for line in file.read_text().splitlines()]
        title = f"What `cpreplicate` prints: {file.stem}"
        schema = {"$schema": _DIALECT, "title": title, "description": _NOTE, **schema_of(documents)}
        path(file.stem).write_text(json.dumps(schema, indent=2) + "\n")
        print(f"{file.stem}: {len(documents)} documents")


if __name__ == "__main__":
    main()
