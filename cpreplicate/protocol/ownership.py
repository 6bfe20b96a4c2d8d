"""Ownership: which directory is a replica, and which checkpoints and files in it cpreplicate wrote.

The marker `.cpreplicate/replica.json` is created before anything else and names the source. The
record of a checkpoint, `.cpreplicate/chk-N.json`, holds the digests of the `_metadata` that is
published and of the one that is about to be, and is in place before the commit. So a `_metadata`
without a matching record was not written by cpreplicate: a job keeps it here.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cpreplicate.core import uri
from cpreplicate.core.placement import CHECKPOINT_NAME, METADATA, OWN
from cpreplicate.core.plan import Vouch
from cpreplicate.errors import Refused
from cpreplicate.protocol import journal, lease, manifest
from cpreplicate.protocol import records as notes_files
from cpreplicate.protocol.digest import Digest, digest_of
from cpreplicate.protocol.journal import Journal
from cpreplicate.protocol.manifest import Manifest
from cpreplicate.protocol.replica import CommittedCheckpoint, Replica
from cpreplicate.protocol.source import MetadataBytes
from cpreplicate.storage import TEMPORARY, FileStatus, Side, Storage
from cpreplicate.storage.base import Content

MARKER = "replica.json"
RECORD_SUFFIX = ".json"
LAID_OUT = ("shared", "taskowned", "foreign", "packed")
_FORMAT = 1
_UNKNOWN = -1  # the sequence of a checkpoint whose record is lost
# what a run leaves that died before it made the marker
_BEFORE_THE_MARKER = (
    lease.NAME,
    TEMPORARY,
)


class SourceName(NamedTuple):
    """A source as the operator named it, and as its storage knows it: without links, by addresses
    instead of names.
    """

    given: str
    resolved: str


class Marker(NamedTuple):
    """What makes a directory a replica.

    `adopted`: there were files of others when it became one.
    """

    replica_id: str
    job: str
    sources: tuple[SourceName, ...]
    adopted: bool = False

    def names(self, source: SourceName) -> bool:
        """Return whether this source may be replicated here."""
        return any(each.resolved == source.resolved for each in self.sources)


class Record(NamedTuple):
    """What cpreplicate knows of a checkpoint here.

    Of two, the one with the higher `sequence` was published later.
    """

    sequence: int
    digests: tuple[Digest, ...]
    adopted: bool = False


@dataclass(frozen=True)
class State:
    """A replica's directory as found, newest checkpoint first.

    `committed` are cpreplicate's own checkpoints; `adopted` and `unrecorded` are names of those of
    others, the latter not accepted. `stale` are records of checkpoints that are not there (any
    more). `own` is what lies in `.cpreplicate/`, `links` are directories of the replica that are
    symbolic links.
    """

    marker: Marker | None
    is_empty: bool
    committed: tuple[CommittedCheckpoint, ...]
    adopted: tuple[str, ...]
    unrecorded: tuple[str, ...]
    records: Mapping[str, Record]
    stale: Mapping[str, Record | None]
    own: Mapping[str, FileStatus]
    links: tuple[str, ...]

    @property
    def next_sequence(self) -> int:
        """The number of the next publication."""
        records = [*self.records.values(), *filter(None, self.stale.values())]
        return 1 + max((record.sequence for record in records), default=0)


def examine(replica: Replica, is_alone: bool = False) -> State:
    """Return what the directory of a replica is. Nothing is changed, unless `is_alone`.

    `is_alone`: this run holds the lease, so files of others that are not yet whole are removed
    first, and what became whole just before is seen.
    """
    while True:
        try:
            state = _examine(replica)
        except (NotADirectoryError, IsADirectoryError) as error:
            raise Refused(
                f"{error.filename or replica.root}: a file lies where a replica has a directory, or"
                " the other way round. Nothing was done. Sync into another TARGET_ROOT"
            ) from error
        if not is_alone or state.marker is None or replica.without_unfinished():
            return state


def _examine(replica: Replica) -> State:
    children = replica.children()
    has_own = any(child.name == OWN and not child.is_link for child in children)
    own = replica.own_files() if has_own else {}
    links = [child.name for child in children if child.is_link and _is_laid_out(child.name)]
    links += [f"{OWN}/{name}" for name, child in own.items() if child.is_link]
    marker = (
        read_marker(replica.side, replica.root)
        if MARKER in own and not own[MARKER].is_link
        else None
    )
    observed = {
        name: _observe(replica, name, has_own) for name in replica.committed_names(children)
    }
    found = {name: seen for name, seen in observed.items() if seen is not None}
    records = {name: seen.record for name, seen in found.items() if seen.record is not None}
    ours = _last_published_first(records)
    stale = [name for name in _recorded_names(own) if name not in found]
    return State(
        marker=marker,
        is_empty=_is_empty(children, own),
        committed=tuple(
            found[name].committed_checkpoint(replica, name)
            for name in ours
            if not records[name].adopted
        ),
        adopted=tuple(name for name in ours if records[name].adopted),
        unrecorded=tuple(name for name in found if name not in records),
        records=records,
        stale={name: read_record(replica, name) for name in stale},
        own=own,
        links=tuple(links),
    )


class _Observed(NamedTuple):
    """A `_metadata` as it lies, and the record that matches it."""

    data: MetadataBytes
    record: Record | None

    def committed_checkpoint(self, replica: Replica, name: str) -> CommittedCheckpoint:
        return replica.committed_checkpoint(name, self.data)


def _observe(replica: Replica, name: str, has_own: bool) -> _Observed | None:
    """Read a `_metadata`, then its record, until both are of one moment: another run may publish or
    withdraw meanwhile.

    A record is in place before its `_metadata` appears and until it is gone, so what is the same
    before and after a record was read that does not match it is not cpreplicate's.
    """
    data = replica.metadata_bytes(name)
    while data is not None:
        record = _matching_record(replica, name, data.digest) if has_own else None
        if record is not None:
            return _Observed(data, record)
        again = replica.metadata_bytes(name) if has_own else data
        if again is not None and again.digest == data.digest:
            return _Observed(data, None)
        data = again
    return None


def _matching_record(replica: Replica, name: str, digest: Digest) -> Record | None:
    """The record of this `_metadata`.

    Where it is damaged or lost, the manifest that names the digest is as good.
    """
    record = read_record(replica, name)
    if record is not None and digest in record.digests:
        return record
    known = replica.manifest(name) if record is None else None
    return Record(_UNKNOWN, (digest,)) if known is not None and known.metadata == digest else None


def _last_published_first(records: Mapping[str, Record | None]) -> list[str]:
    """Names of checkpoints; by their numbers where a record is missing."""
    are_known = all(
        record is not None and record.sequence != _UNKNOWN for record in records.values()
    )

    def key(name: str) -> tuple[int, int]:
        record = records[name]
        return record.sequence if are_known and record is not None else 0, int(
            name.removeprefix("chk-")
        )

    return sorted(records, key=key, reverse=True)


def _is_laid_out(name: str) -> bool:
    return name in (OWN, *LAID_OUT) or CHECKPOINT_NAME.fullmatch(name) is not None


def _is_empty(children: Sequence[FileStatus], own: Mapping[str, FileStatus]) -> bool:
    """Whether there is nothing but what a run leaves that died before it made the marker."""
    others = [each for each in children if each.name != OWN and not _is_temporary(each)]
    return not others and all(name.startswith(_BEFORE_THE_MARKER) for name in own)


def _is_temporary(status: FileStatus) -> bool:
    return status.name.startswith(TEMPORARY) and not status.is_directory


def _recorded_names(own: Iterable[str]) -> list[str]:
    names = [name.removesuffix(RECORD_SUFFIX) for name in own if name.endswith(RECORD_SUFFIX)]
    return [name for name in names if CHECKPOINT_NAME.fullmatch(name)]


def newest_first(replica: Replica) -> list[str]:
    """Return the committed checkpoints, last published first.

    The highest N first where one has no record.
    """
    return _last_published_first(
        {name: read_record(replica, name) for name in replica.committed_names()}
    )


# Marker and records


def read_marker(side: Side, root: str) -> Marker | None:
    """Return the marker of the replica at `root`; None if there is none.

    Raises `Refused` if it cannot be understood.
    """
    place = uri.join(root, f"{OWN}/{MARKER}")
    note = notes_files.parse(notes_files.read(side.storage(place), place))
    if note is None:
        return None
    damaged = (
        f"{place} is damaged, or of another version of cpreplicate. Nothing was done. Sync into"
        " another TARGET_ROOT"
    )
    if note.get("format") != _FORMAT:
        raise Refused(damaged)
    try:
        sources = tuple(
            SourceName(str(each["given"]), str(each["resolved"])) for each in note["sources"]
        )
        return Marker(str(note["replica_id"]), str(note["job"]), sources, bool(note["adopted"]))
    except (KeyError, TypeError) as error:
        raise Refused(damaged) from error


def is_replica(replica: Replica) -> bool:
    """Return whether there is a marker, of whatever version."""
    return replica.storage.stat(_marker_place(replica)) is not None


def create_marker(replica: Replica, job: str, source: SourceName, adopted: bool) -> Marker:
    """Make a directory a replica of this source.

    Raises `Refused` if another run did so just before.
    """
    marker = Marker(uuid.uuid4().hex, job, (source,), adopted)
    if not replica.storage.create_exclusive(_marker_place(replica), _encoded_marker(marker)):
        raise Refused(f"{replica.root} became a replica just now, by another run. Run again")
    return marker


def add_source(replica: Replica, marker: Marker, source: SourceName) -> Marker:
    """Record a further name of the source in the marker."""
    added = marker._replace(sources=(*marker.sources, source))
    replica.storage.put(_marker_place(replica), lambda: [_encoded_marker(added)])
    return added


def _marker_place(replica: Replica) -> str:
    return replica.uri_of(f"{OWN}/{MARKER}")


def _encoded_marker(marker: Marker) -> bytes:
    sources = [source._asdict() for source in marker.sources]
    return notes_files.encoded(
        {
            "format": _FORMAT,
            **marker._asdict(),
            "sources": sources,
            "time": notes_files.now(),
            **notes_files.signature(),
        }
    )


def record_place(replica: Replica, name: str) -> str:
    """Return where the record of a checkpoint lies."""
    return replica.uri_of(f"{OWN}/{name}{RECORD_SUFFIX}")


def adopt(replica: Replica, name: str) -> None:
    """Record a checkpoint of others that lies here: it is older than any of cpreplicate's, and
    never changed.
    """
    data = replica.metadata_bytes(name)
    if data is not None:
        write_record(replica, name, Record(0, (data.digest,), adopted=True))


def read_record(replica: Replica, name: str) -> Record | None:
    """Return the record of a checkpoint; None if there is none that can be understood."""
    note = notes_files.parse(notes_files.read(replica.storage, record_place(replica, name)))
    try:
        digests = (
            tuple(Digest(int(length), int(crc32c)) for length, crc32c in note["digests"])
            if note
            else ()
        )
        return Record(int(note["sequence"]), digests, bool(note["adopted"])) if note else None
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def write_record(replica: Replica, name: str, record: Record) -> None:
    """Write the record of a checkpoint, atomically."""
    note = {
        "format": _FORMAT,
        **record._asdict(),
        "time": notes_files.now(),
        **notes_files.signature(),
    }
    replica.storage.put(record_place(replica, name), lambda: [notes_files.encoded(note)])


def announce(replica: Replica, name: str, content: Content, state: State) -> Digest:
    """Record the `_metadata` that is about to be published as `name`; the one that is there stays
    recorded as well.

    It is the newest from its publication on. Returns its digest.
    """
    digest = digest_of(content())
    current = [each.metadata for each in state.committed if each.name == name]
    write_record(replica, name, Record(state.next_sequence, (*current, digest)))
    return digest


def announce_rewrite(replica: Replica, name: str, current: Digest, content: Content) -> None:
    """Record another spelling of the `_metadata` of `name`, which stays as old or new as it is."""
    record = read_record(replica, name)
    sequence = record.sequence if record is not None else _UNKNOWN
    write_record(replica, name, Record(sequence, (current, digest_of(content()))))


def publish(
    replica: Replica,
    name: str,
    content: Content,
    digest: Digest,
    check: Callable[[], None],
    replace: bool,
) -> None:
    """Commit the `_metadata` that was announced. One that is not there yet is created, never
    replaced.

    Raises `Refused` if somebody else has just created it.
    """
    try:
        replica.publish(name, content, check, replace)
    except FileExistsError as error:
        found = replica.metadata_bytes(name)  # an attempt whose answer was lost may have created it
        if found is None or found.digest != digest:
            raise Refused(
                f"{replica.uri_of(name)}/{METADATA} was created by another program during the run: a"
                " job writes its checkpoints here. Nothing was committed or deleted. Sync into a"
                " TARGET_ROOT that only cpreplicate writes"
            ) from error


def withdraw(replica: Replica, name: str) -> None:
    """Remove the `_metadata` of a checkpoint, if it is still cpreplicate's own.

    Raises `Refused` otherwise.
    """
    seen = _observe(replica, name, has_own=True)
    if seen is None:
        return
    if seen.record is None or seen.record.adopted:
        raise Refused(
            f"{replica.uri_of(name)}/{METADATA} is not the one that cpreplicate wrote. Nothing was"
            " deleted"
        )
    replica.withdraw(name)


def forget(replica: Replica, name: str) -> None:
    """Remove what is left of a withdrawn checkpoint once its files are gone: record, manifest and
    empty directory.
    """
    manifest.remove(replica.storage, replica.root, name)
    replica.storage.delete(record_place(replica, name))
    replica.storage.rmdir(replica.uri_of(name))


# Checks


def source_name(side: Side, place: str) -> SourceName:
    """Return a source's root as given, and as its storage knows it."""
    return SourceName(place, side.identity(place) + uri.local_path(side.storage(place).real(place)))


