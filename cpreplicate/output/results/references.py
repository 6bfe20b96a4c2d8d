"""The result of `inspect --refs`."""

from __future__ import annotations

from cpreplicate.operations.inspect import References
from cpreplicate.output.json import array, rows
from cpreplicate.output.results import Forms
from cpreplicate.output.text import table

_HEAD = ("operator", "subtask", "state", "handle", "size", "position", "path")


def _text(references: References) -> str:
    """Return a row for each state handle."""
    cells = [
        (
            row.operator or "",
            "" if row.subtask is None else str(row.subtask),
            row.state,
            row.handle,
            str(row.size),
            "" if row.position is None else str(row.position),
            row.path or "",
        )
        for row in references.rows
    ]
    return table(_HEAD, cells)


def _json(references: References) -> str:
    return array(rows(references.rows))


def _ndjson(references: References) -> str:
    return "\n".join(rows(references.rows))


FORMS = Forms(_text, _json, _ndjson)
