"""A plan's copies, made one by one when they are looked at: as objects a million of them take 230
MB and two seconds.
"""

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
    """The bytes that each action moves."""
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
    """All copies of a plan: `files` to `targets`, which are told below `root`.

    Most files lie below `origin` as their copies below `root`. A merged file grows, so a run that
    lost its lease must not replace a copy of it: it is told who holds it. Targets that are `packed`
    become members of packs of which the URIs begin with `stem`.
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
        """How long each must at least be."""
        return np.fromiter((extent for _, extent, _, _ in self.files), np.int64, len(self.files))

    @cached_property
    def sizes(self) -> Indexes:
        """How long each is told to be."""
        return np.fromiter((size for _, _, size, _ in self.files), np.int64, len(self.files))

    @cached_property
    def is_packed(self) -> Indexes:
        """Whether each becomes a member of a pack."""
        return np.fromiter(
            (target in self.packed for target in self.targets), np.bool_, len(self.targets)
        )

    @cached_property
    def rows(self) -> pa.RecordBatch:
        """The fields of `File` and the target, a column each. The source is null where it follows
        from the target.

        Made in the plan's order, from which batches take theirs: to visit objects in the order of
        batches costs thrice as much.
        """
        # not before: what is copied by threads, or not at all, needs none of it
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

    def __init__(self, planned: Planned, at: Indexes | None = None) -> None:
        self.planned = planned
        self._at = np.arange(len(planned.files)) if at is None else at

    def pick(self, indexes: Indexes) -> Copies:
        """Some of them."""
        return Copies(self.planned, self._at[indexes])

    def sizes(self) -> Indexes:
        """The bytes that each moves."""
        sizes: Indexes = np.maximum(self.planned.extents[self._at], self.planned.sizes[self._at])
        return sizes

    def is_packed(self) -> Indexes:
        """Whether each becomes a member of a pack."""
        flags: Indexes = self.planned.is_packed[self._at]
        return flags

    def places(self) -> Iterator[str]:
        """The roots, and where files are read that lie elsewhere."""
        yield self.planned.root
        if self.planned.origin:
            yield self.planned.origin
        yield from self.planned.rows["source"].take(self._at).drop_null().to_pylist()

    def rows(self) -> pa.RecordBatch:
        """Those of `Planned.rows`."""
        return self.planned.rows.take(self._at)

    def __len__(self) -> int:
        return len(self._at)

    @overload
    def __getitem__(self, index: int) -> Copy: ...
    @overload
    def __getitem__(self, index: slice) -> Copies: ...
    def __getitem__(self, index: int | slice) -> Copy | Copies:
        if isinstance(index, slice):
            return self.pick(np.arange(len(self))[index])
        planned, at = self.planned, self._at[index]
        source, extent, size, grows = planned.files[at]
        return Copy(
            source,
            planned.root + planned.targets[at],
            extent,
            size,
            planned.token if grows else None,
            planned.stem if planned.targets[at] in planned.packed else None,
        )
