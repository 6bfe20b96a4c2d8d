"""`diff` and `sync`: make a replica hold the source's checkpoint.

The steps are those of the commit protocol in `docs/architecture.md`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from cpreplicate.core import restore, uri
from cpreplicate.core.ledger import LedgerEntry, LedgerTable, MemberTable
from cpreplicate.core.notify import Notify
from cpreplicate.core.packs import is_written
from cpreplicate.core.path_tables import Lengths, Texts, rows_of, texts, without
from cpreplicate.core.placement import PACKED
from cpreplicate.core.plan import Plan, total
from cpreplicate.core.restore import Restore
from cpreplicate.core.reuse import reusing
from cpreplicate.errors import CpreplicateError, LeaseHeld, Refused, TooManyDeletes
from cpreplicate.operations import change
from cpreplicate.operations.change import some
from cpreplicate.operations.log_context import begin_checkpoint
from cpreplicate.operations.sync import content, estimate
from cpreplicate.operations.sync.copy import (
    Run,
    Written,
    copy_missing,
    look_for_copies,
    of_other_lengths,
    refuse_incomplete,
    refuse_lacking,
)
from cpreplicate.operations.sync.estimate import Estimates
from cpreplicate.operations.sync.plan import (
    SourceState,
    SyncRequest,
    is_adopted,
    make_plan,
    read_source,
    reasons_against,
    rewritten,
    target_replica,
    warnings_of_strangers,
)
from cpreplicate.operations.sync.reuse import with_earlier_replicas
from cpreplicate.operations.target_root import refuse_replica_as_root
from cpreplicate.protocol import manifest, needed, publication, replica_state, same_place, seal
from cpreplicate.protocol.digest import Digest
from cpreplicate.protocol.journal import JournalWriter
from cpreplicate.protocol.lease import JUST_CHECKED, Lease, acquire
from cpreplicate.protocol.lease import NAME as LEASE
from cpreplicate.protocol.ledger import Ledger
from cpreplicate.protocol.marker import add_source, create_marker
from cpreplicate.protocol.pending import PendingPut
from cpreplicate.protocol.publication import Publication
from cpreplicate.protocol.replica import Replica
from cpreplicate.protocol.replica_state import State
from cpreplicate.runners import Runner, TimedRunner, choose_runner
from cpreplicate.storage.base import Content

_HELD_IN_MEMORY = 64 << 20  # bytes of a rewritten `_metadata`
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Report:
    """The result of a sync: its plan, and how far that was carried out.

    `undeleted` are the files that were left to a `sweep` or to a `watch`. `estimates` are made of a
    plan that is only shown, and so is `refusal`: the error with which a sync would end before it
    carries out the plan. `completed` is when the checkpoint was completed at the source, in
    seconds since the epoch, None if that is not known. `phases` are parts of `seconds`: `read`
    until the plan was made, `copy` and `delete` in the runner, and `other`, such as the commit.
    """

    plan: Plan
    restore: Restore
    committed: bool = False
    runner: str | None = None
    seconds: float = 0.0
    warnings: tuple[str, ...] = ()
    undeleted: tuple[str, ...] = ()
    estimates: Estimates | None = None
    refusal: CpreplicateError | None = None
    completed: float | None = None
    phases: Mapping[str, float] = field(default_factory=dict)


class SyncCheck(NamedTuple):
    """The result of `check`: whether the replica holds `checkpoint` already.

    Otherwise, `files` and `bytes` are to be copied or deleted. `completed` and `warnings` are as in
    `Report`.
    """

    checkpoint: str
    is_current: bool
    files: int
    bytes: int
    completed: float | None = None
    warnings: tuple[str, ...] = ()


def diff(request: SyncRequest, notify: Notify = lambda _line: None) -> Report:
    """Return the plan of a sync, and change nothing.

    Reads the source's `_metadata`, and lists the replica's directories and those from which files
    would be copied. If `sync` would be refused because of who owns the replica's directory, or
    because another run holds its lease, that is the `refusal` of the report. Raises what else
    `sync` would raise.
    """
    started = time.monotonic()
    source_state = read_source(request)
    replica = target_replica(source_state, request)
    state = replica_state.examine(replica)
    if state.marker is None:
        refuse_replica_as_root(request.target_root, source_state.source.job, replica.storage)
    ledger = Ledger(replica, state)
    plan = make_plan(source_state, replica, state, ledger, request)
    plan = with_earlier_replicas(plan, source_state, request, notify)
    is_done = _is_done(plan, state, ledger, request, source_state)
    reasons = tuple(reasons_against(source_state, replica, state, request))
    refusal = _refusal(reasons, replica, state, request, is_done)
    warnings = tuple(f"sync would be refused: {reason}" for reason in reasons)
    if refusal is None:
        warnings = _refuse_to_copy(plan, source_state, state, request)
    warnings += tuple(warnings_of_strangers(plan))
    if request.execution.explain:
        _runner(plan, request, notify)
    estimates = estimate.estimates(plan, source_state, request)
    report = _report(plan, source_state, started)
    return replace(
        report, warnings=report.warnings + warnings, estimates=estimates, refusal=refusal
    )


def check(request: SyncRequest, is_dry_run: bool = False) -> SyncCheck:
    """Return whether a sync has anything to do, and how much. Change nothing.

    Raises what `sync` would raise before it takes the lease. `is_dry_run`: no sync follows, so what
    it would raise later is raised, too, as by `diff`.
    """
    source_state = read_source(request)
    replica = target_replica(source_state, request)
    state = _examine(source_state, replica, request)
    ledger = Ledger(replica, state)
    plan = make_plan(source_state, replica, state, ledger, request)
    is_current = _is_done(plan, state, ledger, request, source_state)
    warnings: tuple[str, ...] = ()
    if is_dry_run and not is_current:
        if (refusal := _refusal((), replica, state, request, is_current)) is not None:
            raise refusal
        plan = with_earlier_replicas(plan, source_state, request, lambda _line: None)
        warnings = _refuse_to_copy(plan, source_state, state, request)
        warnings += tuple(warnings_of_strangers(plan))
    return SyncCheck(
        checkpoint=plan.checkpoint,
        is_current=is_current,
        files=len(plan.copies) + len(plan.deletes),
        bytes=total(plan.copies),
        completed=source_state.source.completed,
        warnings=warnings,
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


def _refuse_to_copy(
    plan: Plan, source_state: SourceState, state: State, request: SyncRequest
) -> tuple[str, ...]:
    """Raise what a sync would raise that carries out a plan. Return warnings of what is unknown."""
    _capped(_report(plan, source_state, time.monotonic()), state, request)
    warnings = look_for_copies(plan, source_state, request)
    different = of_other_lengths(plan, source_state, request)
    content.refuse_different(different, plan.replica)
    return warnings


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
    state = _examine(source_state, replica, request)
    if (empty_plan := _nothing_to_do(source_state, replica, state, request)) is not None:
        _log.debug("nothing to do: %s holds the checkpoint", replica.root)
        return _report(empty_plan, source_state, started)
    is_new = state.marker is None
    absent = replica.absent_directories() if is_new else ()
    with acquire(replica.root, replica.side, request.lock_wait, notify, absent) as lease:
        _log.debug("took the lease of %s", replica.root)
        source_root = source_state.source.root
        same_place.refuse_same_place(
            replica, lease.token, request.sides.source, source_root, is_new
        )
        state = _examine(source_state, replica, request, is_alone=True, former=state)
        ledger = Ledger(replica, state)
        plan = make_plan(source_state, replica, state, ledger, request)
        plan = with_earlier_replicas(plan, source_state, request, notify)
        _capped(_report(plan, source_state, started), state, request)
        refuse_incomplete(plan, source_state, request)
        if _is_done(plan, state, ledger, request, source_state):
            return _report(plan, source_state, started)
        read = time.monotonic() - started
        with TimedRunner(shared or _runner(plan, request, notify)) as runner:
            _log.debug(
                "copy %d files of %d bytes, move %d, keep %d, delete %d",
                len(plan.copies),
                total(plan.copies),
                len(plan.repacks),
                len(plan.keeps),
                len(plan.deletes),
            )
            run = Run(source_state, replica, state, ledger, runner, lease, request, notify)
            done = _carry_out(plan, run)
    report = _report(done.plan, source_state, started)
    if shared is None:  # jobs that share a runner slow each other down
        estimate.record(done.plan, request, runner, report.seconds)
    return replace(
        report,
        committed=done.plan.publish,
        runner=runner.name,
        undeleted=done.undeleted,
        warnings=report.warnings + done.warnings,
        phases=_phases(read, runner, report.seconds),
    )


def _phases(read: float, runner: TimedRunner, seconds: float) -> dict[str, float]:
    phases = {"read": read, "copy": runner.copies, "delete": runner.deletes}
    return {**phases, "other": max(0.0, seconds - sum(phases.values()))}


def _examine(
    source_state: SourceState,
    replica: Replica,
    request: SyncRequest,
    is_alone: bool = False,
    former: State | None = None,
) -> State:
    """Return the state of the replica's directory. Raise `Refused` if a sync must not change it."""
    state = replica_state.examine(replica, is_alone, former)
    if state.marker is None:
        refuse_replica_as_root(request.target_root, source_state.source.job, replica.storage)
    for reason in reasons_against(source_state, replica, state, request):
        raise Refused(reason)
    if seal.NAME in state.own:  # else a lease would be written first
        seal.refuse_sealed(replica)
    return state


