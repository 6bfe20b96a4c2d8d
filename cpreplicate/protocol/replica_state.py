"""The state of a replica's directory: its marker, whose checkpoints are in it, and its links."""

from __future__ import annotations

import errno
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from cpreplicate.core import uri
from cpreplicate.core.placement import CHECKPOINT_NAME, FOREIGN, METADATA, OWN, PACKED, REBASED
from cpreplicate.errors import Refused
from cpreplicate.protocol import census, json_files, lease, manifest
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
from cpreplicate.protocol.replica import ASKED, CommittedCheckpoint, Replica
from cpreplicate.protocol.source import MetadataBytes, ask_metadata, highest_first
from cpreplicate.storage import TEMPORARY, FileStatus, Transient
from cpreplicate.storage.reading import is_file

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


def examine(replica: Replica, former: State | None = None) -> State:
    """Return the state of a replica's directory. Change nothing, unless this run holds its lease.

    Of a `HeldReplica`, unfinished files of other runs are removed first, so that a run which was
    held up cannot let them appear: those in `.cpreplicate/` only if they are older than a lease can
    be, and none if there are links: they may lead to another run's files. It examines the directory
    again if one of them was published just before. What has not changed since `former`, an
    examination before the lease, is not read again. Raises `Refused` if a file is where a replica
    has a directory, or the other way round.
    """
    while True:
        try:
            state = _read_state(replica, former)
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


def _read_state(replica: Replica, former: State | None) -> State:
    """Return what a directory holds. What is the same as in the `former` state is not read."""
    began = json_files.now()
    children = replica.children()
    has_own = any(child.name == OWN and not child.is_link for child in children)
    own = replica.own_files() if has_own else {}
    if replica.storage.answers_ahead and former is None:
        _ask(replica, children, own)
    names = [*replica.committed_names(children), *replica.derived_names(children)]
    metadata_files = {name: replica.listed_metadata(name) for name in names}
    known = _Known(former, own, metadata_files)
    same = {name: committed for name in names if (committed := known.checkpoint(name)) is not None}
    checkpoints = _read_checkpoints(replica, [name for name in names if name not in same], has_own)
    found = census.of_records(
        {name: known.record(name) for name in same}
        | {name: checkpoint.record for name, checkpoint in checkpoints.items()}
    )

    def read(name: str) -> CommittedCheckpoint:
        return same.get(name) or replica.committed_checkpoint(name, checkpoints[name].data)

    stale = {*recorded_names(own)}.difference(checkpoints, same)
    return State(
        marker=_marker(replica, own, known),
        is_empty=_is_empty(children, own),
        committed=tuple(map(read, found.own)),
        derived=tuple(map(read, found.derived)),
        adopted=found.adopted,
        unrecorded=found.unrecorded,
        others=_others(checkpoints),
        records=found.records,
        stale={name: read_record(replica, name) for name in sorted(stale)},
        own=own,
        links=tuple(links_among(replica, children, own)),
        metadata_files=metadata_files,
        began=began,
    )


def _ask(replica: Replica, children: Sequence[FileStatus], own: Mapping[str, FileStatus]) -> None:
    """Begin to read what is read of a few checkpoints, beside the listings of their directories."""
    names = highest_first(child.name for child in children if child.is_directory)
    if MARKER in own:
        ask_marker(replica.side, replica.root)
    if len(names) > ASKED:
        return
    for name in names:
        replica.storage.ask("listing", replica.uri_of(name))
        if f"{name}{RECORD_SUFFIX}" in own:
            ask_checkpoint(replica, name)


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
        return self._former.marker if self._former and self._is_same_own(MARKER) else None

    def record(self, name: str) -> Record:
        """Return the record of a checkpoint that is the same."""
        assert self._former is not None
        return self._former.records[name]

    def checkpoint(self, name: str) -> CommittedCheckpoint | None:
        """Return a committed checkpoint if its `_metadata` and its record are the same files."""
        if self._former is None or not self._is_same_own(f"{name}{RECORD_SUFFIX}"):
            return None
        before = self._former.metadata_files.get(name)
        committed = self._committed.get(name)
        if committed is None or not self._is_same(before, self._metadata_files[name]):
            return None
        is_of_manifest = committed.listed is not None
        if is_of_manifest and not self._is_same_own(f"{name}{manifest.SUFFIX}"):
            return None
        return committed

    def _is_same_own(self, name: str) -> bool:
        before = self._former.own.get(name) if self._former else None
        return self._is_same(before, self._own.get(name))

    def _is_same(self, before: FileStatus | None, now: FileStatus | None) -> bool:
        """Return whether nothing replaced a file meanwhile.

        Its length and time are the same, and it is so old that another one would have another time.
        One without a time is read again.
        """
        if before is None or now is None or now.is_link:
            return False
        is_alike = (now.length, now.modified) == (before.length, before.modified)
        return is_alike and now.dated is not None and now.dated < self._began() - _COARSEST_TIME

    def _began(self) -> float:
        """Return when the former examination began, by the clock of the storage.

        The storage dated the lease, which was taken after that.
        """
        taken = self._own.get(lease.NAME)
        if taken is None or self._former is None:
            return -math.inf
        return taken.modified - (json_files.now() - self._former.began)


def links(replica: Replica) -> list[str]:
    """Return what belongs to another place: directories of a replica that are symbolic links,
    links in `.cpreplicate/`, and what is a mount of its own, anywhere in the replica.

    A bind mount of the source's directory has the names of the replica's files: a delete of these
    would be one at the source.
    """
    children = replica.children()
    has_own = any(child.name == OWN and not child.is_link for child in children)
    return links_among(replica, children, replica.own_files() if has_own else {})


def links_among(
    replica: Replica, children: Sequence[FileStatus], own: Mapping[str, FileStatus]
) -> list[str]:
    """Return as `links`, of a replica with these children and files of its own."""
    directories = [child.name for child in children if child.is_link and _is_laid_out(child.name)]
    own_links = [f"{OWN}/{name}" for name, status in own.items() if status.is_link]
    return [*directories, *own_links, *replica.storage.mounts_below(replica.root)]


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
