"""How old the files of a checkpoint are, by listings of their directories."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NamedTuple

from cpreplicate.core import uri
from cpreplicate.core.closure import Closure
from cpreplicate.storage import FileStatus, Side


class Dating(NamedTuple):
    """The oldest file of a checkpoint, and how many are not there.

    `oldest` is its URI, `modified` when it was written, in seconds since the epoch, and `age` how
    many seconds ago that was by the clock of this host. They are None if no file is dated.
    """

    oldest: str | None
    modified: float | None
    age: float | None
    missing: int


def of_files(needed: Closure, side: Side) -> Dating:
    """Return the age of the files of a closure. Costs one listing of each of their directories."""
    listed = dict(_listed(needed, side))
    there = [(listed[each].dated, each) for each in needed.files if each in listed]
    dated = [(time, each) for time, each in there if time is not None]
    missing = len(needed.files) - len(there)
    if not dated:
        return Dating(None, None, None, missing)
    modified, oldest = min(dated)
    return Dating(oldest, modified, max(0.0, time.time() - modified), missing)


def _listed(needed: Closure, side: Side) -> Iterator[tuple[str, FileStatus]]:
    for directory in sorted(needed.parents):
        for status in side.storage(directory).list(directory):
            yield uri.join(directory, status.name), status
