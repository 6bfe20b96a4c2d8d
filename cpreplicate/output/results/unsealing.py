"""The result of `unseal`."""

from __future__ import annotations

from cpreplicate.operations.upkeep.unseal import Unsealing
from cpreplicate.output.json import document
from cpreplicate.output.results import Forms


def _text(unsealing: Unsealing) -> str:
    """Return one line: what was unsealed, and by whom it was sealed."""
    replica, sealed = unsealing.replica, unsealing.sealed
    if unsealing.is_dry_run:
        return f"{replica} can be unsealed; it was sealed {sealed}"
    return f"unsealed {replica}, which was sealed {sealed}"


def _json(unsealing: Unsealing) -> str:
    """Return the result of `unseal --output json`."""
    fields = {
        "replica": unsealing.replica,
        "dry_run": unsealing.is_dry_run,
        "sealed": unsealing.sealed,
    }
    return document(fields)


FORMS = Forms(_text, _json, ndjson=_json, is_narrated=True)
