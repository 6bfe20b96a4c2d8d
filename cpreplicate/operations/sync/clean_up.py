"""Step 6 of the commit protocol: delete what only old checkpoints needed.

Nothing that fails here is an error: the checkpoint is committed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from cpreplicate.core import uri
from cpreplicate.core.packs import is_written
from cpreplicate.core.path_tables import Texts, texts, without
from cpreplicate.core.plan import Plan
from cpreplicate.errors import LeaseHeld, Refused
from cpreplicate.operations import change
from cpreplicate.operations.change import some
from cpreplicate.operations.sync.copy import (
    Run,
)
from cpreplicate.protocol import manifest, needed, publication
from cpreplicate.protocol.journal import JournalWriter
from cpreplicate.protocol.lease import JUST_CHECKED
from cpreplicate.protocol.replica import Replica


def clean_up(
    plan: Plan, run: Run, unused_packs: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Carry out step 6: delete the old `_metadata` first, then files and `unused_packs`.

    Returns what was put off, and warnings of what could not be deleted. Nothing that fails here is
    an error: the checkpoint is committed.
    """
    targets = [*(action.target for action in plan.deletes), *unused_packs]
    try:
        run.lease.check(JUST_CHECKED)  # it was before the commit
        if targets or plan.dropped:
            needed.refuse_later(run.replica, run.state, {*plan.dropped, plan.checkpoint})
        for name in plan.dropped:
            publication.withdraw(run.replica, name)
        if run.request.async_deletes:
            return tuple(targets), ()
        return (), _delete(plan, run, targets)
    except LeaseHeld as error:
        warning = (
            f"{error}. {plan.checkpoint} was committed before that. Files that were to be deleted"
            " are left to `sweep`"
        )
        return (), (warning,)
    except Refused as error:
        warning = (
            f"{error}. {plan.checkpoint} was committed before that. Old checkpoints and their files"
            " were left as they are"
        )
        return (), (warning,)
    except OSError as error:
        warning = f"{error}. The old checkpoints were left as they are. The next run deletes them"
        return (), (warning,)


def _delete(plan: Plan, run: Run, targets: Sequence[str]) -> tuple[str, ...]:
    if plan.deletes:
        needed_by = ", ".join(plan.dropped) or "the former checkpoint"
        run.notify(f"deleting {len(plan.deletes)} files that only {needed_by} needed")
    failed = change.delete(targets, run.replica, run.runner, run.lease)
    failed += _forget([*plan.dropped, *run.state.stale], run.replica, plan.checkpoint)
    if not failed:
        return ()
    return (f"{len(failed)} files could not be deleted and are orphans now: {some(failed)}",)


def left_over(plan: Plan, run: Run) -> set[str]:
    """Return the written paths that neither a manifest nor the plan will name.

    These are left by runs that died.
    """
    left = run.ledger.left_over(_kept_beside(plan, run))
    return set(without(left, *_named_paths(plan)).to_pylist())


def _named_paths(plan: Plan) -> Iterator[Texts]:
    """Yield the paths of the files that the plan copies, keeps and deletes, and of kept packs."""
    plain = (action.target for action in plan.copies if action.target not in plan.packed)
    yield without(texts(plain), plan.members.paths)
    yield plan.keeps.without(plan.members.paths).files.paths
    yield texts(plan.members.used_packs)
    yield texts(action.target for action in plan.deletes)


def _kept_beside(plan: Plan, run: Run) -> list[str]:
    """Return the names of the checkpoints that stay committed beside the one of the plan."""
    replaced = {*plan.dropped, plan.checkpoint}
    names = (committed.name for committed in run.state.committed)
    return [name for name in names if name not in replaced]


def forget_journal(
    plan: Plan, run: Run, journal: JournalWriter, listed: manifest.Manifest
) -> tuple[str, ...]:
    """Remove the journal, unless runs that died left files that only it names.

    Returns a warning if these files cannot be listed. The journal stays then. It does no harm: the
    next run that commits takes it over.
    """
    try:
        is_needed = _names_left_over(plan, run, listed)
    except (OSError, Refused) as error:
        warning = (
            f"{error}. {plan.checkpoint} was committed before that. Files of earlier runs were not"
            " looked for, and the journal of this run stays until a later run removes it"
        )
        return (warning,)
    if not is_needed:
        with suppress(OSError):
            journal.remove()
    return ()


def _names_left_over(plan: Plan, run: Run, listed: manifest.Manifest) -> bool:
    """Return whether there are files of runs that died which no manifest names."""
    left = left_over(plan, run)
    manifests = [run.ledger.manifests.get(name) for name in _kept_beside(plan, run)]
    if not left:
        return False
    known = [listed, *(kept for kept in manifests if kept is not None)]
    present = run.replica.present(uri.directories(left)).paths
    unknown = without(present, *(one.entries.paths for one in known)).to_pylist()
    return any(is_written(path, left) for path in unknown)


def _forget(names: Sequence[str], replica: Replica, committed: str) -> list[str]:
    try:
        for name in names:
            if name != committed:
                publication.forget(replica, name)
    except OSError as error:
        return [str(error)]
    return []
