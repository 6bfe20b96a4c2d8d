"""`sync`: make a replica hold the source's checkpoint.

The steps are those of the commit protocol in `docs/architecture.md`.
"""

from __future__ import annotations

import logging
import time
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import NamedTuple

from cpreplicate.core.ledger import LedgerTable, MemberTable
from cpreplicate.core.notify import Notify
from cpreplicate.core.plan import Plan, total
from cpreplicate.core.reuse import reusing
from cpreplicate.operations.log_context import begin_checkpoint
from cpreplicate.operations.sync import content, estimate
from cpreplicate.operations.sync.clean_up import clean_up, forget_journal, left_over
from cpreplicate.operations.sync.commit import (
    changed_paths,
    claim,
    claim_and_plan,
    is_known_before_copies,
    manifest_of,
    publication_of,
    publish,
)
from cpreplicate.operations.sync.copy import (
    SyncChange,
    copy_missing,
    refuse_incomplete,
    refuse_lacking,
    runner_for,
)
from cpreplicate.operations.sync.plan import (
    examined,
    is_done,
    is_recorded,
    make_plan,
)
from cpreplicate.operations.sync.report import Report, capped, phases, report_of
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.sync.reuse import with_earlier_replicas
from cpreplicate.operations.sync.source import SourceState, read_source, target_replica
from cpreplicate.protocol import same_place
from cpreplicate.protocol.journal import JournalWriter
from cpreplicate.protocol.lease import acquire
from cpreplicate.protocol.ledger import Ledger
from cpreplicate.protocol.replica import Replica
from cpreplicate.protocol.replica_state import State
from cpreplicate.runners import Runner, TimedRunner

_log = logging.getLogger(__name__)


def sync(request: SyncRequest, notify: Notify, shared: Runner | None = None) -> Report:
    """Replicate a checkpoint by the commit protocol, and return what was done.

    Uses the `shared` runner, or one of its own. Raises one of `cpreplicate.errors`, having deleted
    nothing.
    """
    started = time.monotonic()
    source_state = read_source(request)
    begin_checkpoint(source_state.placement.name)
    _log.debug("read %s: %d files", source_state.source.checkpoint, len(source_state.needed))
    replica = target_replica(source_state, request)
    state = examined(source_state, replica, request)
    if (empty_plan := _nothing_to_do(source_state, replica, state, request)) is not None:
        _log.debug("nothing to do: %s holds the checkpoint", replica.root)
        return report_of(empty_plan, source_state, started)
    is_new = state.marker is None
    absent = replica.absent_directories() if is_new else ()
    with acquire(replica.root, replica.side, request.lock_wait, notify, absent) as lease:
        _log.debug("took the lease of %s", replica.root)
        source_root = source_state.source.root
        same_place.refuse_same_place(
            replica, lease.token, request.sides.source, source_root, is_new
        )
        state = examined(source_state, replica, request, is_alone=True, former=state)
        ledger = Ledger(replica, state)
        plan = make_plan(source_state, replica, state, ledger, request)
        plan = with_earlier_replicas(plan, source_state, request, notify)
        capped(report_of(plan, source_state, started), state, request)
        refuse_incomplete(plan, source_state, request)
        if is_done(plan, state, ledger, request, source_state):
            return report_of(plan, source_state, started)
        read = time.monotonic() - started
        with TimedRunner(shared or runner_for(plan, request)) as runner:
            _log.debug(
                "copy %d files of %d bytes, move %d, keep %d, delete %d",
                len(plan.copies),
                total(plan.copies),
                len(plan.repacks),
                len(plan.keeps),
                len(plan.deletes),
            )
            journal = JournalWriter(replica.storage, replica.root)
            run = SyncChange(
                replica, state, ledger, lease, runner, notify, journal, source_state, request
            )
            done = _carry_out(plan, run)
    report = report_of(done.plan, source_state, started)
    if shared is None:  # jobs that share a runner slow each other down
        estimate.record(done.plan, request, runner, report.seconds)
    return replace(
        report,
        committed=done.plan.publish,
        runner=runner.name,
        undeleted=done.undeleted,
        warnings=report.warnings + done.warnings,
        phases=phases(read, runner, report.seconds),
    )


