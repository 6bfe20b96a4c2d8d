"""What a thread works on: what its lines in the log are about, and its jobs on Spark's pages."""

from __future__ import annotations

from contextvars import ContextVar
from typing import NamedTuple


class LogContext(NamedTuple):
    """A job, by its name or id, and one of its checkpoints; None where that is not known."""

    job: str | None = None
    checkpoint: str | None = None


_NOTHING = LogContext()
_command: str | None = None
_context: ContextVar[LogContext] = ContextVar("log_context", default=_NOTHING)


def log_context() -> LogContext:
    """Return what this thread works on."""
    return _context.get()


def begin_command(name: str) -> None:
    """Record that this process, with all its threads, carries out a command from now on."""
    global _command  # a process runs one command
    _command = name


def title() -> str:
    """Return the command, the job and the checkpoint, as far as they are known, in one line."""
    known = (_command, *log_context())
    return " ".join(["cpreplicate", *(word for word in known if word)])


def begin_job(job: str | None) -> None:
    """Record that this thread works on a job from now on, and on no checkpoint yet."""
    _context.set(LogContext(job))


def go_on_with(context: LogContext) -> None:
    """Record that this thread reports for another process what that works on."""
    _context.set(context)


def begin_checkpoint(name: str) -> None:
    """Record that this thread works on a checkpoint of its job from now on."""
    _context.set(log_context()._replace(checkpoint=name))
