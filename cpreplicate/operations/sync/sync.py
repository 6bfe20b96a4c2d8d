"""`sync`: make a replica hold the source's checkpoint.

The steps are those of the commit protocol in `docs/architecture.md`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from cpreplicate.core import sizes
from cpreplicate.core.log_context import begin_checkpoint
from cpreplicate.core.notify import Notify
from cpreplicate.core.path_columns import directories
from cpreplicate.core.plan import Plan, total
from cpreplicate.errors import CpreplicateError, SourceMovedOn
from cpreplicate.operations.change.change import Change, opened
from cpreplicate.operations.change.space import refuse_no_space
from cpreplicate.operations.kafka.fingerprints import Fingerprinted
from cpreplicate.operations.sync.checks import examined, newer_savepoint
from cpreplicate.operations.sync.clean_up import Abandoned, CleanedUp, clean_up, drop_failures
from cpreplicate.operations.sync.commit import claim, claiming, committing, record_turn
from cpreplicate.operations.sync.content import compare_content
from cpreplicate.operations.sync.copy import Executed, copy_missing
from cpreplicate.operations.sync.fingerprints import Fingerprinting
from cpreplicate.operations.sync.plan.plan import is_done, is_recorded, make_plan, policy_of_run
from cpreplicate.operations.sync.plan.work import NOTHING, Before, Work
from cpreplicate.operations.sync.report import (
    Report,
    correct_after_copies,
    phases,
    refuse_to_keep_less,
    refuse_too_many_deletes,
    report_of,
)
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.sync.source.foreseen import foreseen
from cpreplicate.operations.sync.source.lacking import refuse_incomplete
from cpreplicate.operations.sync.source.newer import Following
from cpreplicate.operations.sync.source.state import (
    SourceState,
    ask_first,
    of_newest,
    target_replica,
)
from cpreplicate.protocol import manifest, same_place
from cpreplicate.protocol.held import HeldReplica
from cpreplicate.protocol.ledger import Ledger
from cpreplicate.protocol.manifest import Manifest
from cpreplicate.protocol.marker import read_marker
from cpreplicate.protocol.replica import Replica
from cpreplicate.protocol.replica_name import claims
from cpreplicate.protocol.replica_state import State
from cpreplicate.runners import Runner, TimedRunner, choose_runner
from cpreplicate.storage.wrappers.ahead import asking_ahead, drop_answers

_log = logging.getLogger(__name__)


Committed = Callable[[Report], None]
"""Called at the commit, before anything is deleted."""


def sync(
    request: SyncRequest,
    notify: Notify,
    shared: Runner | None = None,
    committed: Committed = lambda _report: None,
) -> Report:
    """Replicate a checkpoint by the commit protocol, and return what was done.

    Uses the `shared` runner, or one of its own. `committed` is called if something is published,
    with the report as it is then. Raises one of `cpreplicate.errors`, having deleted nothing.
    """
    run = _Run(request, notify, shared, committed, time.monotonic())
    with asking_ahead():
        with suppress(_NameTaken):
            return _sync(run)
        return _sync(run)  # under another name


class _Run(NamedTuple):
    """What a sync was called with, and when."""

    request: SyncRequest
    notify: Notify
    shared: Runner | None
    committed: Committed
    started: float


class _NameTaken(Exception):
    """Another source got the name of the new replica since that was looked for."""


def _sync(run: _Run) -> Report:
    request, notify, started = run.request, run.notify, run.started
    # Step 0, check: nothing is written
    ask_first(request)
    source_state, replica, state, empty_plan = of_newest(request, _checked)
    drop_answers()
    if empty_plan is not None:
        _log.debug("nothing to do: %s holds the checkpoint", replica.root)
        return report_of(empty_plan, source_state, started)

    # Step 1, lease: what was checked is checked again under it
    absent = replica.absent_directories() if state.marker is None else ()
    check_again = partial(_checked_again, source_state, state)
    early = foreseen(source_state, replica, state)
    is_there = state.marker is not None
    with (
        early,
        opened(replica, check_again, request.lock_wait, notify, absent, is_there) as change,
    ):
        # Step 2, copy, begins with the plan
        following = Following(source_state, notify)
        work = _first(change, source_state, following)
        drop_answers()
        if is_done(work.plan, change.state, change.ledger, work.source_state):
            return report_of(work.plan, work.source_state, started)
        refuse_no_space(work.plan, replica)
        read = time.monotonic() - started
        runner = TimedRunner(run.shared or _runner_for(work.plan, request))
        with change.running(runner):
            done = _carry_out(work, following, run)

    report = report_of(done.executed.plan, done.source_state, started)
    return replace(
        report,
        committed=done.executed.plan.publish,
        runner=runner.name,
        undeleted=done.cleaned_up.undeleted,
        warnings=(*report.warnings, *done.warnings),
        is_lease_lost=done.cleaned_up.is_lease_lost,
        phases=phases(read, runner, report.seconds),
        turned_from=following.turns.names,
        fingerprints=done.fingerprints,
    )


class _Checked(NamedTuple):
    """The source and the replica's directory, and the plan if there is nothing to do."""

    source_state: SourceState
    replica: Replica
    state: State
    empty_plan: Plan | None


