"""The newest checkpoint of a source as it is seen now, and how far a replica's is behind it.

Which one is ahead is decided by their numbers, and for the same number by times of the source's
clock alone. The source may be lost: who needs an answer now gives a deadline.
"""

from __future__ import annotations

import errno
import time
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

from cpreplicate.core import uri
from cpreplicate.core.lag import Newest, age_seconds, checkpoints_behind, lag_seconds
from cpreplicate.core.placement import CHECKPOINT_NAME, job_root
from cpreplicate.core.sizes import counted
from cpreplicate.errors import CpreplicateError, NotThere, Refused, described
from cpreplicate.protocol import json_files
from cpreplicate.protocol.marker import Marker, SourceName, read_marker, source_name
from cpreplicate.protocol.replica import Replica
from cpreplicate.protocol.replica_name import is_savepoint_name
from cpreplicate.protocol.source import find, read_metadata
from cpreplicate.storage import Side
from cpreplicate.storage.base import NoAnswer, Transient
from cpreplicate.storage.waiting.side_call import in_thread

_A_CALL = 5.0  # seconds for a call to a source that may be lost
_DEADLINE = 10.0  # seconds for all of them, also where the kernel waits for a mount
_SAVEPOINT = -1  # the number of what has none in its name
UNNAMED = "the replica does not name its source"


class SourceLook(NamedTuple):
    """The newest checkpoint of a source, and why there is none or, unless `is_known`, no answer."""

    newest: Newest | None = None
    error: str | None = None
    is_known: bool = True

    @property
    def is_gone(self) -> bool:
        """Whether the source answers, and holds no checkpoint any more."""
        return self.is_known and self.newest is None

    def beside(self, checkpoint_id: int) -> SourceLook:
        """Return the look where the replica holds this checkpoint: a savepoint has its number.

        It has none in its name, and is the only checkpoint of its replica.
        """
        if self.newest is None or self.newest.checkpoint_id != _SAVEPOINT:
            return self
        return self._replace(newest=self.newest._replace(checkpoint_id=checkpoint_id))


@dataclass(frozen=True)
class Behind:
    """How far a checkpoint of a replica is behind its source, which was seen at a time `now`.

    `own` is the checkpoint. `source` is the URI that was asked, None if the replica names none.
    `is_ended`: the source holds no checkpoint any more, and this one may not be its last.
    """

    source: str | None
    look: SourceLook
    own: Newest
    now: float = field(compare=False)
    is_ended: bool = False

    @property
    def is_known(self) -> bool:
        """Whether it is known what the source has, or had in the end."""
        return self.look.is_known and not self.is_ended

    @property
    def checkpoints(self) -> int | None:
        """By how many checkpoints the source is ahead, None if that is not known."""
        return checkpoints_behind(self.look.newest, self.own) if self.is_known else None

    @property
    def seconds(self) -> float | None:
        """The lag in seconds as `status` defines it, None if it is not known."""
        if not self.is_known:
            return None
        lag = lag_seconds(self.look.newest, self.own, self.now)
        return lag if self.own.is_dated or not lag else None

    @property
    def age(self) -> float:
        """The seconds since the checkpoint was completed."""
        return age_seconds(self.own, self.now)

    def exceeds(self, limit: float) -> bool:
        """Return whether the lag is over a limit in seconds.

        A lag that is not known is at most the age of the checkpoint, and over any limit if that is
        not known either.
        """
        if self.seconds is not None:
            return self.seconds > limit
        return not self.own.is_dated or self.age > limit


def checkpoints_of(count: int) -> str:
    """Return a number of checkpoints as a message has it."""
    return counted(count, "checkpoint")


def recorded_source(marker: Marker | None) -> str | None:
    """Return the source of a replica as it was named last, None if that is not recorded."""
    return None if marker is None else marker.sources[-1].given


