"""The copies of a plan, created lazily: a million objects would take 230 MB and two seconds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cpreplicate.core.closure import File, FileTable
from cpreplicate.core.lazy import lazy
from cpreplicate.core.path_columns import Rows, Texts, are_few, prefixed, rows_of, texts
from cpreplicate.core.tables import RowSequence, slices
from cpreplicate.protocol.lease import LeaseToken
from cpreplicate.runners.tasks import Copy, CopyRange, Task, file_of, size_of

Indexes = npt.NDArray[Any]
_CHUNK = 4_096  # copies that are objects at the same time


def sizes_of(actions: Sequence[Task]) -> Indexes:
    """Return how many bytes each action moves."""
    if isinstance(actions, WithRanges):
        return np.concatenate([sizes_of(actions.actions), sizes_of(actions.ranges)])
    return (
        actions.sizes()
        if isinstance(actions, Copies)
        else np.fromiter(map(size_of, actions), np.int64, len(actions))
    )


def places_of(actions: Sequence[Task]) -> Iterator[str]:
    """Yield URIs on all filesystems that the actions need."""
    if isinstance(actions, WithRanges):
        yield from places_of(actions.actions)
        yield from places_of(actions.ranges)
    elif isinstance(actions, Copies):
        yield from actions.places()
    else:
        for action in actions:
            yield action.target
            if isinstance(action, (Copy, CopyRange)):
                yield action.source


def packed_of(actions: Sequence[Task]) -> Indexes:
    """Return whether each action writes a member of a pack."""
    if isinstance(actions, Copies):
        return actions.is_packed()
    flags = (isinstance(action, Copy) and action.pack is not None for action in actions)
    return np.fromiter(flags, np.bool_, len(actions))


def taken(actions: Sequence[Task], rows: Indexes) -> Sequence[Task]:
    """Return the actions of these rows."""
    if isinstance(actions, Copies):
        return actions.take(rows)
    return tuple(actions[row] for row in rows.tolist())


@dataclass(frozen=True)
class Planned:
    """All copies of a plan: `files` to `targets`, which are relative to `root`.

    Most files have the same path below `origin` as their copies below `root`. A merged file grows,
    so a run that lost its lease must not replace a copy of it: the copy checks the `token` of the
    lease. Targets that are `packed` become members of packs whose URIs begin with `stem`.
    """

    origin: str
    root: str
    files: FileTable
    token: LeaseToken
    stem: str = ""
    packed: frozenset[str] = frozenset()

    @lazy
    def is_packed(self) -> Indexes:
        """Whether each file becomes a member of a pack."""
        return rows_of(self.files.paths, texts(self.packed)) >= 0

    @lazy
    def rows(self) -> pa.RecordBatch:
        """A table with the fields of `File` and the target.

        The source is null if it follows from the target.
        """
        files = self.files
        sources = [texts(()), *map(self._sources, slices(len(files)))]
        columns = [
            pa.concat_arrays(sources),
            files.paths,
            pa.array(files.extents),
            pa.array(files.sizes),
            pa.array(files.is_segment),
            pa.array(self.is_packed),
        ]
        names = ["source", "target", "extent", "size", "grows", "packed"]
        return pa.record_batch(columns, names=names)

    def _sources(self, some: slice) -> Texts:
        """Return the sources of some files, null where they follow from the targets."""
        sources = self.files.sources.take(some).texts()
        follows = pc.equal(sources, prefixed(self.origin, self.files.paths[some]))
        return pc.if_else(follows, pa.scalar(None, sources.type), sources)


class Copies(RowSequence[Copy]):
    """Some or all of the copies of a plan."""

    def __init__(self, planned: Planned, indexes: Indexes | None = None) -> None:
        self.planned = planned
        self._indexes = np.arange(len(planned.files)) if indexes is None else indexes

    def take(self, rows: Rows) -> Copies:
        return Copies(self.planned, self._indexes[rows])

    def sizes(self) -> Indexes:
        """Return how many bytes each copy moves."""
        return self.planned.files.costs[self._indexes]

    def is_packed(self) -> Indexes:
        """Return whether each copy becomes a member of a pack."""
        flags: Indexes = self.planned.is_packed[self._indexes]
        return flags

    def places(self) -> Iterator[str]:
        """Yield the roots, and the URIs of the files that are read from elsewhere."""
        yield self.planned.root
        if self.planned.origin:
            yield self.planned.origin
        yield from self.planned.rows["source"].take(self._indexes).drop_null().to_pylist()

    def rows(self) -> pa.RecordBatch:
        """Return the rows of these copies, from `Planned.rows`."""
        return self.planned.rows.take(self._indexes)

    def row(self, index: int) -> Copy:
        # not by `take`: outcomes of a million files are looked up one by one
        position = self._indexes[index]
        return self._copy(*self.planned.files.row(position), self.planned.is_packed[position])

    def __len__(self) -> int:
        return len(self._indexes)

    def __iter__(self) -> Iterator[Copy]:
        return iter(self._few) if are_few(self._indexes) else self._made()

    @lazy
    def _few(self) -> list[Copy]:
        return list(self._made())

    def _made(self) -> Iterator[Copy]:
        for first in range(0, len(self), _CHUNK):
            indexes = self._indexes[first : first + _CHUNK]
            files = self.planned.files.take(indexes).items()
            for (target, file), is_packed in zip(
                files, self.planned.is_packed[indexes].tolist(), strict=True
            ):
                yield self._copy(target, file, is_packed)

    def _copy(self, target: str, file: File, is_packed: bool) -> Copy:
        planned = self.planned
        return Copy(
            file.uri,
            planned.root + target,
            file.extent,
            file.size,
            planned.token if file.segment else None,
            planned.stem if is_packed else None,
            inside=planned.root.rstrip("/"),
        )


class WithRanges(Sequence[Task]):
    """Actions, and after them the ranges of files that are copied in parts."""

    def __init__(self, actions: Sequence[Task], ranges: Sequence[CopyRange]) -> None:
        self.actions, self.ranges = actions, ranges

    @classmethod
    def of(cls, actions: Sequence[Task], ranges: Sequence[CopyRange]) -> WithRanges:
        """Return the actions with ranges in place of the copies of their files."""
        files = set(map(file_of, ranges))
        rows = [row for row, action in enumerate(actions) if action.target not in files]
        return cls(taken(actions, np.array(rows, np.int64)), ranges)

    @property
    def parts(self) -> tuple[Sequence[Task], Sequence[Task]]:
        """Both."""
        return self.actions, self.ranges

    @overload
    def __getitem__(self, index: int) -> Task: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Task]: ...
    def __getitem__(self, index: int | slice) -> Task | Sequence[Task]:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        count = len(self.actions)
        return self.actions[index] if index < count else self.ranges[index - count]

    def __iter__(self) -> Iterator[Task]:
        yield from self.actions
        yield from self.ranges

    def __len__(self) -> int:
        return len(self.actions) + len(self.ranges)
