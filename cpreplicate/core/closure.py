"""The closure: the distinct files that a restore needs, with the extent of each.

It follows from the state handles of a `_metadata`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cpreplicate.core import uri
from cpreplicate.core.bulk import NO_PREFIX, Prefix, new_row
from cpreplicate.core.metadata import Handle, Metadata
from cpreplicate.core.metadata.model import DIRECTORY, SEGMENT


class File(NamedTuple):
    """One file of the closure.

    `uri` is where it is read, `extent` the length in bytes that it must at least have, and `size`
    about how long it is. `segment`: a segment handle names it, so it may grow.
    """

    uri: str
    extent: int
    size: int = 0
    segment: bool = False


@dataclass(frozen=True)
class Closure:
    """The files of a checkpoint by URI, and the URI that each recorded path resolves to.

    `parents` are the directories of the files, and `plain` those of them in which every file has a
    plain name. `directories` are those of type-17 handles: nothing is read there, but the owner of
    the checkpoint deletes them.
    """

    files: Mapping[str, File]
    uris: Mapping[str, str]
    parents: frozenset[str]
    plain: frozenset[str]
    directories: frozenset[str]

    def uri_of(self, handle: Handle) -> str:
        """Return the URI that the file or directory of a handle is read from."""
        assert handle.path is not None, "the handle names no file"
        return self.uris[handle.path]

    @property
    def bytes(self) -> int:
        """The approximate number of bytes that the files take."""
        return sum(file.size for file in self.files.values())


def closure(metadata: Metadata, remaps: Sequence[uri.Remap] = ()) -> Closure:
    """Return the closure of a checkpoint.

    A file that several handles reference gets the greatest of their extents.
    """
    uris, plain_name = _Uris(metadata.base_uri, remaps), uri.plain_name
    files: dict[str, File] = {}
    parents, not_plain, directories = set(), set(), set()
    # What the last path began with as recorded, and what that resolves to. Both are the same object
    # where nothing changes.
    recorded: Prefix = NO_PREFIX
    resolved = ""
    for path, kind, extent, size in metadata.handles.located():
        if kind == DIRECTORY:
            directories.add(uris[path])
            continue
        if path.startswith(recorded) and plain_name(path, len(recorded)):
            file_uri = path if recorded is resolved else resolved + path[len(recorded) :]
        else:
            file_uri = uris[path]
            parent = uri.parent(file_uri)
            parents.add(parent)
            prefixes = uris.prefixes(path)
            recorded, resolved = prefixes or (NO_PREFIX, "")
            if prefixes is None:
                not_plain.add(parent)
        file = new_row(File, (file_uri, extent, size, kind == SEGMENT))
        known = files.setdefault(file_uri, file)
        if known is not file:
            files[file_uri] = _merged(known, file)
    plain = frozenset(parents - not_plain)
    return Closure(files, uris, frozenset(parents), plain, frozenset(directories))


def _merged(one: File, other: File) -> File:
    """Return the file that two references of the same URI need together."""
    extent = max(one.extent, other.extent)
    size = max(one.size, other.size)
    return File(one.uri, extent, size, one.segment or other.segment)


def foreign_groups(files: Mapping[str, File], job_root: str) -> dict[str, int]:
    """Count the files outside the job's own directory, by the directory of the job they belong to.

    A file that is not laid out like a job's counts for its own directory.
    """
    groups: dict[str, int] = {}
    for file_uri in files:
        if uri.below(file_uri, job_root) is None:
            group = job_directory(file_uri)
            groups[group] = groups.get(group, 0) + 1
    return groups


def job_directory(file_uri: str) -> str:
    """Return the directory of the job that a file belongs to.

    It is the file's own directory where the file is not laid out like a job's.
    """
    for marker in ("/shared/", "/taskowned/", "/chk-"):
        head, separator, _ = file_uri.partition(marker)
        if separator:
            return head
    return uri.parent(file_uri)


class _Uris(dict[str, str]):
    """The URI of each recorded path. Most are resolved by directory, of which there are few."""

    def __init__(self, base: str, remaps: Sequence[uri.Remap]) -> None:
        super().__init__()
        self._base = base
        self._remaps = remaps
        self._prefixes: dict[str, tuple[str, str]] = {}

    def prefixes(self, path: str) -> tuple[str, str] | None:
        """Return what a recorded path begins with before its name, and what that resolves to.

        The pair holds for every plain name behind the same beginning. It is the same object twice
        where nothing changes. Return None if the name is not plain: then more than the beginning
        may change.
        """
        recorded = path[: path.rfind("/") + 1]
        if not uri.plain_name(path, len(recorded)):
            return None
        known = self._prefixes.get(recorded)
        if known is None:
            resolved = self._resolve(f"{recorded}x")[:-1]
            known = (recorded, recorded if resolved == recorded else resolved)
            self._prefixes[recorded] = known
        return known

    def __missing__(self, path: str) -> str:
        prefixes = self.prefixes(path)
        if prefixes is None:
            file_uri = self._resolve(path)
        else:
            recorded, resolved = prefixes
            if recorded is resolved:
                return path  # and not stored: most paths are recorded as URIs
            file_uri = resolved + path[len(recorded) :]
        self[path] = file_uri
        return file_uri

    def _resolve(self, path: str) -> str:
        return uri.remap(uri.resolve(path, self._base), self._remaps)
