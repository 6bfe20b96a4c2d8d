"""Checks of the source. They only read."""

from __future__ import annotations

import time
from datetime import datetime, timezone

from cpreplicate.core import uri
from cpreplicate.core.placement import METADATA
from cpreplicate.operations.doctor.findings import Result, failure, skipped, warning
from cpreplicate.operations.doctor.subject import Subject, source_of
from cpreplicate.operations.sync_plan import SourceState, read_source
from cpreplicate.storage import Storage

CLOCKS_DIFFER = 5.0  # seconds after which a difference of clocks is a warning
_INCOMPLETE = 10


def check_checkpoint(subject: Subject) -> Result:
    """Check that there is a checkpoint, and that its `_metadata` is understood."""
    subject.source_state = state = read_source(subject.request)
    files = len(state.needed.paths)
    version = state.file.metadata.version
    return Result(f"{state.source.checkpoint}, metadata v{version}, references {files} files")


def check_files(subject: Subject) -> Result:
    """Check that a file of the checkpoint beside its `_metadata` can be read."""
    state = subject.source_state
    assert state is not None
    file = next(iter(state.closure.files.values()), None)
    if file is None:
        return Result("the checkpoint needs no files but its _metadata")
    path = file.uri
    storage = subject.request.sides.source.storage(path)
    try:
        storage.read(path, 0, 1)
    except FileNotFoundError:
        remedy = "Sync a complete checkpoint, or give --remap if its files are elsewhere"
        return failure(f"{path} is not there", remedy, _INCOMPLETE)
    return Result(f"{path} can be read")


def check_clock(subject: Subject) -> Result:
    """Check the clock of the source's service, or whether its checkpoint is of the future."""
    place = source_of(subject)
    started = time.time()
    storage = place.storage
    shown = storage.around("stat", place.uri, lambda: storage.unwrapped.service_time(place.uri))
    if shown is not None:
        return compared_clocks(ahead(shown, started, time.time()))
    state = subject.source_state
    completed = None if state is None else _completed(state, storage)
    if completed is None:
        return skipped("the source does not show its time")
    offset = completed - time.time()
    if offset > CLOCKS_DIFFER:
        return _differ(f"the newest checkpoint was completed {offset:.0f} s in the future")
    shown_at = datetime.fromtimestamp(completed, timezone.utc).isoformat(timespec="seconds")
    return Result(f"the checkpoint was completed at {shown_at}, which is in the past")


def _completed(state: SourceState, storage: Storage) -> float | None:
    status = storage.stat(uri.join(state.source.checkpoint, METADATA))
    return None if status is None else status.modified


def ahead(shown: float, earliest: float, latest: float) -> float:
    """Return how many seconds a clock is ahead, which showed a time between two own times.

    A service may cut its time to whole seconds.
    """
    if shown + 1 < earliest:
        return shown + 1 - earliest
    return max(0.0, shown - latest)


def compared_clocks(offset: float) -> Result:
    """Return the result for a clock that is so many seconds ahead of this machine's."""
    if abs(offset) <= CLOCKS_DIFFER:
        return Result(f"differs from this machine's by {abs(offset):.1f} s at most")
    direction = "ahead of" if offset > 0 else "behind"
    return _differ(f"{abs(offset):.0f} s {direction} this machine's")


def _differ(message: str) -> Result:
    return warning(
        message,
        "Synchronise the clocks with NTP: if those of two hosts differ by more than 30 s, one may"
        " take over the lease of the other",
    )
