"""The result of `forget` of one replica."""

from __future__ import annotations

from collections import Counter

from cpreplicate.core.sizes import size
from cpreplicate.operations.upkeep.removal import Removal
from cpreplicate.output.json import document
from cpreplicate.output.results import Forms
from cpreplicate.output.text import columns


def _text(removal: Removal) -> str:
    """Return what is removed, or was, why it may be, and what stays."""
    stays = Counter(removal.others.values())
    facts = [
        ("replica", removal.replica),
        ("checkpoints", ", ".join(removal.checkpoints) or "none"),
        ("files", f"{removal.files}, {size(removal.bytes)}"),
        ("reason", removal.why),
        *((f"stays ({count})", reason) for reason, count in stays.items()),
        ("result", _result(removal)),
    ]
    return columns(facts)


def _result(removal: Removal) -> str:
    if not removal.done:
        return "nothing was removed; all of this would be"
    left = ", but for what stays" if removal.others else ""
    return f"removed{left} ({removal.runner}, {removal.seconds:.1f} s)"


def _json(removal: Removal) -> str:
    """Return the result of `forget --output json`."""
    fields = {
        "replica": removal.replica,
        "checkpoints": list(removal.checkpoints),
        "files": removal.files,
        "bytes": removal.bytes,
        "why": removal.why,
        "others": dict(removal.others),
        "done": removal.done,
        "refused": removal.refused,
        "runner": removal.runner,
        "seconds": round(removal.seconds, 3),
    }
    return document(fields, removal.seconds)


def _when_quiet(removal: Removal) -> tuple[str, ...] | None:
    return () if removal.done else None


FORMS = Forms(_text, _json, ndjson=_json, when_quiet=_when_quiet)
