"""`sweep`: remove orphans, the files under a replica that no committed `_metadata` references."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone

from cpreplicate.core import sizes
from cpreplicate.core.notify import Notify
from cpreplicate.core.placement import OWN
from cpreplicate.core.plan import Action, Cap, total
from cpreplicate.core.short_repr import short_repr
from cpreplicate.core.sizes import counted, plural
from cpreplicate.errors import TooManyDeletes
from cpreplicate.operations.change.change import Change, opened, some
from cpreplicate.operations.change.probe import refuse_held, try_opened
from cpreplicate.operations.change.target_root import refuse_no_replica
from cpreplicate.operations.upkeep import orphans
from cpreplicate.operations.upkeep.orphans import TRASH, Found
from cpreplicate.protocol import json_files, replica_state
from cpreplicate.protocol.held import HeldReplica
from cpreplicate.protocol.replica import Replica
from cpreplicate.protocol.replica_state import State
from cpreplicate.runners import ExecutionOptions, choose_runner
from cpreplicate.storage import Sides

HALF = Cap(0.5, is_share=True)


@dataclass(frozen=True)
class SweepRequest:
    """What to sweep and how.

    `min_age` is in seconds: younger files may belong to a run that this one cannot see. `most` is
    how many orphans are removed at most, None for all.
    """

    replica: str
    min_age: float = 24 * 3600.0
    max_delete: Cap = HALF
    trash: bool = False
    empty_trash: bool = False
    most: int | None = None
    lock_wait: float = 0.0
    sides: Sides = field(default=Sides())
    execution: ExecutionOptions = field(default=ExecutionOptions())


@short_repr("replica", "done", "deletes", "bytes", "warnings", "refused")
@dataclass(frozen=True)
class Sweep:
    """The result of a sweep: what was found, and whether it was removed.

    `trash` is the directory that the orphans were moved to instead, if any. `refused` is why
    nothing is removed, None if that is not refused. `is_partial`: there are more orphans than were
    to be removed.
    """

    replica: str
    found: Found
    done: bool = False
    trash: str | None = None
    runner: str | None = None
    seconds: float = 0.0
    warnings: tuple[str, ...] = ()
    refused: str | None = None
    is_partial: bool = False

    @property
    def deletes(self) -> tuple[Action, ...]:
        """All files to delete: orphans, then files that were long enough in the trash."""
        return self.found.orphans + self.found.trash

    @property
    def bytes(self) -> int:
        """The total size of the files to delete."""
        return total(self.deletes)


def check(request: SweepRequest) -> Sweep:
    """Return what a sweep would remove. What it writes is tried, and nothing is changed.

    Raises what a sweep would raise: `Refused` if it is not certain what is needed, `LeaseHeld`, and
    `TooManyDeletes` above the cap.
    """
    started = time.monotonic()
    replica = Replica(request.replica, request.sides.target)
    refuse_no_replica(replica.root, replica.side)
    state = orphans.examine_unsealed(replica)
    if not request.lock_wait:
        refuse_held(replica)
    report = _find(replica, state, request)
    try_opened(replica, state, "sweep", lambda _line: None, only_removes=True)
    return replace(report, seconds=time.monotonic() - started)


def sweep(request: SweepRequest, notify: Notify) -> Sweep:
    """Remove the orphans of a replica under its lease.

    Raises `Refused` and `LeaseHeld`, having removed nothing. Files that cannot be removed are a
    warning.
    """
    started = time.monotonic()
    replica = Replica(request.replica, request.sides.target)
    refuse_no_replica(replica.root, replica.side)
    # Checked before a lease is written where there is no replica, or one that must not be changed.
    orphans.examine_unsealed(replica)
    wait = request.lock_wait
    # what a dry run reports is reported: nothing is removed by the examination
    with opened(replica, lambda _held: orphans.examine_unsealed(replica), wait, notify) as change:
        report = _find(replica, change.state, request)
        change.abort_uploads()
        if report.deletes:
            report = _remove(report, change, request)
        for directory in report.found.directories:
            change.replica.storage.rmdir(replica.uri_of(directory))
    return replace(report, done=True, seconds=time.monotonic() - started)


def _find(replica: Replica, state: State, request: SweepRequest) -> Sweep:
    found = orphans.find(replica, state, json_files.now() - request.min_age, request.empty_trash)
    report = Sweep(replica.root, found)
    deletes = sum(not orphan.target.startswith(f"{OWN}/") for orphan in found.orphans)
    if not request.max_delete.allows(deletes, found.files):
        refused = (
            f"{deletes} of {counted(found.files, 'file')} of {replica.root}"
            f" {plural(deletes, 'is an orphan', 'are orphans')}, but --max-delete allows"
            f" {request.max_delete}. Nothing was removed. If that is right, give a higher"
            " --max-delete"
        )
        raise TooManyDeletes(refused, replace(report, refused=refused))
    return _limited(report, request.most)


def _limited(report: Sweep, most: int | None) -> Sweep:
    """Return a sweep of so many orphans at most: of more, none of those that list others."""
    first = [each for each in report.found.orphans if each.reason not in orphans.LAST]
    if most is None or len(first) <= most:
        return report
    found = replace(report.found, orphans=tuple(first[:most]), trash=(), directories=())
    return replace(report, found=found, is_partial=True)


def _remove(report: Sweep, change: Change, request: SweepRequest) -> Sweep:
    """Remove the orphans, and return what was done. What lists other orphans goes last."""
    files, replica = len(report.deletes), change.replica
    replica_state.examine(replica, change.state)  # a run that was held up commits no more
    first = [each.target for each in report.found.orphans if each.reason not in orphans.LAST]
    last = [each.target for each in report.found.orphans if each.reason in orphans.LAST]
    with change.running(choose_runner(request.execution, files, 0, request.sides)):
        runner = change.runner.name
        change.notify(
            f"removing {sizes.counted(files, 'file')}, {sizes.size(report.bytes)} (runner:"
            f" {runner})"
        )
        failed = change.delete([action.target for action in report.found.trash])
        trash = _create_trash(replica, first) if request.trash and first else None
        failed += change.delete({path: in_trash(trash, path) for path in first} if trash else first)
        if not failed:  # else manifests, records and journals still list what could not be removed
            failed += change.delete(last)
    not_removed = f"{sizes.counted(len(failed), 'file')} could not be removed: {some(failed)}"
    warnings = (not_removed,) if failed else ()
    trash_uri = replica.uri_of(trash) if trash else None
    return replace(report, trash=trash_uri, runner=runner, warnings=warnings)


def in_trash(trash: str, path: str) -> str:
    """Return where a file of the replica is moved to.

    Each sweep has one flat directory, so that none must be created for a file.
    """
    return f"{trash}/{path.replace('/', '@')}"


def _create_trash(replica: HeldReplica, names: list[str]) -> str:
    """Create a directory in the trash by writing into it the list of what is moved there."""
    stamp = datetime.fromtimestamp(json_files.now(), timezone.utc).strftime(orphans.STAMP)
    trash = f"{TRASH}/{stamp}"
    lines = "".join(f"{in_trash('.', name)[2:]}\t{name}\n" for name in names)
    replica.storage.put(
        replica.uri_of(f"{trash}/{orphans.CONTENTS}"),
        lambda: [lines.encode(errors="surrogateescape")],
    )
    return trash
