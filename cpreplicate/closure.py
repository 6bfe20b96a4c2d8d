"""From the state handles of a `_metadata` to the distinct files that a restore needs, with their extents."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cpreplicate import uri
from cpreplicate.metadata import Handle, Metadata

_PLAIN_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")  # what `resolve` leaves as it is, whatever the directory
_FILE_KINDS = frozenset({"file", "relative", "segment"})


class File(NamedTuple):
    """One file of the closure: where it is read, the length that it must at least have, and about how long it is."""

    uri: str
    extent: int
    segment: bool
    size: int


@dataclass(frozen=True)
class Closure:
    """The files of a checkpoint by the place that they are read from, and how each recorded path resolves.

    `directories` are those of type-17 handles: nothing is read there, but who owns the checkpoint deletes them.
    """

    files: Mapping[str, File]
    places: Mapping[str, str]
    directories: frozenset[str]

    def place(self, handle: Handle) -> str:
        """Where the file (or directory) of a handle is read from."""
        assert handle.path is not None, "only handles that name a place have one"
        return self.places[handle.path]

    @property
    def bytes(self) -> int:
        """About how many bytes it takes."""
        return sum(file.size for file in self.files.values())


def closure(metadata: Metadata, remaps: Sequence[uri.Remap] = ()) -> Closure:
    """The closure of a checkpoint. Several references of one file give the greatest extent."""
    places = _Places(metadata.base_uri, remaps)
    files: dict[str, File] = {}
    directories = set()
    for handle in metadata.handles:
        if handle.path is None:
            continue
        place = places[handle.path]
        if handle.kind in _FILE_KINDS:
            _merge(files, place, handle)
        else:
            directories.add(place)
    return Closure(files, places, frozenset(directories))


def needed_extent(handle: Handle) -> int:
    """How long the file of a handle must at least be, in bytes.

    Zero for a changelog's `dstl` file: its handle tells the uncompressed payload, which is unrelated to the file's
    length when compression is on (`FsStateChangelogWriter`, observed on 1.20 and 2.3).
    """
    if handle.part == "delta" and handle.kind != "segment":
        return 0
    return handle.size + (handle.position or 0)


def foreign_groups(files: Mapping[str, File], job_root: str) -> dict[str, int]:
    """Files that lie outside the job's own directory, counted by their job's directory (or their own, if unlike one)."""
    groups: dict[str, int] = {}
    for place in files:
        if uri.below(place, job_root) is None:
            group = _job_of(place)
            groups[group] = groups.get(group, 0) + 1
    return groups


def _job_of(place: str) -> str:
    for marker in ("/shared/", "/taskowned/", "/chk-"):
        head, found, _ = place.partition(marker)
        if found:
            return head
    return uri.parent(place)


def _merge(files: dict[str, File], place: str, handle: Handle) -> None:
    extent, segment = needed_extent(handle), handle.kind == "segment"
    size = handle.size + (handle.position or 0)
    known = files.get(place)
    if known is not None:
        extent, segment, size = max(extent, known.extent), segment or known.segment, max(size, known.size)
    files[place] = File(place, extent, segment, size)


class _Places(dict[str, str]):
    """Resolves each recorded spelling once, and most of them by their directory, of which there are few."""

    def __init__(self, base: str, remaps: Sequence[uri.Remap]) -> None:
        super().__init__()
        self._base = base
        self._remaps = remaps
        self._directories: dict[str, str] = {}

    def __missing__(self, text: str) -> str:
        directory, slash, name = text.rpartition("/")
        is_plain = bool(slash and directory) and _PLAIN_NAME.fullmatch(name) is not None
        self[text] = place = f"{self._directory(directory)}/{name}" if is_plain else self._resolve(text)
        return place

    def _directory(self, text: str) -> str:
        if text not in self._directories:
            self._directories[text] = self._resolve(f"{text}/x")[: -len("/x")]
        return self._directories[text]

    def _resolve(self, text: str) -> str:
        return uri.remap(uri.resolve(text, self._base), self._remaps)
