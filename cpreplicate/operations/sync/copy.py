"""Steps 2 to 4 of the commit protocol: what the replica lacks is copied, and proved to be there."""

from __future__ import annotations

import logging
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple, NoReturn

import numpy as np

from cpreplicate.core import packs, sizes, uri
from cpreplicate.core.ledger import Member, MemberTable
from cpreplicate.core.path_columns import rows_of, texts, without
from cpreplicate.core.placement import PACKED
from cpreplicate.core.plan import Plan, TargetCopy, targets, total
from cpreplicate.core.reuse import reusing
from cpreplicate.core.sizes import counted, plural
from cpreplicate.errors import CopyFailed, SourceDamaged, UsageError
from cpreplicate.operations.change.change import some
from cpreplicate.operations.sync.plan import earlier_replicas
from cpreplicate.operations.sync.plan.work import Work
from cpreplicate.operations.sync.source.lacking import refuse_lacking
from cpreplicate.operations.sync.source.newer import Following
from cpreplicate.operations.sync.source.state import SourceState
from cpreplicate.operations.sync.tasks import copies, repack_tasks
from cpreplicate.operations.verify.compare import errors_of
from cpreplicate.protocol.lease import JUST_CHECKED
from cpreplicate.protocol.replica import Replica
from cpreplicate.runners import Copy, Outcome

_log = logging.getLogger(__name__)


class Executed(NamedTuple):
    """What was done of a plan.

    `plan` is that plan, with the copies that were made within the target as its `reused` ones.
    `members` are the places of all packed files of the checkpoint, kept and new. `files` are the
    outcomes by URI, `packs` the lengths of the packs. `unused_packs` were written by attempts that
    others overtook.
    """

    plan: Plan
    members: MemberTable
    files: Mapping[str, Outcome] = {}
    packs: Mapping[str, int] = {}
    unused_packs: tuple[str, ...] = ()


_NO_OTHER_LENGTH = np.iinfo(np.int64).max


def copy_missing(
    work: Work,
    following: Following,
    copied: Callable[[Mapping[str, Outcome]], object] = lambda _outcomes: None,
) -> Executed | None:
    """Carry out steps 2 to 4: copy what the replica lacks, and repack.

    `copied` is called with the outcomes of all copies by URI, before these are looked at. Returns
    None if the run turned to a newer checkpoint meanwhile. Raises on any failure, so that
    nothing is committed or deleted.
    """
    began = time.monotonic()
    outcomes = list(work.before.copied.values())
    plan = work.plan
    if plan.reused:
        outcomes += _copied_within_target(work, following)
        plan = reusing(plan, _reused(work, outcomes))
    outcomes += _copied_from_source(work, plan, following)
    if following.newer is not None:
        return None
    if plan.repacks:
        count = len(plan.repacks)
        amount = sizes.size(total(plan.repacks))
        work.change.notify(f"moving {counted(count, 'packed file')}, {amount}, into new packs")
        outcomes += _move_members(work)
    _log.debug("copied in %.3f s", time.monotonic() - began)
    copied({outcome.target: outcome for outcome in outcomes})
    work.change.lease.ask(JUST_CHECKED / 2)  # what is written next needs it, after a listing
    try:
        return _as_written(work, plan, outcomes)
    except CopyFailed:
        # if the lease is lost, another run may have replaced these files since
        work.change.lease.check()
        raise


def _as_written(work: Work, plan: Plan, outcomes: Sequence[Outcome]) -> Executed:
    """Return what was copied, after it was found at the target with the lengths written."""
    if not outcomes:
        return Executed(plan, plan.members)
    plain = [outcome for outcome in outcomes if outcome.pack is None]
    files = _as_found(work, plain)
    members = MemberTable.of(dict(_members(outcomes, work.replica)))
    if not members:
        return Executed(plan, plan.members, files)
    lengths, unused = _packs_as_found(members, work)
    return Executed(plan, MemberTable.merged([plan.members, members]), files, lengths, unused)


def _copied_within_target(work: Work, following: Following) -> list[Outcome]:
    """Copy what replicas of earlier jobs hold, under their leases. Return what succeeded."""
    change, plan = work.change, work.plan
    done: list[Outcome] = []
    with earlier_replicas.leased(plan.reused, work.request.sides.target, change.notify) as usable:
        stem = change.journal.pack_stem
        usable = {path: place for path, place in usable.items() if path not in work.before.copied}
        tasks = earlier_replicas.tasks(usable, work.replica, plan.packed, stem)
        if tasks:
            amount = sizes.size(sum(place.length for place in usable.values()))
            change.notify(
                f"copying {counted(len(tasks), 'file')}, {amount}, from replicas of earlier jobs"
            )
            with following.copying(plan, texts(usable)):
                done = change.write(tasks, following.done)
    if failed := list(errors_of(done)):
        change.notify(
            f"{counted(len(failed), 'file')} cannot be copied from replicas of earlier jobs, and"
            f" {plural(len(failed), 'is', 'are')} copied from the source. {some(failed)}"
        )
    return [outcome for outcome in done if outcome.error is None]


