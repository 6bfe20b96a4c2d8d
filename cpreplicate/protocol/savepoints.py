"""Savepoints that may be of a job, in the directories around that of its checkpoints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from cpreplicate.core import uri
from cpreplicate.core.placement import JOB_ID
from cpreplicate.errors import CpreplicateError
from cpreplicate.protocol.source import find
from cpreplicate.storage import Side

_MOST_PLACES = 16  # directories that are listed
_MOST_READ = 20  # savepoints that are looked at


class LastSavepoint(NamedTuple):
    """The savepoint at `path` with which a job may have been stopped.

    `completed` is in seconds since the epoch, None if that is not known. `is_reported`: a
    JobManager names it, which alone knows whose it is.
    """

    path: str
    completed: float | None
    is_reported: bool = False


def newest_savepoint(job_root: str, side: Side, within: Sequence[str] = ()) -> LastSavepoint | None:
    """Return the savepoint completed last whose name begins with the id of a job.

    It may be that of another job if the id is a fixed one. Flink's configuration says where it
    is; here, the directory above that of the job is looked through, and those beside that, as far
    as they are `within` some roots, if any are given. None without one that can be seen.
    """
    id_ = uri.name(job_root)
    if not JOB_ID.fullmatch(id_):
        return None
    found: list[LastSavepoint] = []
    for place in _places(job_root, side, within):
        with suppress(CpreplicateError, OSError):
            names = [each.name for each in side.storage(place).list(place) if each.is_directory]
            taken = sorted(name for name in names if name.startswith(f"savepoint-{id_[:6]}-"))
            found += _complete([uri.join(place, name) for name in taken[:_MOST_READ]], side)
    return max(found, key=lambda each: each.completed or 0.0, default=None)


def _complete(places: Sequence[str], side: Side) -> Iterator[LastSavepoint]:
    for place in places:
        with suppress(CpreplicateError, OSError):
            found = find(place, side)
            if found.job_root is None:
                yield LastSavepoint(found.checkpoint, found.completed)


def _places(job_root: str, side: Side, within: Sequence[str]) -> list[str]:
    """Return where Flink is likely to be configured to write savepoints."""
    above = uri.parent(job_root)
    places, top = [above], uri.parent(above)
    if uri.local_path(top).strip("/") or not side.storage(top).has_directories:
        places.append(top)
        with suppress(CpreplicateError, OSError):
            names = [each.name for each in side.storage(top).list(top) if each.is_directory]
            beside = (name for name in names if not name.startswith((".", "savepoint-")))
            others = (name for name in beside if not JOB_ID.fullmatch(name))
            places += [uri.join(top, name) for name in others if name != uri.name(above)]
    allowed = (place for place in places if not within or any(uri.within(place, r) for r in within))
    return list(allowed)[:_MOST_PLACES]
