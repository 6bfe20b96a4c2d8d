"""`diff` and `sync`: make a replica hold the source's checkpoint.

The steps are those of the commit protocol.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple, NoReturn

from cpreplicate.core import plan, restore, uri
from cpreplicate.core.plan import Plan, Vouch
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
from cpreplicate.storage import Side

Notify = Callable[[str], None]
_SUBSUMPTION_SETTLES = (
    2.0  # seconds: Flink deletes a subsumed checkpoint's `_metadata` and files one after the other
)


@dataclass(frozen=True)
class Report:
    """What came of it: the plan, and how far it was carried out.

    `undeleted` is left to a `sweep`, or to a `watch`.
    """

    plan: Plan
    restore: Restore
    committed: bool = False
    runner: str | None = None
    seconds: float = 0.0
    warnings: tuple[str, ...] = ()
    undeleted: tuple[str, ...] = ()


class SyncCheck(NamedTuple):
    """The result of `check`: the checkpoint that it would be replicated to, and what is to be
    copied or deleted.
    """

    checkpoint: str
    is_current: bool
    files: int
    bytes: int


def diff(request: SyncRequest, notify: Notify = lambda _line: None) -> Report:
    """Return the plan, nothing done. Reads the source's `_metadata` and lists the replica's
    directories.

    What would have `sync` refuse because of who owns the directory is among the warnings.
    """
    started = time.monotonic()
    source_state = read_source(request)
    replica = target_replica(source_state, request)
    state = replica_state.examine(replica)
    if state.marker is None:
        refuse_replica_as_root(request.target_root, source_state.source.job, replica.storage)
    made = make_plan(source_state, replica, state, Vouched(replica, state), request)
    reasons = tuple(
        f"sync would be refused: {reason}"
        for reason in reasons_against(source_state, replica, state, request)
    )
    _refuse_incomplete(made, source_state, request)
    if request.execution.explain:
        _runner(made, request, notify)
    report = _report(made, source_state, started)
    return _capped(replace(report, warnings=report.warnings + reasons), state, request)


def check(request: SyncRequest) -> SyncCheck:
    """Return whether there is anything to do, and how much; nothing is done.

    Raises what `sync` would raise.
    """
    source_state = read_source(request)
    replica = target_replica(source_state, request)
    state = _examined(source_state, replica, request)
    vouched = Vouched(replica, state)
    made = make_plan(source_state, replica, state, vouched, request)
    is_current = _is_done(made, state, vouched, request, source_state)
    return SyncCheck(
        made.checkpoint, is_current, len(made.copies) + len(made.deletes), plan.total(made.copies)
    )


def sync(request: SyncRequest, notify: Notify, shared: Runner | None = None) -> Report:
    """Replicate; see `docs/architecture.md` for the protocol. Raises one of `cpreplicate.errors`,
    having deleted nothing.

    With a `shared` runner, else with one of its own.
    """
    started = time.monotonic()
    source_state = read_source(request)
    replica = target_replica(source_state, request)
    state = _examined(source_state, replica, request)
    if (nothing := _nothing_to_do(source_state, replica, state, request)) is not None:
        return _report(nothing, source_state, started)
    absent = replica.absent_directories() if state.marker is None else ()
    with acquire(replica.root, replica.side, request.lock_wait, notify, absent) as lease:
        same_place.refuse_same_place(
            replica,
            lease.token,
            request.sides.source,
            source_state.source.root,
            state.marker is None,
        )
        state = _examined(source_state, replica, request, is_alone=True)
        vouched = Vouched(replica, state)
        made = make_plan(source_state, replica, state, vouched, request)
        _capped(_report(made, source_state, started), state, request)
        _refuse_incomplete(made, source_state, request)
        if _is_done(made, state, vouched, request, source_state):
            return _report(made, source_state, started)
        with shared or _runner(made, request, notify) as runner:
            done = _carry_out(
                made, _Run(source_state, replica, state, vouched, runner, lease, request, notify)
            )
    report = _report(done.plan, source_state, started)
    return replace(report, committed=done.plan.publish, runner=runner.name, undeleted=done.undeleted,
                   warnings=report.warnings + done.warnings)  # fmt: skip


def _examined(
    source_state: SourceState, replica: Replica, request: SyncRequest, is_alone: bool = False
) -> State:
    """The replica's directory, which this sync may change. Raises `Refused` where it may not."""
    state = replica_state.examine(replica, is_alone)
    if state.marker is None:
        refuse_replica_as_root(request.target_root, source_state.source.job, replica.storage)
    for reason in reasons_against(source_state, replica, state, request):
        raise Refused(reason)
    return state


