"""A replica as it lies: which checkpoints are committed in it, what they reference, what is present, how one is published."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from cpreplicate import manifest, uri
from cpreplicate.closure import closure
from cpreplicate.manifest import Manifest
from cpreplicate.placement import METADATA, is_replica_path
from cpreplicate.plan import Committed
from cpreplicate.source import newest_first, read_metadata
from cpreplicate.storage import Site
from cpreplicate.storage.base import TEMPORARY, Content, FileStatus

_MANIFEST_WORTH = 16 << 20  # bytes of `_metadata` above which reading the manifest instead saves time


@dataclass(frozen=True)
class Held:
    """A committed checkpoint of a replica: `files` is path to extent, `outside` the places that it names elsewhere."""

    name: str
    checkpoint_id: int
    metadata_length: int
    files: Mapping[str, int]
    outside: tuple[str, ...]

    def as_committed(self) -> Committed:
        """As the plan wants it."""
        return Committed(self.name, self.checkpoint_id, self.files)


class Replica:
    """`<target root>/<job-id>/`; every path told or asked here is relative to it."""

    def __init__(self, root: str, site: Site) -> None:
        self.root = root
        self.site = site
        self.storage = site.storage(root)
        self._is_alone = False
        self._listed: dict[str, list[FileStatus]] = {}  # directories of checkpoints, as last seen and not yet asked for

    def at(self, relative: str) -> str:
        """The place of a path in this replica."""
        return uri.join(self.root, relative)

    def committed_names(self) -> dict[str, int]:
        """Committed checkpoints, newest first, with the length of their `_metadata`. One listing, and one of each chk-N."""
        names = newest_first(child.name for child in self.storage.list(self.root) if child.is_directory)
        self._listed = {name: self.storage.list(self.at(name)) for name in names}
        return {name: child.length for name in names for child in self._listed[name] if child.name == METADATA}

    def has(self, name: str) -> bool:
        """Whether a checkpoint is committed."""
        return self.storage.stat(self.at(f"{name}/{METADATA}")) is not None

    def committed(self) -> list[Held]:
        """What each committed checkpoint references, newest first."""
        return [self._held(name, length) for name, length in self.committed_names().items()]

    def committed_alone(self) -> list[Held]:
        """The same under the lease, where a file that is not yet whole is of a run that lost it: it goes before anything.

        So a run that was held up, and still takes the lease for its own, cannot publish any more, nor replace a merged file
        by what it was before it grew. If it did so just before, that is seen.
        """
        self._is_alone = True
        while True:
            held = self.committed()
            if self._without_unfinished(child for children in self._listed.values() for child in children):
                return held

    def _without_unfinished(self, children: Iterable[FileStatus]) -> bool:
        """Remove what is not whole yet; False if some of it became whole just before."""
        unfinished = [child.uri for child in children if child.name.startswith(TEMPORARY)]
        return all([self.storage.delete(place, durable=True) for place in unfinished])  # noqa: C419  # each of them, not until one

    def _held(self, name: str, metadata_length: int) -> Held:
        """What a committed checkpoint references: from its manifest where that saves reading gigabytes, else decoded."""
        if metadata_length > _MANIFEST_WORTH:
            known = self.manifest(name, metadata_length)
            if known is not None and all(map(is_replica_path, known.entries)):
                files = {path: entry.extent for path, entry in known.entries.items()}
                return Held(name, known.checkpoint_id, metadata_length, files, ())
        return self.read(name)

    def read(self, name: str) -> Held:
        """What a committed checkpoint references, from its `_metadata`."""
        metadata = read_metadata(self.at(name), self.site).metadata
        found = closure(metadata)
        inside = {path: file.extent for place, file in found.files.items() if (path := self._inside(place)) is not None}
        outside = [place for place in (*found.files, *sorted(found.directories)) if self._inside(place) is None]
        return Held(name, metadata.checkpoint_id, metadata.length, inside, tuple(outside))

    def _inside(self, place: str) -> str | None:
        relative = uri.below(place, self.root)
        return relative if relative is not None and is_replica_path(relative) else None

    def present(self, directories: Iterable[str]) -> dict[str, int]:
        """Path to length of the files that lie in some directories; each is listed once."""
        return {
            f"{directory}/{child.name}": child.length
            for directory in sorted(set(directories))
            for child in self._children(directory)
            if not child.is_directory
        }

    def _children(self, directory: str) -> list[FileStatus]:
        """What lies in a directory; what the look at the checkpoints listed is not listed again at once."""
        known = self._listed.pop(directory, None)
        if known is not None:
            return known
        while True:
            children = self.storage.list(self.at(directory))
            if not self._is_alone or self._without_unfinished(children):
                return children

    def holds(self, name: str, chunks: Iterator[bytes]) -> bool:
        """Whether the committed `_metadata` of `name` consists of just these bytes."""
        with self.storage.open(self.at(f"{name}/{METADATA}")) as stream:
            return all(stream.read(len(chunk)) == chunk for chunk in chunks) and not stream.read(1)

    def publish(self, name: str, content: Content, check: Callable[[], None]) -> int:
        """Commit: the `_metadata` of `name` appears, or replaces another, atomically. Returns its length.

        `check` is made when it is written and about to appear, and may raise.
        """
        return self.storage.put(self.at(f"{name}/{METADATA}"), content, lambda _length: check())

    def withdraw(self, name: str) -> None:
        """Remove the `_metadata` of a checkpoint that is no longer kept, durably before any of its files."""
        self.storage.delete(self.at(f"{name}/{METADATA}"), durable=True)

    def forget(self, name: str) -> None:
        """Remove what is left of a withdrawn checkpoint once its files are gone: its manifest and empty directory."""
        self.forget_manifest(name)
        self.storage.rmdir(self.at(name))

    def manifest(self, name: str, metadata_length: int) -> Manifest | None:
        """The manifest of a checkpoint whose `_metadata` has this length, if there is one that fits."""
        return manifest.read(self.storage, self.root, name, metadata_length)

    def has_manifest(self, name: str) -> bool:
        """Whether there is one, readable or not."""
        return manifest.exists(self.storage, self.root, name)

    def record(self, name: str, made: Manifest) -> None:
        """Write the manifest of a checkpoint, after the commit that it describes."""
        manifest.write(self.storage, self.root, name, made)

    def forget_manifest(self, name: str) -> None:
        """Remove the manifest of a checkpoint, before another takes its name."""
        manifest.remove(self.storage, self.root, name)