def _nothing_to_do(
    source_state: SourceState, replica: Replica, state: State, request: SyncRequest
) -> Plan | None:
    """Return the empty plan of a replica that holds the checkpoint already, or None.

    Most runs of a cron job end here, so this takes no lease.
    """
    names = [committed.name for committed in state.committed]
    if state.marker is None or source_state.placement.name not in names:
        return None
    ledger = Ledger(replica, state)
    plan = make_plan(source_state, replica, state, ledger, request)
    return plan if is_done(plan, state, ledger, request, source_state) else None


class _Done(NamedTuple):
    """The plan as it was carried out, what was put off, and warnings of failed deletes."""

    plan: Plan
    undeleted: tuple[str, ...]
    warnings: tuple[str, ...]


def _carry_out(plan: Plan, run: SyncChange) -> _Done:
    """Carry out steps 2 to 6 of the commit protocol: copy, commit, delete.

    Raises one of `cpreplicate.errors`, having deleted nothing. Files of the protocol are written
    beside other work, and appear in their order: on HDFS each close may wait half a second.
    """
    plan, files = _compare_content(plan, run)
    if plan.empty and is_recorded(plan, run.state, run.ledger):
        claim(run)
        return _Done(plan, (), ())
    run.replica.keep_unfinished()
    planned = [*changed_paths(plan, run.journal.pack_stem), *sorted(left_over(plan, run))]
    run = replace(run, state=claim_and_plan(run, planned))
    run.take_over()
    with ExitStack() as stack:
        stack.enter_context(run.journal.writing())
        early = publication_of(plan, run, stack) if is_known_before_copies(plan) else None
        began = time.monotonic()
        written = copy_missing(plan, run)
        _log.debug("copied in %.3f s", time.monotonic() - began)
        plan = reusing(plan, written.reused)
        plan = replace(plan, members=MemberTable.merged([plan.members, written.members]))
        commit = early or publication_of(plan, run, stack)
        digest = commit.digest if commit is not None else run.state.committed[0].metadata
        listed = manifest_of(plan, run, written, digest, files)
        pending = stack.enter_context(run.replica.writing_manifest(plan.checkpoint, listed))
        if commit is None:
            pending.appear()
        else:
            if commit.replaces:  # until the new manifest is there, the journal lists the CRC32Cs
                with suppress(OSError):
                    run.journal.flush()
            publish(plan, run, commit, pending)
    undeleted, warnings = clean_up(plan, run, written.unused_packs)
    if not undeleted and not warnings:
        warnings = forget_journal(plan, run, listed)
    return _Done(plan, undeleted, warnings)


def _compare_content(plan: Plan, run: SyncChange) -> tuple[Plan, LedgerTable]:
    """Read the kept files whose content must be compared before anything is copied.

    Returns the plan that follows from it, and what is recorded of the files.
    """
    files, needed = run.ledger.files, run.source_state.needed
    if run.request.check_content:
        damaged = content.damaged(plan, run.replica, files, run.runner, run.notify)
        plan = _copying_again(plan, damaged, run) if damaged else plan
    compared = content.keeping_what_is_equal(
        plan, run.replica, needed, run.runner, run.request.sides, run.notify
    )
    refuse_lacking(compared.missing, compared.short, run.source_state, run.request)
    recorded = LedgerTable.merged([files, LedgerTable.of(compared.recorded)])
    return compared.plan, recorded


def _copying_again(plan: Plan, damaged: frozenset[str], run: SyncChange) -> Plan:
    """Return the plan that follows when these kept files are damaged.

    It is made anew: a pack of which too much is damaged is not needed any more, or moves.
    """
    run.ledger.distrust(damaged)
    plan = make_plan(run.source_state, run.replica, run.state, run.ledger, run.request)
    plan = with_earlier_replicas(plan, run.source_state, run.request, run.notify)
    return content.explained(plan, damaged)
