"""One class a failure, each with the exit code that a script may rely on.

A message says what happened, to which path, and what the operator can do. The codes are those of
`docs/json.md`.
"""

from __future__ import annotations


class CpreplicateError(Exception):
    """The root of every failure that cpreplicate foresees."""

    exit_code = 1


class UsageError(CpreplicateError):
    """The words of the call do not fit together."""

    exit_code = 2


class CopyFailed(CpreplicateError):
    """Some copies failed: nothing was committed or deleted, the replica is as before."""

    exit_code = 3


class MetadataError(CpreplicateError):
    """Bytes that are not a `_metadata` this tool understands.

    Names the version or the byte offset.
    """

    exit_code = 5


class Refused(CpreplicateError):
    """Not done because it would not be safe."""

    exit_code = 6


class TooManyDeletes(Refused):
    """More would be deleted than `--max-delete` allows; `report` tells what."""

    def __init__(self, message: str, report: object) -> None:
        super().__init__(message)
        self.report = report


class NotThere(CpreplicateError):
    """The source or the replica is not there."""

    exit_code = 10


class SourceBroken(NotThere):
    """The source checkpoint has its `_metadata`, but files that it references are missing or
    shorter than it needs.
    """


class Misplaced(SourceBroken):
    """Referenced files are missing where they are recorded, and exist where a `--remap` would read
    them from.
    """


class LeaseHeld(CpreplicateError):
    """Another run holds the lease of this replica."""

    exit_code = 11


class SourceMovedOn(CpreplicateError):
    """The source checkpoint was subsumed while it was copied; the next run takes the newest one."""

    exit_code = 12


def exit_code_of(error: Exception) -> int:
    """Return the exit code of a run that an exception ended: its own, or 1 where none is foreseen
    for it.
    """
    return int(getattr(error, "exit_code", 1))