def refuse_foreign(state: State, replica: Replica) -> None:
    """Raise `Refused` where links, a missing marker or checkpoints of others show that a directory
    is not only a replica.
    """
    for reason in foreign(state, replica):
        raise Refused(reason)


def foreign(state: State, replica: Replica, may_adopt: bool = False) -> Iterator[str]:
    """Yield why cpreplicate must not change anything in this directory."""
    if state.links:
        yield (
            f"{replica.uri_of(state.links[0])} is a symbolic link: what would be written or deleted"
            " there may not belong to the replica. Nothing was done. Replace the link by a"
            " directory, or sync into another TARGET_ROOT"
        )
    if state.marker is None and not state.is_empty and not may_adopt:
        yield (
            f"{replica.root} is not empty and is not a replica of cpreplicate's making"
            f" ({_what_is_there(state)}). Nothing was done. Sync into a TARGET_ROOT that only"
            " cpreplicate writes, beside Flink's own checkpoint directory; or accept the directory"
            " with `sync --adopt`: what is in it is then never changed"
        )
    elif state.unrecorded and not may_adopt:
        yield (
            f"{replica.uri_of(state.unrecorded[0])}/{METADATA} was not written by cpreplicate: a job"
            " writes its checkpoints here, or the file was damaged. Nothing was done."
            f" {_way_out(state)}"
        )


