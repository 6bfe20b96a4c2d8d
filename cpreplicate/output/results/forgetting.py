"""The result of `rebase --forget`."""

from __future__ import annotations

from cpreplicate.operations.kafka.rebase import Forgotten
from cpreplicate.output.json import document
from cpreplicate.output.results import Forms
from cpreplicate.output.text import lines


def _text(result: Forgotten) -> str:
    if result.dry_run:
        return f"would remove {result.replica}/{result.name}"
    failed = [f"could not be removed: {each}" for each in result.failed]
    outcome = "partly removed" if failed else "removed"
    return lines([f"{outcome} {result.replica}/{result.name}", *failed])


def _json(result: Forgotten) -> str:
    return document(
        {
            "replica": result.replica,
            "derived": result.name,
            "removed": not result.dry_run and not result.failed,
            "failed": list(result.failed),
        }
    )


FORMS = Forms(_text, _json, ndjson=_json)
