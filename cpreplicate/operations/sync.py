"""`diff` and `sync`: make a replica hold the source's checkpoint.

The steps are those of the commit protocol in `docs/architecture.md`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple, NoReturn

from cpreplicate.core import restore, uri
from cpreplicate.core.plan import Plan, Vouch, total
from cpreplicate.core.restore import Restore
from cpreplicate.errors import CopyFailed, LeaseHeld, Refused, SourceMovedOn, TooManyDeletes
from cpreplicate.operations import content_check, deletion, incomplete
from cpreplicate.operations.content_check import Compared
from cpreplicate.operations.deletion import some
from cpreplicate.operations.sync_plan import (
    SourceState,
    SyncRequest,
    copies,
    is_adopted,
    make_plan,
    read_source,
    reasons_against,
    rewritten,
    search,
    target_replica,
)
from cpreplicate.operations.target_root import refuse_replica_as_root
from cpreplicate.protocol import manifest, publication, replica_state, same_place
from cpreplicate.protocol.digest import Digest
from cpreplicate.protocol.journal import Copied, JournalWriter
from cpreplicate.protocol.lease import Lease, acquire
from cpreplicate.protocol.marker import add_source, create_marker
from cpreplicate.protocol.replica import Replica
from cpreplicate.protocol.replica_state import State
from cpreplicate.protocol.vouching import Vouched
from cpreplicate.runners import Copy, Outcome, Runner, choose_runner

Notify = Callable[[str], None]


@dataclass(frozen=True)
class Report:
    """The result of a sync: its plan, and how far that was carried out.

    `undeleted` are the files that were left to a `sweep` or to a `watch`.
    """

    plan: Plan
    restore: Restore
    committed: bool = False
    runner: str | None = None
    seconds: float = 0.0
    warnings: tuple[str, ...] = ()
    undeleted: tuple[str, ...] = ()


class SyncCheck(NamedTuple):
    """The result of `check`: whether the replica holds `checkpoint` already.

    Otherwise, `files` and `bytes` are to be copied or deleted.
    """

    checkpoint: str
    is_current: bool
    files: int
    bytes: int


def diff(request: SyncRequest, notify: Notify = lambda _line: None) -> Report:
    """Return the plan of a sync, and change nothing.

    Reads the source's `_metadata` and lists the replica's directories. If `sync` would be refused
    because of who owns the replica's directory, the reason is among the warnings.
    """
    started = time.monotonic()
    source_state = read_source(request)
    replica = target_replica(source_state, request)
    state = replica_state.examine(replica)
    if state.marker is None:
        refuse_replica_as_root(request.target_root, source_state.source.job, replica.storage)
    plan = make_plan(source_state, replica, state, Vouched(replica, state), request)
    reasons = tuple(
        f"sync would be refused: {reason}"
        for reason in reasons_against(source_state, replica, state, request)
    )
    _refuse_incomplete(plan, source_state, request)
    if request.execution.explain:
        _runner(plan, request, notify)
    report = _report(plan, source_state, started)
    return _capped(replace(report, warnings=report.warnings + reasons), state, request)


def check(request: SyncRequest) -> SyncCheck:
    """Return whether a sync has anything to do, and how much. Change nothing.

    Raises what `sync` would raise.
    """
    source_state = read_source(request)
    replica = target_replica(source_state, request)
    state = _examine(source_state, replica, request)
    vouched = Vouched(replica, state)
    plan = make_plan(source_state, replica, state, vouched, request)
    return SyncCheck(
        checkpoint=plan.checkpoint,
        is_current=_is_done(plan, state, vouched, request, source_state),
        files=len(plan.copies) + len(plan.deletes),
        bytes=total(plan.copies),
    )


def sync(request: SyncRequest, notify: Notify, shared: Runner | None = None) -> Report:
    """Replicate a checkpoint by the commit protocol, and return what was done.

    Uses the `shared` runner, or one of its own. Raises one of `cpreplicate.errors`, having deleted
    nothing.
    """
    started = time.monotonic()
    source_state = read_source(request)
    replica = target_replica(source_state, request)
    state = _examine(source_state, replica, request)
    if (empty_plan := _nothing_to_do(source_state, replica, state, request)) is not None:
        return _report(empty_plan, source_state, started)
    is_new = state.marker is None
    absent = replica.absent_directories() if is_new else ()
    with acquire(replica.root, replica.side, request.lock_wait, notify, absent) as lease:
        source_root = source_state.source.root
        same_place.refuse_same_place(
            replica, lease.token, request.sides.source, source_root, is_new
        )
        state = _examine(source_state, replica, request, is_alone=True)
        vouched = Vouched(replica, state)
        plan = make_plan(source_state, replica, state, vouched, request)
        _capped(_report(plan, source_state, started), state, request)
        _refuse_incomplete(plan, source_state, request)
        if _is_done(plan, state, vouched, request, source_state):
            return _report(plan, source_state, started)
        with shared or _runner(plan, request, notify) as runner:
            run = _Run(source_state, replica, state, vouched, runner, lease, request, notify)
            done = _carry_out(plan, run)
    report = _report(done.plan, source_state, started)
    return replace(
        report,
        committed=done.plan.publish,
        runner=runner.name,
        undeleted=done.undeleted,
        warnings=report.warnings + done.warnings,
    )


def _examine(
    source_state: SourceState, replica: Replica, request: SyncRequest, is_alone: bool = False
) -> State:
    """Return the state of the replica's directory. Raise `Refused` if a sync must not change it."""
    state = replica_state.examine(replica, is_alone)
    if state.marker is None:
        refuse_replica_as_root(request.target_root, source_state.source.job, replica.storage)
    for reason in reasons_against(source_state, replica, state, request):
        raise Refused(reason)
    return state


