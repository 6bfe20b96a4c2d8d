"""`inspect --refs`: every state handle of a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from cpreplicate.core import uri
from cpreplicate.core.closure import Uris, sources_of
from cpreplicate.core.metadata import Metadata
from cpreplicate.core.metadata.handle import DIRECTORY, KINDS, STATES
from cpreplicate.core.path_columns import Numbers, Parts, Texts
from cpreplicate.core.tables import slices
from cpreplicate.protocol.source import find_whole
from cpreplicate.storage import Side

_NAME = pa.dictionary(pa.int32(), pa.string())
SCHEMA = pa.schema(
    [
        pa.field("operator", _NAME),
        pa.field("subtask", pa.int32()),
        pa.field("state", _NAME),
        pa.field("handle", _NAME),
        pa.field("path", pa.large_string()),
        pa.field("uri", pa.large_string()),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("position", pa.int64()),
    ]
)


@dataclass(frozen=True)
class References:
    """Every state handle of a checkpoint, in the order of its `_metadata`.

    `sources` are the URIs of those that name a file.
    """

    metadata: Metadata
    sources: Parts

    @property
    def count(self) -> int:
        """How many state handles there are, with directories, which hold no state."""
        return len(self.metadata.handles)

    def batches(self) -> Iterator[Any]:
        """Yield the handles as record batches of `SCHEMA`, few rows at a time."""
        handles = self.metadata.handles
        rows = np.flatnonzero(handles.kind != DIRECTORY)
        is_named, first = np.isin(rows, handles.named()), 0
        for some in slices(len(rows)):
            end = first + int(is_named[some].sum())
            uris = self.sources.take(slice(first, end)).texts()
            yield self._batch(rows[some], is_named[some], uris)
            first = end

    def _batch(self, rows: Numbers, is_named: Numbers, uris: Texts) -> Any:
        """Return rows of handles as a batch of Arrow; `is_named` are those that name a file."""
        handles, named = self.metadata.handles, rows[is_named]
        columns = [
            _coded(handles.operator[rows], [each.id for each in self.metadata.operators]),
            _nullable(handles.subtask[rows]),
            _coded(handles.state[rows], STATES),
            _coded(handles.kind[rows], KINDS),
            _spread(handles.recorded_texts(named), is_named),
            _spread(uris, is_named),
            pa.array(handles.size[rows]),
            _nullable(handles.position[rows]),
        ]
        return pa.record_batch(columns, schema=SCHEMA)


def references(path: str, side: Side, remaps: Sequence[uri.Remap]) -> References:
    """Return the state handles of the checkpoint at `path`. Raises `NotThere`, `MetadataError`.

    Raises `Refused` for a path that no filesystem could hold, before a row is made.
    """
    metadata = find_whole(path, side)[1].metadata
    handles, uris = metadata.handles, Uris(metadata.base_uri, remaps)
    named = handles.named()
    return References(metadata, sources_of(handles, named[handles.kind[named] != DIRECTORY], uris))


def _coded(codes: Numbers, names: Sequence[str]) -> Any:
    """Return names by their numbers, null for a negative one."""
    column = codes.astype(np.int32)
    indices = pa.array(column, mask=column < 0)
    return pa.DictionaryArray.from_arrays(indices, pa.array(names, pa.string()))


def _spread(texts: Texts, is_there: Numbers) -> Any:
    """Return texts in the rows that have one, null in the others."""
    if is_there.all():
        return texts
    return texts.take(pa.array(np.cumsum(is_there) - 1, mask=~is_there))


def _nullable(numbers: Numbers) -> Any:
    return pa.array(numbers, mask=numbers < 0)