def _checked(source_state: SourceState) -> _Checked:
    begin_checkpoint(source_state.placement.name)
    _log.debug("read %s: %d files", source_state.source.checkpoint, len(source_state.needed))
    replica = target_replica(source_state)
    state = examined(source_state, replica)
    _refuse_to_keep_less(source_state, replica, state)
    return _Checked(source_state, replica, state, _nothing_to_do(source_state, replica, state))


class _CarriedOut(NamedTuple):
    """What was carried out, and the state of the source in the end."""

    executed: Executed
    source_state: SourceState
    cleaned_up: CleanedUp
    fingerprints: Fingerprinted | None = None

    @property
    def warnings(self) -> tuple[str, ...]:
        """What did not succeed, and is no reason to fail."""
        of_fingerprints = () if self.fingerprints is None else self.fingerprints.warnings
        return (*of_fingerprints, *self.cleaned_up.warnings)


def _first(change: Change, source_state: SourceState, following: Following) -> Work:
    """Return the work to begin with. If the checkpoint begins to vanish, it is a newer one's."""
    try:
        return _planned(change, source_state)
    except SourceMovedOn:
        if not following.settle():
            raise
        return _next(change, following)


def _next(change: Change, following: Following) -> Work:
    """Return the work of the checkpoint to which the run has turned."""
    while True:
        source_state = following.take()
        before = Before(following.copied, following.begun, following.packs)
        target_replica(source_state)  # its names are refused as those of the first one
        examined(source_state, change.replica, change.state)
        change.replica.keep_unfinished()  # the examination removes what other runs left
        try:
            work = _planned(change, source_state, before)
        except SourceMovedOn:
            if not following.settle():
                raise
        else:
            refuse_no_space(work.remaining, change.replica)
            return work


def _planned(change: Change, source_state: SourceState, before: Before = NOTHING) -> Work:
    """Return the work of a checkpoint. Raise if it must not be carried out, or cannot be."""
    begin_checkpoint(source_state.placement.name)
    work, request = Work.of(change, source_state, before), source_state.request
    report = report_of(work.plan, source_state, time.monotonic())
    refuse_to_keep_less(report, request)
    refuse_too_many_deletes(report, change.state, request)
    refuse_incomplete(work.plan, source_state)
    return work


def _compared(work: Work, following: Following, is_first: bool) -> Work:
    """Return the work after what is there was compared. A file that vanished makes it turn."""
    while True:
        try:
            return compare_content(work, is_first)
        except SourceMovedOn:
            if not following.settle():
                raise
            work = _next(work.change, following)


