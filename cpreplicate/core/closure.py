"""From the state handles of a `_metadata` to the distinct files that a restore needs, with their
extents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cpreplicate.core import uri
from cpreplicate.core.metadata import Handle, Metadata
from cpreplicate.core.metadata.model import DIRECTORY, SEGMENT


class File(NamedTuple):
    """One file of the closure: where it is read, the length that it must at least have, and about
    how long it is.
    """

    uri: str
    extent: int
    size: int = 0
    segment: bool = False


@dataclass(frozen=True)
class Closure:
    """The files of a checkpoint by the place that they are read from, and how each recorded path
    resolves.

    `parents` are the directories that the files lie in, `plain` those of them in which all have a
    plain name. `directories` are those of type-17 handles: nothing is read there, but who owns the
    checkpoint deletes them.
    """

    files: Mapping[str, File]
    places: Mapping[str, str]
    parents: frozenset[str]
    plain: frozenset[str]
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
    places, plain_name = _Places(metadata.base_uri, remaps), uri.plain_name
    new = tuple.__new__  # half the cost of `File(...)`, of which there may be a million
    files: dict[str, File] = {}
    parents, odd, directories = set(), set(), set()
    # Most files lie beside the one before: `near` is where as recorded, `there` as a place. ()
    # begins no path.
    near: str | tuple[()] = ()
    there = ""
    for path, kind, extent, size in metadata.handles.located():
        if kind == DIRECTORY:
            directories.add(places[path])
            continue
        if path.startswith(near) and plain_name(path, len(near)):
            place = path if near is there else there + path[len(near) :]
        else:
            place = places[path]
            parents.add(parent := uri.parent(place))
            beside = places.beside(path)
            near, there = beside or ((), "")
            if beside is None:
                odd.add(parent)
        file = new(File, (place, extent, size, kind == SEGMENT))
        if (known := files.setdefault(place, file)) is not file:
            files[place] = _merged(known, file)
    return Closure(
        files, places, frozenset(parents), frozenset(parents - odd), frozenset(directories)
    )


def _merged(one: File, other: File) -> File:
    return File(
        one.uri,
        max(one.extent, other.extent),
        max(one.size, other.size),
        one.segment or other.segment,
    )


def foreign_groups(files: Mapping[str, File], job_root: str) -> dict[str, int]:
    """Files that lie outside the job's own directory, counted by their job's directory (or their
    own, if unlike one).
    """
    groups: dict[str, int] = {}
    for place in files:
        if uri.below(place, job_root) is None:
            group = job_directory(place)
            groups[group] = groups.get(group, 0) + 1
    return groups


def job_directory(place: str) -> str:
    """Return the directory of the job that a file belongs to, or the file's own where it is laid
    out in another way.
    """
    for marker in ("/shared/", "/taskowned/", "/chk-"):
        head, found, _ = place.partition(marker)
        if found:
            return head
    return uri.parent(place)


class _Places(dict[str, str]):
    """Resolves each recorded spelling once, and most of them by their directory, of which there are
    few.
    """

    def __init__(self, base: str, remaps: Sequence[uri.Remap]) -> None:
        super().__init__()
        self._base = base
        self._remaps = remaps
        self._beside: dict[str, tuple[str, str]] = {}

    def beside(self, text: str) -> tuple[str, str] | None:
        """With what a recorded path begins before its name, and what that becomes; None if that is
        not all that changes.

        What holds for one plain name holds for every plain name behind the same beginning. Both are
        the same object where nothing changes.
        """
        recorded = text[: text.rfind("/") + 1]
        if not uri.plain_name(text, len(recorded)):
            return None
        if (known := self._beside.get(recorded)) is None:
            resolved = self._resolve(f"{recorded}x")[:-1]
            known = self._beside[recorded] = (
                recorded,
                recorded if resolved == recorded else resolved,
            )
        return known

    def __missing__(self, text: str) -> str:
        beside = self.beside(text)
        if beside is None:
            place = self._resolve(text)
        elif beside[0] is beside[1]:
            return text  # and not kept: most paths are recorded as places
        else:
            place = beside[1] + text[len(beside[0]) :]
        self[text] = place
        return place

    def _resolve(self, text: str) -> str:
        return uri.remap(uri.resolve(text, self._base), self._remaps)
