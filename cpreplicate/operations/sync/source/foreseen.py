"""What a sync will soon read, as far as that is known before it has the lease.

It is asked while the lease is written. What is read of the source stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from cpreplicate.core.path_columns import rows_of
from cpreplicate.operations.sync.source.state import SourceState, search
from cpreplicate.protocol import manifest
from cpreplicate.protocol.replica import Replica
from cpreplicate.protocol.replica_state import State
from cpreplicate.storage import Side
from cpreplicate.storage.transfer import copying_read
from cpreplicate.storage.wrappers.ahead import ReadAhead

_MOST_FILES = 8  # that are read before their copies begin
_MOST_BYTES = 1 << 20  # of each


@contextmanager
def foreseen(source_state: SourceState, replica: Replica, former: State) -> Iterator[None]:
    """While the block runs, read what follows from an examination before the lease."""
    files = ReadAhead()
    if replica.storage.answers_ahead:
        for each in former.committed[:1]:
            manifest.ask(replica.storage, replica.root, each.name)
    _ask_files(source_state, former, files)
    try:
        with copying_read(files.take):
            yield
    finally:
        files.drop()


def _are_near(places: Sequence[str], side: Side) -> bool:
    """Return whether it shows in the few directories of files that none is far away.

    That of a file whose name is not plain is not among them: there is an empty text instead.
    """
    is_known = len(places) <= _MOST_FILES and all(places)
    return is_known and not any(map(side.asks_ahead, places))


def _ask_files(source_state: SourceState, former: State, files: ReadAhead) -> None:
    """Begin to read the files that are to be copied, if they are few and small."""
    if not former.committed or source_state.request.repair:
        return
    needed, side = source_state.needed, source_state.request.sides.source
    if _are_near(needed.sources.prefixes, side):
        return
    is_lacking = rows_of(needed.paths, former.committed[0].files.paths) < 0
    if not 0 < np.count_nonzero(is_lacking) <= _MOST_FILES:
        return
    lacking = needed.take(is_lacking)
    if lacking.is_segment.any() or int(lacking.costs.max()) > _MOST_BYTES:
        return
    column = lacking.sources.texts()
    sources = column.to_pylist()
    if not all(map(side.asks_ahead, sources)):
        return
    search(source_state).ask(column)
    for each in sources:
        files.begin(side.storage(each), each, _MOST_BYTES)
