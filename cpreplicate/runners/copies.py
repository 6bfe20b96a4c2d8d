"""The copies of a plan, created lazily: a million objects would take 230 MB and two seconds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import numpy.typing as npt

from cpreplicate.core.closure import File
from cpreplicate.protocol.lease import LeaseToken
from cpreplicate.runners.tasks import Copy, Task, size_of

if TYPE_CHECKING:
    import pyarrow as pa

Indexes = npt.NDArray[Any]


def sizes_of(actions: Sequence[Task]) -> Indexes:
    """Return how many bytes each action moves."""
    return (
        actions.sizes()
        if isinstance(actions, Copies)
        else np.fromiter(map(size_of, actions), np.int64, len(actions))
    )


def packed_of(actions: Sequence[Task]) -> Indexes:
    """Return whether each action writes a member of a pack."""
    if isinstance(actions, Copies):
        return actions.is_packed()
    flags = (isinstance(action, Copy) and action.pack is not None for action in actions)
    return np.fromiter(flags, np.bool_, len(actions))


@dataclass(frozen=True)
class Planned:
    """All copies of a plan: `files` to `targets`, which are relative to `root`.

    Most files have the same path below `origin` as their copies below `root`. A merged file grows,
    so a run that lost its lease must not replace a copy of it: the copy checks the `token` of the
    lease. Targets that are `packed` become members of packs whose URIs begin with `stem`.
    """

    origin: str
    root: str
    files: Sequence[File]
    targets: Sequence[str]
    token: LeaseToken
    stem: str = ""
    packed: frozenset[str] = frozenset()

    @cached_property
    def extents(self) -> Indexes:
        """The length that each file must at least have."""
        return np.fromiter((extent for _, extent, _, _ in self.files), np.int64, len(self.files))

    @cached_property
    def sizes(self) -> Indexes:
        """The length of each file according to its state handle."""
        return np.fromiter((size for _, _, size, _ in self.files), np.int64, len(self.files))

    @cached_property
    def is_packed(self) -> Indexes:
        """Whether each file becomes a member of a pack."""
        return np.fromiter(
            (target in self.packed for target in self.targets), np.bool_, len(self.targets)
        )

    @cached_property
    def rows(self) -> pa.RecordBatch:
        """A table with the fields of `File` and the target.

        The source is null if it follows from the target. The rows are created in the order of the
        plan, and batches take theirs: visiting the objects in the order of batches takes three
        times as long.
        """
        # imported late, because the inline runner does not need it
        import pyarrow as pa

        origin, files = self.origin, zip(self.files, self.targets, strict=True)
        other = [
            None if source == origin + target else source for (source, _, _, _), target in files
        ]
        columns = [
            pa.array(other, pa.large_string()),
            pa.array(self.targets, pa.large_string()),
            pa.array(self.extents),
            pa.array(self.sizes),
            pa.array([grows for _, _, _, grows in self.files], pa.bool_()),
            pa.array(self.is_packed),
        ]
        names = ["source", "target", "extent", "size", "grows", "packed"]
        return pa.record_batch(columns, names=names)


class Copies(Sequence[Copy]):
    """Some or all of the copies of a plan."""

    def __init__(self, planned: Planned, indexes: Indexes | None = None) -> None:
        self.planned = planned
        self._indexes = np.arange(len(planned.files)) if indexes is None else indexes

    def pick(self, indexes: Indexes) -> Copies:
        """Return the copies with these indexes."""
        return Copies(self.planned, self._indexes[indexes])

    def sizes(self) -> Indexes:
        """Return how many bytes each copy moves."""
        extents, sizes = self.planned.extents, self.planned.sizes
        moved: Indexes = np.maximum(extents[self._indexes], sizes[self._indexes])
        return moved

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

    def __len__(self) -> int:
        return len(self._indexes)

    @overload
    def __getitem__(self, index: int) -> Copy: ...
    @overload
    def __getitem__(self, index: slice) -> Copies: ...
    def __getitem__(self, index: int | slice) -> Copy | Copies:
        if isinstance(index, slice):
            return self.pick(np.arange(len(self))[index])
        planned, position = self.planned, self._indexes[index]
        source, extent, size, grows = planned.files[position]
        return Copy(
            source,
            planned.root + planned.targets[position],
            extent,
            size,
            planned.token if grows else None,
            planned.stem if planned.targets[position] in planned.packed else None,
        )
