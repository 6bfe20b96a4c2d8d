"""Rounds of copies while a job runs, until little is left."""

from __future__ import annotations

import time
from dataclasses import replace

from cpreplicate.core import sizes
from cpreplicate.core.notify import Notify
from cpreplicate.core.plan import total
from cpreplicate.core.sizes import counted
from cpreplicate.errors import NotSwitched, SwitchUnclear
from cpreplicate.operations.handover.switch.ending import take_checkpoint
from cpreplicate.operations.handover.switch.preview import of_newest, sync_of
from cpreplicate.operations.handover.switch.request import Round, SwitchRequest
from cpreplicate.operations.handover.switch.under_way import Switching
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.sync.sync import sync
from cpreplicate.operations.verify.verify import verify
from cpreplicate.protocol.switch_record import new_id

_TRIGGERED_ROUNDS = 3
_LEAST_WAIT = 60.0  # seconds for the lease of a replica


def copied_ahead(run: Switching, first: Round) -> tuple[Round, ...]:
    """Copy while the job runs until little is left, at last from a checkpoint that is taken now.

    A compaction can make the next checkpoint large, whatever the last one was.
    """
    request, rounds = run.request, [first]
    while rounds[-1].bytes > request.small and len(rounds) < request.most_rounds:
        rounds.append(_again(run))
    for _ in range(_TRIGGERED_ROUNDS):
        started = time.monotonic()
        if not _is_triggered(run):
            break
        taken = time.monotonic() - started
        rounds.append(_again(run)._replace(taken=taken))
        if rounds[-1].bytes <= request.small:
            break
    if rounds[-1].bytes > request.small:
        run.notify(
            f"the last round still copied {sizes.size(rounds[-1].bytes)}: the last point may need"
            " as much, while the job stands still"
        )
    return tuple(rounds)


def refuse_damaged(run: Switching, root: str, checkpoint: str) -> None:
    """Raise `NotSwitched` if files of a replica are damaged, as far as they are to be read.

    That is done while the job runs: it may take long.
    """
    content = run.request.content
    if not content.share:
        return
    side, execution = run.side, run.request.sync.execution
    found = verify(root, checkpoint, content, run.notify, side, execution)
    if not found.restorable:
        raise NotSwitched(
            f"{run.log.record.name} was not stopped, and runs on: {checkpoint} of {root} cannot be"
            f" restored: `cpreplicate verify --content {root}` shows why"
        )
    run.notify(f"compared the content of {counted(found.compared, 'file')} of {root}")


def _again(run: Switching) -> Round:
    record = run.log.record
    return copy_round(run.request, record.directory, record.name, run.notify)[0]


def _is_triggered(run: Switching) -> bool:
    """Have a job that is not to be stopped yet complete a checkpoint."""
    try:
        job_id, origin = run.log.record.job_id, run.clusters.origin
        return take_checkpoint(job_id, new_id(), origin, run.request) is not None
    except SwitchUnclear as error:
        name = run.log.record.name
        raise NotSwitched(f"{name} was not stopped, and runs on: {error}") from error


def copy_round(request: SwitchRequest, place: str, name: str, notify: Notify) -> tuple[Round, str]:
    """Copy a checkpoint, and return what was copied, and the replica."""
    return _copied(request, sync_of(patient(request.sync), place, name), notify)


def copy_last(
    request: SwitchRequest, place: str, name: str, notify: Notify, savepoint_of: str | None
) -> tuple[Round, str]:
    """Copy the last point of a job that has ended, and return as `copy_round` does.

    It gets the paths that a promotion would give it, which need not rewrite it then. `savepoint_of`
    is the replica of the job of a savepoint.
    """
    asked = sync_of(patient(request.sync), place, name)
    return _copied(request, replace(asked, savepoint_of=savepoint_of, paths="absolute"), notify)


def _copied(request: SwitchRequest, asked: SyncRequest, notify: Notify) -> tuple[Round, str]:
    started = time.monotonic()
    plan = of_newest(request, lambda: sync(asked, notify), notify).plan
    copied, seconds = total(plan.copies), time.monotonic() - started
    notify(f"copied {sizes.size(copied)} for {plan.checkpoint} in {seconds:.1f} s")
    return Round(plan.checkpoint, len(plan.copies), copied, seconds), plan.replica


def patient(request: SyncRequest) -> SyncRequest:
    """Return a request that waits for a service that replicates the job, too: its lease ends."""
    return replace(request, lock_wait=max(request.lock_wait, _LEAST_WAIT))
