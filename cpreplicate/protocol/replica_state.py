"""The state of a replica's directory: its marker, whose checkpoints are in it, and its links."""

from __future__ import annotations

import errno
import math
import zlib
from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from cpreplicate.core import uri
from cpreplicate.core.placement import CHECKPOINT_NAME, FOREIGN, METADATA, OWN, PACKED, REBASED
from cpreplicate.errors import Refused
from cpreplicate.protocol import census, json_files, lease, manifest, point_summary
from cpreplicate.protocol.census import Census
from cpreplicate.protocol.checkpoint_record import (
    RECORD_SUFFIX,
    Record,
    ask_record,
    read_record,
    recorded_names,
)
from cpreplicate.protocol.digest import Digest
from cpreplicate.protocol.held import HeldReplica
from cpreplicate.protocol.marker import MARKER, Marker, ask_marker, read_marker
from cpreplicate.protocol.point_summary import Point, Summary
from cpreplicate.protocol.replica import ASKED, CommittedCheckpoint, Replica
from cpreplicate.protocol.source import MetadataBytes, ask_metadata, highest_first
from cpreplicate.storage import TEMPORARY, FileStatus, Transient
from cpreplicate.storage.reading import is_file
from cpreplicate.storage.wrappers import ahead

LAID_OUT = ("shared", "taskowned", FOREIGN, PACKED, REBASED)
# Files that a run leaves in `.cpreplicate/` if it dies before it created the marker.
_BEFORE_THE_MARKER = (lease.NAME, TEMPORARY)
_LOOKS = 3  # at a `_metadata` that is listed, and that the storage does not open
_COARSEST_TIME = 2.0  # seconds; S3 dates objects by whole ones


@dataclass(frozen=True)
class State:
    """A replica's directory as it was read, newest checkpoint first.

    `committed` are cpreplicate's own checkpoints. `adopted` and `unrecorded` are the names of those
    of others: the former were accepted by `--adopt`, the latter were not. `others` are their
    `_metadata` as they were read, by name: see `needed`. `stale` are records of
    checkpoints that are not, or no longer, there. `own` is what is in `.cpreplicate/`. `links`
    are as of the function `links`. `metadata_files` are the statuses of the
    `_metadata` by checkpoint, as they were listed. `began` is when the examination began, in
    seconds since the epoch. `derived` are the checkpoints that `rebase` wrote, by name.
    `has_conditional_puts`: the storage was found to have them before there is a marker to note it.
    `directories` are those of checkpoints, as the listing of the replica has them. `summary` is
    that of its points, if a record vouches for it, and `summarised` are those that are as it has
    them.
    """

    marker: Marker | None
    is_empty: bool
    committed: tuple[CommittedCheckpoint, ...]
    adopted: tuple[str, ...]
    unrecorded: tuple[str, ...]
    others: Mapping[str, MetadataBytes]
    records: Mapping[str, Record]
    stale: Mapping[str, Record | None]
    own: Mapping[str, FileStatus]
    links: tuple[str, ...]
    metadata_files: Mapping[str, FileStatus]
    began: float
    derived: tuple[CommittedCheckpoint, ...] = ()
    has_conditional_puts: bool = False
    directories: Mapping[str, FileStatus] = field(default_factory=dict)
    summary: Summary | None = None
    summarised: Mapping[str, Point] = field(default_factory=dict)

    @property
    def ours(self) -> tuple[CommittedCheckpoint, ...]:
        """Every checkpoint that cpreplicate wrote: those it replicated, and derived ones."""
        return self.committed + self.derived

    def metadata_of(self, name: str) -> Digest | None:
        """Return the digest of the `_metadata` of one of cpreplicate's own, None if it is none."""
        return next((each.metadata for each in self.ours if each.name == name), None)

    @property
    def census(self) -> Census:
        """Whose the checkpoints are, by the digests of their `_metadata`."""
        own, derived = ([each.name for each in some] for some in (self.committed, self.derived))
        return Census(tuple(own), tuple(derived), self.adopted, self.unrecorded, self.records)

    @property
    def next_sequence(self) -> int:
        """The sequence number of the next publication."""
        records = [*self.records.values(), *filter(None, self.stale.values())]
        return 1 + max((record.sequence for record in records), default=0)

    def is_settled(self, name: str) -> bool:
        """Return whether a change in the directory of a checkpoint, from the examination on, shows
        in a listing of the replica.

        It would have another time then. Known only of an examination under the lease, which the
        storage dated, and where the directory got its time when its `_metadata` appeared: not
        every storage changes that of a directory.
        """
        taken, directory = self.own.get(lease.NAME), self.directories.get(name)
        if taken is None or directory is None or name not in self.metadata_files:
            return False
        is_old = directory.modified < taken.modified - _COARSEST_TIME
        return 0 < self.metadata_files[name].modified <= directory.modified and is_old

    def dated(self, name: str) -> FileStatus | None:
        """Return the status of the `_metadata` of a checkpoint, if another one would have another.

        Known only of an examination under the lease, which the storage dated.
        """
        taken, seen = self.own.get(lease.NAME), self.metadata_files.get(name)
        if taken is None or seen is None or seen.dated is None:
            return None
        return seen if seen.dated < taken.modified - _COARSEST_TIME else None

    def mark(self, name: str) -> point_summary.Mark | None:
        """Return what the listings show of a checkpoint that has not changed for some seconds."""
        directory, taken = self.directories[name], self.own.get(lease.NAME)
        seen = point_summary.mark_of(directory, self.own, self.metadata_files[name])
        if seen is None or taken is None:
            return None
        if directory.dated is not None and not self.is_settled(name):
            return None
        return seen if seen.latest < taken.modified - _COARSEST_TIME else None


