"""Each JSON document that a command prints in a test is one of its published schema.

With `TESTS_RECORD` a directory, the documents are kept there, by which
`scripts/infer_schemas.py` renews the schemas.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import jsonschema

from cpreplicate.cli.commands.replication import cli

SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"
_VARIANTS = {  # options with which a command prints another document
    "inspect": {
        "--to": "references-file",
        "--refs": "references",
        "--with-files": "part-files",
    },
    "promote": {"--all": "promote-all"},
    "unseal": {"--all": "unseal-all"},
    "forget": {"--all": "forget-all"},
    "rebase": {"--forget": "rebase-forget"},
}
_NAMES = {"diff": "sync"}
_HEAD = {"schema", "started", "finished"}
RECORD = "TESTS_RECORD"


def check(words: Sequence[str], out: str) -> None:
    """Raise `AssertionError` if the JSON that a command printed is not as its schema says."""
    if ("--output", "json") not in pairwise(words) or not out.strip():
        return
    document = json.loads(out)
    name = _name(words, document)
    if directory := os.environ.get(RECORD):
        with (Path(directory) / f"{name}.ndjson").open("a") as file:
            file.write(json.dumps(document) + "\n")
        return
    problems = [error.message for error in validator(name).iter_errors(document)]
    assert not problems, (name, problems[:3], document)


@functools.cache
def validator(name: str) -> jsonschema.Draft202012Validator:
    """Return the validator of a document."""
    return jsonschema.Draft202012Validator(json.loads(path(name).read_text()))


def path(name: str) -> Path:
    """Return the file of a schema."""
    return SCHEMAS / f"{name}.schema.json"


def _name(words: Sequence[str], document: Any) -> str:
    if isinstance(document, dict) and {"error", "exit_code"} == document.keys() - _HEAD:
        return "error"
    command = next(word for word in words if word in cli.commands)
    if command == "promote" and isinstance(document, dict) and document.get("promoted") is False:
        return "promote-refused" if "verification" not in document else command
    if command == "promote" and isinstance(document, dict) and "unread" in document:
        return "part-files"  # those that are missing
    variants = _VARIANTS.get(command, {})
    known = (name for word, name in variants.items() if word in words)
    return next(known, _NAMES.get(command, command))
