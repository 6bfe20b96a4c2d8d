"""The closure: the distinct files that a restore needs, with the extent of each.

It follows from the state handles of a `_metadata`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cpreplicate.core import uri
from cpreplicate.core.lazy import lazy
from cpreplicate.core.metadata import Handle, Metadata, mutf8
from cpreplicate.core.metadata.columns import Handles
from cpreplicate.core.metadata.handle import DIRECTORY, SEGMENT
from cpreplicate.core.path_columns import (
    Numbers,
    Parts,
    Texts,
    are_plain,
    chosen,
    coded,
    distinct,
    split,
)
from cpreplicate.core.tables import Flags, Ints, PathTable, slices

_NO_NAME = pa.scalar(b"", pa.large_binary())


class File(NamedTuple):
    """One file of the closure.

    `uri` is where it is read, `extent` the length in bytes that it must at least have, and `size`
    about how long it is. `segment`: a segment handle names it, so it may grow.
    """

    uri: str
    extent: int
    size: int = 0
    segment: bool = False


@dataclass(frozen=True, eq=False)
class FileTable(PathTable[File]):
    """Files of a closure by their path, in columns.

    `parts` are the paths, and `sources` the URIs that the files are read from. `extents`, `sizes`
    and `is_segment` are as in `File`.
    """

    row_class = File
    parts: Parts
    sources: Parts
    extents: Ints
    sizes: Ints
    is_segment: Flags

    @lazy
    def paths(self) -> Texts:
        return self.parts.texts()

    @property
    def directories(self) -> set[str]:
        """The directories of the paths."""
        return uri.directories(self.parts.used_prefixes)

    @property
    def costs(self) -> Numbers:
        """About how many bytes the copy of each file moves."""
        return np.maximum(self.extents, self.sizes)

    def row(self, index: int) -> tuple[str, File]:
        """Return the path and the file of one row."""
        numbers = int(self.extents[index]), int(self.sizes[index])
        file = File(self.sources.text(index), *numbers, bool(self.is_segment[index]))
        return self.parts.text(index), file


@dataclass(frozen=True)
class Closure:
    """The files of a checkpoint by URI, and the URI that each recorded path resolves to.

    `parents` are the directories of the files, and `plain` those of them in which every file has a
    plain name. `directories` are those of type-17 handles: nothing is read there, but the owner of
    the checkpoint deletes them. `handles` are the rows of the handles that name a file, and
    `file_of_handle` is the row of the file of each.
    """

    files: FileTable
    uris: Uris
    parents: frozenset[str]
    plain: frozenset[str]
    directories: frozenset[str]
    handles: Numbers
    file_of_handle: Numbers

    def uri_of(self, handle: Handle) -> str:
        """Return the URI that the file or directory of a handle is read from."""
        assert handle.path is not None, "the handle names no file"
        return self.uris[handle.path]

    @property
    def bytes(self) -> int:
        """The approximate number of bytes that the files take."""
        return sum(self.files.sizes.tolist())  # a sum of numpy's would wrap


def closure(metadata: Metadata, remaps: Sequence[uri.Remap] = ()) -> Closure:
    """Return the closure of a checkpoint.

    A file that several handles reference gets the greatest of their extents.
    """
    uris, handles = Uris(metadata.base_uri, remaps), metadata.handles
    rows = handles.named()
    is_directory = handles.kind[rows] == DIRECTORY
    recorded = handles.recorded(rows[is_directory]).unique() if is_directory.any() else None
    directories = {uris[path] for path in _decoded(recorded)} if recorded is not None else set()
    rows = rows[~is_directory]
    sources, not_plain = _sources_of(handles, rows, uris)
    extents, sizes = handles.extents(rows)
    is_segment = handles.kind[rows] == SEGMENT
    files, file_of_handle = _distinct(FileTable(sources, sources, extents, sizes, is_segment))
    parents = frozenset(prefix[:-1] for prefix in sources.used_prefixes)
    plain = parents.difference(not_plain)
    return Closure(files, uris, parents, plain, frozenset(directories), rows, file_of_handle)


def owners(metadata: Metadata, needed: Closure) -> Numbers:
    """Return the operator of each file of the closure of a checkpoint, in the order of its files.

    It is an index into the operators of the checkpoint, -1 for a file that several share.
    """
    operators, files = metadata.handles.operator[needed.handles], needed.file_of_handle
    first = np.full(len(needed.files), len(metadata.operators), np.int64)
    last = np.full(len(needed.files), -1, np.int64)
    np.minimum.at(first, files, operators)
    np.maximum.at(last, files, operators)
    return np.where(first == last, last, -1)


def sources_of(handles: Handles, rows: Numbers, uris: Uris) -> Parts:
    """Return the URI that the file of each of some handles is read from.

    Raises `Refused` for a path that no filesystem could hold.
    """
    return _sources_of(handles, rows, uris)[0]


def _sources_of(handles: Handles, rows: Numbers, uris: Uris) -> tuple[Parts, set[str]]:
    """Return the URIs of the files that handles name, and where not all names are plain."""
    parts = [_sources(handles.recorded(rows[some]), uris) for some in slices(len(rows))]
    if len(parts) == 1:
        return parts[0]
    return Parts.joined([part for part, _ in parts]), set[str]().union(*(odd for _, odd in parts))


def _decoded(recorded: Texts) -> list[str]:
    return [mutf8.decode(path) for path in recorded.to_pylist()]


def _sources(recorded: Texts, uris: Uris) -> tuple[Parts, set[str]]:
    """Return the URIs of recorded paths, and the directories in which not all names are plain.

    A path with a plain name is resolved with its directory, any other one by itself.
    """
    beginnings, names = split(recorded)
    values, codes = coded(beginnings)
    is_plain = are_plain(names)
    with_plain = set(codes[is_plain].tolist())
    prefixes = [
        uris.prefix(mutf8.decode(beginning)) if code in with_plain else None
        for code, beginning in enumerate(values)
    ]
    singles = [uris[path] for path in _decoded(chosen(recorded, ~is_plain))]
    if singles:
        names = pc.if_else(pa.array(is_plain), names, _NO_NAME)
    parts = Parts((), codes, names.cast(pa.large_string()))
    not_plain = {uri.parent(single) for single in singles}
    return parts.moved(prefixes, ~is_plain, singles), not_plain


def _distinct(files: FileTable) -> tuple[FileTable, Numbers]:
    """Return each file once, where it is first named, with the greatest of its extents.

    The numbers are the rows in which the files of all given rows are.
    """
    _, names = distinct(files.parts.names)
    keys = names.astype(np.int64) * max(len(files.parts.prefixes), 1) + files.parts.codes
    count, which = distinct(pa.array(keys))
    if count == len(keys):
        return files, which
    order = np.flatnonzero(np.diff(np.maximum.accumulate(which), prepend=-1))  # of the first ones
    most = FileTable(files.parts, files.sources, *map(np.copy, _numbers(files)))
    place = order[which]  # of each row: the first row of the same file
    for column in _numbers(most):
        np.maximum.at(column, place, column.copy())
    return most.take(order), which


def _numbers(files: FileTable) -> tuple[Numbers, Numbers, Numbers]:
    return files.extents, files.sizes, files.is_segment


def job_directory(file_uri: str) -> str:
    """Return the directory of the job that a file belongs to.

    It is the file's own directory where the file is not laid out like a job's.
    """
    for marker in ("/shared/", "/taskowned/", "/chk-"):
        head, separator, _ = file_uri.partition(marker)
        if separator:
            return head
    return uri.parent(file_uri)


class Uris(dict[str, str]):
    """The URI of each recorded path. Most are resolved by directory, of which there are few."""

    def __init__(self, base: str, remaps: Sequence[uri.Remap]) -> None:
        super().__init__()
        self._base = base
        self._remaps = remaps
        self._prefixes: dict[str, str] = {}

    def prefix(self, recorded: str) -> str:
        """Return what the URIs of files begin with whose recorded path begins with `recorded`.

        It holds for every plain name behind it. With another name more than the beginning may
        change.
        """
        known = self._prefixes.get(recorded)
        if known is None:
            known = self._prefixes[recorded] = self._resolve(f"{recorded}x")[:-1]
        return known

    def __missing__(self, path: str) -> str:
        recorded = path[: path.rfind("/") + 1]
        if uri.plain_name(path, len(recorded)):
            return self.prefix(recorded) + path[len(recorded) :]
        file_uri = self[path] = self._resolve(path)
        return file_uri

    def _resolve(self, path: str) -> str:
        return uri.remap(uri.resolve(path, self._base), self._remaps)
