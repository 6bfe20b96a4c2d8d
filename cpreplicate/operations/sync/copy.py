"""Steps 2 to 4 of the commit protocol: what the replica lacks is copied, and proved to be there."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from cpreplicate.core import packs, sizes, uri
from cpreplicate.core.ledger import Member, MemberTable
from cpreplicate.core.path_columns import Texts, rows_of, texts, without
from cpreplicate.core.placement import PACKED
from cpreplicate.core.plan import Plan, total
from cpreplicate.core.reuse import reusing
from cpreplicate.errors import CopyFailed, SourceMovedOn
from cpreplicate.operations.change.change import Change, some
from cpreplicate.operations.sync import earlier_replicas, incomplete
from cpreplicate.operations.sync.earlier_replicas import with_earlier_replicas
from cpreplicate.operations.sync.plan import copies, make_plan, repack_tasks
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.sync.source import SourceState, search
from cpreplicate.operations.verify.compare import errors_of
from cpreplicate.protocol.replica import Replica
from cpreplicate.runners import Copy, Outcome, Runner, choose_runner
from cpreplicate.runners.choose import RunnerChoice, runner_choice

_log = logging.getLogger(__name__)


@dataclass
class SyncChange(Change):
    """The change that a sync makes: what the source has, and the plan.

    The plan changes with what is found and copied while it is carried out.
    """

    source_state: SourceState
    plan: Plan = field(init=False)

    @classmethod
    def of(cls, change: Change, source_state: SourceState) -> SyncChange:
        """Return a change with a plan, of which nothing is carried out. Raises as `make_plan`."""
        fields = (change.replica, change.state, change.lease, change.notify, change.runner)
        run = cls(*fields, source_state)
        run.plan = run.make_plan()
        return run

    def make_plan(self) -> Plan:
        """Return what is to be done, from the source and from replicas of earlier jobs."""
        plan = make_plan(self.source_state, self.replica, self.state, self.ledger)
        return with_earlier_replicas(plan, self.source_state, self.notify)

    @property
    def request(self) -> SyncRequest:
        """What was asked for."""
        return self.source_state.request

    def kept_beside(self) -> list[str]:
        """Return the names of the checkpoints that stay committed beside the one of the plan."""
        replaced = {*self.plan.dropped, self.plan.checkpoint}
        names = (committed.name for committed in self.state.ours)
        return [name for name in names if name not in replaced]

    def left_over(self) -> set[str]:
        """Return the written paths that neither a manifest nor the plan will name.

        These are left by runs that died.
        """
        left = self.ledger.left_over(self.kept_beside())
        return set(without(left, *_named_paths(self.plan)).to_pylist())


def _named_paths(plan: Plan) -> Iterator[Texts]:
    """Yield the paths of the files that the plan copies, keeps and deletes, and of kept packs."""
    plain = (action.target for action in plan.copies if action.target not in plan.packed)
    yield without(texts(plain), plan.members.paths)
    yield plan.keeps.without(plan.members.paths).files.paths
    yield texts(plan.members.used_packs)
    yield texts(action.target for action in plan.deletes)


class Written(NamedTuple):
    """What was copied.

    `files` are the outcomes by URI, `packs` the lengths of the packs. `unused_packs` were written
    by attempts that others overtook.
    """

    files: Mapping[str, Outcome]
    packs: Mapping[str, int]
    unused_packs: tuple[str, ...]


_NO_OTHER_LENGTH = np.iinfo(np.int64).max
NOTHING = Written({}, {}, ())


def copy_missing(run: SyncChange) -> Written:
    """Carry out steps 2 to 4: copy what the replica lacks, and repack.

    The plan has the places of packed files then. Raises on any failure, so that nothing is
    committed or deleted.
    """
    began = time.monotonic()
    outcomes: list[Outcome] = []
    if run.plan.reused:
        outcomes += _copy_within_target(run)
    plan = run.plan
    if len(plan.copies) > len(plan.reused):
        tasks = copies(plan, run.source_state, run.replica, run.lease.token, run.journal.pack_stem)
        packed = len(plan.packed.difference(plan.reused))
        into_packs = f", {packed} of them into packs" if packed else ""
        amount = sizes.size(int(tasks.sizes().sum()))
        run.notify(f"copying {len(tasks)} files, {amount}{into_packs}")
        outcomes += _without_failures(tasks, run.write(tasks), run)
    if plan.repacks:
        count = len(plan.repacks)
        amount = sizes.size(total(plan.repacks))
        run.notify(f"moving {count} packed files, {amount}, into new packs")
        outcomes += _move_members(run)
    _log.debug("copied in %.3f s", time.monotonic() - began)
    try:
        return _as_written(run, outcomes) if outcomes else NOTHING
    except CopyFailed:
        run.lease.check()  # if the lease is lost, another run may have replaced these files since
        raise


def _as_written(run: SyncChange, outcomes: Sequence[Outcome]) -> Written:
    """Return what was copied, after it was found at the target with the lengths written."""
    plain = [outcome for outcome in outcomes if outcome.pack is None]
    files = _as_they_lie(run, plain)
    members = MemberTable.of(dict(_members(outcomes, run.replica)))
    if not members:
        return Written(files, {}, ())
    lengths, unused = _packs_as_they_lie(members, run.replica, run.journal.pack_stem)
    run.plan = replace(run.plan, members=MemberTable.merged([run.plan.members, members]))
    return Written(files, lengths, unused)


def _copy_within_target(run: SyncChange) -> list[Outcome]:
    """Copy what replicas of earlier jobs hold, under their leases. Return what succeeded.

    The plan copies the rest from the source.
    """
    done: list[Outcome] = []
    with earlier_replicas.leased(run.plan.reused, run.request.sides.target, run.notify) as usable:
        tasks = earlier_replicas.tasks(usable, run.replica, run.plan.packed, run.journal.pack_stem)
        if tasks:
            amount = sizes.size(sum(place.length for place in usable.values()))
            run.notify(f"copying {len(tasks)} files, {amount}, from replicas of earlier jobs")
            done = run.write(tasks)
    if failed := list(errors_of(done)):
        run.notify(
            f"{len(failed)} files cannot be copied from replicas of earlier jobs, and are copied"
            f" from the source. {some(failed)}"
        )
    copied = [outcome for outcome in done if outcome.error is None]
    paths = {uri.below(outcome.target, run.replica.root) for outcome in copied}
    reused = {path: place for path, place in run.plan.reused.items() if path in paths}
    run.plan = reusing(run.plan, reused)
    return copied


def _move_members(run: SyncChange) -> list[Outcome]:
    """Move members of sparse packs into new ones; copy the damaged ones from the source instead."""
    moves = repack_tasks(run.plan, run.replica, run.journal.pack_stem)
    results = run.write(moves)
    damaged = {outcome.target for outcome in results if outcome.damaged}
    whole = [outcome for outcome in results if outcome.target not in damaged]
    moved = [move for move in moves if move.target not in damaged]
    outcomes = _without_failures(moved, whole, run)
    if damaged:
        run.notify(f"{len(damaged)} packed files are damaged and are copied from the source again")
        again = [_from_source(move, run) for move in moves if move.target in damaged]
        outcomes += _without_failures(again, run.write(again), run)
    return outcomes


def _from_source(move: Copy, run: SyncChange) -> Copy:
    file = run.source_state.needed[uri.below(move.target, run.replica.root) or ""]
    return move._replace(source=file.uri, extent=file.extent, size=file.size, part=None)


def _without_failures(
    tasks: Sequence[Copy], outcomes: list[Outcome], run: SyncChange
) -> list[Outcome]:
    """Return the outcomes; raise if a task failed."""
    _raise_if_incomplete(tasks, outcomes, run.source_state)
    failed = list(errors_of(outcomes))
    if failed or len(outcomes) != len(tasks):
        # If the lease cannot be read, the failure of the copies matters more.
        with suppress(OSError):
            run.lease.check()
        raise CopyFailed(
            f"{len(failed) or 'some'} of {len(tasks)} copies failed. {run.plan.checkpoint} was not"
            " committed and nothing was deleted. Running again copies only what is missing. "
            + some(failed)
        )
    return outcomes


def _members(outcomes: Iterable[Outcome], replica: Replica) -> Iterator[tuple[str, Member]]:
    """Yield the logical path and the place of each file that was packed."""
    for outcome in outcomes:
        path = uri.below(outcome.target, replica.root)
        pack = uri.below(outcome.pack, replica.root) if outcome.pack is not None else None
        if path is not None and pack is not None:
            yield path, Member(pack, outcome.offset, outcome.bytes, outcome.crc32c)


def _packs_as_they_lie(
    members: MemberTable, replica: Replica, pack_stem: str
) -> tuple[dict[str, int], tuple[str, ...]]:
    """Return the length of each pack of these members, and the packs of the run without members.

    Raises `CopyFailed` if a pack does not end where its last member ends.
    """
    present = replica.present([PACKED])
    lengths = packs.extents(members)
    wrong = [
        f"{replica.uri_of(pack)} has {present.get(pack)} bytes after {length} were written"
        for pack, length in lengths.items()
        if present.get(pack) != length
    ]
    if wrong:
        raise CopyFailed(_not_as_written(wrong))
    of_run = (path for path in present if packs.stem_of(path) == pack_stem)
    return lengths, tuple(path for path in of_run if path not in lengths)


def _not_as_written(wrong: Sequence[str]) -> str:
    return (
        f"{len(wrong)} files of the replica are not as they were written. Nothing was committed or"
        f" deleted. Remove them and run again. {some(wrong)}"
    )


def _as_they_lie(run: SyncChange, outcomes: Sequence[Outcome]) -> dict[str, Outcome]:
    """Return the outcomes by URI, after each copy was found at the target with the length written.

    A merged file may have another length, if two attempts at it raced (speculation, an executor
    that was considered lost). Both attempts are long enough. It is not known which of them lies
    there, so its CRC32C is not known either.
    """
    targets = without(texts(row.target for row in run.plan.copies), texts(run.plan.packed))
    needed = run.source_state.needed
    files = needed.take(rows_of(targets, needed.paths))
    lengths = run.replica.lengths_of(targets, needed.paths).at(targets)
    least = np.where(files.is_segment, files.extents, _NO_OTHER_LENGTH)
    lies = {
        run.replica.uri_of(path): pair
        for path, *pair in zip(targets.to_pylist(), lengths.tolist(), least.tolist(), strict=True)
    }
    lying, wrong = [], []
    for outcome in outcomes:
        length, shortest = lies[outcome.target]
        if length != outcome.bytes and length >= shortest:
            lying.append(outcome._replace(bytes=length, crc32c=None))
            continue
        lying.append(outcome)
        if length != outcome.bytes:
            count = length if length >= 0 else None
            wrong.append(f"{outcome.target} has {count} bytes after {outcome.bytes} were written")
    if wrong:
        raise CopyFailed(_not_as_written(wrong))
    return {outcome.target: outcome for outcome in lying}


def refuse_incomplete(plan: Plan, source_state: SourceState) -> None:
    """Raise if the source lacks files that are to be copied: a `--remap` may be missing.

    One file of each directory is checked.
    """
    sources = [str(row.source) for row in plan.copies if row.target not in plan.reused]
    refuse_lacking(search(source_state).missing(sources), [], source_state)


def refuse_lacking(missing: Sequence[str], short: Sequence[str], source_state: SourceState) -> None:
    """Raise if the source lacks files, or if some of its files are too short.

    If its `_metadata` goes too, the checkpoint was subsumed meanwhile, else it is incomplete.
    """
    if not (missing or short):
        return
    if _is_subsumed(source_state):
        raise SourceMovedOn(
            f"{source_state.source.checkpoint} was subsumed meanwhile. Nothing was committed or"
            " deleted. Run again with the job's directory to take its newest checkpoint. Files that"
            " were copied stay useful"
        )
    raise incomplete.error(search(source_state), missing, short)


def look_for_copies(plan: Plan, source_state: SourceState) -> tuple[str, ...]:
    """Look at the source for all files that are to be copied from it, for a plan that is only
    shown: a sync finds out while it copies.

    Returns a warning if only a sample was looked for. Raises as the copies would if files are
    missing or too short.
    """
    from_source = [row.target for row in plan.copies if row.target not in plan.reused]
    if not from_source:
        return ()
    needed = source_state.needed
    files = needed.take(rows_of(needed.paths, texts(from_source)) >= 0)
    looked = search(source_state).look(files)
    refuse_lacking(looked.missing, looked.short, source_state)
    return (looked.warning,) if looked.warning is not None else ()


def of_other_lengths(plan: Plan, source_state: SourceState) -> list[str]:
    """Return the paths of copies at which a file of another program lies that has another length.

    For a plan that is only shown: a sync compares the content.
    """
    theirs = {
        str(row.source): row.target
        for row in plan.copies
        if row.target in plan.strangers
        and row.target not in plan.packed
        and row.target not in plan.reused
        and not source_state.needed[row.target].segment  # the beginning may be equal
    }
    if not theirs:
        return []
    listed = search(source_state).lengths(texts(theirs))
    return sorted(theirs[file] for file, n in listed if n != plan.strangers[theirs[file]])


def _raise_if_incomplete(
    tasks: Sequence[Copy], outcomes: Sequence[Outcome], source_state: SourceState
) -> None:
    targets = {outcome.target for outcome in outcomes if outcome.missing}
    missing = [task.source for task in tasks if task.target in targets]
    short = [str(outcome.error).partition(": ")[2] for outcome in outcomes if outcome.short]
    refuse_lacking(missing, short, source_state)


def _is_subsumed(source_state: SourceState) -> bool:
    """Return whether the source's `_metadata` is gone, now or after `subsumption_wait`.

    Flink deletes the `_metadata` and the files of a subsumed checkpoint one after the other.
    """
    metadata_uri = source_state.file.uri
    storage = source_state.file.side.storage(metadata_uri)
    if storage.stat(metadata_uri) is None:
        return True
    time.sleep(source_state.request.subsumption_wait)
    return storage.stat(metadata_uri) is None


def runner_for(plan: Plan, request: SyncRequest) -> Runner:
    """Return the runner that carries out a plan."""
    return choose_runner(request.execution, *_amount(plan), request.sides)


def choice_for(plan: Plan, request: SyncRequest) -> RunnerChoice:
    """Return which runner would carry out a plan, and why."""
    return runner_choice(request.execution, *_amount(plan), request.sides.target.limits.bandwidth)


def _amount(plan: Plan) -> tuple[int, int]:
    """Return the files and the bytes of a plan."""
    files = len(plan.copies) + len(plan.repacks) + len(plan.deletes)
    return files, total(plan.copies) + total(plan.repacks)