def _way_out(state: State) -> str:
    if state.marker is not None and state.marker.adopted:
        return "Accept the checkpoint with `sync --adopt`: it is then never changed"
    return (
        "If a job runs here, use another TARGET_ROOT. If none does, Flink may still restore the"
        f" checkpoint; to go on with the replica, move {state.unrecorded[0]} out of it"
    )


def _what_is_there(state: State) -> str:
    names = state.unrecorded
    return (
        f"it holds {', '.join(names[:3])}{' …' if len(names) > 3 else ''}"
        if names
        else "it holds other files"
    )


def other_source(state: State, replica: Replica, source: SourceName) -> Iterator[str]:
    """Yield why a source must not be replicated here: the marker names another."""
    if state.marker is not None and not state.marker.names(source):
        known = " and ".join(f"{each.given} ({each.resolved})" for each in state.marker.sources)
        yield (
            f"{replica.root} is a replica of {known}, not of {source.given} ({source.resolved})."
            " Nothing was done. Sync into another TARGET_ROOT, or, if both are names of the same"
            " source, add the new one with --same-source"
        )


def same_replica(
    state: State, replica: Replica, source_marker: Marker | None, source: SourceName
) -> Iterator[str]:
    """Yield why not: the source's directory carries the same replica id, so it is the same
    directory, or a copy of it.
    """
    if (
        state.marker is not None
        and source_marker is not None
        and source_marker.replica_id == state.marker.replica_id
    ):
        yield (
            f"{source.given} and {replica.root} carry the same replica id"
            f" {state.marker.replica_id}: they are one directory under two names, or one is a copy"
            " of the other. Nothing was done. Give another TARGET_ROOT"
        )