def _carry_out(work: Work, following: Following, run: _Run) -> _CarriedOut:
    """Carry out steps 2 to 6. What raises does so before anything is deleted."""
    _log_plan(work.plan)
    work = _compared(work, following, is_first=True)
    plan, change = work.plan, work.change
    if plan.empty and is_recorded(plan, change.state, change.ledger):
        claim(work)
        drop_failures(work, following.turns.names)
        return _CarriedOut(Executed(plan, plan.members), work.source_state, CleanedUp())
    # the marker and the journal, before anything else
    with claiming(work), following.looking(), _counting_copies(following):
        while (committed := _committed(work, following)) is None:
            former, work = work, _compared(_next(change, following), following, False)
            record_turn(work, former)
            _log_plan(work.plan)
    executed, listed, reading = committed
    if executed.plan.publish:
        report = report_of(executed.plan, work.source_state, run.started)
        run.committed(replace(report, committed=True, turned_from=following.turns.names))
    fingerprints = reading.keep(work.change)
    abandoned = Abandoned(following.turns.names, following.abandoned())
    drop_failures(work, following.turns.names)
    cleaned_up = clean_up(work, executed, listed, abandoned)  # step 6, delete
    return _CarriedOut(executed, work.source_state, cleaned_up, fingerprints)


@contextmanager
def _counting_copies(following: Following) -> Iterator[None]:
    """Correct the messages of errors that are raised after files were copied."""
    try:
        yield
    except CpreplicateError as error:
        correct_after_copies(error, following.files)
        raise


def _committed(
    work: Work, following: Following
) -> tuple[Executed, Manifest, Fingerprinting] | None:
    """Carry out steps 2 to 5. Return None if the run turns to a newer checkpoint instead."""
    reading = Fingerprinting(work.source_state)
    try:
        with committing(work) as commit:
            # steps 2, copy; 3, compare; and 4, source
            executed = copy_missing(work, following, commit.copied)
            if executed is None:
                return None
            return executed, commit.publish(executed), reading  # step 5
    except SourceMovedOn:
        if not following.settle():
            raise
        return None


def _runner_for(plan: Plan, request: SyncRequest) -> Runner:
    return choose_runner(request.execution, *plan.amount, request.sides)


def _nothing_to_do(source_state: SourceState, replica: Replica, state: State) -> Plan | None:
    """Return the empty plan of a replica that holds the checkpoint already, or None.

    Most runs of a cron job end here, so this takes no lease.
    """
    names = [committed.name for committed in state.committed]
    is_new = state.marker is None or source_state.placement.name not in names
    is_held = newer_savepoint(state, source_state) is not None
    if is_new and not (is_held or source_state.request.repair):
        return None
    ledger = Ledger(replica, state)
    plan = make_plan(source_state, replica, state, ledger)
    return plan if is_done(plan, state, ledger, source_state) else None


def _refuse_to_keep_less(source_state: SourceState, replica: Replica, state: State) -> None:
    """Raise `KeepsLess` before the lease is written; under it, that is asked again."""
    request = source_state.request
    if policy_of_run(request, replica, state.own).is_less:
        plan = make_plan(source_state, replica, state, Ledger(replica, state))
        refuse_to_keep_less(report_of(plan, source_state, time.monotonic()), request)


def _checked_again(source_state: SourceState, former: State, replica: HeldReplica) -> State:
    """Return the state of the replica's directory under the lease.

    Raises `_NameTaken` if it became the replica of another source just now, `Refused` if the lease
    shows that source and target are one directory, or as `examined`.
    """
    _log.debug("took the lease of %s", replica.root)
    side, root = source_state.request.sides.source, source_state.source.root
    _ask_again(source_state, former, replica)
    same_place.refuse_same_place(replica, replica.lease.token, side, root, former.marker is None)
    if former.marker is None:
        marker = read_marker(replica.side, replica.root)
        if marker is not None and not claims(marker, source_state.name):
            raise _NameTaken
    return examined(source_state, replica, former)


def _ask_again(source_state: SourceState, former: State, replica: HeldReplica) -> None:
    """Begin what is asked under the lease of a replica that was there, as far as that is known."""
    if former.marker is None or not replica.storage.answers_ahead:
        return
    needed = source_state.needed.directories.union(
        *(directories(each.files.paths) for each in former.committed[:1])
    )
    former_names = [name for name in former.metadata_files if name not in former.summarised]
    replica.ask(former_names, (each for each in needed if each not in former_names))
    for each in former.committed[:1]:
        manifest.ask(replica.storage, replica.root, each.name)


def _log_plan(plan: Plan) -> None:
    _log.debug(
        "copy %d files of %s, move %d, keep %d, delete %d",
        len(plan.copies),
        sizes.size(total(plan.copies)),
        len(plan.repacks),
        len(plan.keeps),
        len(plan.deletes),
    )
