"""Step 6 of the commit protocol: delete what only old checkpoints needed.

Nothing that fails here is an error: the checkpoint is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import numpy as np

from cpreplicate.core import uri
from cpreplicate.core.ledger import MemberTable
from cpreplicate.core.memory import return_after
from cpreplicate.core.packs import is_written
from cpreplicate.core.path_columns import chosen, texts, without
from cpreplicate.core.sizes import counted
from cpreplicate.errors import (
    Cancelled,
    CpreplicateError,
    LeaseHeld,
    Refused,
    TargetGone,
    described,
)
from cpreplicate.operations.change.change import orphaned
from cpreplicate.operations.sync.copy import Executed
from cpreplicate.operations.sync.plan.work import Work
from cpreplicate.protocol import needed, publication, replica_state
from cpreplicate.protocol.lease import JUST_CHECKED
from cpreplicate.protocol.ledger import lone_manifests
from cpreplicate.protocol.manifest import Manifest
from cpreplicate.protocol.replica import ASKED, Replica
from cpreplicate.protocol.verification_record import NAME as VERIFIED
from cpreplicate.protocol.verification_record import drop_repaired
from cpreplicate.runners import EngineLost
from cpreplicate.storage.wrappers.ahead import overlapping


class Abandoned(NamedTuple):
    """The checkpoints from which a run turned, and the files that it copied for them only."""

    checkpoints: Sequence[str] = ()
    files: Sequence[str] = ()


class CleanedUp(NamedTuple):
    """What was put off, and warnings of what could not be deleted.

    `is_lease_lost`: another run has taken the replica over since the commit.
    """

    undeleted: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    is_lease_lost: bool = False


def clean_up(work: Work, executed: Executed, listed: Manifest, abandoned: Abandoned) -> CleanedUp:
    """Carry out step 6: delete the old `_metadata` first, then files and packs that are not used.

    Then remove the journal, if the manifest `listed` and those of other checkpoints replace it.
    """
    return_after(len(work.source_state.needed))
    left = work.left_over(executed.members)
    cleaned, gone = _delete_old(work, executed, abandoned, left)
    if cleaned.undeleted or cleaned.warnings:
        return cleaned
    ended: list[CleanedUp] = []
    overlapping(
        work.replica.storage,
        lambda: ended.append(_unrecorded(work, gone)),
        lambda: ended.append(_end_journal(work, listed, left)),
    )
    warnings = tuple(warning for each in ended for warning in each.warnings)
    return CleanedUp(warnings=warnings, is_lease_lost=any(each.is_lease_lost for each in ended))


def drop_failures(work: Work, turned_from: Sequence[str]) -> None:
    """Drop the recorded failures of verifications that this run has repaired.

    Costs no call for a new checkpoint. A failure that stays is dropped by the next verification.
    """
    plan, state = work.plan, work.change.state
    is_planned = plan.checkpoint == work.source_state.placement.name  # no savepoint beside it
    is_compared = work.request.check_content and is_planned and not turned_from
    is_repaired = bool(plan.copies) or plan.publish or is_compared
    is_held = any(each.name == plan.checkpoint for each in state.committed)
    if is_repaired and is_held and VERIFIED in state.own:
        with suppress(OSError, CpreplicateError):
            drop_repaired(work.replica, plan.checkpoint, is_compared)


def _unneeded(work: Work, files: Sequence[str], is_proven: bool = False) -> list[str]:
    """Return those of these files that no checkpoint needs that stays in the directory.

    `is_proven`: no summary counts for that, and every checkpoint is read.
    """
    if not files:
        return []
    gone, state = {*work.plan.dropped, work.plan.checkpoint}, work.change.state
    if is_proven and state.summarised:
        state = replica_state.examine(Replica(work.replica.root, work.replica.side))
    stays = needed.needed(work.replica, state, gone)
    unneeded: list[str] = without(texts(files), stays).to_pylist()
    return unneeded


def _of_dead_runs(work: Work, members: MemberTable, left: Collection[str]) -> list[str]:
    """Return those of the paths that runs which died, or put deletes off, left and that may go.

    No checkpoint needs the files, and they are proven to be cpreplicate's: a record lists each as
    complete with the length that it has, or it is a pack whose name begins as those of such a run.
    This run holds the lease, so the others are over. What their executors write later goes with one
    of the next runs: see `journal`. Where there are many points, a service leaves the others to its
    sweeps: what it has put off itself is among them after each of its syncs.
    """
    late = work.change.ledger.late_packs
    is_left_to_sweeps = work.request.async_deletes and work.change.state.summarised
    left = late if is_left_to_sweeps else {*left, *late}
    if not left:
        return []
    present = work.replica.present(uri.directories(left))
    is_left = [is_written(path, left) for path in present.paths.to_pylist()]
    found = present.take(np.array(is_left, np.bool_))
    proven = chosen(found.paths, work.change.ledger.are_proven(found))
    unneeded = work.unnamed(proven, members).to_pylist()
    if work.change.state.summarised:  # which spares most runs the reading of every point
        unneeded = _unneeded(work, unneeded)
    return _unneeded(work, unneeded, is_proven=True)


def _delete_old(
    work: Work, executed: Executed, abandoned: Abandoned, left: Collection[str]
) -> tuple[CleanedUp, Sequence[str]]:
    """Delete all but what is recorded of some checkpoints, whose names are returned, too."""
    emptied: list[str] = []
    cleaned = _guarded(lambda: _deleted(work, executed, abandoned, left, emptied), work)
    return cleaned, emptied


def _deleted(
    work: Work,
    executed: Executed,
    abandoned: Abandoned,
    left: Collection[str],
    emptied: list[str],
) -> CleanedUp:
    change, plan = work.change, work.plan
    targets = [*(action.target for action in plan.deletes), *executed.unused_packs]
    change.lease.check(JUST_CHECKED)  # it was before the commit
    targets += _unneeded(work, abandoned.files)
    of_dead_runs = _of_dead_runs(work, executed.members, left)
    if not of_dead_runs:
        change.forget_late()
    elif not work.request.async_deletes:
        count = counted(len(of_dead_runs), "file")
        change.notify(f"deleting {count} that earlier runs left, which died or put deletes off")
    targets = list(dict.fromkeys([*targets, *of_dead_runs]))
    if targets or plan.dropped:
        _ask_to_withdraw(work)
        needed.refuse_later(change.replica, change.state, {*plan.dropped, plan.checkpoint})
        needed.refuse_unproven(change.replica, change.state, {*plan.dropped, plan.checkpoint})
    is_far = change.replica.storage.answers_ahead
    for name in plan.dropped:
        publication.withdraw(change.replica, name, change.state.dated(name), is_far)
    if work.request.async_deletes:
        if is_far and plan.dropped:
            change.replica.remove_withdrawn()
        return CleanedUp(tuple(targets))
    return CleanedUp(warnings=_delete(work, targets, abandoned.checkpoints, emptied))


def _guarded(call: Callable[[], CleanedUp], work: Work) -> CleanedUp:
    """Return what is cleaned up, with a warning if it is not all, and why."""
    committed = f"{work.plan.checkpoint} was committed before that"
    try:
        return call()
    except (LeaseHeld, TargetGone, EngineLost) as error:
        why = f"{committed}. Files that were to be deleted are left to `sweep`"
        return CleanedUp((), (f"{described(error)}. {why}",), isinstance(error, LeaseHeld))
    except Refused as error:
        why = f"{committed}. Old checkpoints and their files were left as they are"
        return CleanedUp(warnings=(f"{described(error)}. {why}",))
    except OSError as error:
        why = "The old checkpoints were left as they are. Fix that: the next run deletes them"
        return CleanedUp(warnings=(f"{described(error)}. {why}",))
    except Cancelled:
        raise
    except CpreplicateError as error:  # as of a session of Spark that does not start
        why = f"{committed}. Files that were to be deleted are left to `sweep`"
        return CleanedUp(warnings=(f"{described(error)}. {why}",))


def _ask_to_withdraw(work: Work) -> None:
    """Begin the looks that withdrawing makes next, so that their round trips overlap.

    That comes after the commit: what replaced an old `_metadata` meanwhile must be seen.
    """
    if work.plan.dropped or work.plan.deletes:
        work.replica.storage.ask("list", work.replica.root)
    for name in work.plan.dropped[:ASKED]:
        publication.ask_to_withdraw(work.replica, name, work.change.state.dated(name))


def _delete(
    work: Work, targets: Sequence[str], left: Sequence[str], emptied: list[str]
) -> tuple[str, ...]:
    """Delete files, and what is left of old checkpoints; return what failed.

    Where a call is a round trip, the record of those whose directory is gone is left to the caller.
    """
    change, plan = work.change, work.plan
    if plan.deletes:
        needed_by = ", ".join(plan.dropped) or "the former checkpoint"
        change.notify(f"deleting {counted(len(plan.deletes), 'file')} that only {needed_by} needed")
    failed: list[str] = []
    overlapping(
        work.replica.storage,
        *_emptying(work, emptied),
        lambda: failed.extend(change.delete(targets)),
    )
    gone = (*plan.dropped, *change.state.stale, *lone_manifests(change.state), *left)
    failed += change.forget(
        name for name in dict.fromkeys(gone) if name not in (plan.checkpoint, *emptied)
    )
    if not failed:
        return ()
    change.unrecord(emptied)
    return (orphaned(failed),)


def _emptying(work: Work, emptied: list[str]) -> list[Callable[[], object]]:
    """Return the calls that remove what is left of withdrawn checkpoints, where calls overlap."""
    replica = work.replica
    if not (replica.storage.answers_ahead and work.plan.dropped):
        return []

    def empty(name: str) -> None:
        if publication.empty(replica, name):
            emptied.append(name)

    is_of_directories = replica.storage.has_directories
    names = work.plan.dropped[:ASKED] if is_of_directories else ()
    return [replica.remove_withdrawn, *(partial(empty, name) for name in names)]


def _unrecorded(work: Work, names: Sequence[str]) -> CleanedUp:
    failed: list[str] = []

    def remove() -> CleanedUp:
        failed.extend(work.change.unrecord(names))
        return CleanedUp(warnings=(orphaned(failed),) if failed else ())

    return _guarded(remove, work)


def _end_journal(work: Work, listed: Manifest, left: Collection[str]) -> CleanedUp:
    """Remove the journal, unless runs that died left files that only it lists.

    If these files cannot be listed, that is a warning, and the journal stays.
    """
    change = work.change
    try:
        manifests = [listed, *change.described(work.kept_beside())]
        change.end(left, manifests)
    except (LeaseHeld, TargetGone, OSError, Refused) as error:
        warning = (
            f"{described(error)}. {work.plan.checkpoint} was committed before that. Files of"
            " earlier runs were not looked for, and the journal of this run stays until a later run"
            " removes it"
        )
        return CleanedUp((), (warning,), isinstance(error, LeaseHeld))
    return CleanedUp()