def _reused(work: Work, copied: Sequence[Outcome]) -> dict[str, TargetCopy]:
    """Return the places from which copies were made within the target, by their targets."""
    paths = {uri.below(outcome.target, work.replica.root) for outcome in copied}
    return {path: place for path, place in work.plan.reused.items() if path in paths}


def _copied_from_source(work: Work, plan: Plan, following: Following) -> list[Outcome]:
    """Copy what the plan does not copy within the target, and what is not copied yet.

    Raises if a copy failed, unless the run turned to a checkpoint that does not need its file.
    """
    if following.newer is not None:
        return []
    change, token = work.change, work.change.lease.token
    stem = change.journal.pack_stem
    tasks = copies(plan, work.source_state, work.replica, token, stem, work.before.copied)
    if not len(tasks):
        return []
    packed = int(tasks.is_packed().sum())
    into_packs = f", {packed} of them into packs" if packed else ""
    amount = sizes.size(int(tasks.sizes().sum()))
    change.notify(f"copying {counted(len(tasks), 'file')}, {amount}{into_packs}")
    with following.copying(plan, tasks.planned.files.paths):
        outcomes = change.write(tasks, following.done, following.wanted)
    for outcome in outcomes:
        following.done(outcome)
    is_lost = any(outcome.missing for outcome in outcomes)
    if following.newer is None and not (is_lost and following.settle()):
        return _without_failures(tasks, outcomes, work)
    if failed := [*filter(following.is_still_failed, outcomes)]:
        _refuse_failures(failed, len(tasks), work)
    return outcomes


def _move_members(work: Work) -> list[Outcome]:
    """Move members of sparse packs into new ones; copy the damaged ones from the source instead."""
    change = work.change
    moves = repack_tasks(work.plan, work.replica, change.journal.pack_stem)
    results = change.write(moves)
    damaged = {outcome.target for outcome in results if outcome.damaged}
    whole = [outcome for outcome in results if outcome.target not in damaged]
    moved = [move for move in moves if move.target not in damaged]
    outcomes = _without_failures(moved, whole, work)
    if damaged:
        are = plural(len(damaged), "is damaged and is", "are damaged and are")
        which = counted(len(damaged), "packed file")
        change.notify(f"{which} {are} copied from the source again")
        again = [_from_source(move, work) for move in moves if move.target in damaged]
        outcomes += _without_failures(again, change.write(again), work)
    return outcomes


def _from_source(move: Copy, work: Work) -> Copy:
    file = work.source_state.needed[uri.below(move.target, work.replica.root) or ""]
    return move._replace(source=file.uri, extent=file.extent, size=file.size, part=None)


def _without_failures(tasks: Sequence[Copy], outcomes: list[Outcome], work: Work) -> list[Outcome]:
    """Return the outcomes; raise if a task failed."""
    _raise_if_incomplete(tasks, outcomes, work.source_state)
    failed = [outcome for outcome in outcomes if outcome.error is not None]
    if failed or len(outcomes) != len(tasks):
        _refuse_failures(failed, len(tasks), work)
    return outcomes


def _refuse_failures(failed: Sequence[Outcome], count: int, work: Work) -> NoReturn:
    # If the lease cannot be read, the failure of the copies matters more.
    with suppress(OSError):
        work.change.lease.check()
    if damaged := [outcome for outcome in failed if outcome.is_damaged_at_source]:
        raise SourceDamaged(
            f"{work.plan.checkpoint} cannot be restored at the source: {len(damaged)} of its files"
            f" {plural(len(damaged), 'is', 'are')} damaged or lost there. Nothing was committed or"
            " deleted. Sync another checkpoint of the job, and repair the storage."
            f" {some(list(errors_of(damaged)))}"
        )
    is_usage = bool(failed) and all(outcome.is_usage_error for outcome in failed)
    raise (UsageError if is_usage else CopyFailed)(
        f"{len(failed) or 'some'} of {counted(count, 'copy', 'copies')} failed."
        f" {work.plan.checkpoint} was not committed and nothing was deleted. {_again(failed)}. "
        + some(list(errors_of(failed)))
    )


def _again(failed: Sequence[Outcome]) -> str:
    """Return how to go on: only where storages did not answer, the same may end well later."""
    if all(outcome.has_been_retried for outcome in failed):
        return "Running again copies only what is missing"
    return "Fix what the messages name: a run after that copies only what is missing"


