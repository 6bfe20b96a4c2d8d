"""The run of this process: one command, from its start to its exit code."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field
from datetime import datetime, timezone


@dataclass(frozen=True)
class CommandRun:
    """A random id, and when the run started, in seconds since the epoch."""

    id: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    started: float = field(default_factory=time.time)


_current = CommandRun()


def begin() -> CommandRun:
    """Begin the run of a command."""
    global _current  # a process runs one command
    _current = CommandRun()
    return _current


def current() -> CommandRun:
    """Return the run that began last."""
    return _current


def timestamp(seconds: float) -> str:
    """Return seconds since the epoch as ISO 8601 in UTC, with milliseconds."""
    text = datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")
