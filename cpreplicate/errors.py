"""Errors: a class for each kind of failure, with the exit code that a script may rely on.

A message states what happened, to which path, and what the operator can do. The codes are those of
`docs/json.md`.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import Any, Literal

Obstacle = Literal["link", "no_marker", "foreign", "gone"]
"""A link or a mount, no marker, a checkpoint that cpreplicate did not write, and the promoted
checkpoint not there any more."""

_NO_THREAD = "can't start new thread"  # of CPython's threading
_LIMITS = (
    "the limits of the host or of the container on processes or memory (`ulimit -u`, `ulimit -v`,"
    " pids.max) are used up. Raise them"
)


class CpreplicateError(Exception):
    """The base class of every failure that cpreplicate expects."""

    exit_code = 1

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how it is pickled: it may have been raised in another process."""
        return _raised_elsewhere, (type(self), self.args, self.__dict__)


def _raised_elsewhere(
    kind: type[CpreplicateError], arguments: tuple[Any, ...], more: Mapping[str, Any]
) -> CpreplicateError:
    error = kind.__new__(kind)
    error.args = arguments
    error.__dict__.update(more)
    return error


class UsageError(CpreplicateError):
    """The arguments of a command are wrong or do not fit together."""

    exit_code = 2


class CopyFailed(CpreplicateError):
    """Some copies failed: nothing was committed or deleted, and the replica is as before."""

    exit_code = 3


class SourceDamaged(CopyFailed):
    """The storage of the source has files that it cannot return; nothing was committed."""

    exit_code = 4


class ReplicaDamaged(CopyFailed):
    """Files of the replica that were to be copied in it are damaged; no `_metadata` was changed."""

    exit_code = 4


class NoSpace(CpreplicateError):
    """The target has no room for what a sync would copy: nothing was committed or deleted."""

    exit_code = 3


class MetadataError(CpreplicateError):
    """A `_metadata` cannot be decoded; the message names the version or the byte offset."""

    exit_code = 5


class CutShort(MetadataError):
    """A `_metadata` ends before its content does: it is being written, or its writer died."""


class Refused(CpreplicateError):
    """The command was refused because it would not be safe."""

    exit_code = 6


class Sealed(Refused):
    """The replica is sealed: a job may run from it. `obstacle` is as of `Obstructed`, if any."""

    obstacle: Obstacle | None = None


class NotNewer(Refused):
    """The replica holds a newer checkpoint than the one that is to be replicated."""


class Obstructed(Refused):
    """Every command that changes the replica is refused, also `promote`, because of `obstacle`."""

    def __init__(self, message: str, obstacle: Obstacle) -> None:
        super().__init__(message)
        self.obstacle: Obstacle = obstacle


class ReportRefused(Refused):
    """What was refused is shown first; `report` has it."""

    def __init__(self, message: str, report: object) -> None:
        super().__init__(message)
        self.report = report


class FlinkRefused(Refused):
    """A JobManager answered that it does not do what it was asked; `status` is that of HTTP."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class TooManyDeletes(ReportRefused):
    """More would be deleted than `--max-delete` allows; `report` is that of the plan."""


class KeepsLess(ReportRefused):
    """A run states to keep less than the replica records; `report` is that of the plan."""


class NotAtKafka(ReportRefused):
    """No checkpoint can be restored at a Kafka as it is; `report` has what is in the way."""


class PartFilesMissing(ReportRefused):
    """A checkpoint needs part files that were not found; `report` has them."""


class Cancelled(CpreplicateError):
    """A program that uses `cpreplicate.api` cancelled what it had begun."""

    exit_code = 130


class Unanswered(CpreplicateError):
    """A service did not answer a call, for a reason that may be over at the next one."""


class NotThere(CpreplicateError):
    """The source or the replica does not exist."""

    exit_code = 10


class NoJob(NotThere):
    """A path exists, but is no directory of a job, or no root of jobs, and never becomes one."""


class SourceBroken(NotThere):
    """The source checkpoint is incomplete: referenced files are missing or too short."""


class Misplaced(SourceBroken):
    """Referenced files are not where they are recorded, but where a `--remap` would find them."""


class LeaseHeld(CpreplicateError):
    """Another run holds the lease of this replica."""

    exit_code = 11


class Lagging(CpreplicateError):
    """A replica lags behind its source by more than was allowed."""

    exit_code = 21


class TargetGone(CpreplicateError):
    """The replica's directory went during the run: it was unmounted, moved or removed."""

    exit_code = 10


class SourceMovedOn(CpreplicateError):
    """The source checkpoint was subsumed during the copy; the next run takes the newest one."""

    exit_code = 12


class NotSwitched(CpreplicateError):
    """A job was not switched, and runs where it ran."""

    exit_code = 22


class SwitchUnclear(CpreplicateError):
    """A job that was to be switched does not run, or it is not known where: a person has to act."""

    exit_code = 23


def exit_code_of(error: Exception) -> int:
    """Return the exit code for an exception: its own, or 1 for an unexpected one.

    A full disk or quota is that of `NoSpace`, wherever it is met.
    """
    return int(getattr(error, "exit_code", NoSpace.exit_code if is_full(error) else 1))


def is_full(error: BaseException) -> bool:
    """Return whether a filesystem, or a quota, had no room for what was to be written."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def obstacle_of(error: BaseException) -> Obstacle | None:
    """Return what an exception states to be in the way of `promote`, None if nothing."""
    return error.obstacle if isinstance(error, (Obstructed, Sealed)) else None


def is_without_thread(error: Exception) -> bool:
    """Return whether a thread could not be started: a limit of the host, and no mistake."""
    return isinstance(error, RuntimeError) and str(error).startswith(_NO_THREAD)


def described(error: Exception) -> str:
    """Return what a message states of an exception, which may be an unexpected one.

    Of an error of the operating system that is its path and the reason, without the number.
    """
    if is_without_thread(error):
        return f"{error}: {_LIMITS}"
    if isinstance(error, OSError) and type(error).__str__ is OSError.__str__ and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    is_known = isinstance(error, (CpreplicateError, OSError))
    return str(error) if is_known else f"unexpected {type(error).__name__}: {error}"
