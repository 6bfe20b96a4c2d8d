"""A replica: which checkpoints are committed in it, what they reference, and which files it has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import islice, takewhile
from typing import BinaryIO

import numpy as np
import pyarrow as pa

from cpreplicate.core import uri
from cpreplicate.core.closure import closure
from cpreplicate.core.ledger import NO_MEMBERS, Member, MemberTable
from cpreplicate.core.memory import Memo
from cpreplicate.core.metadata import Metadata
from cpreplicate.core.metadata.segments import segments
from cpreplicate.core.packs import is_pack
from cpreplicate.core.path_columns import (
    Numbers,
    Texts,
    begin_with,
    chosen,
    coded,
    prefixed,
    split,
    texts,
    texts_among,
    without_prefix,
)
from cpreplicate.core.placement import (
    METADATA,
    OWN,
    PACKED,
    REBASED,
    are_replica_paths,
    is_replica_path,
)
from cpreplicate.core.plan import Committed
from cpreplicate.core.tables import Lengths
from cpreplicate.errors import Refused
from cpreplicate.protocol import manifest
from cpreplicate.protocol.digest import Digest
from cpreplicate.protocol.manifest import Manifest
from cpreplicate.protocol.source import (
    MetadataBytes,
    decoded,
    highest_first,
    read_bytes,
    read_metadata,
)
from cpreplicate.storage import DamagedFile, Side
from cpreplicate.storage.reading import Reading
from cpreplicate.storage.statuses import FileStatus, Listing

# Bytes. For a larger `_metadata`, reading the manifest instead of decoding it saves time.
_MANIFEST_WORTH = 16 << 20
_STATS = 16  # at the same time
_FEW_STATS = 4  # of this host, which take less time than threads for them
_BEGINNING = "chk-"  # of the names of checkpoints
ASKED = 8  # directories or checkpoints that are asked for ahead, at most


@dataclass(frozen=True)
class CommittedCheckpoint:
    """A committed checkpoint of a replica.

    `files` is path to extent of files and packs, `members` logical path to place of packed files.
    `outside` are the URIs that it references outside the replica.
    `growing` are merged files, which may be longer than recorded: a run that died may have copied
    them again. It is None if it is not known which files are merged ones. `listed` is the manifest
    if all this was read from it. `is_damaged`: its `_metadata` cannot be read any more.
    """

    name: str
    checkpoint_id: int
    metadata: Digest
    files: Lengths
    outside: tuple[str, ...]
    growing: frozenset[str] | None
    members: MemberTable = field(default_factory=lambda: NO_MEMBERS)
    listed: Manifest | None = None
    is_damaged: bool = False

    def as_committed(self, completed: float | None = None) -> Committed:
        """Return what a plan needs of this checkpoint, which was `completed` at the source."""
        return Committed(self.name, self.checkpoint_id, self.files, self.members, completed)

    @property
    def packs(self) -> frozenset[str]:
        """The packs among `files` that have members."""
        return frozenset(self.members.used_packs)

    @property
    def logical_files(self) -> int:
        """How many files a restore reads: packs count as their members."""
        return len(self.files) - len(self.packs) + len(self.members)


_memo = Memo[CommittedCheckpoint]()


class Replica:
    """A directory `<target root>/<job-id>/`. All paths given and returned are relative to it.

    Nothing is changed through it: see `HeldReplica`.
    """

    def __init__(self, root: str, side: Side) -> None:
        self.root = root
        self.side = side
        self.storage: Reading = side.storage(root)
        # directories of checkpoints: the last listing of each, until it is used
        self._listed: dict[str, Listing] = {}

    def uri_of(self, relative: str) -> str:
        """Return the URI of a path in this replica."""
        return uri.join(self.root, relative)

    def children(self) -> list[FileStatus]:
        """Return what is directly in the replica, or nothing if it does not exist."""
        return self.storage.list(self.root)

    def own_files(self) -> dict[str, FileStatus]:
        """Return what is in `.cpreplicate/`, by name."""
        return {child.name: child for child in self.storage.list(self.uri_of(OWN))}

    def absent_directories(self) -> tuple[str, ...]:
        """Return the directories that the first file in `.cpreplicate/` creates, deepest first."""
        if not self.storage.has_directories:
            return ()
        directories = uri.upwards(self.uri_of(OWN))
        return tuple(takewhile(lambda path: self.storage.stat(path) is None, directories))

    def ask(self, former: Iterable[str] = (), directories: Iterable[str] = ()) -> None:
        """Begin the listings of the replica that are asked for soon, where each is a round trip.

        `former` are checkpoints that it had, whose directories are listed, and so are further
        `directories`. Of many, only the first are asked for ahead.
        """
        self.storage.ask("list", self.root)
        self.storage.ask("list", self.uri_of(OWN))
        for directory in islice({**dict.fromkeys(former), **dict.fromkeys(directories)}, ASKED):
            self.storage.ask("listing", self.uri_of(directory))

    def committed_names(self, children: Iterable[FileStatus] | None = None) -> list[str]:
        """Return the directories `chk-N` with a `_metadata`, the highest N first.

        Costs one listing of the replica, unless `children` is given, and one of each `chk-N`.
        """
        children = self.children() if children is None else children
        names = highest_first(
            child.name for child in children if child.is_directory and not child.is_link
        )
        self._listed = {name: self.storage.listing(self.uri_of(name)) for name in names}
        return [name for name in names if _metadata_in(self._listed[name]) is not None]

    def derived_names(self, children: Iterable[FileStatus]) -> list[str]:
        """Return the derived checkpoints `rebased/…` with a `_metadata`, sorted by name.

        Costs nothing where there is no directory for them, else a listing of it and of each.
        """
        if not any(each.name == REBASED and _is_own_directory(each) for each in children):
            return []
        inner = self.storage.list(self.uri_of(REBASED))
        names = sorted(f"{REBASED}/{each.name}" for each in inner if _is_own_directory(each))
        listed = {name: self.storage.listing(self.uri_of(name)) for name in names}
        self._listed |= listed
        return [name for name in names if _metadata_in(listed[name]) is not None]

    def listed_metadata(self, name: str) -> FileStatus:
        """Return the status of the `_metadata` of a checkpoint, from the last listing.

        `committed_names` or `derived_names` returned it, and `present` was not asked for its
        directory since. Costs no call.
        """
        status = _metadata_in(self._listed[name])
        assert status is not None
        return status

    def metadata_at_once(self, most: int) -> Mapping[str, FileStatus]:
        """Return the `_metadata` of all checkpoints `chk-N`, by checkpoint, listed at once.

        There is none where the storage lists each directory by itself, or would need more calls
        than `most`. One that is missing may be there: only its own directory shows that.
        """
        return self.storage.files_named(self.root, _BEGINNING, METADATA, most) or {}

    def metadata_file(self, name: str, length: int, modified: float) -> FileStatus:
        """Return the status of the `_metadata` of a checkpoint, as it was listed before."""
        return FileStatus(self.uri_of(f"{name}/{METADATA}"), METADATA, length, False, modified)

    def metadata_status(self, name: str) -> FileStatus | None:
        """Return the status of the `_metadata` of a checkpoint, whose directory is listed now."""
        return _metadata_in(self.storage.listing(self.uri_of(name)))

    def metadata_bytes(self, name: str) -> MetadataBytes | None:
        """Return the `_metadata` of a checkpoint, not decoded, or None if there is none.

        A damaged one, which nobody can read, is known by its length and the manifest of the
        checkpoint. Raises `DamagedFile` if these do not agree, or if there is no manifest.
        """
        try:
            return read_bytes(self.uri_of(name), self.side)
        except DamagedFile:
            status, listed = self.metadata_status(name), self.manifest(name)
            if status is None or listed is None or listed.metadata.length != status.length:
                raise
            return MetadataBytes(listed.metadata, None, is_damaged=True)

    def committed_checkpoint(self, name: str, data: MetadataBytes) -> CommittedCheckpoint:
        """Return what a committed checkpoint references.

        For a large or damaged `_metadata`, the manifest is read if it describes the same bytes.
        Otherwise the `_metadata` is decoded.
        """
        if data.is_damaged or data.digest.length > _MANIFEST_WORTH:
            listed = self._listed_in_manifest(name, data.digest)
            if listed is not None:
                return replace(listed, is_damaged=data.is_damaged)
        return self.decoded_checkpoint(name, data)

    def decoded_checkpoint(self, name: str, data: MetadataBytes) -> CommittedCheckpoint:
        """Return what a checkpoint references, also one of another program.

        No record is consulted. Raises `MetadataError`, and `NotThere` if a large `_metadata` is
        gone by now.
        """
        if data.in_memory is None:
            file = read_metadata(self.uri_of(name), self.side)
            with ExitStack() as stack:
                members = self._members(file.open(stack), file.metadata)
            return self._referenced(name, data.digest, file.metadata, members)
        known = _memo.get(data.in_memory, self.root, name)
        if known is None:
            metadata_uri = self.uri_of(f"{name}/{METADATA}")
            metadata = decoded(data.in_memory, self.uri_of(name), metadata_uri)
            members = self._members(data.in_memory, metadata)
            known = self._referenced(name, data.digest, metadata, members)
            self.remember(data.in_memory, known)
        return known

    def remember(self, data: bytes, checkpoint: CommittedCheckpoint) -> None:
        """Keep what a checkpoint of this replica references if its `_metadata` has these bytes."""
        checkpoint.files.freeze()
        _memo.put(data, checkpoint, self.root, checkpoint.name)

    def referenced_by(
        self, name: str, digest: Digest, data: bytes | BinaryIO, metadata: Metadata
    ) -> CommittedCheckpoint:
        """Return what a checkpoint references whose `_metadata` is about to be published."""
        return self._referenced(name, digest, metadata, self._members(data, metadata))

    def _members(self, data: bytes | BinaryIO, metadata: Metadata) -> MemberTable:
        """Return the packed files that a `_metadata` references, by their logical path."""
        if not metadata.file_merging:
            return NO_MEMBERS
        prefix = self.uri_of(f"{PACKED}/")
        return MemberTable.of(
            {
                segment.logical_id: Member(
                    f"{PACKED}/{segment.path.removeprefix(prefix)}", segment.position, segment.size
                )
                for segment in segments(data, metadata)
                if segment.path.startswith(prefix)
            }
        )

    def _listed_in_manifest(self, name: str, digest: Digest) -> CommittedCheckpoint | None:
        """Return what a manifest lists of a checkpoint, None if it is of another `_metadata`."""
        listed = self.manifest(name)
        if listed is None or listed.metadata != digest:
            return None
        files = Lengths(listed.entries.paths, listed.entries.extents)
        return CommittedCheckpoint(
            name, listed.checkpoint_id, digest, files, (), None, listed.members, listed
        )

    def _referenced(
        self, name: str, digest: Digest, metadata: Metadata, members: MemberTable
    ) -> CommittedCheckpoint:
        """Return what a `_metadata` references, in the replica and outside of it."""
        needed = closure(metadata)
        files, is_inside = needed.files, self._are_inside(needed.files.paths)
        inside = files.take(is_inside)
        paths = without_prefix(inside.paths, self.uri_of(""))
        merged = chosen(paths, inside.is_segment).to_pylist()
        outside = files.take(~is_inside).paths.to_pylist()
        outside += [path for path in sorted(needed.directories) if self._inside(path) is None]
        return CommittedCheckpoint(
            name,
            metadata.checkpoint_id,
            digest,
            Lengths(paths, inside.extents),
            tuple(outside),
            frozenset(path for path in merged if not is_pack(path)),
            members,
        )

    def _are_inside(self, uris: Texts) -> Numbers:
        """Return of each URI whether it is that of a file in this replica."""
        prefix = self.uri_of("")
        below = begin_with(uris, prefix).copy()
        relative = without_prefix(chosen(uris, below), prefix)
        below[below] = are_replica_paths(relative)
        return below

    def _inside(self, file_uri: str) -> str | None:
        """Return the path of a file in this replica, or None if it is elsewhere."""
        path = uri.below(file_uri, self.root)
        return path if path is not None and is_replica_path(path) else None

    def present(self, directories: Iterable[str]) -> Lengths:
        """Return path to length of the files that are in these directories.

        Each directory is listed once. A symbolic link counts as absent, and so does a name that is
        no text: no file of a replica has one.
        """
        paths: list[Texts] = [texts(())]
        lengths: list[Numbers] = [np.zeros(0, np.int64)]
        for directory in sorted(set(directories)):
            listed = self._listing(directory)
            names, is_text = texts_among(listed.names)
            paths.append(prefixed(f"{directory}/", names))
            lengths.append(np.array(listed.lengths, np.int64)[is_text])
        return Lengths(pa.concat_arrays(paths), np.concatenate(lengths))

    def lengths_of(self, paths: Texts, among: Texts) -> Lengths:
        """Return path to length of those of these files that are there.

        Costs one listing for each directory, or a stat for each file where that costs fewer calls:
        `among` are the files that the directories have about.
        """
        prefixes, codes = coded(split(among)[0])
        counts = dict(zip(prefixes, np.bincount(codes).tolist(), strict=True))
        asked: dict[str, list[str]] = {}
        for path in paths.to_pylist():
            asked.setdefault(path.rpartition("/")[0], []).append(path)
        listed = [
            directory
            for directory, some in asked.items()
            if len(some) * self.storage.listed_a_call > counts.get(f"{directory}/", 0)
        ]
        few = [path for directory in asked.keys() - set(listed) for path in asked[directory]]
        present, others = self.present(listed), self._lengths_of_few(few)
        return Lengths(
            pa.concat_arrays([present.paths, others.paths]),
            np.concatenate([present.bytes, others.bytes]),
        )

    def _lengths_of_few(self, paths: Sequence[str]) -> Lengths:
        """Return path to length of those of these files that are there: a stat for each."""
        lengths = {
            path: status.length
            for path, status in zip(paths, self._statuses(paths), strict=True)
            if status is not None and not (status.is_directory or status.is_link)
        }
        return Lengths.of(lengths)

    def _statuses(self, paths: Sequence[str]) -> list[FileStatus | None]:
        """Return the status of each file: several at once, where they are worth threads."""
        uris = map(self.uri_of, paths)
        if len(paths) <= _FEW_STATS and not self.storage.answers_ahead:
            return list(map(self.storage.stat, uris))
        with ThreadPoolExecutor(_STATS) as pool:
            return list(pool.map(self.storage.stat, uris))

    def _listing(self, directory: str) -> Listing:
        """Return what is in a directory, listed now or by `committed_names`."""
        listed = self._listed.pop(directory, None)
        if listed is not None:
            return listed
        try:
            return self.storage.listing(self.uri_of(directory))
        except NotADirectoryError as error:
            raise Refused(
                f"{self.uri_of(directory)} is a file where a replica has a directory. Remove"
                " it, or sync into another TARGET_ROOT"
            ) from error

    def manifest(self, name: str) -> Manifest | None:
        """Return the manifest of a checkpoint, or None if it does not exist or is damaged."""
        return manifest.read(self.storage, self.root, name)


def _is_own_directory(status: FileStatus) -> bool:
    return status.is_directory and not status.is_link


def _metadata_in(listed: Listing) -> FileStatus | None:
    if METADATA in listed.names:
        return listed.status(listed.names.index(METADATA))
    return next((other for other in listed.others if other.name == METADATA), None)
