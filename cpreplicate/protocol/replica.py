"""A replica as it lies: which checkpoints are committed in it, what they reference, what is
present, how one is published.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import takewhile

from cpreplicate.core import uri
from cpreplicate.core.closure import closure
from cpreplicate.core.metadata import Metadata
from cpreplicate.core.placement import METADATA, OWN, is_replica_path
from cpreplicate.core.plan import Committed
from cpreplicate.errors import Refused
from cpreplicate.protocol import manifest
from cpreplicate.protocol.digest import Digest
from cpreplicate.protocol.manifest import Manifest
from cpreplicate.protocol.source import (
    MetadataBytes,
    decoded,
    newest_first,
    read_bytes,
    read_metadata,
)
from cpreplicate.storage import Side
from cpreplicate.storage.base import TEMPORARY, Content, FileStatus

# bytes of `_metadata` above which reading the manifest instead saves time
_MANIFEST_WORTH = 16 << 20


@dataclass(frozen=True)
class CommittedCheckpoint:
    """A committed checkpoint of a replica: `files` is path to extent, `outside` the places that it
    names elsewhere.

    `growing` are files that may be longer than recorded, since a run that died may have copied them
    again: merged ones.
    """

    name: str
    checkpoint_id: int
    metadata: Digest
    files: Mapping[str, int]
    outside: tuple[str, ...]
    growing: frozenset[str]

    def as_committed(self) -> Committed:
        """As the plan wants it."""
        return Committed(self.name, self.checkpoint_id, self.files)


class Replica:
    """`<target root>/<job-id>/`; every path given or returned here is relative to it."""

    def __init__(self, root: str, side: Side) -> None:
        self.root = root
        self.side = side
        self.storage = side.storage(root)
        self._is_alone = False
        self._listed: dict[
            str, list[FileStatus]
        ] = {}  # directories of checkpoints, as last seen and not yet asked for

    def uri_of(self, relative: str) -> str:
        """The place of a path in this replica."""
        return uri.join(self.root, relative)

    def children(self) -> list[FileStatus]:
        """What lies directly in it; nothing where there is no such directory."""
        return self.storage.list(self.root)

    def own_files(self) -> dict[str, FileStatus]:
        """What lies in `.cpreplicate/`, by name."""
        return {child.name: child for child in self.storage.list(self.uri_of(OWN))}

    def absent_directories(self) -> tuple[str, ...]:
        """The directories that the first file in `.cpreplicate/` creates, the deepest first."""
        if not self.storage.has_directories:
            return ()
        return tuple(
            takewhile(lambda place: self.storage.stat(place) is None, uri.upwards(self.uri_of(OWN)))
        )

    def committed_names(self, children: Iterable[FileStatus] | None = None) -> list[str]:
        """Directories `chk-N` with a `_metadata`, the highest N first.

        One listing, and one of each.
        """
        found = self.children() if children is None else children
        names = newest_first(
            child.name for child in found if child.is_directory and not child.is_link
        )
        self._listed = {name: self.storage.list(self.uri_of(name)) for name in names}
        return [
            name for name in names if any(child.name == METADATA for child in self._listed[name])
        ]

    def without_unfinished(self) -> bool:
        """Remove what other runs left half-written in the directories of checkpoints just listed,
        and from now on elsewhere.

        For the holder of the lease. So a run that was held up, and still takes the lease for its
        own, cannot publish any more, nor replace a merged file by what it was before it grew.
        Returns False if some of it became whole just before.
        """
        self._is_alone = True
        return self._remove_unfinished(
            child for children in self._listed.values() for child in children
        )

    def _remove_unfinished(self, children: Iterable[FileStatus]) -> bool:
        unfinished = [
            each.uri
            for each in children
            if each.name.startswith(TEMPORARY) and not each.is_directory
        ]
        # each of them, not until one
        return all(
            [self.storage.delete(place, durable=True) for place in unfinished]  # noqa: C419  # each of them, not until one
        )

    def metadata_bytes(self, name: str) -> MetadataBytes | None:
        """The `_metadata` of a checkpoint as it lies; None if there is none."""
        return read_bytes(self.uri_of(name), self.side)

    def committed_checkpoint(self, name: str, data: MetadataBytes) -> CommittedCheckpoint:
        """What a committed checkpoint references: from its manifest where that saves decoding
        gigabytes, else decoded.
        """
        if data.digest.length > _MANIFEST_WORTH:
            known = self.manifest(name)
            if (
                known is not None
                and known.metadata == data.digest
                and all(map(is_replica_path, known.entries))
            ):
                files = {path: entry.extent for path, entry in known.entries.items()}
                return CommittedCheckpoint(
                    name, known.checkpoint_id, data.digest, files, (), frozenset(files)
                )
        if data.in_memory is None:
            return self._referenced(
                name, data.digest, read_metadata(self.uri_of(name), self.side).metadata
            )
        metadata = decoded(data.in_memory, self.uri_of(name), self.uri_of(f"{name}/{METADATA}"))
        return self._referenced(name, data.digest, metadata)

    def _referenced(self, name: str, digest: Digest, metadata: Metadata) -> CommittedCheckpoint:
        found = closure(metadata)
        inside = {
            path: file.extent
            for place, file in found.files.items()
            if (path := self._inside(place)) is not None
        }
        outside = [
            place
            for place in (*found.files, *sorted(found.directories))
            if self._inside(place) is None
        ]
        segments = (self._inside(place) for place, file in found.files.items() if file.segment)
        growing = frozenset(path for path in segments if path is not None)
        return CommittedCheckpoint(
            name, metadata.checkpoint_id, digest, inside, tuple(outside), growing
        )

    def _inside(self, place: str) -> str | None:
        relative = uri.below(place, self.root)
        return relative if relative is not None and is_replica_path(relative) else None

    def present(self, directories: Iterable[str]) -> dict[str, int]:
        """Path to length of the files that lie in some directories; each is listed once.

        A link counts as absent.
        """
        return {
            f"{directory}/{child.name}": child.length
            for directory in sorted(set(directories))
            for child in self._children(directory)
            if not child.is_directory and not child.is_link
        }

    def _children(self, directory: str) -> list[FileStatus]:
        """What lies in a directory.

        What the look at the checkpoints listed is not listed again at once.
        """
        known = self._listed.pop(directory, None)
        if known is not None:
            return known
        while True:
            try:
                children = self.storage.list(self.uri_of(directory))
            except NotADirectoryError as error:
                raise Refused(
                    f"{self.uri_of(directory)} is a file. Remove it, or sync into another TARGET_ROOT"
                ) from error
            if not self._is_alone or self._remove_unfinished(children):
                return children

    def publish(self, name: str, content: Content, check: Callable[[], None], replace: bool) -> int:
        """Commit: the `_metadata` of `name` appears, or replaces another, atomically. Returns its
        length.

        `check` is made when it is written and about to appear, and may raise. Raises
        `FileExistsError` if not to `replace` one.
        """
        return self.storage.put(
            self.uri_of(f"{name}/{METADATA}"), content, lambda _length: check(), None, replace
        )

    def withdraw(self, name: str) -> None:
        """Remove the `_metadata` of a checkpoint that is no longer kept, durably before any of its
        files.
        """
        self.storage.delete(self.uri_of(f"{name}/{METADATA}"), durable=True)

    def manifest(self, name: str) -> Manifest | None:
        """The manifest of a checkpoint, if there is one that can be read."""
        return manifest.read(self.storage, self.root, name)

    def record(self, name: str, made: Manifest) -> None:
        """Write the manifest of a checkpoint, after the commit that it describes."""
        manifest.write(self.storage, self.root, name, made)
