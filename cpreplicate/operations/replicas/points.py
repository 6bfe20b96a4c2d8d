"""`list`: the committed checkpoints of replicas as points in time, and what each of them costs.

A point costs a read of its record and of its manifest. Its `_metadata`, which may have gigabytes,
is read only where no manifest describes it. Nothing is changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cpreplicate.core import uri
from cpreplicate.core.ledger import MemberTable
from cpreplicate.core.notify import Notify, silent
from cpreplicate.core.path_columns import Numbers, Texts, chosen, rows_of, texts
from cpreplicate.core.placement import own_name
from cpreplicate.core.retention import Stated
from cpreplicate.core.short_repr import short_repr
from cpreplicate.core.tables import Lengths
from cpreplicate.errors import CpreplicateError, described
from cpreplicate.operations.kafka.positions import CheckpointPositions, positions_in
from cpreplicate.operations.replicas.replicas import replicas_below
from cpreplicate.protocol import census, manifest, seal
from cpreplicate.protocol.census import Census
from cpreplicate.protocol.checkpoint_record import Record
from cpreplicate.protocol.replica import Replica
from cpreplicate.protocol.retention_record import shown_retention
from cpreplicate.protocol.verification_record import NAME as VERIFIED
from cpreplicate.protocol.verification_record import (
    Verified,
    lasting_failure,
    recorded_verifications,
)
from cpreplicate.runners import Each, InlineRunner
from cpreplicate.storage import FileStatus, Side, Sides

_SHARED = -1
_SLASH = pa.scalar("/", pa.large_string())


@dataclass(frozen=True)
class Point:
    """A committed checkpoint of a replica.

    `completed` is when it was completed at the source, in seconds since the epoch, None if that is
    not recorded. `files` and `bytes` are what a restore reads: packed files count by themselves.
    `added_bytes` are those that no other checkpoint of the replica references. `verified` is when
    `verify --record` examined just this `_metadata` last, and `is_restorable` what it found. Both
    are None if another checkpoint was examined since, or none. A failure stays until it is cleared.
    `positions` are None unless they were asked for. `savepoint` is the URI of the savepoint that it
    is, None of a checkpoint.
    """

    checkpoint: str
    checkpoint_id: int
    completed: float | None
    files: int
    bytes: int
    added_bytes: int
    verified: float | None = None
    is_restorable: bool | None = None
    positions: CheckpointPositions | None = None
    savepoint: str | None = None


@short_repr("replica", "points", "derived", "bytes", "error")
@dataclass(frozen=True)
class ReplicaPoints:
    """The points of a replica, the newest first.

    `job` is its id. `derived` are the checkpoints that `rebase` wrote beside them, by name: they
    keep the files that they reference. `bytes` are those of all of these together, what several
    share counted once.
    `others` are the checkpoints in its directory that cpreplicate did not publish. `sealed` is by
    whom, when and for which checkpoint it was promoted. `retention` is which points it keeps, as it
    records that, and `retention_error` why that is not known. `error` is why it could not be read.
    """

    job: str
    replica: str
    points: tuple[Point, ...] = ()
    bytes: int = 0
    others: tuple[str, ...] = ()
    sealed: str | None = None
    retention: Stated | None = None
    retention_error: str | None = None
    error: str | None = None
    derived: tuple[Point, ...] = ()

    @property
    def held(self) -> tuple[Point, ...]:
        """The points, and then the derived checkpoints."""
        return self.points + self.derived


@short_repr("replicas")
@dataclass(frozen=True)
class Points:
    """The points of several replicas, in the order in which these were given or are listed."""

    replicas: tuple[ReplicaPoints, ...]


@dataclass
class PointsReading:
    """The points of several replicas while they are read: each replica as soon as it is known."""

    _rows: Each[ReplicaPoints | None]

    def __iter__(self) -> Iterator[ReplicaPoints]:
        return (row for row in self._rows if row is not None)

    @cached_property
    def complete(self) -> Points:
        """The points of all replicas, in their order. Those not iterated yet are read now."""
        return Points(tuple(row for row in self._rows.complete() if row is not None))


def points_below(
    root: str, sides: Sides, with_positions: bool = False, notify: Notify = silent
) -> Points:
    """Return the points of each replica below a target root; see `read_points_below`."""
    return read_points_below(root, sides, with_positions, notify).complete


def points(replicas: Sequence[str], sides: Sides, with_positions: bool = False) -> Points:
    """Return the points of replicas; see `read_points`."""
    return read_points(replicas, sides, with_positions).complete


def read_points_below(
    root: str, sides: Sides, with_positions: bool = False, notify: Notify = silent
) -> PointsReading:
    """Return the points of each replica below a target root, or of the replica `root` itself.

    See `read_points`. `notify` gets what is left out. Raises `NotThere` if there is neither.
    """
    replicas = [ref.replica for ref in replicas_below(root, (), sides, notify)]
    return read_points(replicas, sides, with_positions)


def read_points(
    replicas: Sequence[str], sides: Sides, with_positions: bool = False
) -> PointsReading:
    """Return the points of replicas, many of which are read at the same time.

    `with_positions`: the `_metadata` of each point is read, and the small files with positions.
    What fails for one of them is in its row. A directory that is no replica has no row.
    """
    reading = _Reading(sides.target, with_positions)
    return PointsReading(InlineRunner(sides).each(reading, replicas, replicas))


@dataclass(frozen=True)
class _Reading:
    """Reads the points of one replica, in a task of the runner."""

    side: Side
    with_positions: bool

    def __call__(self, root: str) -> ReplicaPoints | None:
        replica = Replica(root, self.side)
        try:
            own = replica.own_files()
            if not own:
                return None
            found = _points_of(replica, own)
            return _with_positions(found, replica) if self.with_positions else found
        except (CpreplicateError, OSError) as error:
            return ReplicaPoints(uri.name(replica.root), replica.root, error=described(error))


def _with_positions(found: ReplicaPoints, replica: Replica) -> ReplicaPoints:
    points, derived = (
        tuple(replace(each, positions=positions_in(replica, each.checkpoint)) for each in some)
        for some in (found.points, found.derived)
    )
    return replace(found, points=points, derived=derived)


def _points_of(replica: Replica, own: Mapping[str, FileStatus]) -> ReplicaPoints:
    """Return the points of a replica; `own` are the names in its `.cpreplicate`."""
    held = census.take(replica)
    verifications = recorded_verifications(replica) if VERIFIED in own else ()
    referenced = _referenced(replica, own, held)
    points = [
        _point(each, held.records[each.name], added, verifications)
        for each, added in zip(referenced.found, referenced.added_bytes, strict=True)
    ]
    return ReplicaPoints(
        uri.name(replica.root),
        replica.root,
        tuple(point for point in points if point.checkpoint in held.own),
        referenced.bytes,
        (*held.others, *referenced.others),
        seal.describe(replica) if seal.NAME in own else None,
        *shown_retention(replica, own),
        derived=tuple(point for point in points if point.checkpoint in held.derived),
    )


class _Found(NamedTuple):
    """A checkpoint, and what it references; packed files count by themselves."""

    name: str
    checkpoint_id: int
    files: int
    bytes: int


class _Referenced(NamedTuple):
    """The checkpoints of a replica, the bytes that only each of them references, and all bytes.

    `others` turned out to be none of cpreplicate's.
    """

    found: Sequence[_Found]
    added_bytes: Sequence[int]
    bytes: int
    others: Sequence[str] = ()


def _referenced(replica: Replica, own: Mapping[str, FileStatus], held: Census) -> _Referenced:
    names = (*held.own, *held.derived)
    if len(names) == 1 and (alone := _alone(replica, own, names[0], held.records[names[0]])):
        return _Referenced([alone], [alone.bytes], alone.bytes)
    union, found, others = _Union(), list[_Found](), list[str]()
    for name in names:
        referenced = _referenced_by(replica, name, held.records[name])
        if referenced is not None:
            checkpoint_id, pieces = referenced
            union.add(pieces)
            found.append(_Found(name, checkpoint_id, len(pieces), int(pieces.bytes.sum())))
        elif replica.metadata_status(name) is not None:  # it was not withdrawn meanwhile
            others.append(name)
    return _Referenced(found, union.added_bytes, union.bytes, others)


def _alone(
    replica: Replica, own: Mapping[str, FileStatus], name: str, record: Record
) -> _Found | None:
    """Return the only checkpoint of a replica by the sums of its manifest.

    It shares no file, so the names in the manifest are not needed: to read them takes ten times as
    long. None if there are packs, of which the sums have the dead bytes, too.
    """
    file = own.get(f"{own_name(name)}{manifest.SUFFIX}")
    if file is None:
        return None
    found = manifest.read_summary(replica.storage, replica.root, name, file.length)
    if found is None or found.metadata not in record.digests or found.totals.packs:
        return None
    return _Found(name, found.checkpoint_id, found.totals.files, found.totals.bytes)


def _point(
    found: _Found, record: Record, added_bytes: int, verifications: Sequence[Verified]
) -> Point:
    """Return a point with what is recorded of it: a failure that stands, or the last verification.

    A verification that it passed counts only if it is about its `_metadata`.
    """
    verified = lasting_failure(verifications, found.name, record.completed)
    if verified is None:
        about = found.name, record.completed, record.digests
        verified = next((each for each in verifications[:1] if each.is_of(*about)), None)
    return Point(
        checkpoint=found.name,
        checkpoint_id=found.checkpoint_id,
        completed=record.completed,
        files=found.files,
        bytes=found.bytes,
        added_bytes=added_bytes,
        verified=None if verified is None else verified.time,
        is_restorable=None if verified is None else verified.is_restorable,
        savepoint=record.savepoint,
    )


def _referenced_by(replica: Replica, name: str, record: Record) -> tuple[int, Lengths] | None:
    """Return the number of a checkpoint of cpreplicate's and what it references, None if it turns
    out to be none.

    Its `_metadata` is read, and then its digest counts, if no manifest describes it.
    """
    manifest = replica.manifest(name)
    if manifest is not None and manifest.metadata in record.digests:
        files = Lengths(manifest.entries.paths, manifest.entries.ledger.bytes)
        return manifest.checkpoint_id, _pieces(files, manifest.members)
    data = replica.metadata_bytes(name)
    if data is None or data.digest not in record.digests:
        return None
    checkpoint = replica.decoded_checkpoint(name, data)
    return checkpoint.checkpoint_id, _pieces(checkpoint.files, checkpoint.members)


def _pieces(files: Lengths, members: MemberTable) -> Lengths:
    """Return the bytes of each file that is no pack, and of each member by its pack and path."""
    is_plain = rows_of(files.paths, texts(members.used_packs)) < 0
    packs = texts(members.packs.values).take(pa.array(members.packs.codes))
    return Lengths(
        pa.concat_arrays(
            [
                chosen(files.paths, is_plain),
                pc.binary_join_element_wise(packs, members.paths, _SLASH),
            ]
        ),
        np.concatenate([files.bytes[is_plain], members.bytes]),
    )


@dataclass
class _Union:
    """What several checkpoints reference, and which of it only one of them does.

    Each distinct path is held once, however many checkpoints there are.
    """

    _paths: Texts = field(default_factory=lambda: texts(()))
    _bytes: Numbers = field(default_factory=lambda: np.zeros(0, np.int64))
    _owners: Numbers = field(default_factory=lambda: np.zeros(0, np.int64))
    _count: int = 0

    def add(self, pieces: Lengths) -> None:
        """Add what one more checkpoint references."""
        rows = rows_of(pieces.paths, self._paths)
        self._owners[rows[rows >= 0]] = _SHARED
        is_new = rows < 0
        owners = np.full(np.count_nonzero(is_new), self._count)
        self._paths = pa.concat_arrays([self._paths, chosen(pieces.paths, is_new)])
        self._bytes = np.concatenate([self._bytes, pieces.bytes[is_new]])
        self._owners = np.concatenate([self._owners, owners])
        self._count += 1

    @property
    def bytes(self) -> int:
        """The bytes of all checkpoints together."""
        return int(self._bytes.sum())

    @property
    def added_bytes(self) -> list[int]:
        """The bytes that no other checkpoint references, of each in the order of `add`."""
        sums = np.zeros(self._count, np.int64)
        is_owned = self._owners != _SHARED
        np.add.at(sums, self._owners[is_owned], self._bytes[is_owned])
        own: list[int] = sums.tolist()
        return own
