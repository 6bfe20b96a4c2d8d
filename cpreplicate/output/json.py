"""JSON for programs: the stable documents of `docs/json.md`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from cpreplicate.output import run

_SCHEMA = 1  # the version of the documents; it rises when a field is renamed or removed


def document(fields: Mapping[str, Any], seconds: float | None = None) -> str:
    """Return a JSON document with its version, and when it was started and finished.

    It took `seconds`; by default, all the time since the command started.
    """
    finished = time.time()
    started = run.current().started if seconds is None else finished - seconds
    head = {
        "schema": _SCHEMA,
        "started": run.timestamp(started),
        "finished": run.timestamp(finished),
    }
    return json.dumps({**head, **fields})


def timestamp(seconds: float | None) -> str | None:
    """Return seconds since the epoch as ISO 8601 in UTC, with milliseconds; None stays None."""
    return None if seconds is None else run.timestamp(seconds)


def rows(tuples: Iterable[NamedTuple]) -> Iterator[str]:
    """Yield named tuples as JSON objects, which may be millions and are no documents."""
    return (json.dumps(row._asdict()) for row in tuples)


def array(objects: Iterable[str]) -> str:
    """Return JSON objects as an array of them."""
    return f"[{', '.join(objects)}]"