def examine(replica: Replica, former: State | None = None, is_brief: bool = False) -> State:
    """Return the state of a replica's directory. Change nothing, unless this run holds its lease.

    `is_brief`: what the summary of its points has is not read again, but for one of them in turn.

    Of a `HeldReplica`, unfinished files of other runs are removed first, so that a run which was
    held up cannot let them appear: those in `.cpreplicate/` only if they are older than a lease can
    be, and none if there are links: they may lead to another run's files. It examines the directory
    again if one of them was published just before. What has not changed since `former`, an
    examination before the lease, is not read again. Raises `Refused` if a file is where a replica
    has a directory, or the other way round.
    """
    while True:
        try:
            state = _read_state(replica, former, is_brief)
            _refuse_files(replica, state)
        except (NotADirectoryError, IsADirectoryError) as error:
            raise _in_the_way(error.filename or replica.root) from error
        if not isinstance(replica, HeldReplica) or state.marker is None or state.links:
            return state
        _remove_unfinished_own(replica, state.own)
        if replica.without_unfinished():
            return state


def _refuse_files(replica: Replica, state: State) -> None:
    """Raise `Refused` if an object is where the replica or its TARGET_ROOT would be.

    An object store lists nothing there, and many of them take objects below it. Costs two
    requests before the first sync.
    """
    if state.is_empty and not state.own and not replica.storage.has_directories:
        for place in islice(uri.upwards(replica.root), 2):
            if is_file(place, replica.storage):
                raise _in_the_way(place)


def _in_the_way(place: str) -> Refused:
    return Refused(
        f"{place}: a file is where a replica has a directory, or the other way round. Nothing was"
        " done. Sync into another TARGET_ROOT"
    )


def _remove_unfinished_own(replica: HeldReplica, own: Mapping[str, FileStatus]) -> None:
    """Remove the temporary files in `.cpreplicate/` that no run can still be writing.

    Who looks at the lease, or records a verification, writes there without the lease, but not for
    longer than a lease lasts. The storage dated both files.
    """
    taken = own.get(lease.NAME)
    before = taken.modified - lease.SECONDS if taken is not None else -math.inf
    for name, status in own.items():
        if _is_temporary(status) and 0 < status.modified < before:
            replica.storage.delete(replica.uri_of(f"{OWN}/{name}"))


