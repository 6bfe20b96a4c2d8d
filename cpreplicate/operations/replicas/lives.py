"""The lives of a job: each time that it starts under a new id, it has another replica."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

from cpreplicate.core import uri
from cpreplicate.core.lag import Newest
from cpreplicate.core.placement import is_derived
from cpreplicate.errors import CpreplicateError, Refused, described
from cpreplicate.operations.replicas.source_look import source_of
from cpreplicate.protocol import census, json_files, seal
from cpreplicate.protocol.census import Census
from cpreplicate.protocol.checkpoint_record import read_record, recorded_names
from cpreplicate.protocol.job_record import JobRecord, read_job_record
from cpreplicate.protocol.marker import Marker, read_marker
from cpreplicate.protocol.replica import Replica
from cpreplicate.protocol.seal import Seal
from cpreplicate.runners import InlineRunner
from cpreplicate.storage import Side, Sides, Transient

_ASKED_AT_ONCE = 16  # sources


@dataclass(frozen=True)
class Named:
    """A directory below a TARGET_ROOT, and the name that is recorded there, None without one.

    `problem` is why that could not be read.
    """

    replica: str
    record: JobRecord | None = None
    problem: str | None = None

    @property
    def job(self) -> str:
        """The id of the job."""
        return uri.name(self.replica)


class Life(NamedTuple):
    """When a job completed the checkpoints that were replicated under its name.

    Both times are by the clock of the source. Without a checkpoint, `end` is minus infinity. A job
    that runs on a replica may have deleted its checkpoints: with `is_gone`, `checkpoint` is the
    last that is recorded. If none is, it is the promoted one, and both times are those since when
    the name is recorded, or infinite.
    `roots` are the directories of its source, as the source's storage knows them, with its id.
    `at_source` is the newest checkpoint that its source was seen to have, None if it was not seen.
    `replica_id` is that of the marker, None without one.
    """

    named: Named
    begin: float
    end: float
    checkpoint: str | None
    roots: frozenset[str]
    at_source: Newest | None = None
    replica_id: str | None = None
    is_gone: bool = False

    @property
    def last(self) -> float:
        """When the job completed a checkpoint last, replicated or not, as far as that is known."""
        seen = self.at_source
        return self.end if seen is None or not seen.is_dated else max(self.end, seen.completed)

    def __str__(self) -> str:
        if self.checkpoint is None:
            return f"{self.named.job} (no checkpoint)"
        held = self.checkpoint
        if math.isfinite(self.end):
            held += f" of {json_files.clock(self.end)}"
        if self.is_gone:
            held += ", which is not there any more"
        if self.at_source is not None and self.last > self.end:
            newer = f"chk-{self.at_source.checkpoint_id} of {json_files.clock(self.last)}"
            held += f"; at its source {newer}"
        return f"{self.named.job} ({held})"


def newest_at_sources(candidates: Sequence[Named], side: Side, source: Side) -> dict[str, Newest]:
    """Return the newest checkpoints of the sources that answer within seconds, by replica."""

    def ask(each: Named) -> Newest | None:
        return source_of(Replica(each.replica, side), source).look.newest

    with ThreadPoolExecutor(min(len(candidates), _ASKED_AT_ONCE), "source") as pool:
        found = list(pool.map(ask, candidates))
    return {
        each.replica: newest
        for each, newest in zip(candidates, found, strict=True)
        if newest is not None
    }


def read_names(places: Sequence[str], side: Side) -> list[Named]:
    """Return the names that are recorded in replicas, many of which are read at the same time."""

    def read(place: str) -> Named:
        try:
            return Named(place, read_job_record(side, place))
        except (CpreplicateError, OSError) as error:
            return Named(place, problem=described(error))

    return InlineRunner(Sides(target=side)).each(read, places, places).complete()


def life_of(named: Named, side: Side) -> Life:
    """Return when the job of a replica completed checkpoints. Costs some listings and reads.

    Raises `Refused` if that cannot be read: without it, no replica of the name is the newest.
    """
    try:
        return _read_life(named, side)
    except Transient:
        raise
    except (CpreplicateError, OSError) as error:
        raise Refused(
            f"{named.replica} is of the job {name_of(named)} and cannot be read. Nothing was done."
            f" Give an id instead of the name. {error}"
        ) from error


def _read_life(named: Named, side: Side) -> Life:
    replica = Replica(named.replica, side)
    marker, found = read_marker(side, named.replica), census.take(replica)
    return life_in(named, replica, marker, found, seal.read(replica))


def life_in(
    named: Named, replica: Replica, marker: Marker | None, found: Census, sealed: Seal | None
) -> Life:
    """Return the life of a job, of which `found` are the checkpoints.

    What has no recorded completion has the time of its `_metadata`, which is listed. If a job has
    deleted or replaced what it was started from, checkpoints that are recorded count: without
    them, an earlier life would be the newest.
    """
    roots, id_ = _roots(marker), marker.replica_id if marker is not None else None
    times = {name: _completed(replica, found, name) for name in found.own}
    newest = found.newest
    if _is_taken_over(found, sealed):
        times |= _recorded(replica, times)
        newest = max(times, key=times.__getitem__, default=None)
        if newest is None and sealed is not None:
            since = named.record.since if named.record is not None else 0.0
            only = since or math.inf
            return Life(named, only, only, sealed.checkpoint, roots, None, id_, is_gone=True)
    if newest is None:
        return Life(named, math.inf, -math.inf, None, roots, replica_id=id_)
    first = [named.record.since] if named.record is not None else []
    begin, end = min([*first, *times.values()]), times[newest]
    return Life(named, begin, end, newest, roots, None, id_, newest not in found.own)


def _is_taken_over(found: Census, sealed: Seal | None) -> bool:
    """Return whether a job has deleted, or may have replaced, what it is started from."""
    if sealed is None:
        return not found.own and bool(found.unrecorded)
    return sealed.checkpoint not in (*found.own, *found.derived)


def _recorded(replica: Replica, known: Collection[str]) -> dict[str, float]:
    """Return when checkpoints were completed that are recorded and not `known`, by name."""
    names = [name for name in recorded_names(replica.own_files()) if name not in known]
    records = {name: read_record(replica, name) for name in names if not is_derived(name)}
    return {
        name: record.completed
        for name, record in records.items()
        if record is not None and not record.adopted and record.completed is not None
    }


def _completed(replica: Replica, found: Census, name: str) -> float:
    completed = found.completed(name)
    return replica.listed_metadata(name).modified if completed is None else completed


def _roots(marker: Marker | None) -> frozenset[str]:
    """Return the directories of the source, without the id, as given and as its storage knows them.

    One that a mount leads elsewhere by now keeps its name.
    """
    sources = marker.sources if marker is not None else ()
    return frozenset(uri.parent(name) for source in sources for name in source)


def name_of(named: Named) -> str:
    """Return the recorded name of a job, or its id."""
    return named.job if named.record is None else named.record.name
