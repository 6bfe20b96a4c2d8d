"""`diff` and the check of a fleet: what a sync would do, and with which error it would end."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import replace

from cpreplicate.core.notify import Notify, silent
from cpreplicate.core.plan import total
from cpreplicate.errors import CpreplicateError, LeaseHeld, Refused
from cpreplicate.operations.change.space import refuse_no_space, too_little_space
from cpreplicate.operations.change.target_root import refuse_replica_as_root
from cpreplicate.operations.kafka.positions import positions_of
from cpreplicate.operations.sync import content
from cpreplicate.operations.sync.checks import examined, reasons_against
from cpreplicate.operations.sync.plan.earlier_replicas import with_earlier_replicas
from cpreplicate.operations.sync.plan.groups import groups
from cpreplicate.operations.sync.plan.plan import is_done, make_plan, warnings_of_strangers
from cpreplicate.operations.sync.report import (
    Report,
    SyncCheck,
    refuse_to_keep_less,
    refuse_too_many_deletes,
    report_of,
)
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.sync.source.lacking import look_for_copies, of_other_lengths
from cpreplicate.operations.sync.source.state import SourceState, of_newest, target_replica
from cpreplicate.protocol import replica_state
from cpreplicate.protocol.lease import NAME as LEASE
from cpreplicate.protocol.lease import Lease
from cpreplicate.protocol.ledger import Ledger
from cpreplicate.protocol.replica import Replica
from cpreplicate.protocol.replica_state import State
from cpreplicate.runners.choose import runner_choice

_log = logging.getLogger(__name__)


def diff(request: SyncRequest, notify: Notify = silent, with_positions: bool = False) -> Report:
    """Return the plan of a sync, and change nothing.

    Reads the source's `_metadata`, and lists the replica's directories and those from which files
    would be copied. If `sync` would be refused because of who owns the replica's directory, because
    another run holds its lease, or because there is too little space, that is the `refusal` of the
    report. `with_positions`: positions are also read from small files that hold some. Raises what
    else `sync` would raise.
    """
    started = time.monotonic()
    return of_newest(request, lambda found: _diff(found, notify, with_positions, started))


def _diff(
    source_state: SourceState, notify: Notify, with_positions: bool, started: float
) -> Report:
    request, replica = source_state.request, target_replica(source_state)
    state = replica_state.examine(replica, is_brief=True)
    if state.marker is None:
        refuse_replica_as_root(request.target_root, source_state.source.job, replica.storage)
    ledger = Ledger(replica, state)
    plan = make_plan(source_state, replica, state, ledger)
    plan = with_earlier_replicas(plan, source_state, notify)
    is_current = is_done(plan, state, ledger, source_state)
    report = replace(
        report_of(plan, source_state, started), is_plan=True, groups=groups(plan, source_state)
    )
    reasons = tuple(reasons_against(source_state, replica, state))
    if not reasons:
        refuse_to_keep_less(report, request)
    refusal = _refusal(reasons, replica, state, request, is_current)
    warnings = tuple(f"sync would be refused: {reason}" for reason in reasons)
    if refusal is None:
        warnings = _refuse_to_copy(report, source_state, state)
        refusal = too_little_space(plan, replica)
    warnings += tuple(warnings_of_strangers(plan))
    bandwidth = request.sides.target.limits.bandwidth
    chosen = runner_choice(request.execution, *plan.amount, bandwidth)
    _log.debug("runner: %s (%s)", chosen.runner, chosen.reason)
    return replace(
        report,
        seconds=time.monotonic() - started,
        warnings=report.warnings + warnings,
        refusal=refusal,
        positions=positions_of(
            source_state.file, request.sides.source, request.remaps, with_positions
        ),
    )


def check(request: SyncRequest, is_dry_run: bool = False) -> SyncCheck:
    """Return whether a sync has anything to do, and how much. Change nothing.

    Raises what `sync` would raise before it takes the lease. `is_dry_run`: no sync follows, so what
    it would raise later is raised, too, as by `diff`.
    """
    return of_newest(request, lambda found: _check(found, is_dry_run))


def _check(source_state: SourceState, is_dry_run: bool) -> SyncCheck:
    request, replica = source_state.request, target_replica(source_state)
    state = examined(source_state, replica)
    ledger = Ledger(replica, state)
    plan = make_plan(source_state, replica, state, ledger)
    refuse_to_keep_less(report_of(plan, source_state, time.monotonic()), request)
    is_current = is_done(plan, state, ledger, source_state)
    warnings: tuple[str, ...] = ()
    if is_dry_run and not is_current:
        if (refusal := _refusal((), replica, state, request, is_current)) is not None:
            raise refusal
        plan = with_earlier_replicas(plan, source_state, lambda _line: None)
        report = report_of(plan, source_state, time.monotonic())
        warnings = _refuse_to_copy(report, source_state, state)
        refuse_no_space(plan, replica)
        warnings += tuple(warnings_of_strangers(plan))
    return SyncCheck(
        replica=plan.replica,
        checkpoint=plan.checkpoint,
        is_current=is_current,
        files=len(plan.copies) + len(plan.deletes),
        bytes=total(plan.copies),
        completed=source_state.source.completed,
        warnings=warnings,
        withdrawals=plan.withdrawals,
        deletes=len(plan.deletes),
        delete_bytes=total(plan.deletes),
    )


def _refusal(
    reasons: Sequence[str], replica: Replica, state: State, request: SyncRequest, is_done: bool
) -> CpreplicateError | None:
    """Return the error with which a sync would end that may not change the replica's directory.

    `reasons` are about the directory. A sync with nothing to do takes no lease, and may wait for
    one.
    """
    if reasons:
        return Refused(reasons[0])
    if is_done or request.lock_wait or LEASE not in state.own:
        return None
    held = Lease(replica.root, replica.side).refusal()
    return None if held is None else LeaseHeld(held)


def _refuse_to_copy(report: Report, source_state: SourceState, state: State) -> tuple[str, ...]:
    """Raise what a sync would raise that carries out a plan. Return warnings of what is unknown."""
    refuse_too_many_deletes(report, state, source_state.request)
    plan = report.plan
    warnings = look_for_copies(plan, source_state)
    different = of_other_lengths(plan, source_state)
    content.refuse_different(different, plan.replica)
    return warnings