def _read_state(replica: Replica, former: State | None, is_brief: bool) -> State:
    """Return what a directory holds. What is the same as in the `former` state is not read."""
    began = json_files.now() - ahead.age()  # what follows may have been answered since then
    children = replica.children()
    has_own = any(child.name == OWN and not child.is_link for child in children)
    own = replica.own_files() if has_own else {}
    if former is not None:
        _drop_other_answers(former, own)
    directory = _Directory(children, own, has_own)
    brief = None
    if is_brief and point_summary.NAME in own:
        brief = _briefly(replica, former, directory)
    seen, summary, points = brief or _Brief(_look(replica, former, directory), None, {})
    found = census.of_records(seen.records)
    stale = {*recorded_names(own)}.difference(seen.records)
    return State(
        marker=_marker(replica, own, _Known(former, own, {})),
        is_empty=_is_empty(children, own),
        committed=tuple(seen.checkpoints[name] for name in found.own),
        derived=tuple(seen.checkpoints[name] for name in found.derived),
        adopted=found.adopted,
        unrecorded=found.unrecorded,
        others=seen.others,
        records=found.records,
        stale={name: read_record(replica, name) for name in sorted(stale)},
        own=own,
        links=tuple(links_among(children, own, replica.storage.mounts_below(replica.root))),
        metadata_files=seen.metadata_files,
        began=began,
        directories={
            child.name: child for child in children if CHECKPOINT_NAME.fullmatch(child.name)
        },
        summary=summary,
        summarised=points,
    )


def ask_listed(replica: Replica) -> None:
    """Begin to read the few checkpoints of a replica whose listings were asked for."""
    children = replica.storage.answer("list", replica.root)
    own = replica.storage.answer("list", replica.uri_of(OWN))
    if children is not None and own is not None:
        names = {each.name for each in own}
        if point_summary.NAME not in names:  # else few of them are read
            _ask(replica, children, names)


def _ask(replica: Replica, children: Sequence[FileStatus], own: Container[str]) -> None:
    """Begin to read the marker, and of a few checkpoints, if there are no more, what is read first.

    That is the listing of each directory, and of those with a record what `ask_checkpoint` asks.
    """
    names = highest_first(child.name for child in children if child.is_directory)
    if MARKER in own:
        ask_marker(replica.side, replica.root)
    if len(names) > ASKED:
        return
    for name in names:
        replica.storage.ask("listing", replica.uri_of(name))
        if f"{name}{RECORD_SUFFIX}" in own:
            ask_checkpoint(replica, name)


class _Directory(NamedTuple):
    """The listings of a replica and of its `.cpreplicate/`, if it has one."""

    children: Sequence[FileStatus]
    own: Mapping[str, FileStatus]
    has_own: bool

    def without(self, names: Collection[str]) -> _Directory:
        """Return the same without some checkpoints."""
        return self._replace(children=[each for each in self.children if each.name not in names])


class _Seen(NamedTuple):
    """The checkpoints that were looked at, by name.

    `checkpoints` are cpreplicate's own, and `others` the `_metadata` of those of others.
    """

    metadata_files: Mapping[str, FileStatus]
    records: Mapping[str, Record | None]
    checkpoints: Mapping[str, CommittedCheckpoint]
    others: Mapping[str, MetadataBytes]


def _look(replica: Replica, former: State | None, directory: _Directory) -> _Seen:
    """Return the checkpoints in a directory. Each that is not as in the `former` state is read."""
    children, own, has_own = directory
    if replica.storage.answers_ahead and former is None:
        _ask(replica, children, own)
    names = [*replica.committed_names(children), *replica.derived_names(children)]
    metadata_files = {name: replica.listed_metadata(name) for name in names}
    known = _Known(former, own, metadata_files)
    same = {name: committed for name in names if (committed := known.checkpoint(name)) is not None}
    read = _read_checkpoints(replica, [name for name in names if name not in same], has_own)
    checkpoints = same | {
        name: replica.committed_checkpoint(name, checkpoint.data)
        for name, checkpoint in read.items()
        if checkpoint.record is not None and not checkpoint.record.adopted
    }
    records = {name: known.record(name) for name in same}
    records_read = {name: checkpoint.record for name, checkpoint in read.items()}
    return _Seen(metadata_files, records | records_read, checkpoints, _others(read))


class _Brief(NamedTuple):
    """The checkpoints of a directory, and those of them that are as the summary has them."""

    seen: _Seen
    summary: Summary | None
    points: Mapping[str, Point]


