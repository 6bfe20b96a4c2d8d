"""The result of `unseal`."""

from __future__ import annotations

from cpreplicate.operations.handover.unseal import Unsealing
from cpreplicate.output.json import document
from cpreplicate.output.results import Forms


def _text(unsealing: Unsealing) -> str:
    """Return a line: what was unsealed, who sealed it, and what shows that no job needs it."""
    replica, sealed = unsealing.replica, unsealing.sealed
    outcome = f"unsealed {replica}, which was sealed {sealed}"
    if unsealing.is_dry_run:
        outcome = f"{replica} can be unsealed; it was sealed {sealed}"
    found = "no job was looked at (--no-job-uses-it)"
    return f"{outcome}: {unsealing.found or found}"


def _json(unsealing: Unsealing) -> str:
    """Return the result of `unseal --output json`."""
    fields = {
        "replica": unsealing.replica,
        "dry_run": unsealing.is_dry_run,
        "sealed": unsealing.sealed,
        "found": unsealing.found,
    }
    return document(fields)


FORMS = Forms(_text, _json, ndjson=_json, is_narrated=True)