def _claim(run: Run) -> State:
    """Make the directory a replica of this source, before anything else is written there."""
    state, name = run.state, run.source_state.name
    if state.marker is None:
        marker = create_marker(
            run.replica, run.source_state.source.job, name, is_adopted(state, run.request)
        )
    elif not state.marker.names(name):
        marker = add_source(run.replica, state.marker, name)
    else:
        marker = state.marker
    for checkpoint in state.unrecorded:
        publication.adopt(run.replica, checkpoint)
    return replace(state, marker=marker, adopted=state.adopted + state.unrecorded, unrecorded=())


def _capped(report: Report, state: State, request: SyncRequest) -> Report:
    """Return the report. Raise `TooManyDeletes` if more is to be deleted than is allowed.

    A pack counts as its members. What the new checkpoint needs is not deleted: it only moves, or is
    copied again.
    """
    plan = report.plan
    if request.max_delete is None:
        return report
    members: dict[str, set[str]] = {}
    for committed in state.committed:
        for path, member in committed.members.items():
            members.setdefault(member.pack, set()).add(path)
    files = {path for committed in state.committed for path in committed.files}
    count = sum(len(members.get(path, {path})) for path in files)
    needed = {action.target for action in (*plan.copies, *plan.repacks, *plan.keeps)}
    gone = [members.get(action.target, {action.target}) - needed for action in plan.deletes]
    deletes = sum(map(len, gone))
    if not request.max_delete.allows(deletes, count):
        raise TooManyDeletes(
            f"{deletes} of the {count} files of {plan.replica} would be deleted, but"
            f" --max-delete allows {request.max_delete}. Nothing was copied, committed or deleted."
            " If that is right, give a higher --max-delete",
            report,
        )
    return report


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
    return plan if _is_done(plan, state, ledger, request, source_state) else None