def _briefly(replica: Replica, former: State | None, directory: _Directory) -> _Brief | None:
    """Return the checkpoints of a directory, of which those are not read that a summary has.

    None if the summary is in doubt: no record that was read vouches for it, or one of its points,
    which is read in turn, is another than it has. Then all are to be read.
    """
    known = _Known(former, directory.own, {}).summary()
    summary = known or point_summary.read(replica, directory.own)
    if summary is None:
        return None
    undated = summary.without_times(directory.children)
    metadata = replica.metadata_at_once(undated) if undated else {}
    points = summary.unchanged(directory.children, directory.own, metadata)
    if not points:
        return None
    turn = _in_turn(points, directory)
    unread = {point.name: point for point in points if point.name != turn}
    seen = _look(replica, former, directory.without(unread))
    records = [record for record in seen.records.values() if record is not None]
    is_vouched_for = any(record.summary == summary.digest for record in records)
    if not (is_vouched_for and turn in seen.checkpoints):
        return None
    if not summary.agrees(seen.checkpoints[turn], seen.records[turn]):
        return None
    files = {
        name: metadata.get(name)
        or replica.metadata_file(name, point.metadata.length, point.metadata_modified)
        for name, point in unread.items()
    }
    held = {point.name: summary.checkpoint(point.name) for point in points}
    every = _Seen(
        {**files, **seen.metadata_files},
        {**{name: point.record for name, point in unread.items()}, **seen.records},
        {**seen.checkpoints, **held},
        seen.others,
    )
    return _Brief(every, summary, {point.name: point for point in points})


def _in_turn(points: Sequence[Point], directory: _Directory) -> str:
    """Return the point that is read, too: another one with each new checkpoint."""
    names = [each.name for each in directory.children if CHECKPOINT_NAME.fullmatch(each.name)]
    newest = max(int(name.removeprefix("chk-")) for name in names)
    return points[zlib.crc32(str(newest).encode()) % len(points)].name


def _others(checkpoints: Mapping[str, _Checkpoint]) -> dict[str, MetadataBytes]:
    """Return the `_metadata` of the checkpoints that cpreplicate did not publish, by name."""
    return {
        name: checkpoint.data
        for name, checkpoint in checkpoints.items()
        if checkpoint.record is None or checkpoint.record.adopted
    }


def _marker(replica: Replica, own: Mapping[str, FileStatus], known: _Known) -> Marker | None:
    if MARKER not in own or own[MARKER].is_link:
        return None
    return known.marker() or read_marker(replica.side, replica.root)


class _Known:
    """What an examination before the lease read, as far as it is what one under the lease reads."""

    def __init__(
        self,
        former: State | None,
        own: Mapping[str, FileStatus],
        metadata_files: Mapping[str, FileStatus],
    ) -> None:
        self._former, self._own, self._metadata_files = former, own, metadata_files
        self._committed = {each.name: each for each in former.committed} if former else {}

    def marker(self) -> Marker | None:
        """Return the marker if its file is the same."""
        return self._former.marker if self._former and self.is_same_own(MARKER) else None

    def summary(self) -> Summary | None:
        """Return the summary of the points if its file is the same."""
        is_same = self._former is not None and self.is_same_own(point_summary.NAME)
        return self._former.summary if self._former and is_same else None

    def record(self, name: str) -> Record:
        """Return the record of a checkpoint that is the same."""
        assert self._former is not None
        return self._former.records[name]

    def checkpoint(self, name: str) -> CommittedCheckpoint | None:
        """Return a committed checkpoint if its `_metadata` and its record are the same files."""
        if self._former is None or not self.is_same_own(f"{name}{RECORD_SUFFIX}"):
            return None
        before = self._former.metadata_files.get(name)
        committed = self._committed.get(name)
        if committed is None or not self._is_same(before, self._metadata_files[name]):
            return None
        is_of_manifest = committed.listed is not None
        if is_of_manifest and not self.is_same_own(f"{name}{manifest.SUFFIX}"):
            return None
        return committed

    def is_same_own(self, name: str) -> bool:
        before = self._former.own.get(name) if self._former else None
        return self._is_same(before, self._own.get(name))

    def _is_same(self, before: FileStatus | None, now: FileStatus | None) -> bool:
        """Return whether nothing replaced a file meanwhile.

        Its length, time and tag are the same, and it is so old that another one would have another
        time. One without a time is read again.
        """
        if before is None or now is None or now.is_link:
            return False
        is_alike = (now.length, now.modified) == (before.length, before.modified)
        is_alike = is_alike and now.tag == before.tag
        return is_alike and now.dated is not None and now.dated < self._began() - _COARSEST_TIME

    def _began(self) -> float:
        """Return when the former examination began, by the clock of the storage.

        The storage dated the lease, which was taken after that.
        """
        taken = self._own.get(lease.NAME)
        if taken is None or self._former is None:
            return -math.inf
        return taken.modified - (json_files.now() - self._former.began)