def refuse_nested(replica: Replica, source_side: Side, source: str) -> None:
    """Raise `Refused` where the replica and its source are one directory, or one lies in the other,
    under whatever names.

    Only where the storage can say so without anything being written, as local filesystems can.
    """
    storage = source_side.storage(source)
    here, there = storage.file_id(source), replica.storage.file_id(replica.root)
    around_target = {
        replica.storage.file_id(place) for place in uri.upwards(replica.storage.real(replica.root))
    }
    around_source = {storage.file_id(place) for place in uri.upwards(storage.real(source))}
    # a directory of the source may be mounted there
    if here is not None and there is None and around_target != {None}:
        around_target &= {
            here,
            *(storage.file_id(place) for place in _directories_below(storage, source)),
        }
        here = next(iter(around_target - {None}), here)
    if (here is not None and here in around_target) or (
        there is not None and there in around_source
    ):
        raise Refused(f"the replica {replica.root} would lie in its own source {source}, or the source in it, under another"
                      " name. Nothing was done. Give another TARGET_ROOT")  # fmt: skip


def _directories_below(storage: Storage, place: str) -> Iterator[str]:
    for child in storage.list(place):
        if child.is_directory and not child.is_link:
            yield child.uri
            yield from _directories_below(storage, child.uri)


def refuse_same_place(
    replica: Replica, taken: lease.LeaseToken, source_side: Side, source: str, is_new: bool
) -> None:
    """Raise `Refused` if the lease just taken can be read at the source: both are one directory, or
    it lies in the source.

    Whether it lies in the source is looked for only when the replica `is_new`: by each end of its
    path, below the source and below the directories there.
    """
    places = [source, *(_where_it_may_lie(replica, source_side, source) if is_new else ())]
    for place in places:
        note = notes_files.parse(
            notes_files.read(source_side.storage(place), uri.join(place, f"{OWN}/{lease.NAME}"))
        )
        if note and note.get("token") == taken.token:
            raise Refused(
                f"the replica {replica.root} can be seen at {place}: it is its own source, or lies"
                " in it, under another name. Nothing was done. Give another TARGET_ROOT"
            )


