"""Every state handle of a checkpoint in columns, for reports that sum them up or list them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cpreplicate.core import uri
from cpreplicate.core.metadata import Metadata
from cpreplicate.core.metadata.handle import (
    CHANNEL_IN,
    CHANNEL_OUT,
    COORDINATOR,
    DELTA,
    DIRECTORY,
    KEYED,
    KEYED_RAW,
    KINDS,
)
from cpreplicate.operations.inspect import Inspection, inspect
from cpreplicate.protocol.source import find, read_metadata
from cpreplicate.storage import Side

STATE_KINDS = ("keyed", "operator", "channel", "changelog", "coordinator")
_KEYED, _OPERATOR, _CHANNEL, _CHANGELOG, _COORDINATOR = range(len(STATE_KINDS))
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Contents:
    """What a checkpoint holds: its summary, and its state handles in the order of its `_metadata`.

    `operator` is an index into the operators of the summary, `subtask` the number of one: each is
    -1 for none. `state_kind` is an index into `STATE_KINDS`. `held_as` names the kind of handle,
    such as `file` or `inline`. `sizes` are in bytes. `positions` are -1 but for segments. `paths`
    are as recorded, None for a handle that names no file.
    """

    inspection: Inspection
    operator: Ints
    subtask: Ints
    state_kind: Ints
    held_as: Sequence[str]
    sizes: Ints
    positions: Ints
    paths: Sequence[str | None]


def contents(path: str, side: Side, remaps: Sequence[uri.Remap]) -> Contents:
    """Return what the checkpoint at `path` holds.

    Its `_metadata` is read twice, by `inspect`, too. Raises `NotThere`, `MetadataError`.
    """
    inspection = inspect(path, side, remaps)
    metadata = read_metadata(find(inspection.checkpoint, side).checkpoint, side).metadata
    return contents_of(inspection, metadata)


def contents_of(inspection: Inspection, metadata: Metadata) -> Contents:
    """Return what a checkpoint holds, from its summary and its `_metadata`."""
    handles = metadata.handles
    rows = np.flatnonzero(handles.kind != DIRECTORY)
    paths = list(handles.paths())
    return Contents(
        inspection,
        operator=handles.operator[rows].astype(np.int64),
        subtask=handles.subtask[rows].astype(np.int64),
        state_kind=_state_kinds(handles.state[rows], handles.part[rows]),
        held_as=[KINDS[kind] for kind in handles.kind[rows].tolist()],
        sizes=handles.size[rows].astype(np.int64),
        positions=handles.position[rows].astype(np.int64),
        paths=[paths[row] for row in rows.tolist()],
    )


def _state_kinds(states: npt.NDArray[np.uint8], parts: npt.NDArray[np.uint8]) -> Ints:
    kinds = np.full(len(states), _OPERATOR, np.int64)
    kinds[np.isin(states, (KEYED, KEYED_RAW))] = _KEYED
    kinds[np.isin(states, (CHANNEL_IN, CHANNEL_OUT))] = _CHANNEL
    kinds[states == COORDINATOR] = _COORDINATOR
    kinds[parts == DELTA] = _CHANGELOG
    return kinds
