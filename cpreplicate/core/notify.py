"""How an operation reports a line to whoever started it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Notify: TypeAlias = Callable[[str], None]
"""Report a line, such as a warning; may be called by any thread."""


def silent(_line: str) -> None:
    """Report nothing."""


def named(name: str, notify: Notify) -> Notify:
    """Return a function that reports lines of a job under its name."""
    return lambda line: notify(f"{name}: {line}")
