"""Checks of the source. They only read."""

from __future__ import annotations

import time

from cpreplicate.core import uri
from cpreplicate.core.placement import METADATA
from cpreplicate.core.positions.model import Positions
from cpreplicate.core.sizes import counted
from cpreplicate.operations.change.probe import ahead
from cpreplicate.operations.doctor.case import Case, source_of
from cpreplicate.operations.doctor.findings import Result, failure, skipped, warning
from cpreplicate.operations.kafka import part_files
from cpreplicate.operations.kafka.positions import positions_of
from cpreplicate.operations.sync.source.state import SourceState, read_source
from cpreplicate.protocol import json_files
from cpreplicate.storage import DamagedFile, Storage, Transient, questions

CLOCKS_DIFFER = 5.0  # seconds after which a difference of clocks is a warning
_COPIES_FAIL = 3
_INCOMPLETE = 10
_PART_FILES = (
    "Copy what `cpreplicate inspect --with-files` lists before a job starts elsewhere, or derive a"
    " checkpoint without it by `cpreplicate rebase --drop-pending`"
)
_READABLE = "Grant the user of this run, and of the executors, the right to read the source's files"


def check_checkpoint(subject: Case) -> Result:
    """Check that there is a checkpoint, and that its `_metadata` is understood."""
    subject.source_state = state = read_source(subject.request)
    files = len(state.needed.paths)
    version = state.file.metadata.version
    return Result(
        f"{state.source.checkpoint}, metadata v{version}, references {counted(files, 'file')}"
    )


def check_part_files(subject: Case) -> Result:
    """Check whether the state names files outside of the checkpoint, which no sync copies."""
    state = subject.source_state
    assert state is not None
    found = positions_of(state.file, subject.request.sides.source, subject.request.remaps, False)
    held = Positions() if found is None else found.found
    texts = list(part_files.warnings_of(found))
    texts += [each.reason for each in held.unread if each.is_of_files]
    if not texts:
        return Result("the state names no file outside of the checkpoint")
    return warning("; ".join(texts), _PART_FILES)


def check_files(subject: Case) -> Result:
    """Check that one of the files that a sync would copy can be read."""
    path = _one_to_be_read(subject)
    if path is None:
        return Result("no file is to be copied from the source")
    storage = subject.request.sides.source.storage(path)
    try:
        storage.read(path, 0, 1)
    except FileNotFoundError:
        remedy = "Sync a complete checkpoint, or give --remap if its files are elsewhere"
        return failure(f"{path} is not there", remedy, _INCOMPLETE)
    except (Transient, DamagedFile):  # with an exit code of their own
        raise
    except OSError as error:
        return failure(f"{path} cannot be read: {error.strerror or error}", _READABLE, _COPIES_FAIL)
    return Result(f"{path} can be read")


def _one_to_be_read(subject: Case) -> str | None:
    """Return a file that the plan copies from the source, or, without a plan, of the checkpoint."""
    state, plan = subject.source_state, subject.plan
    assert state is not None
    if plan is not None:
        copies = (row for row in plan.copies if row.target not in plan.reused)
        return next((row.source for row in copies), None)
    return next((file.uri for file in state.closure.files.values()), None)


def check_clock(subject: Case) -> Result:
    """Check the clock of the source's service, or whether its checkpoint is of the future."""
    place = source_of(subject)
    started = time.time()
    storage = place.storage
    shown = questions.service_time(storage, place.uri)
    if shown is not None:
        return compared_clocks(ahead(shown, started, time.time()))
    state = subject.source_state
    completed = None if state is None else _completed(state, storage)
    if completed is None:
        return skipped("the source does not show its time")
    offset = completed - time.time()
    if offset > CLOCKS_DIFFER:
        return _differ(f"the newest checkpoint was completed {offset:.0f} s in the future")
    shown_at = json_files.clock(completed)
    return Result(f"the checkpoint was completed at {shown_at}, which is in the past")


def _completed(state: SourceState, storage: Storage) -> float | None:
    status = storage.stat(uri.join(state.source.checkpoint, METADATA))
    return None if status is None else status.dated


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