def _claim(run: _Run) -> State:
    """Make the directory a replica of this source, before anything else is written."""
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
    """The report, unless more is to be deleted than is allowed."""
    deletes, files = (
        len(report.plan.deletes),
        len({path for each in state.committed for path in each.files}),
    )
    if request.max_delete is not None and not request.max_delete.allows(deletes, files):
        raise TooManyDeletes(
            f"{deletes} of the {files} files of {report.plan.replica} would be deleted,"
            f" --max-delete allows {request.max_delete}; nothing was copied, committed or deleted."
            " If that is right, give a higher --max-delete",
            report,
        )
    return report


def _nothing_to_do(
    source_state: SourceState, replica: Replica, state: State, request: SyncRequest
) -> Plan | None:
    """The empty plan of a replica that holds the checkpoint already: most runs of a cron job, so it
    costs no lease.
    """
    if state.marker is None or not any(
        each.name == source_state.placement.name for each in state.committed
    ):
        return None
    vouched = Vouched(replica, state)
    made = make_plan(source_state, replica, state, vouched, request)
    return made if _is_done(made, state, vouched, request, source_state) else None


def _is_done(
    made: Plan, state: State, vouched: Vouched, request: SyncRequest, source_state: SourceState
) -> bool:
    """Whether nothing is to be done, nor to be recorded."""
    if (
        not made.empty
        or request.check_content
        or state.marker is None
        or not state.marker.names(source_state.name)
    ):
        return False
    return not state.unrecorded and _is_recorded(made, state, vouched)


def _is_recorded(made: Plan, state: State, vouched: Vouched) -> bool:
    recorded = vouched.manifests.get(made.checkpoint)
    return recorded is not None and recorded.metadata == state.committed[0].metadata


def _runner(made: Plan, request: SyncRequest, notify: Notify) -> Runner:
    files = len(made.copies) + len(made.deletes)
    size = plan.total(made.copies)
    runner = choose_runner(request.execution, files, size, request.sides)
    if request.execution.explain:
        notify(f"runner: {runner.name} ({runner.reason})")
    return runner


class _Done(NamedTuple):
    """The plan as it was carried out, what was put off, and warnings of what could not be deleted."""

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


def _carry_out(made: Plan, run: _Run) -> _Done:
    """Steps 2 to 6 of the commit protocol: copy, commit, delete.

    Raises one of `cpreplicate.errors`, having deleted nothing.
    """
    made, files = _compared(made, run)
    run = replace(run, state=_claim(run))
    if made.empty and _is_recorded(made, run.state, run.vouched):
        return _Done(made, (), ())
    journal = JournalWriter(run.replica.storage, run.replica.root)
    left = _left_over(made, run)
    if made.copies or made.deletes or left:
        journal.plan([*(each.target for each in (*made.copies, *made.deletes)), *sorted(left)])
    journal.take_over(run.vouched.journals)
    with journal.writing():
        outcomes = _copy(made, run, journal)
        digest = _publish(made, run) if made.publish else run.state.committed[0].metadata
    written = _manifest(made, run, outcomes, digest, files)
    run.replica.write_manifest(made.checkpoint, written)
    undeleted, warnings = _clean_up(made, run)
    if not undeleted and not warnings:
        _forget_journal(made, run, journal)
    return _Done(made, undeleted, warnings)


def _compared(made: Plan, run: _Run) -> Compared:
    """What had to be read before anything is copied was read: the plan that follows, and what is
    vouched for.
    """
    files = run.vouched.files
    if run.request.check_content:
        made = content_check.without_damaged(made, run.replica, files, run.runner, run.notify)
    if not is_adopted(run.state, run.request):
        return Compared(made, files)
    written = run.vouched.written
    kept = content_check.keeping_what_is_equal(
        made, run.replica, written, run.runner, run.request.sides, run.notify
    )
    return Compared(kept.plan, {**files, **kept.vouched})


