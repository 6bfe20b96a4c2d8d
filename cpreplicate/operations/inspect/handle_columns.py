"""Every state handle of a checkpoint in columns, for reports that sum them up or list them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cpreplicate.core import uri
from cpreplicate.core.metadata import Metadata
from cpreplicate.core.metadata.handle import DIRECTORY, KINDS
from cpreplicate.core.state_sizes import StateSizes
from cpreplicate.operations.inspect.checkpoint import read
from cpreplicate.operations.inspect.summary import Inspection, summary_of
from cpreplicate.storage import Side

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class HandleColumns:
    """What a checkpoint holds: its summary, and its state handles in the order of its `_metadata`.

    `operator` is an index into the operators of the summary, `subtask` the number of one: each is
    -1 for none. `state_kind` is an index into `core.state_sizes.KINDS`. `held_as` names the kind of
    handle, such as `file` or `inline`. `sizes` are the bytes of state of each handle.
    `operator_sizes` and `subtask_sizes` have 0 where a handle of the same operator, or of the same
    subtask, has the file already, so that they can be summed up. `positions` are -1 but for
    segments. `paths` are as recorded, None for a handle that names no file.
    """

    inspection: Inspection
    operator: Ints
    subtask: Ints
    state_kind: Ints
    held_as: Sequence[str]
    sizes: Ints
    operator_sizes: Ints
    subtask_sizes: Ints
    positions: Ints
    paths: Sequence[str | None]


def handle_columns(path: str, side: Side, remaps: Sequence[uri.Remap]) -> HandleColumns:
    """Return what the checkpoint at `path` holds. Raises `NotThere`, `MetadataError`."""
    checkpoint = read(path, side, remaps)
    inspection = summary_of(checkpoint, side, remaps)
    return _columns(inspection, checkpoint.file.metadata, checkpoint.sizes)


def _columns(inspection: Inspection, metadata: Metadata, held: StateSizes) -> HandleColumns:
    """Return what a checkpoint holds, from its summary, its `_metadata` and its state handles."""
    handles = metadata.handles
    rows = np.flatnonzero(handles.kind != DIRECTORY)
    paths = list(handles.paths())
    return HandleColumns(
        inspection,
        operator=held.operator.astype(np.int64),
        subtask=held.subtask.astype(np.int64),
        state_kind=held.kind.astype(np.int64),
        held_as=[KINDS[kind] for kind in handles.kind[rows].tolist()],
        sizes=held.size.astype(np.int64),
        operator_sizes=held.sizes_once(held.operator).astype(np.int64),
        subtask_sizes=held.sizes_once(held.operator, held.subtask).astype(np.int64),
        positions=handles.position[rows].astype(np.int64),
        paths=[paths[row] for row in rows.tolist()],
    )
