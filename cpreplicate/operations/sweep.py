"""`sweep`: remove orphans, the files under a replica that no committed `_metadata` there
references.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone

from cpreplicate.core.placement import OWN
from cpreplicate.core.plan import Action, Cap, total
from cpreplicate.errors import LeaseHeld, Refused, TooManyDeletes
from cpreplicate.operations import deletion, orphans
from cpreplicate.operations.orphans import TRASH, Found
from cpreplicate.protocol import json_files, seal
from cpreplicate.protocol.lease import Lease, acquire
from cpreplicate.protocol.replica import Replica
from cpreplicate.runners import ExecutionOptions, choose_runner
from cpreplicate.storage import Sides

Notify = Callable[[str], None]
HALF = Cap(0.5, is_share=True)


@dataclass(frozen=True)
class SweepRequest:
    """What to sweep and how.

    `min_age` in seconds: what is younger may belong to a run that this one cannot see.
    """

    replica: str
    min_age: float = 24 * 3600.0
    max_delete: Cap = HALF
    trash: bool = False
    empty_trash: bool = False
    lock_wait: float = 0.0
    sides: Sides = field(default=Sides())
    execution: ExecutionOptions = field(default=ExecutionOptions())


@dataclass(frozen=True)
class Sweep:
    """What was found, and whether it was removed.

    `trash` is the directory that it was moved to instead.
    """

    replica: str
    found: Found
    done: bool = False
    trash: str | None = None
    runner: str | None = None
    seconds: float = 0.0
    warnings: tuple[str, ...] = ()

    @property
    def deletes(self) -> tuple[Action, ...]:
        """Every row: orphans, then what lay long enough in the trash."""
        return self.found.orphans + self.found.trash

    @property
    def bytes(self) -> int:
        """What they take."""
        return total(self.deletes)


def check(request: SweepRequest) -> Sweep:
    """What a sweep would remove, nothing done.

    Raises `Refused` where it cannot be sure, and over the cap.
    """
    started = time.monotonic()
    report = _find(Replica(request.replica, request.sides.target), request)
    return replace(report, seconds=time.monotonic() - started)


def sweep(request: SweepRequest, notify: Notify) -> Sweep:
    """Remove orphans under the lease.

    Raises `Refused`, having removed nothing; what cannot be removed is a warning.
    """
    started = time.monotonic()
    replica = Replica(request.replica, request.sides.target)
    seal.refuse_sealed(replica)
    # before a lease is written where no replica is, or into one that must not be touched
    orphans.examine(replica)
    with _alone(replica, request, notify) as lease:
        report = _find(replica, request)
        done = (
            _remove(report, replica, request, lease, notify)
            if report.deletes
            else replace(report, done=True)
        )
        _remove_empty_directories(report.found, replica)
    return replace(done, seconds=time.monotonic() - started)


def _find(replica: Replica, request: SweepRequest) -> Sweep:
    seal.refuse_sealed(replica)
    state = orphans.examine(replica)
    found = orphans.find(replica, state, json_files.now() - request.min_age, request.empty_trash)
    report = Sweep(replica.root, found)
    deletes = sum(not each.target.startswith(f"{OWN}/") for each in found.orphans)
    if not request.max_delete.allows(deletes, found.files):
        raise TooManyDeletes(
            f"{deletes} of the {found.files} files of {replica.root} are orphans, --max-delete"
            f" allows {request.max_delete}; nothing was removed. If that is right, give a higher"
            " --max-delete",
            report,
        )
    return report


@contextmanager
def _alone(replica: Replica, request: SweepRequest, notify: Notify) -> Iterator[Lease]:
    try:
        with acquire(replica.root, replica.side, request.lock_wait, notify) as lease:
            yield lease
    except LeaseHeld as error:  # a sweep is never urgent: whatever stands in its way is a refusal
        raise Refused(f"a sweep cannot be sure of what is needed: {error}") from error


def _remove(
    report: Sweep, replica: Replica, request: SweepRequest, lease: Lease, notify: Notify
) -> Sweep:
    files = len(report.deletes)
    with choose_runner(request.execution, files, 0, request.sides) as runner:
        why = f", {runner.reason}" if request.execution.explain else ""
        notify(f"removing {files} files, {report.bytes} bytes (runner: {runner.name}{why})")
        failed = deletion.delete(
            [each.target for each in report.found.trash], replica, runner, lease
        )
        names = [each.target for each in report.found.orphans if each.reason not in orphans.LAST]
        trash = _make_trash(replica, names) if request.trash and names else None
        failed += deletion.delete(
            {name: in_trash(trash, name) for name in names} if trash else names,
            replica,
            runner,
            lease,
        )
        if not failed:  # else it is the record of what could not be removed
            over = [each.target for each in report.found.orphans if each.reason in orphans.LAST]
            failed += deletion.delete(over, replica, runner, lease)
    warnings = (
        (f"{len(failed)} files could not be removed: {deletion.some(failed)}",) if failed else ()
    )
    return replace(
        report,
        done=True,
        trash=replica.uri_of(trash) if trash else None,
        runner=runner.name,
        warnings=warnings,
    )


def in_trash(trash: str, path: str) -> str:
    """Where a file of the replica is moved to: one flat directory a sweep, so that none has to be
    made for it.
    """
    return f"{trash}/{path.replace('/', '@')}"


def _make_trash(replica: Replica, names: list[str]) -> str:
    """A directory in the trash, by putting the list of what is moved there into it."""
    stamp = datetime.fromtimestamp(json_files.now(), timezone.utc).strftime(orphans.STAMP)
    trash = f"{TRASH}/{stamp}"
    lines = "".join(f"{in_trash('.', name)[2:]}\t{name}\n" for name in names)
    replica.storage.put(
        replica.uri_of(f"{trash}/{orphans.CONTENTS}"),
        lambda: [lines.encode(errors="surrogateescape")],
    )
    return trash


def _remove_empty_directories(found: Found, replica: Replica) -> None:
    for directory in found.directories:
        replica.storage.rmdir(replica.uri_of(directory))