def _members(outcomes: Iterable[Outcome], replica: Replica) -> Iterator[tuple[str, Member]]:
    """Yield the logical path and the place of each file that was packed."""
    for outcome in outcomes:
        path = uri.below(outcome.target, replica.root)
        pack = uri.below(outcome.pack, replica.root) if outcome.pack is not None else None
        if path is not None and pack is not None:
            yield path, Member(pack, outcome.offset, outcome.bytes, outcome.crc32c)


def _packs_as_found(members: MemberTable, work: Work) -> tuple[dict[str, int], tuple[str, ...]]:
    """Return the length of each pack of these members, and the packs of the run without members.

    Raises `CopyFailed` if a pack does not end where its last member ends, which may be one of a
    checkpoint from which the run turned.
    """
    replica, pack_stem = work.replica, work.change.journal.pack_stem
    present = replica.present([PACKED])
    lengths = {
        pack: max(length, work.before.packs.get(pack, 0))
        for pack, length in packs.extents(members).items()
    }
    wrong = [
        f"{replica.uri_of(pack)} has {_bytes(present.get(pack))} after {length} were written"
        for pack, length in lengths.items()
        if present.get(pack) != length
    ]
    if wrong:
        raise CopyFailed(_not_as_written(wrong))
    of_run = (path for path in present if packs.stem_of(path) == pack_stem)
    return lengths, tuple(path for path in of_run if path not in lengths)


def _not_as_written(wrong: Sequence[str]) -> str:
    return (
        f"{counted(len(wrong), 'file')} of the replica"
        f" {plural(len(wrong), 'is not as it was', 'are not as they were')} written. Nothing was"
        f" committed or deleted. Remove {plural(len(wrong), 'it', 'them')} and run again."
        f" {some(wrong)}"
    )


def _bytes(length: int | None) -> str:
    return "no bytes" if length is None else counted(length, "byte")


def _refuse_absent(absent: Sequence[str], work: Work) -> NoReturn:
    """Raise for files that were written, and are not listed under their names."""
    root = work.replica.root
    alike: dict[str, list[str]] = {}
    for path in work.source_state.needed.paths.to_pylist():
        alike.setdefault(_folded(path), []).append(path)
    folded = {_folded(uri.below(target, root) or "") for target in absent}
    same = [" and ".join(sorted(alike[each])) for each in folded if len(alike.get(each, ())) > 1]
    if same:
        raise CopyFailed(
            f"the filesystem of {root} takes names for one that differ only in upper and lower"
            f" case, or in how a character is composed: {some(sorted(same))}. Nothing was committed"
            " or deleted. Sync into a TARGET_ROOT on a filesystem that distinguishes them"
        )
    raise CopyFailed(
        f"{counted(len(absent), 'file')} of {root} went after being written: another program"
        " removed or renamed them. Nothing was committed or deleted. Find out which, then run"
        f" again. {some(absent)}"
    )


def _folded(path: str) -> str:
    """Return what names have in common that a filesystem may take for one."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())


def _as_found(work: Work, outcomes: Sequence[Outcome]) -> dict[str, Outcome]:
    """Return the outcomes by URI, after each copy was found at the target with the length written.

    A merged file may have another length, if two attempts at it raced (speculation, an executor
    that was considered lost). Both attempts are long enough. It is not known which of them is
    there, so its CRC32C is not known either.
    """
    paths = without(targets(work.plan.copies), texts(work.plan.packed))
    needed = work.source_state.needed
    files = needed.take(rows_of(paths, needed.paths))
    lengths = work.replica.lengths_of(paths, needed.paths).at(paths)
    least = np.where(files.is_segment, files.extents, _NO_OTHER_LENGTH)
    written = {
        work.replica.uri_of(path): pair
        for path, *pair in zip(paths.to_pylist(), lengths.tolist(), least.tolist(), strict=True)
    }
    kept, wrong, absent = [], [], []
    for outcome in outcomes:
        length, shortest = written[outcome.target]
        if length != outcome.bytes and length >= shortest:
            kept.append(outcome._replace(bytes=length, crc32c=None))
            continue
        kept.append(outcome)
        if length < 0:
            absent.append(outcome.target)
        elif length != outcome.bytes:
            wrong.append(
                f"{outcome.target} has {_bytes(length)} after {outcome.bytes} were written"
            )
    if absent:
        _refuse_absent(absent, work)
    if wrong:
        raise CopyFailed(_not_as_written(wrong))
    return {outcome.target: outcome for outcome in kept}


def _raise_if_incomplete(
    tasks: Sequence[Copy], outcomes: Sequence[Outcome], source_state: SourceState
) -> None:
    targets = {outcome.target for outcome in outcomes if outcome.missing}
    missing = [task.source for task in tasks if task.target in targets]
    short = [str(outcome.error).partition(": ")[2] for outcome in outcomes if outcome.short]
    refuse_lacking(missing, short, source_state)