def _drop_other_answers(former: State, own: Mapping[str, FileStatus]) -> None:
    """Drop what was answered before the lease, unless it would be answered so under the lease.

    That is the manifest of the newest checkpoint. `own` was listed under the lease.
    """
    known = _Known(former, own, {})
    names = (f"{each.name}{manifest.SUFFIX}" for each in former.committed[:1])
    if any(name in own and not known.is_same_own(name) for name in names):
        ahead.drop_answers()


def links(replica: Replica) -> list[str]:
    """Return what belongs to another place: directories of a replica that are symbolic links,
    links in `.cpreplicate/`, and what is a mount of its own, anywhere in the replica.

    A bind mount of the source's directory has the names of the replica's files: a delete of these
    would be one at the source.
    """
    children = replica.children()
    has_own = any(child.name == OWN and not child.is_link for child in children)
    own = replica.own_files() if has_own else {}
    return links_among(children, own, replica.storage.mounts_below(replica.root))


def links_among(
    children: Sequence[FileStatus], own: Mapping[str, FileStatus], mounts: Sequence[str]
) -> list[str]:
    """Return as `links`, of a replica with these children, files of its own, and mounts."""
    directories = [child.name for child in children if child.is_link and _is_laid_out(child.name)]
    own_links = [f"{OWN}/{name}" for name, status in own.items() if status.is_link]
    return [*directories, *own_links, *mounts]


class _Checkpoint(NamedTuple):
    """A `_metadata` as it is, and the record that matches it."""

    data: MetadataBytes
    record: Record | None


def ask_checkpoint(replica: Replica, name: str) -> None:
    """Begin what `read_checkpoint` asks soon."""
    ask_metadata(replica.uri_of(name), replica.side)
    ask_record(replica, name)


def read_checkpoint(replica: Replica, name: str, has_own: bool) -> _Checkpoint | None:
    """Return the `_metadata` of a checkpoint and its record, both of one moment.

    None if there is no `_metadata`. Without files of its own, a directory has no record.
    """
    data = replica.metadata_bytes(name)
    if data is None or not has_own:
        return _Checkpoint(data, None) if data is not None else None
    found = census.recorded(replica, name, lambda: replica.metadata_bytes(name), _has_digest, data)
    return _Checkpoint(*found) if found is not None else None


def _has_digest(data: MetadataBytes, digest: Digest) -> bool:
    return data.digest == digest


def _read_checkpoints(
    replica: Replica, names: Sequence[str], has_own: bool
) -> dict[str, _Checkpoint]:
    """Return the checkpoints of these names that are there.

    A storage may list a `_metadata` and yet answer that it is not there. To take it for withdrawn
    would have its files deleted. So it is listed again, and if it is there, opened again. Raises
    `Transient` if that does not help.
    """
    seen: dict[str, _Checkpoint | None] = dict.fromkeys(names)
    for _ in range(_LOOKS):
        unseen = [name for name, checkpoint in seen.items() if checkpoint is None]
        seen |= {name: read_checkpoint(replica, name, has_own) for name in unseen}
        hidden = [name for name in unseen if seen[name] is None and _is_listed(replica, name)]
        if not hidden:
            return {name: checkpoint for name, checkpoint in seen.items() if checkpoint is not None}
    raise Transient(
        errno.EIO,
        "is listed, but opening it answers that it is not there. Run again",
        replica.uri_of(f"{hidden[0]}/{METADATA}"),
    )


def _is_listed(replica: Replica, name: str) -> bool:
    """Return whether a checkpoint has a `_metadata`. A link is none: it may lead to nothing."""
    status = replica.metadata_status(name)
    return status is not None and not status.is_link


def _is_laid_out(name: str) -> bool:
    return name in (OWN, *LAID_OUT) or CHECKPOINT_NAME.fullmatch(name) is not None


def _is_empty(children: Sequence[FileStatus], own: Mapping[str, FileStatus]) -> bool:
    """Return whether there is only what a run leaves that died before it created the marker."""
    others = [child for child in children if child.name != OWN and not _is_temporary(child)]
    return not others and all(name.startswith(_BEFORE_THE_MARKER) for name in own)


def _is_temporary(status: FileStatus) -> bool:
    return status.name.startswith(TEMPORARY) and not status.is_directory
