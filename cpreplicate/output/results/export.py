"""The result of `inspect --refs --to FILE`."""

from __future__ import annotations

from cpreplicate.core.sizes import counted
from cpreplicate.operations.inspect.export import ReferencesFile
from cpreplicate.output.json import document
from cpreplicate.output.results import Forms


def _text(written: ReferencesFile) -> str:
    """Return one line."""
    return f"wrote {counted(written.rows, 'state handle')} to {written.file}"


def _json(written: ReferencesFile) -> str:
    """Return the result of `inspect --refs --to FILE --output json`."""
    return document(written._asdict())


FORMS = Forms(_text, _json, ndjson=_json, is_narrated=True)