def _where_it_may_lie(replica: Replica, source_side: Side, source: str) -> Iterator[str]:
    names = (replica.root, replica.side.behind_view(replica.root))
    ends = dict.fromkeys(end for name in names for end in _ends(uri.local_path(name)))
    children = [child for child in source_side.storage(source).list(source) if child.is_directory]
    others = [child.name for child in children if not CHECKPOINT_NAME.fullmatch(child.name)]
    for base in (source, *(uri.join(source, name) for name in others)):
        yield from (uri.join(base, end) for end in ends)


def _ends(path: str) -> Iterator[str]:
    steps = path.strip("/").split("/")
    return ("/".join(steps[at:]) for at in range(len(steps)))


class Vouched:
    """What manifests and journals say of the files of a replica: which are cpreplicate's, and how
    long each must be.
    """

    def __init__(self, replica: Replica, state: State) -> None:
        self.journals: list[Journal] = []
        self.manifests: dict[str, Manifest] = {}
        self.files: dict[str, Vouch] = {}
        # of two the later one holds
        for name in sorted(_vouching(state.own), key=lambda name: _moment(state.own[name])):
            if name.startswith(journal.PREFIX):
                part = journal.read(replica.storage, replica.root, name)
                self.journals.append(part)
                self.files.update(
                    (path, Vouch(each.length, each.crc32c, True))
                    for path, each in part.copied.items()
                )
            elif (found := replica.manifest(name.removesuffix(manifest.SUFFIX))) is not None:
                self.manifests[name.removesuffix(manifest.SUFFIX)] = found
                self.files.update(
                    (path, Vouch(*entry[1:])) for path, entry in found.entries.items()
                )

    def left_over(self, committed: Iterable[str]) -> set[str]:
        """Return the paths that cpreplicate wrote, or was about to, and that no manifest of these
        checkpoints names.
        """
        known = (self.manifests[name].entries for name in committed if name in self.manifests)
        return self.written.difference(*known)

    @property
    def written(self) -> set[str]:
        """The paths that cpreplicate wrote, or was about to."""
        paths = {path for path, vouch in self.files.items() if vouch.written}
        return paths.union(*(part.paths for part in self.journals))


def _vouching(own: Iterable[str]) -> list[str]:
    """Return the names of manifests and journals among those in `.cpreplicate/`."""
    manifests = [name for name in own if name.endswith(manifest.SUFFIX)]
    of_checkpoints = [
        name for name in manifests if CHECKPOINT_NAME.fullmatch(name.removesuffix(manifest.SUFFIX))
    ]
    return [*of_checkpoints, *journal.names(own)]


def _moment(status: FileStatus) -> tuple[float, bool, str]:
    """When it was written.

    A manifest after the journal of its own run, where the storage's clock is coarse.
    """
    return status.modified, not status.name.startswith(journal.PREFIX), status.name
