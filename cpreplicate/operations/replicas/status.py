"""`status`: what each replica holds, how far it is behind its source, and who works on it.

A replica costs a listing of itself, of `.cpreplicate/` and of each `chk-N`, and an open of each
small file there that has something to say. Of a manifest only its end is read, and a `_metadata`
only if it is a savepoint whose job has no checkpoint any more.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from cpreplicate.core import uri
from cpreplicate.core.lag import Newest
from cpreplicate.core.notify import Notify, silent
from cpreplicate.core.placement import METADATA
from cpreplicate.core.plan import total
from cpreplicate.core.positions.model import Positions
from cpreplicate.core.positions.ranges import Ranges, absent, behind, partitions_of
from cpreplicate.core.shard import WHOLE, Shard
from cpreplicate.errors import CpreplicateError, NotThere, described
from cpreplicate.operations.jobs.observation import Observation
from cpreplicate.operations.kafka import check as kafka_check
from cpreplicate.operations.kafka.evidence import Kafka
from cpreplicate.operations.kafka.positions import positions_in
from cpreplicate.operations.replicas.lives import Named, life_in
from cpreplicate.operations.replicas.replica_status import FleetStatus, Orphans, ReplicaStatus
from cpreplicate.operations.replicas.replicas import ReplicaRef, left_out
from cpreplicate.operations.replicas.source_look import (
    UNNAMED,
    SourceLook,
    ask,
    look_at,
    may_have_gone_further,
    of_ended,
    recorded_source,
)
from cpreplicate.operations.upkeep import orphans
from cpreplicate.protocol import census, job_record, lease, seal
from cpreplicate.protocol.census import Census
from cpreplicate.protocol.checkpoint_record import RECORD_SUFFIX, Record
from cpreplicate.protocol.job_record import read_job_record
from cpreplicate.protocol.ledger import unfinished
from cpreplicate.protocol.manifest import SUFFIX, Totals, read_totals
from cpreplicate.protocol.marker import Marker, is_replica, read_marker
from cpreplicate.protocol.readiness import Held, unready
from cpreplicate.protocol.replica import Replica
from cpreplicate.protocol.replica_state import links_among
from cpreplicate.protocol.retention_record import shown_retention
from cpreplicate.protocol.source import find
from cpreplicate.protocol.verification_record import NAME, lasting_failure, recorded_verifications
from cpreplicate.runners import Each, InlineRunner, Waits
from cpreplicate.storage import FileStatus, Sides
from cpreplicate.storage.base import Transient


def status(
    replicas: Sequence[ReplicaRef],
    sides: Sides,
    with_orphans: bool = False,
    max_lag: float | None = None,
    with_source: bool = True,
    with_positions: bool = False,
    kafka: Kafka | None = None,
    is_urgent: bool = False,
    notify: Notify = silent,
) -> FleetStatus:
    """Return the status of replicas; see `read_status`."""
    reading = read_status(
        replicas,
        sides,
        with_orphans,
        max_lag,
        with_source,
        with_positions,
        kafka,
        is_urgent,
        notify,
    )
    return reading.complete


def read_status(
    replicas: Sequence[ReplicaRef],
    sides: Sides,
    with_orphans: bool = False,
    max_lag: float | None = None,
    with_source: bool = True,
    with_positions: bool = False,
    kafka: Kafka | None = None,
    is_urgent: bool = False,
    notify: Notify = silent,
    shard: Shard = WHOLE,
) -> StatusReading:
    """Return the status of the replicas in a shard, many of which are read at the same time.

    What fails for one of them is in its row. One that `is_found` has no row if there is neither a
    replica nor, at its source, a job with a checkpoint. `max_lag`, in seconds, is only noted in the
    result. Without `with_source`, no source is asked. `with_positions`:
    the newest `_metadata` of each is read, and the small files with positions. It is read for a
    `kafka`, too, which is asked once for all of them. `is_urgent`: sources, which may be lost, are
    asked for seconds only. `notify` gets a line for each directory of a source that may not be read
    and has no replica: it is another user's. Nothing is changed.
    """
    places = [place for one in replicas for place in (one.replica, one.source) if place is not None]
    is_read = with_positions or kafka is not None
    examination = _Examination(sides, with_orphans, with_source, is_read, is_urgent, notify)
    rows = InlineRunner(sides).each(examination, replicas, places, examination.here)
    jobs = tuple(uri.name(one.replica) for one in replicas)
    return StatusReading(rows, jobs, max_lag, shard, kafka, with_positions)


@dataclass
class StatusReading:
    """The status of replicas while they are read: each row as soon as it is known.

    A row lacks what all of them are needed for: the later life of its job, and how far a `kafka`
    trails it. `jobs` are the ids of all replicas, also of those that turn out to be none.
    """

    _rows: Each[ReplicaStatus | None]
    jobs: tuple[str, ...]
    max_lag: float | None
    shard: Shard
    kafka: Kafka | None
    with_positions: bool

    def __iter__(self) -> Iterator[ReplicaStatus]:
        return (row for row in self.or_late() if row is not None)

    def or_late(self) -> Iterator[ReplicaStatus | None]:
        """Yield the rows, and None for each second in which no more became known."""
        for found in self._rows.or_late():
            if found is None:
                yield None
            elif found[0] is not None and found[0].is_in(self.shard):
                yield found[0]

    @cached_property
    def complete(self) -> FleetStatus:
        """The status of all, of which the rest is read."""
        seen = _with_later_lives([row for row in self._rows.complete() if row is not None])
        found = FleetStatus(tuple(seen), time.time(), self.max_lag)
        if self.kafka is None:
            return found.of_shard(self.shard)
        found = _with_kafka(found, self.kafka).of_shard(self.shard)
        if self.with_positions:
            return found
        rows = tuple(replace(row, positions=None) for row in found.replicas)
        return replace(found, replicas=rows)


def _with_later_lives(rows: Sequence[ReplicaStatus]) -> Iterator[ReplicaStatus]:
    """Yield the rows, with the newest of the later lives of their jobs that have a point."""
    points: dict[str | None, list[ReplicaStatus]] = {}
    for row in rows:
        if row.recorded is not None and row.life is not None and row.has_point:
            points.setdefault(row.recorded.name, []).append(row)
    for of_name in points.values():
        of_name.sort(key=lambda row: row.life.end if row.life is not None else 0.0, reverse=True)
    for row in rows:
        of_name = points.get(row.recorded and row.recorded.name, [])
        later = (each.life for each in of_name if each.is_later(row))
        life = next(later, None)
        yield row if life is None else replace(row, later_life=life)


def _with_kafka(found: FleetStatus, kafka: Kafka) -> FleetStatus:
    """Return the status with how far the topics of a Kafka trail each replica.

    A Kafka that does not answer leaves the rows as they are.
    """
    found = replace(found, kafka=kafka.servers)
    held = [row.positions.found for row in found.replicas if row.positions is not None]
    try:
        listing = kafka_check.listed(kafka, held)
    except (CpreplicateError, OSError) as error:
        return replace(found, kafka_error=error)
    rows = tuple(_trailing(row, listing.ranges) for row in found.replicas)
    return replace(found, replicas=rows, kafka_denied=listing.denied)


def _trailing(row: ReplicaStatus, ranges: Ranges) -> ReplicaStatus:
    held = row.positions.found if row.positions is not None else Positions()
    missing = tuple(absent(held, ranges))
    is_known = bool(partitions_of(held)) and not missing
    return replace(
        row, kafka_behind=behind(held, ranges) if is_known else None, kafka_missing=missing
    )


@dataclass
class _Examination:
    """Examines one replica and its source, in a task of the runner.

    `unreachable` are filesystems of sources that did not answer in time, with the error: they are
    asked once, not once a replica. `mounts` are those below each root that was listed.
    """

    sides: Sides
    with_orphans: bool
    with_source: bool
    with_positions: bool
    is_urgent: bool
    notify: Notify
    unreachable: dict[str, str] = field(default_factory=dict)
    mounts: dict[str, Sequence[str]] = field(default_factory=dict)

    def here(self, ref: ReplicaRef) -> ReplicaStatus | None:
        """Examine a replica of this machine. Raises `Waits` if its source is elsewhere."""
        return self(ref, may_wait=False)

    def __call__(self, ref: ReplicaRef, may_wait: bool = True) -> ReplicaStatus | None:
        replica = Replica(ref.replica, self.sides.target)
        job = uri.name(replica.root)
        observed = Observation(ref.name or job, ref.source or "", replica.root)
        observed.priority = ref.priority
        row = ReplicaStatus(job, observed, ref.name)
        is_there, marker = True, None
        try:
            own = replica.own_files()
            is_there = bool(own)
            if is_there:
                marker = read_marker(replica.side, replica.root)
                row = _with_replica(row, replica, marker, own, self._mounts_below(ref, replica))
            if is_there and self.with_orphans:
                row = _with_orphans(row, replica)
            if self.with_positions and row.checkpoint is not None:
                row = replace(row, positions=positions_in(replica, row.checkpoint))
        except (CpreplicateError, OSError) as error:
            observed.last_error = described(error)
        if ref.is_found and not is_there and not self._is_replicable(ref):
            return None
        if not may_wait and self._is_source_elsewhere(observed):
            raise Waits
        look = self._look(observed, ref.allow_older, None if ref.source else marker)
        observed.source_newest = look.newest
        life = row.life and row.life._replace(at_source=look.newest)
        return replace(
            row,
            source_error=look.error,
            is_source_known=look.is_known,
            ended=_ended(row, look, replica),
            life=life,
            is_there=is_there,
            looked=time.time(),
        )

    def _mounts_below(self, ref: ReplicaRef, replica: Replica) -> Sequence[str]:
        """Return the mounts below a replica: those below its root are read once for all of it."""
        if not ref.is_plain:
            return replica.storage.mounts_below(replica.root)
        root = uri.parent(replica.root)
        if root not in self.mounts:
            self.mounts[root] = replica.storage.mounts_below(root)
        return self.mounts[root] and replica.storage.mounts_below(replica.root)

    def _is_replicable(self, ref: ReplicaRef) -> bool:
        """Return whether a replica that is not there could be: of a job with a checkpoint."""
        if ref.source is None or not self.with_source:
            return False
        side = self.sides.source
        try:
            if is_replica(Replica(ref.source, side)):
                return False
            return find(ref.source, side, allow_older=True) is not None
        except NotThere:
            return False
        except PermissionError:
            self.notify(left_out(ref.source))
            return False
        except (CpreplicateError, OSError):
            return True

    def _is_source_elsewhere(self, observed: Observation) -> bool:
        source = observed.source
        return self.with_source and source != "" and not source.startswith("file:")

    def _look(self, observed: Observation, allow_older: bool, marker: Marker | None) -> SourceLook:
        """Return the newest checkpoint of a source. A filesystem that is lost is asked once.

        The source is named by the `marker`, or configured.
        """
        if not self.with_source:
            return SourceLook(None, None, False)
        if not observed.source:
            return SourceLook(None, UNNAMED, False)
        filesystem = uri.filesystem(observed.source)
        if filesystem in self.unreachable:
            return SourceLook(None, self.unreachable[filesystem], False)
        look = ask if self.is_urgent else look_at
        try:
            seen = look(observed.source, self.sides.source, allow_older, marker)
        except Transient as error:
            return SourceLook(None, self.unreachable.setdefault(filesystem, str(error)), False)
        own = observed.replica_newest
        return seen if own is None else seen.beside(own.checkpoint_id)


def _ended(row: ReplicaStatus, look: SourceLook, replica: Replica) -> str | None:
    """Return why `promote` refuses a replica whose job may have gone further, None if it does not.

    It does not if the replica is promoted already.
    """
    if row.checkpoint is None or row.sealed is not None:
        return None
    source, name = row.observed.source, row.checkpoint
    with suppress(CpreplicateError, OSError):  # a savepoint that cannot be read
        if not may_have_gone_further(source, look, replica, name, row.savepoint):
            return None
    reason = of_ended(source, name, row.observed.replica_newest)
    return f"{reason}. Sync its savepoint first, or give --go-back"


def _with_replica(
    row: ReplicaStatus,
    replica: Replica,
    marker: Marker | None,
    own: Mapping[str, FileStatus],
    mounts: Sequence[str],
) -> ReplicaStatus:
    """Return a row with what the files of the replica say."""
    observed = row.observed
    observed.source = observed.source or recorded_source(marker) or ""
    children = replica.children()
    links = links_among(children, own, mounts)
    found = census.take(replica, children)
    newest = found.newest
    sealed = seal.read(replica) if seal.NAME in own else None
    observed.is_sealed = sealed is not None
    reason = unready(replica, Held(found, marker, not (children or own), tuple(links), sealed))
    recorded = read_job_record(replica.side, replica.root) if job_record.NAME in own else None
    holder = lease.holder(replica.root, replica.side) if lease.NAME in own else None
    observed.is_lease_held = holder is not None and not holder.is_stale
    retention, retention_error = shown_retention(replica, own)
    life = None
    with suppress(CpreplicateError, OSError):  # else it is not known
        life = life_in(Named(replica.root, recorded), replica, marker, found, sealed)
    verifications = recorded_verifications(replica) if NAME in own else ()
    promoted = newest if sealed is None or newest is None else sealed[0]
    record = found.records.get(promoted or "")
    failure = lasting_failure(verifications, promoted, record and record.completed)
    verified = failure or next(iter(verifications), None)
    held = _NONE if newest is None else _held(replica, own, newest, found.records[newest])
    observed.replica_newest = held.newest
    if newest is None:
        observed.last_error = _replaced(replica, own, found)
    return replace(
        row,
        checkpoint=newest,
        totals=held.totals,
        savepoint=held.savepoint,
        is_verified=verified is not None
        and verified.is_restorable
        and newest is not None
        and verified.is_of(newest, found.records[newest].completed, found.records[newest].digests),
        is_damaged=failure is not None,
        sealed=seal.describe(replica) if sealed is not None else None,
        retention=retention,
        retention_error=retention_error,
        verified=verified,
        holder=holder,
        unfinished=_unfinished(own, newest),
        # a job may write its checkpoints into a replica that was promoted for it
        warnings=() if sealed is not None else tuple(_obstacles(replica, found, links)),
        has_links=bool(links),
        derived=found.derived,
        refusal=None if reason is None else str(reason),
        recorded=recorded,
        life=life,
    )


def _replaced(replica: Replica, own: Mapping[str, FileStatus], found: Census) -> str | None:
    """Return that another program wrote over a checkpoint, which has a record, None if not."""
    replaced = [name for name in found.unrecorded if f"{name}{RECORD_SUFFIX}" in own]
    if not replaced:
        return None
    return f"{replica.uri_of(replaced[0])}/{METADATA} is not the one that cpreplicate wrote"


class _Held(NamedTuple):
    """What is known of the newest checkpoint of a replica."""

    newest: Newest | None = None
    totals: Totals | None = None
    savepoint: str | None = None


_NONE = _Held()


def _held(replica: Replica, own: Mapping[str, FileStatus], name: str, record: Record) -> _Held:
    """Return what is known of a checkpoint that the replica holds."""
    manifest, published = own.get(f"{name}{SUFFIX}"), replica.listed_metadata(name)
    # before anything else is known of the row: a lag must not hide that this failed
    totals = manifest and read_totals(replica.storage, replica.root, name, manifest.length)
    completed = published.modified if record.completed is None else record.completed
    number = int(name.removeprefix("chk-"))
    newest = Newest(number, completed, record.completed is not None)
    return _Held(newest, totals, record.savepoint)


def _obstacles(replica: Replica, found: Census, links: Sequence[str]) -> Iterator[str]:
    """Yield why `sync` and `promote` refuse the replica: links, and checkpoints of others."""
    for link in links:
        yield (
            f"{replica.uri_of(link)} is a symbolic link or a mount. sync, sweep and promote refuse"
            " the replica. `cpreplicate verify` shows what to do"
        )
    for name in found.unrecorded:
        yield (
            f"{replica.uri_of(name)}/{METADATA} was not written by cpreplicate: a job writes its"
            " checkpoints here, or the record of it was lost. sync, sweep and promote refuse the"
            " replica. `cpreplicate verify` shows what to do"
        )


def _unfinished(own: Mapping[str, FileStatus], newest: str | None) -> float | None:
    """Return when the last part of a journal was written that a run left which died."""
    return max((own[name].modified for name in unfinished(own, newest)), default=None)


def _with_orphans(row: ReplicaStatus, replica: Replica) -> ReplicaStatus:
    """Return a row with the orphans, and the bytes of all files.

    Temporary files do not count: the next run removes them. Costs a listing of every directory, and
    a read of every manifest.
    """
    found = orphans.find(replica, orphans.examine(replica), time.time(), with_trash=False)
    left = [each for each in found.orphans if not orphans.is_unfinished(each.target)]
    counted = Orphans(len(left), total(left))
    return replace(row, orphans=counted, stored=found.bytes)