def _copy(made: Plan, run: _Run, journal: JournalWriter) -> list[Outcome]:
    """Steps 2 to 4: copy what the replica lacks.

    On any failure raise, so that nothing is committed or deleted.
    """
    if not made.copies:
        return []
    run.notify(f"copying {len(made.copies)} files, {plan.total(made.copies)} bytes")
    actions = copies(made, run.source_state, run.replica, run.lease.token)
    outcomes = run.runner.run(actions, done=lambda outcome: _note(outcome, run.replica, journal))
    _raise_if_incomplete(actions, outcomes, run.source_state, run.request)
    failed = [outcome for outcome in outcomes if outcome.error is not None]
    if failed or len(outcomes) != len(actions):
        with suppress(OSError):  # if that cannot be told either, the copies' failure is what counts
            run.lease.check()
        raise CopyFailed(
            f"{len(failed) or 'some'} of {len(actions)} copies failed; {made.checkpoint} was not"
            " committed and nothing was deleted. Running again copies only what is missing. "
            + some([f"{outcome.target}: {outcome.error}" for outcome in failed])
        )
    run.lease.check()  # another run may have written since, with what it found there
    return _as_they_lie(made, run.source_state, run.replica, outcomes)


def _note(outcome: Outcome, replica: Replica, journal: JournalWriter) -> None:
    path = uri.below(outcome.target, replica.root)
    if outcome.error is None and outcome.crc32c is not None and path is not None:
        journal.done(Copied(path, outcome.bytes, outcome.crc32c))


def _as_they_lie(
    made: Plan, source_state: SourceState, replica: Replica, outcomes: Sequence[Outcome]
) -> list[Outcome]:
    """Each copy has at the target the length that was written: by a listing a directory, for a stat
    a file costs more.

    A merged file may have another one, if two attempts at it raced (speculation, an executor given
    up for lost): both are long enough, but it is not known which of them lies there, and so not its
    CRC32C.
    """
    present = replica.present(uri.directories(each.target for each in made.copies))
    lengths = {replica.uri_of(each.target): present.get(each.target) for each in made.copies}
    growing = {
        replica.uri_of(each.target): file.extent
        for each in made.copies
        if (file := source_state.needed[each.target]).segment
    }
    lying = []
    for outcome in outcomes:
        length = lengths[outcome.target]
        raced = (
            length is not None
            and length != outcome.bytes
            and length >= growing.get(outcome.target, math.inf)
        )
        lying.append(
            outcome._replace(bytes=length, crc32c=None) if raced and length is not None else outcome
        )
    wrong = [
        f"{each.target} has {lengths[each.target]} bytes after {each.bytes} were written"
        for each in lying
        if lengths[each.target] != each.bytes
    ]
    if wrong:
        raise CopyFailed(f"{len(wrong)} files of the replica are not as they were written; nothing was committed or deleted."
                         f" Remove them and run again. {some(wrong)}")  # fmt: skip
    return lying


def _refuse_incomplete(made: Plan, source_state: SourceState, request: SyncRequest) -> None:
    """Raise if the source lacks what is to be copied, judged by one file of each directory: a
    `--remap` may be missing.
    """
    if missing := search(source_state.source, request).missing(
        [str(action.source) for action in made.copies]
    ):
        _raise_incomplete(source_state, request, missing, [])


def _raise_if_incomplete(
    actions: Sequence[Copy],
    outcomes: Sequence[Outcome],
    source_state: SourceState,
    request: SyncRequest,
) -> None:
    targets = {outcome.target for outcome in outcomes if outcome.missing}
    missing = [action.source for action in actions if action.target in targets]
    short = [str(outcome.error).partition(": ")[2] for outcome in outcomes if outcome.short]
    if missing or short:
        _raise_incomplete(source_state, request, missing, short)


def _raise_incomplete(
    source_state: SourceState, request: SyncRequest, missing: Sequence[str], short: Sequence[str]
) -> NoReturn:
    """The source lacks files: the checkpoint was subsumed meanwhile if its `_metadata` goes too,
    else it is incomplete.
    """
    if _is_subsumed(source_state.file.uri, source_state.file.side):
        raise SourceMovedOn(
            f"{source_state.source.checkpoint} was subsumed meanwhile. Nothing was committed or deleted."
            " Run again with the job's directory to take its newest checkpoint. Files that were"
            " copied stay useful"
        )
    raise incomplete.error(search(source_state.source, request), missing, short)


