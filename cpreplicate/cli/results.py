"""What a command does with its result: choose the exit code, show a plan that was refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from errno import EPIPE
from typing import Any

from cpreplicate.errors import TooManyDeletes

UNWRITTEN = 1


def read_code(unwritten: OSError | None) -> int:
    """Return the exit code of a command that only reads: without its result it did nothing.

    No message is printed for a reader that closed the pipe early, such as `head`.
    """
    from cpreplicate.output import write_error

    if unwritten is None:
        return 0
    if unwritten.errno != EPIPE:
        write_error(_text(unwritten))
    return UNWRITTEN


def change_code(unwritten: OSError | None) -> int:
    """Return the exit code of a command that changed a replica, and warn that its result is lost.

    The exit code is about the work that was done.
    """
    from cpreplicate.output import write_warning

    if unwritten is not None:
        write_warning(f"{_text(unwritten)}. The work is done, and the exit code is its own")
    return 0


@contextmanager
def showing_refused_plan(show: Callable[[Any], object]) -> Iterator[None]:
    """Show the plan when it would delete more than `--max-delete` allows, then raise."""
    try:
        yield
    except TooManyDeletes as error:
        show(error.report)
        raise


def _text(unwritten: OSError) -> str:
    return f"the result could not be written to stdout: {unwritten.strerror or unwritten}"
