"""What a result that could not be written to stdout means for the exit code."""

from __future__ import annotations

from errno import EPIPE

UNWRITTEN = 1


def read_code(unwritten: OSError | None) -> int:
    """Return the exit code of a command that only reads: without its result it did nothing.

    A reader that has seen enough, such as `head`, is no reason for a message.
    """
    from cpreplicate.output import complain

    if unwritten is None:
        return 0
    if unwritten.errno != EPIPE:
        complain(_text(unwritten))
    return UNWRITTEN


def change_code(unwritten: OSError | None) -> int:
    """Return the exit code of a command that changed a replica: what it did counts.

    The loss is mentioned on stderr.
    """
    from cpreplicate.output import warn

    if unwritten is not None:
        warn(f"{_text(unwritten)}. The work is done, and the exit code is its own")
    return 0


def _text(unwritten: OSError) -> str:
    return f"the result could not be written to stdout: {unwritten.strerror or unwritten}"