def look_at(
    source: str, side: Side, allow_older: bool = False, marker: Marker | None = None
) -> SourceLook:
    """Look for the newest checkpoint of a source. Raises `Transient` if that cannot be reached.

    What else is in the way is in the result, also that the side's configuration leads the name to
    another place than the one that a marker names.
    """
    try:
        if marker is not None and not marker.names(now := source_name(side, source)):
            return SourceLook(None, _elsewhere(marker, now), False)
        found = find(source, side, allow_older)
    except NotThere as error:
        return SourceLook(None, str(error), _is_gone(job_root(source), side))
    except Transient:
        raise
    except (CpreplicateError, OSError) as error:
        return SourceLook(None, described(error), False)
    number = CHECKPOINT_NAME.fullmatch(uri.name(found.checkpoint))
    id_ = int(number[1]) if number is not None else _SAVEPOINT
    return SourceLook(Newest(id_, found.completed or 0.0, found.completed is not None))


def impatient(side: Side) -> Side:
    """Return a side by which a source is asked that may be lost: a call takes seconds at most."""
    return replace(side, retry_for=0.0, patience=_A_CALL)


def _elsewhere(marker: Marker, now: SourceName) -> str:
    return (
        f"{now.given} is {now.resolved} here, and the source of the replica is"
        f" {marker.sources[-1].resolved}. Give the configuration of its data centre with"
        " --source-conf"
    )


def ask(
    source: str, side: Side, allow_older: bool = False, marker: Marker | None = None
) -> SourceLook:
    """Look at a source as `look_at` does, for seconds at most. Raises `Transient`.

    A directory on a mount whose server is gone holds a call up for ever: it is left behind.
    """
    asking = in_thread(partial(look_at, source, impatient(side), allow_older, marker), "source")
    if not asking.wait(_DEADLINE):
        raise NoAnswer(errno.ETIMEDOUT, f"it has not answered for {_DEADLINE:g} s", source)
    return asking.result()


class SourceSeen(NamedTuple):
    """What was asked of the source that a replica records, and when, in seconds since the epoch."""

    source: str | None
    look: SourceLook
    now: float

    def behind(self, checkpoint_id: int, completed: float | None) -> Behind:
        """Return how far a checkpoint of the replica is behind; `completed` as it is recorded."""
        own = Newest(checkpoint_id, completed or 0.0, completed is not None)
        return Behind(self.source, self.look.beside(checkpoint_id), own, self.now)


def source_of(replica: Replica, side: Side | None, marker: Marker | None = None) -> SourceSeen:
    """Ask the source that a replica records, for seconds at most. Without a side it is not asked.

    The marker is read if it is not given. Why there is no answer is in the result.
    """
    try:
        marker = marker or read_marker(replica.side, replica.root)
        source = recorded_source(marker)
    except Refused as error:
        return SourceSeen(None, SourceLook(None, described(error), False), time.time())
    if source is None:
        return SourceSeen(None, SourceLook(None, UNNAMED, False), time.time())
    if side is None:
        return SourceSeen(source, SourceLook(None, "it was not asked", False), time.time())
    try:
        look = ask(source, side, marker=marker)
    except Transient as error:
        look = SourceLook(None, described(error), False)
    return SourceSeen(source, look, time.time())


def may_have_gone_further(
    source: str | None, look: SourceLook, replica: Replica, name: str, savepoint: str | None
) -> bool:
    """Return whether a job may have gone further than a checkpoint, with all of its own deleted.

    It has not if that is the `savepoint` with which it was stopped, as Flink records from 1.17 on:
    only then its `_metadata` is read. A source that is a savepoint itself has no newer one.
    """
    if not look.is_gone or not source:
        return False
    if savepoint == source or is_savepoint_name(uri.name(source)):
        return False
    return (
        savepoint is None or not read_metadata(replica.uri_of(name), replica.side).metadata.ends_job
    )


def of_ended(source: str | None, name: str, own: Newest | None) -> str:
    """Return why a checkpoint is not promoted without a word: its job may have gone further."""
    completed = json_files.clock(own.completed if own is not None and own.is_dated else None)
    return (
        f"{source} holds no checkpoint any more. Its job has ended, or was stopped with a"
        f" savepoint: Flink deletes its checkpoints then. To start it from {name}, completed"
        f" {completed}, may take it back"
    )


def _is_gone(source: str, side: Side) -> bool:
    """Return whether it is known that a job without a checkpoint has none any more.

    Where the root above its directory is empty, that may not be mounted. An object store that
    answers has nothing to mount, and no directory of its own beside the files.
    """
    storage = side.storage(source)
    try:
        return not storage.has_directories or bool(storage.list(uri.parent(source)))
    except OSError:
        return False
