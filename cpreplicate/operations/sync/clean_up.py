"""Step 6 of the commit protocol: delete what only old checkpoints needed.

Nothing that fails here is an error: the checkpoint is committed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cpreplicate.core.path_columns import Texts, texts, without
from cpreplicate.core.plan import Plan
from cpreplicate.errors import LeaseHeld, Refused
from cpreplicate.operations.change import some
from cpreplicate.operations.sync.copy import (
    SyncChange,
)
from cpreplicate.protocol import manifest, needed, publication
from cpreplicate.protocol.lease import JUST_CHECKED


def clean_up(
    plan: Plan, run: SyncChange, unused_packs: Sequence[str]
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


def _delete(plan: Plan, run: SyncChange, targets: Sequence[str]) -> tuple[str, ...]:
    if plan.deletes:
        needed_by = ", ".join(plan.dropped) or "the former checkpoint"
        run.notify(f"deleting {len(plan.deletes)} files that only {needed_by} needed")
    failed = run.delete(targets)
    failed += run.forget(
        name for name in (*plan.dropped, *run.state.stale) if name != plan.checkpoint
    )
    if not failed:
        return ()
    return (f"{len(failed)} files could not be deleted and are orphans now: {some(failed)}",)


def left_over(plan: Plan, run: SyncChange) -> set[str]:
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


def _kept_beside(plan: Plan, run: SyncChange) -> list[str]:
    """Return the names of the checkpoints that stay committed beside the one of the plan."""
    replaced = {*plan.dropped, plan.checkpoint}
    names = (committed.name for committed in run.state.committed)
    return [name for name in names if name not in replaced]


def forget_journal(plan: Plan, run: SyncChange, listed: manifest.Manifest) -> tuple[str, ...]:
    """Remove the journal, unless runs that died left files that only it lists.

    Returns a warning if these files cannot be listed: then the journal stays.
    """
    kept = (run.ledger.manifests.get(name) for name in _kept_beside(plan, run))
    manifests = [listed, *(each for each in kept if each is not None)]
    try:
        run.end(left_over(plan, run), manifests)
    except (OSError, Refused) as error:
        warning = (
            f"{error}. {plan.checkpoint} was committed before that. Files of earlier runs were not"
            " looked for, and the journal of this run stays until a later run removes it"
        )
        return (warning,)
    return ()