def _is_subsumed(metadata_place: str, side: Side) -> bool:
    storage = side.storage(metadata_place)
    if storage.stat(metadata_place) is None:
        return True
    time.sleep(_SUBSUMPTION_SETTLES)
    return storage.stat(metadata_place) is None


def _publish(made: Plan, run: _Run) -> Digest:
    """Step 5: record what is about to appear, then commit.

    Returns the digest of the `_metadata`.
    """

    def content() -> Iterator[bytes]:
        return rewritten(run.source_state, run.replica, made.paths)

    digest = publication.announce(run.replica, made.checkpoint, content, run.state)
    run.lease.check()
    is_there = any(each.name == made.checkpoint for each in run.state.committed)
    publication.publish(
        run.replica, made.checkpoint, content, digest, run.lease.check, replace=is_there
    )
    run.notify(f"committed {run.replica.uri_of(made.checkpoint)}")
    return digest


def _manifest(
    made: Plan, run: _Run, outcomes: Sequence[Outcome], digest: Digest, files: Mapping[str, Vouch]
) -> manifest.Manifest:
    copied = {outcome.target: outcome for outcome in outcomes}
    needed, entries = run.source_state.needed, {}
    for action in made.copies:
        outcome = copied[uri.join(made.replica, action.target)]
        entries[action.target] = manifest.Entry(
            needed[action.target].extent, outcome.bytes, outcome.crc32c
        )
    for action in made.keeps:
        entries[action.target] = manifest.Entry(needed[action.target].extent, *files[action.target])
    return manifest.Manifest(made.checkpoint_id, digest, entries)


def _clean_up(made: Plan, run: _Run) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Step 6: old `_metadata` first, then files. Returns what was put off, and warnings of what
    could not be deleted.

    Raises `Refused` where a checkpoint to be withdrawn is another program's by now.
    """
    try:
        run.lease.check()
        for name in made.dropped:
            publication.withdraw(run.replica, name)
        if run.request.async_deletes:
            return tuple(each.target for each in made.deletes), ()
        return (), _delete(made, run)
    except LeaseHeld as error:
        return (), (
            (
                f"{error}; {made.checkpoint} was committed before, what was to be deleted is left"
                " to `sweep`"
            ),
        )
    except OSError as error:
        return (), (
            f"{error}; the old checkpoints were left as they are, the next run deletes them",
        )


def _delete(made: Plan, run: _Run) -> tuple[str, ...]:
    if made.deletes:
        run.notify(
            f"deleting {len(made.deletes)} files that only"
            f" {', '.join(made.dropped) or 'the former checkpoint'} needed"
        )
    failed = deletion.delete(
        [each.target for each in made.deletes], run.replica, run.runner, run.lease
    )
    failed += _forget([*made.dropped, *run.state.stale], run.replica, made.checkpoint)
    return (
        (f"{len(failed)} files could not be deleted and are orphans now: {some(failed)}",)
        if failed
        else ()
    )


def _left_over(made: Plan, run: _Run) -> set[str]:
    """Return the paths that cpreplicate wrote and that no manifest names once the plan is carried
    out, but for its deletes.
    """
    kept = (
        each.name
        for each in run.state.committed
        if each.name not in (*made.dropped, made.checkpoint)
    )
    return run.vouched.left_over(kept) - {each.target for each in made.actions}


def _forget_journal(made: Plan, run: _Run, journal: JournalWriter) -> None:
    """Remove the journal, unless runs that died left files that only it names, committed or not."""
    left = _left_over(made, run)
    if left.intersection(run.replica.present(uri.directories(left))):
        return
    # a journal that stays does no harm; the next run that commits takes it over
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


def _report(made: Plan, source_state: SourceState, started: float) -> Report:
    restore_command = restore.restore(
        source_state.file.metadata, made.paths, uri.join(made.replica, made.checkpoint)
    )
    return Report(made, restore_command, seconds=time.monotonic() - started, warnings=made.warnings)
