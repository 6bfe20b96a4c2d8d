"""The job and the checkpoint that the lines are about which a thread logs."""

from __future__ import annotations

from contextvars import ContextVar
from typing import NamedTuple


class Subject(NamedTuple):
    """A job, by its name or id, and one of its checkpoints; None where that is not known."""

    job: str | None = None
    checkpoint: str | None = None


_NOTHING = Subject()
_subject: ContextVar[Subject] = ContextVar("subject", default=_NOTHING)


def subject() -> Subject:
    """Return what this thread works on."""
    return _subject.get()


def begin_job(job: str | None) -> None:
    """Record that this thread works on a job from now on, and on no checkpoint yet."""
    _subject.set(Subject(job))


def begin_checkpoint(name: str) -> None:
    """Record that this thread works on a checkpoint of its job from now on."""
    _subject.set(subject()._replace(checkpoint=name))