def _is_done(
    plan: Plan, state: State, ledger: Ledger, request: SyncRequest, source_state: SourceState
) -> bool:
    """Return whether nothing is to be done, nor to be recorded."""
    if not plan.empty or request.check_content or state.unrecorded:
        return False
    if state.marker is None or not state.marker.names(source_state.name):
        return False
    return _is_recorded(plan, state, ledger)


def _is_recorded(plan: Plan, state: State, ledger: Ledger) -> bool:
    recorded = ledger.manifests.get(plan.checkpoint)
    return recorded is not None and recorded.metadata == state.committed[0].metadata


def _runner(plan: Plan, request: SyncRequest, notify: Notify) -> Runner:
    files = len(plan.copies) + len(plan.repacks) + len(plan.deletes)
    size = total(plan.copies) + total(plan.repacks)
    runner = choose_runner(request.execution, files, size, request.sides)
    explain = notify if request.execution.explain else _log.debug
    explain(f"runner: {runner.name} ({runner.reason})")
    return runner


class _Done(NamedTuple):
    """The plan as it was carried out, what was put off, and warnings of failed deletes."""

    plan: Plan
    undeleted: tuple[str, ...]
    warnings: tuple[str, ...]


def _carry_out(plan: Plan, run: Run) -> _Done:
    """Carry out steps 2 to 6 of the commit protocol: copy, commit, delete.

    Raises one of `cpreplicate.errors`, having deleted nothing. Files of the protocol are written
    beside other work, and appear in their order: on HDFS each close may wait half a second.
    """
    plan, files = _compare_content(plan, run)
    if plan.empty and _is_recorded(plan, run.state, run.ledger):
        _claim(run)
        return _Done(plan, (), ())
    run.replica.keep_unfinished()
    journal = JournalWriter(run.replica.storage, run.replica.root)
    planned = [*_changed_paths(plan, journal), *sorted(_left_over(plan, run))]
    run = replace(run, state=_claim_and_plan(run, journal, planned))
    journal.take_over(run.ledger.journals, run.ledger.copied())
    with ExitStack() as stack:
        stack.enter_context(journal.writing())
        early = _commit(plan, run, stack) if _is_known_before_copies(plan) else None
        began = time.monotonic()
        written = copy_missing(plan, run, journal)
        _log.debug("copied in %.3f s", time.monotonic() - began)
        plan = reusing(plan, written.reused)
        plan = replace(plan, members=MemberTable.merged([plan.members, written.members]))
        commit = early or _commit(plan, run, stack)
        digest = commit.digest if commit is not None else run.state.committed[0].metadata
        listed = _manifest(plan, run, written, digest, files)
        pending = stack.enter_context(run.replica.writing_manifest(plan.checkpoint, listed))
        if commit is None:
            pending.appear()
        else:
            if commit.replaces:  # until the new manifest is there, the journal lists the CRC32Cs
                with suppress(OSError):
                    journal.flush()
            publish(plan, run, commit, pending)
    undeleted, warnings = _clean_up(plan, run, written.unused_packs)
    if not undeleted and not warnings:
        warnings = _forget_journal(plan, run, journal, listed)
    return _Done(plan, undeleted, warnings)