def _claim(run: _Run) -> State:
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
    """Return the report. Raise `TooManyDeletes` if more is to be deleted than is allowed."""
    deletes = len(report.plan.deletes)
    files = len({path for committed in state.committed for path in committed.files})
    if request.max_delete is not None and not request.max_delete.allows(deletes, files):
        raise TooManyDeletes(
            f"{deletes} of the {files} files of {report.plan.replica} would be deleted, but"
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
    vouched = Vouched(replica, state)
    plan = make_plan(source_state, replica, state, vouched, request)
    return plan if _is_done(plan, state, vouched, request, source_state) else None


def _is_done(
    plan: Plan, state: State, vouched: Vouched, request: SyncRequest, source_state: SourceState
) -> bool:
    """Return whether nothing is to be done, nor to be recorded."""
    if not plan.empty or request.check_content or state.unrecorded:
        return False
    if state.marker is None or not state.marker.names(source_state.name):
        return False
    return _is_recorded(plan, state, vouched)


def _is_recorded(plan: Plan, state: State, vouched: Vouched) -> bool:
    recorded = vouched.manifests.get(plan.checkpoint)
    return recorded is not None and recorded.metadata == state.committed[0].metadata


def _runner(plan: Plan, request: SyncRequest, notify: Notify) -> Runner:
    files = len(plan.copies) + len(plan.deletes)
    runner = choose_runner(request.execution, files, total(plan.copies), request.sides)
    if request.execution.explain:
        notify(f"runner: {runner.name} ({runner.reason})")
    return runner


class _Done(NamedTuple):
    """The plan as it was carried out, what was put off, and warnings of failed deletes."""

    plan: Plan
    undeleted: tuple[str, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class _Run:
    """A sync under its lease: what its steps need."""

    source_state: SourceState
    replica: Replica
    state: State
    vouched: Vouched
    runner: Runner
    lease: Lease
    request: SyncRequest
    notify: Notify


def _carry_out(plan: Plan, run: _Run) -> _Done:
    """Carry out steps 2 to 6 of the commit protocol: copy, commit, delete.

    Raises one of `cpreplicate.errors`, having deleted nothing.
    """
    plan, files = _compare_content(plan, run)
    run = replace(run, state=_claim(run))
    if plan.empty and _is_recorded(plan, run.state, run.vouched):
        return _Done(plan, (), ())
    journal = JournalWriter(run.replica.storage, run.replica.root)
    left = _left_over(plan, run)
    if plan.copies or plan.deletes or left:
        changed = [action.target for action in (*plan.copies, *plan.deletes)]
        journal.plan([*changed, *sorted(left)])
    journal.take_over(run.vouched.journals)
    with journal.writing():
        outcomes = copy_missing(plan, run, journal)
        digest = publish(plan, run) if plan.publish else run.state.committed[0].metadata
    run.replica.write_manifest(plan.checkpoint, _manifest(plan, run, outcomes, digest, files))
    undeleted, warnings = _clean_up(plan, run)
    if not undeleted and not warnings:
        _forget_journal(plan, run, journal)
    return _Done(plan, undeleted, warnings)


def _compare_content(plan: Plan, run: _Run) -> Compared:
    """Read the kept files whose content must be compared before anything is copied.

    Returns the plan that follows from it, and what is vouched for.
    """
    files = run.vouched.files
    if run.request.check_content:
        plan = content_check.without_damaged(plan, run.replica, files, run.runner, run.notify)
    if not is_adopted(run.state, run.request):
        return Compared(plan, files)
    written = run.vouched.written
    compared = content_check.keeping_what_is_equal(
        plan, run.replica, written, run.runner, run.request.sides, run.notify
    )
    return Compared(compared.plan, {**files, **compared.vouched})


def copy_missing(plan: Plan, run: _Run, journal: JournalWriter) -> list[Outcome]:
    """Carry out steps 2 to 4: copy what the replica lacks.

    Raises on any failure, so that nothing is committed or deleted.
    """
    if not plan.copies:
        return []
    run.notify(f"copying {len(plan.copies)} files, {total(plan.copies)} bytes")
    tasks = copies(plan, run.source_state, run.replica, run.lease.token)
    outcomes = run.runner.run(tasks, done=lambda outcome: _record(outcome, run.replica, journal))
    _raise_if_incomplete(tasks, outcomes, run.source_state, run.request)
    failed = [outcome for outcome in outcomes if outcome.error is not None]
    if failed or len(outcomes) != len(tasks):
        # If the lease cannot be read, the failure of the copies matters more.
        with suppress(OSError):
            run.lease.check()
        raise CopyFailed(
            f"{len(failed) or 'some'} of {len(tasks)} copies failed. {plan.checkpoint} was not"
            " committed and nothing was deleted. Running again copies only what is missing. "
            + some([f"{outcome.target}: {outcome.error}" for outcome in failed])
        )
    run.lease.check()  # else another run may have replaced these files since
    return _as_they_lie(plan, run.source_state, run.replica, outcomes)


def _record(outcome: Outcome, replica: Replica, journal: JournalWriter) -> None:
    path = uri.below(outcome.target, replica.root)
    if outcome.error is None and outcome.crc32c is not None and path is not None:
        journal.done(Copied(path, outcome.bytes, outcome.crc32c))


def _as_they_lie(
    plan: Plan, source_state: SourceState, replica: Replica, outcomes: Sequence[Outcome]
) -> list[Outcome]:
    """Return the outcomes after each copy was found at the target with the length written.

    Costs one listing for each directory: a stat for each file would cost more. A merged file may
    have another length, if two attempts at it raced (speculation, an executor that was considered
    lost). Both attempts are long enough. It is not known which of them lies there, so its CRC32C is
    not known either.
    """
    present = replica.present(uri.directories(action.target for action in plan.copies))
    lengths, least = {}, {}
    for action in plan.copies:
        target, file = replica.uri_of(action.target), source_state.needed[action.target]
        lengths[target] = present.get(action.target)
        least[target] = file.extent if file.segment else math.inf
    lying = []
    for outcome in outcomes:
        length = lengths[outcome.target]
        if length is None or length == outcome.bytes or length < least[outcome.target]:
            lying.append(outcome)
        else:
            lying.append(outcome._replace(bytes=length, crc32c=None))
    wrong = [
        f"{outcome.target} has {lengths[outcome.target]} bytes after {outcome.bytes} were written"
        for outcome in lying
        if lengths[outcome.target] != outcome.bytes
    ]
    if wrong:
        raise CopyFailed(
            f"{len(wrong)} files of the replica are not as they were written. Nothing was committed"
            f" or deleted. Remove them and run again. {some(wrong)}"
        )
    return lying


def _refuse_incomplete(plan: Plan, source_state: SourceState, request: SyncRequest) -> None:
    """Raise if the source lacks files that are to be copied: a `--remap` may be missing.

    One file of each directory is checked.
    """
    sources = [str(action.source) for action in plan.copies]
    if missing := search(source_state.source, request).missing(sources):
        _raise_incomplete(source_state, request, missing, [])


def _raise_if_incomplete(
    tasks: Sequence[Copy],
    outcomes: Sequence[Outcome],
    source_state: SourceState,
    request: SyncRequest,
) -> None:
    targets = {outcome.target for outcome in outcomes if outcome.missing}
    missing = [task.source for task in tasks if task.target in targets]
    short = [str(outcome.error).partition(": ")[2] for outcome in outcomes if outcome.short]
    if missing or short:
        _raise_incomplete(source_state, request, missing, short)


def _raise_incomplete(
    source_state: SourceState, request: SyncRequest, missing: Sequence[str], short: Sequence[str]
) -> NoReturn:
    """Raise for a source that lacks files.

    If its `_metadata` goes too, the checkpoint was subsumed meanwhile, else it is incomplete.
    """
    if _is_subsumed(source_state, request.subsumption_wait):
        raise SourceMovedOn(
            f"{source_state.source.checkpoint} was subsumed meanwhile. Nothing was committed or"
            " deleted. Run again with the job's directory to take its newest checkpoint. Files that"
            " were copied stay useful"
        )
    raise incomplete.error(search(source_state.source, request), missing, short)


def _is_subsumed(source_state: SourceState, wait: float) -> bool:
    """Return whether the source's `_metadata` is gone, now or `wait` seconds later.

    Flink deletes the `_metadata` and the files of a subsumed checkpoint one after the other.
    """
    metadata_uri = source_state.file.uri
    storage = source_state.file.side.storage(metadata_uri)
    if storage.stat(metadata_uri) is None:
        return True
    time.sleep(wait)
    return storage.stat(metadata_uri) is None


def publish(plan: Plan, run: _Run) -> Digest:
    """Carry out step 5: record the `_metadata` that is about to appear, then commit it.

    Returns the digest of the `_metadata`.
    """

    def content() -> Iterator[bytes]:
        return rewritten(run.source_state, run.replica, plan.paths)

    digest = publication.announce(run.replica, plan.checkpoint, content, run.state)
    run.lease.check()
    names = [committed.name for committed in run.state.committed]
    publication.publish(
        run.replica,
        plan.checkpoint,
        content,
        digest,
        run.lease.check,
        replace=plan.checkpoint in names,
    )
    run.notify(f"committed {run.replica.uri_of(plan.checkpoint)}")
    return digest


def _manifest(
    plan: Plan, run: _Run, outcomes: Sequence[Outcome], digest: Digest, files: Mapping[str, Vouch]
) -> manifest.Manifest:
    copied = {outcome.target: outcome for outcome in outcomes}
    needed, entries = run.source_state.needed, {}
    for action in plan.copies:
        outcome = copied[uri.join(plan.replica, action.target)]
        entries[action.target] = manifest.Entry(
            needed[action.target].extent, outcome.bytes, outcome.crc32c
        )
    for action in plan.keeps:
        entries[action.target] = manifest.Entry(needed[action.target].extent, *files[action.target])
    return manifest.Manifest(plan.checkpoint_id, digest, entries)


def _clean_up(plan: Plan, run: _Run) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Carry out step 6: delete the old `_metadata` first, then files.

    Returns what was put off, and warnings of what could not be deleted. Raises `Refused` if a
    checkpoint to be withdrawn is another program's by now.
    """
    try:
        run.lease.check()
        for name in plan.dropped:
            publication.withdraw(run.replica, name)
        if run.request.async_deletes:
            return tuple(action.target for action in plan.deletes), ()
        return (), _delete(plan, run)
    except LeaseHeld as error:
        warning = (
            f"{error}. {plan.checkpoint} was committed before that. Files that were to be deleted"
            " are left to `sweep`"
        )
        return (), (warning,)
    except OSError as error:
        warning = f"{error}. The old checkpoints were left as they are. The next run deletes them"
        return (), (warning,)


def _delete(plan: Plan, run: _Run) -> tuple[str, ...]:
    if plan.deletes:
        needed_by = ", ".join(plan.dropped) or "the former checkpoint"
        run.notify(f"deleting {len(plan.deletes)} files that only {needed_by} needed")
    targets = [action.target for action in plan.deletes]
    failed = deletion.delete(targets, run.replica, run.runner, run.lease)
    failed += _forget([*plan.dropped, *run.state.stale], run.replica, plan.checkpoint)
    if not failed:
        return ()
    return (f"{len(failed)} files could not be deleted and are orphans now: {some(failed)}",)


def _left_over(plan: Plan, run: _Run) -> set[str]:
    """Return the written paths that neither a manifest nor the plan will name.

    These are left by runs that died.
    """
    replaced = {*plan.dropped, plan.checkpoint}
    names = (committed.name for committed in run.state.committed)
    kept = [name for name in names if name not in replaced]
    return run.vouched.left_over(kept) - {action.target for action in plan.actions}


def _forget_journal(plan: Plan, run: _Run, journal: JournalWriter) -> None:
    """Remove the journal, unless runs that died left files that only it names."""
    left = _left_over(plan, run)
    if left.intersection(run.replica.present(uri.directories(left))):
        return
    # A journal that stays does no harm: the next run that commits takes it over.
    with suppress(OSError):
        journal.remove()


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
    return Report(plan, command, seconds=time.monotonic() - started, warnings=plan.warnings)
