"""What a checkpoint holds: its state handles by operator, subtask, kind of state and place.

Handles are asked in columns: there may be a million.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from cpreplicate.core import uri
from cpreplicate.core.closure import Closure
from cpreplicate.core.metadata import Metadata, handle
from cpreplicate.core.path_columns import Numbers
from cpreplicate.core.placement import FOREIGN as FOREIGN_DIRECTORY

KINDS = ("keyed", "operator", "channel", "changelog", "coordinator")
KEYED, OPERATOR, CHANNEL, CHANGELOG, COORDINATOR = range(len(KINDS))
_KIND_OF_STATE = np.array(  # for each of `handle.STATES`
    [COORDINATOR, OPERATOR, OPERATOR, KEYED, KEYED, CHANNEL, CHANNEL]
)

PLACES = ("shared", "exclusive", "inline", "foreign")
SHARED, EXCLUSIVE, INLINE, FOREIGN = range(len(PLACES))


@dataclass(frozen=True)
class Directories:
    """By which files of a checkpoint differ: its directory, and that of its job or of its replica.

    `root` is the checkpoint itself for a savepoint.
    """

    checkpoint: str
    root: str

    def place(self, file_uri: str) -> int:
        """Return the place of a file, as an index into `PLACES`.

        A file of the checkpoint alone is exclusive, any other one of its job shared. In a replica
        the files of other jobs are below `foreign/`.
        """
        if uri.below(file_uri, self.checkpoint) is not None:
            return EXCLUSIVE
        inside = uri.below(file_uri, self.root)
        is_foreign = inside is None or inside.startswith(f"{FOREIGN_DIRECTORY}/")
        return FOREIGN if is_foreign else SHARED


@dataclass(frozen=True, eq=False)
class StateSizes:
    """The state handles of a checkpoint in columns: one row for each that holds state.

    `operator` and `subtask` are as in `Handles`, `kind` and `place` indices into `KINDS` and
    `PLACES`. `size` are the bytes of state, of a channel those that it records itself. `file` is
    the number of the file, -1 for inline state. Packed files have numbers of their own, from
    `plain` on: packs are none. `shared` are the rows whose state several rows have, and `state`
    the number of the state of each of these: a file, or a segment of one. Channels share none,
    though they share files.
    """

    operator: Numbers
    subtask: Numbers
    kind: Numbers
    place: Numbers
    size: Numbers
    file: Numbers
    plain: int
    shared: Numbers
    state: Numbers

    def sizes_once(self, *owners: Numbers) -> Numbers:
        """Return the bytes of state of each row, 0 if a row of the same owners has counted it.

        An owner is a column, such as `operator`. A sum over all rows of an owner then has each
        file once. Without owners, so has the sum over all rows.
        """
        if not len(self.shared):
            return self.size
        sizes, of_shared = self.size.copy(), self.size[self.shared]
        keys = [self.state, *(owner[self.shared] for owner in owners)]
        order = np.lexsort([-of_shared, *keys])  # the largest one of each state counts
        is_again = np.ones(len(order) - 1, np.bool_)
        for key in keys:
            is_again &= key[order[1:]] == key[order[:-1]]
        sizes[self.shared[order[1:][is_again]]] = 0
        return sizes


def state_sizes(
    metadata: Metadata, needed: Closure, directories: Directories, logical: Mapping[int, str]
) -> StateSizes:
    """Return the state handles of a checkpoint.

    `logical` maps the first byte of a handle that names a pack to the URI that its file would have
    without packs.
    """
    handles = metadata.handles
    rows, files = needed.handles, needed.file_of_handle
    file = np.full(len(handles), -1, np.int64)
    place = np.full(len(handles), INLINE, np.int64)
    file[rows] = files
    place[rows] = _places(needed, directories)[files]
    plain = len(needed.files)
    if logical:
        _put_logical(file, place, handles.start, logical, directories, plain)
    is_state = handles.kind != handle.DIRECTORY
    kind = np.where(handles.part == handle.DELTA, CHANGELOG, _KIND_OF_STATE[handles.state])
    shared, state = _shared(file[is_state], handles.position[is_state], kind[is_state])
    return StateSizes(
        operator=handles.operator[is_state],
        subtask=handles.subtask[is_state],
        kind=kind[is_state],
        place=place[is_state],
        size=handles.state_sizes()[is_state],
        file=file[is_state],
        plain=plain,
        shared=shared,
        state=state,
    )


def _shared(file: Numbers, position: Numbers, kind: Numbers) -> tuple[Numbers, Numbers]:
    """Return the rows whose state several rows have, and the number of the state of each.

    It is a file, or the segment of a file at a position.
    """
    rows = np.flatnonzero((file >= 0) & (kind != CHANNEL))
    rows = rows[np.bincount(file[rows])[file[rows]] > 1]
    order = rows[np.lexsort([position[rows], file[rows]])]
    is_next = (np.diff(file[order], prepend=-1) != 0) | (np.diff(position[order], prepend=-2) != 0)
    numbers = np.cumsum(is_next) - 1
    is_shared = np.bincount(numbers)[numbers] > 1
    return order[is_shared], numbers[is_shared]


def _put_logical(
    file: Numbers,
    place: Numbers,
    starts: Numbers,
    logical: Mapping[int, str],
    directories: Directories,
    plain: int,
) -> None:
    """Give the handles that name packs the file and the place of what they reference."""
    known: dict[str, int] = {}
    rows = np.flatnonzero(np.isin(starts, np.fromiter(logical, np.int64, len(logical))))
    for row in rows.tolist():
        path = logical[int(starts[row])]
        file[row] = known.setdefault(path, plain + len(known))
        place[row] = directories.place(path)


def _places(needed: Closure, directories: Directories) -> Numbers:
    """Return the place of each file of a closure, which follows from its directory."""
    sources = needed.files.sources
    by_directory = [directories.place(f"{prefix}x") for prefix in sources.prefixes]
    places: Numbers = np.array(by_directory, np.int64)[sources.codes]
    return places


def sums(keys: Numbers, values: Numbers) -> dict[int, int]:
    """Return the sum of the values of each key. A sum of numpy's would wrap."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    bounds = np.flatnonzero(np.diff(ordered)) + 1
    groups = np.split(values[order], bounds)
    firsts = ordered[np.concatenate([[0], bounds])] if len(ordered) else []
    return {int(key): sum(group.tolist()) for key, group in zip(firsts, groups, strict=False)}