def _claim_and_plan(run: Run, journal: JournalWriter, paths: Sequence[str]) -> State:
    """Claim the directory, then let the journal's plan of these paths appear, if there are any."""
    if not paths:
        return _claim(run)
    with journal.planning(paths) as part:
        state = _claim(run)
        part.appear()
    return state


def _is_known_before_copies(plan: Plan) -> bool:
    """Return whether the copies do not decide what the `_metadata` holds, as packs do."""
    return not plan.packed and not plan.repacks


def _commit(plan: Plan, run: Run, stack: ExitStack) -> Publication | None:
    """Begin to write the record and the `_metadata`, if the plan publishes any."""
    if not plan.publish:
        return None

    def content() -> Iterable[bytes]:
        return rewritten(run.source_state, run.replica, plan.paths, plan.members)

    is_small = run.source_state.file.metadata.length <= _HELD_IN_MEMORY
    written = _held(content) if is_small else content
    completed = run.source_state.source.completed
    return stack.enter_context(
        Publication(run.replica, plan.checkpoint, written, run.state, completed)
    )


def _held(content: Content) -> Content:
    """Return the same content, made once for its digest and for the file."""
    pieces = list(content())
    return lambda: pieces


def _changed_paths(plan: Plan, journal: JournalWriter) -> Iterator[str]:
    """Yield the paths that the plan writes or deletes; of packs what their paths begin with."""
    for action in plan.copies:
        if action.target not in plan.packed:
            yield action.target
    for action in plan.deletes:
        yield action.target
    if plan.packed or plan.repacks:
        yield journal.pack_stem


