"""Step 6 of the commit protocol: delete what only old checkpoints needed.

Nothing that fails here is an error: the checkpoint is committed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from cpreplicate.core.path_columns import texts, without
from cpreplicate.core.sizes import counted
from cpreplicate.errors import LeaseHeld, Refused, TargetGone, described
from cpreplicate.operations.change.change import orphaned
from cpreplicate.operations.sync.copy import Executed
from cpreplicate.operations.sync.plan.work import Work
from cpreplicate.protocol import needed, publication, replica_state
from cpreplicate.protocol.lease import JUST_CHECKED
from cpreplicate.protocol.manifest import Manifest
from cpreplicate.protocol.replica import ASKED
from cpreplicate.runners import EngineLost


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
    cleaned = _delete_old(work, executed.unused_packs, abandoned)
    if cleaned.undeleted or cleaned.warnings:
        return cleaned
    return _end_journal(work, executed, listed)


def _unneeded(work: Work, files: Sequence[str]) -> list[str]:
    """Return those of these files that no checkpoint needs that stays in the directory."""
    if not files:
        return []
    gone = {*work.plan.dropped, work.plan.checkpoint}
    stays = needed.needed(work.replica, work.change.state, gone)
    unneeded: list[str] = without(texts(files), stays).to_pylist()
    return unneeded


def _delete_old(work: Work, unused_packs: Sequence[str], abandoned: Abandoned) -> CleanedUp:
    change, plan = work.change, work.plan
    committed = f"{plan.checkpoint} was committed before that"
    targets = [*(action.target for action in plan.deletes), *unused_packs]
    try:
        change.lease.check(JUST_CHECKED)  # it was before the commit
        targets += _unneeded(work, abandoned.files)
        _ask(work, bool(targets))
        if targets or plan.dropped:
            needed.refuse_later(change.replica, change.state, {*plan.dropped, plan.checkpoint})
            needed.refuse_unproven(change.replica, change.state, {*plan.dropped, plan.checkpoint})
        if targets:
            change.lease.ask()
        for name in plan.dropped:
            publication.withdraw(change.replica, name)
        if work.request.async_deletes:
            return CleanedUp(tuple(targets))
        return CleanedUp(warnings=_delete(work, targets, abandoned.checkpoints))
    except (LeaseHeld, TargetGone, EngineLost) as error:
        left = f"{committed}. Files that were to be deleted are left to `sweep`"
        return CleanedUp((), (f"{described(error)}. {left}",), isinstance(error, LeaseHeld))
    except Refused as error:
        left = f"{committed}. Old checkpoints and their files were left as they are"
        return CleanedUp(warnings=(f"{described(error)}. {left}",))
    except OSError as error:
        left = "The old checkpoints were left as they are. Fix that: the next run deletes them"
        return CleanedUp(warnings=(f"{described(error)}. {left}",))


def _ask(work: Work, deletes: bool) -> None:
    """Begin what is asked before old checkpoints are withdrawn."""
    if deletes or work.plan.dropped:
        work.replica.storage.ask("list", work.replica.root)
    for name in work.plan.dropped[:ASKED]:
        replica_state.ask_checkpoint(work.replica, name)


def _delete(work: Work, targets: Sequence[str], left: Sequence[str]) -> tuple[str, ...]:
    change, plan = work.change, work.plan
    if plan.deletes:
        needed_by = ", ".join(plan.dropped) or "the former checkpoint"
        change.notify(f"deleting {counted(len(plan.deletes), 'file')} that only {needed_by} needed")
    for name in plan.dropped[:ASKED]:
        publication.ask_whether_withdrawn(work.replica, name)
    failed = change.delete(targets)
    gone = (*plan.dropped, *change.state.stale, *left)
    failed += change.forget(name for name in gone if name != plan.checkpoint)
    if not failed:
        return ()
    return (orphaned(failed),)


def _end_journal(work: Work, executed: Executed, listed: Manifest) -> CleanedUp:
    """Remove the journal, unless runs that died left files that only it lists.

    If these files cannot be listed, that is a warning, and the journal stays.
    """
    change = work.change
    try:
        manifests = [listed, *change.described(work.kept_beside())]
        change.end(work.left_over(executed.members), manifests)
    except (LeaseHeld, TargetGone, OSError, Refused) as error:
        warning = (
            f"{described(error)}. {work.plan.checkpoint} was committed before that. Files of"
            " earlier runs were not looked for, and the journal of this run stays until a later run"
            " removes it"
        )
        return CleanedUp((), (warning,), isinstance(error, LeaseHeld))
    return CleanedUp()
