"""A plan's copies, made one by one when they are looked at: as objects a million of them take 230 MB and two seconds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from cpreplicate.closure import File
from cpreplicate.lease import Held
from cpreplicate.runners.work import Action, Copy, size_of

Indexes = npt.NDArray[Any]


def sizes_of(actions: Sequence[Action]) -> Indexes:
    """The bytes that each action moves."""
    return actions.sizes() if isinstance(actions, Copies) else np.fromiter(map(size_of, actions), np.int64, len(actions))


class Copies(Sequence[Copy]):
    """`files` to `targets`, which are told below `root`.

    A merged file grows, so a run that lost its lease must not replace a copy of it: it is told who holds it.
    """

    def __init__(self, root: str, targets: Sequence[str], files: Sequence[File], held: Held, at: Indexes | None = None) -> None:
        self._root, self._targets, self._files, self._held = root, targets, files, held
        self._at = np.arange(len(files)) if at is None else at

    def pick(self, indexes: Indexes) -> Copies:
        """Some of them."""
        return Copies(self._root, self._targets, self._files, self._held, self._at[indexes])

    def sizes(self) -> Indexes:
        """The bytes that each moves."""
        files = map(self._files.__getitem__, self._at.tolist())
        return np.fromiter((max(extent, size) for _, extent, size, _ in files), np.int64, len(self))

    def places(self) -> Iterator[str]:
        """Where they are read, and the root below which they are written."""
        yield self._root
        for at in self._at.tolist():
            yield self._files[at].uri

    def columns(self) -> tuple[list[str], list[str], list[int], list[int], list[Held | None]]:
        """Their fields, those of `Copy`."""
        places, root, held = self._at.tolist(), self._root, self._held
        sources, extents, sizes, growing = zip(*map(self._files.__getitem__, places), strict=True)
        targets = [root + target for target in map(self._targets.__getitem__, places)]
        return list(sources), targets, list(extents), list(sizes), [held if grows else None for grows in growing]

    def __len__(self) -> int:
        return len(self._at)

    @overload
    def __getitem__(self, index: int) -> Copy: ...
    @overload
    def __getitem__(self, index: slice) -> Copies: ...
    def __getitem__(self, index: int | slice) -> Copy | Copies:
        if isinstance(index, slice):
            return self.pick(np.arange(len(self))[index])
        at = self._at[index]
        source, extent, size, grows = self._files[at]
        return Copy(source, self._root + self._targets[at], extent, size, self._held if grows else None)