def _compare_content(plan: Plan, run: Run) -> tuple[Plan, LedgerTable]:
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


def _copying_again(plan: Plan, damaged: frozenset[str], run: Run) -> Plan:
    """Return the plan that follows when these kept files are damaged.

    It is made anew: a pack of which too much is damaged is not needed any more, or moves.
    """
    run.ledger.distrust(damaged)
    plan = make_plan(run.source_state, run.replica, run.state, run.ledger, run.request)
    plan = with_earlier_replicas(plan, run.source_state, run.request, run.notify)
    return content.explained(plan, damaged)


def publish(plan: Plan, run: Run, commit: Publication, listed: PendingPut) -> None:
    """Carry out step 5: commit the checkpoint. `listed` is its manifest."""
    commit.publish(run.lease.check, listed)
    run.notify(f"committed {run.replica.uri_of(plan.checkpoint)}")


def _manifest(
    plan: Plan, run: Run, written: Written, digest: Digest, files: LedgerTable
) -> manifest.Manifest:
    keeps = plan.keeps.without(plan.members.paths).files
    copied = _as_written(plan, written)
    packs = {**_lengths_of_kept_packs(plan, run, files), **written.packs}
    whole = {pack: LedgerEntry(length, None, True) for pack, length in packs.items()}
    tables = [files.at(keeps.paths), LedgerTable.of(copied), LedgerTable.of(whole)]
    needed = run.source_state.needed
    extents = [
        keeps.extents,
        Lengths(needed.paths, needed.extents).at(tables[1].paths),
        tables[2].bytes,
    ]
    entries = manifest.ManifestTable(LedgerTable.merged(tables), np.concatenate(extents))
    return manifest.Manifest(plan.checkpoint_id, digest, entries, plan.members)


def _as_written(plan: Plan, written: Written) -> dict[str, LedgerEntry]:
    """Return what was copied, but for members of packs."""
    copied: dict[str, LedgerEntry] = {}
    for target in without(texts(row.target for row in plan.copies), plan.members.paths).to_pylist():
        outcome = written.files[uri.join(plan.replica, target)]
        copied[target] = LedgerEntry(outcome.bytes, outcome.crc32c, True)
    return copied


def _lengths_of_kept_packs(plan: Plan, run: Run, files: LedgerTable) -> dict[str, int]:
    """Return the length of each pack that had members before: as recorded, else as it lies."""
    is_kept = rows_of(plan.members.paths, plan.keeps.files.paths) >= 0
    packs = plan.members.take(is_kept).used_packs
    recorded = files.at(texts(packs)).bytes
    if (recorded >= 0).all():
        return dict(zip(packs, recorded.tolist(), strict=True))
    present = run.replica.present([PACKED])
    return {pack: present[pack] for pack in packs}


def _clean_up(
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


def _left_over(plan: Plan, run: Run) -> set[str]:
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


def _forget_journal(
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
    left = _left_over(plan, run)
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


def _report(plan: Plan, source_state: SourceState, started: float) -> Report:
    checkpoint = uri.join(plan.replica, plan.checkpoint)
    command = restore.restore(source_state.file.metadata, plan.paths, checkpoint)
    seconds = time.monotonic() - started
    return Report(
        plan,
        command,
        seconds=seconds,
        warnings=plan.warnings,
        completed=source_state.source.completed,
        phases={"read": seconds},
    )
