"""The plan of a sync: the source's checkpoint compared with what the replica holds.

Nothing is changed here.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from cpreplicate.core import packs, restore
from cpreplicate.core.closure import closure
from cpreplicate.core.ledger import NO_MEMBERS, MemberTable
from cpreplicate.core.memory import return_after
from cpreplicate.core.packs import PackOptions
from cpreplicate.core.path_columns import (
    Texts,
    chosen,
    directories,
    rows_of,
    texts,
    without,
)
from cpreplicate.core.placement import METADATA, PACKED
from cpreplicate.core.plan import (
    NO_KEEPS,
    Action,
    Committed,
    Plan,
    Split,
    Withdrawal,
    copies_and_keeps,
    deletes,
    dropped,
    keeps_newest,
    not_needed,
    targets,
)
from cpreplicate.core.retention import Policy, Retention, policy_of
from cpreplicate.core.sizes import counted, plural
from cpreplicate.core.tables import Lengths
from cpreplicate.errors import NotThere, Refused, UsageError
from cpreplicate.operations.change.change import refuse_links, they_are
from cpreplicate.operations.change.target_root import sync_of_savepoint
from cpreplicate.operations.sync.checks import (
    newer_savepoint,
    refuse_outside,
    refuse_same_number,
    refuse_to_go_back,
)
from cpreplicate.operations.sync.plan.metadata import of_former_life, rewritten, spelling_of
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.sync.source.state import (
    SourceState,
    warnings_of_name,
    warnings_of_unfinished,
)
from cpreplicate.protocol import job_record, needed, retention_record, seal
from cpreplicate.protocol.digest import digest_of
from cpreplicate.protocol.ledger import Ledger
from cpreplicate.protocol.replica import CommittedCheckpoint, Replica
from cpreplicate.protocol.replica_state import State
from cpreplicate.protocol.source import read_metadata


class Copied(NamedTuple):
    """What the run has copied of a checkpoint before it was planned, by the path in the replica.

    `plain` are files, and `packed` members of packs. At the paths that were `begun` is what this
    run has written, or nothing.
    """

    plain: frozenset[str]
    packed: frozenset[str]
    begun: Texts


NOTHING = Copied(frozenset(), frozenset(), texts(()))


def make_plan(
    source_state: SourceState,
    replica: Replica,
    state: State,
    ledger: Ledger,
    copied: Copied = NOTHING,
) -> Plan:
    """Return what makes the replica hold the source's checkpoint.

    Compares the files that the checkpoint needs with those that the replica's committed checkpoints
    reference, and those that are present. What is `copied` is among the copies, as if it were not
    there yet. Raises `Refused` if the replica must not be changed.
    """
    if seal.NAME in state.own:
        seal.refuse_sealed(replica)
    if (savepoint := newer_savepoint(state, source_state)) is not None:
        return _nothing_newer(savepoint, source_state, replica, state)
    repaired, former = _repaired(source_state, replica, state), None
    committed = [each.as_committed(state.records[each.name].completed) for each in state.committed]
    policy = policy_of_run(source_state.request, replica, state.own)
    if repaired is None:
        refuse_same_number(state, source_state, replica)
        former = of_former_life(state, source_state, replica)
        is_kept = keeps_newest(
            committed, policy.retention, source_state.source.completed, time.time()
        )
        refuse_to_go_back(state, source_state, replica, former, is_kept)
    refuse_outside(state.committed, replica)
    to_drop = () if repaired else _to_drop(source_state, state, committed, policy.retention)
    name = source_state.placement.name
    gone = (*to_drop, *(each for each in committed if each.name == name))
    places = _directories(source_state, gone, ledger)
    refuse_links(places, replica)
    return_after(len(source_state.needed))
    present = replica.present(places).without(copied.begun)
    return_after(len(source_state.needed))
    members = ledger.whole_members(present)
    split = copies_and_keeps(source_state.needed, committed, present, ledger.files, members)
    return_after(len(source_state.needed))
    found = _Compared(
        *(source_state, replica, state, ledger, repaired, committed, to_drop, gone),
        *(policy, present, split, former),
    )
    return _plan(found, copied)


class _Compared(NamedTuple):
    """The source's checkpoint beside what the replica holds: its checkpoints, and its files.

    `to_drop` are those that the run withdraws, and `gone` these and the one that it replaces. That
    is withdrawn, too, if it is the `former` one of its number, as of `of_former_life`.
    """

    source_state: SourceState
    replica: Replica
    state: State
    ledger: Ledger
    repaired: _Repaired | None
    committed: Sequence[Committed]
    to_drop: tuple[Committed, ...]
    gone: Sequence[Committed]
    policy: Policy
    present: Lengths
    split: Split
    former: CommittedCheckpoint | None


def _plan(found: _Compared, copied: Copied) -> Plan:
    source_state, replica, state, ledger, repaired, committed = found[:6]
    _, gone, policy, present, split, _ = found[6:]
    request, metadata = source_state.request, source_state.file.metadata
    packing = _packing(source_state, request)
    packed = _packed(found, packing, copied)
    moving = packs.to_repack(split.members, present, packing) if repaired is None else NO_MEMBERS
    kept_members = split.members.without(moving)
    has_packs = bool(packed or split.members)
    spelled = request.paths if repaired is None else repaired.paths
    paths = restore.choose(metadata, source_state.closure, spelled, has_packs)
    if repaired is None:
        is_published = _is_published(source_state, replica, state, paths.mode, kept_members)
        publish = bool(split.copies or moving) or not is_published
    else:  # only what is in packs gets another place
        publish = bool(packed) or len(kept_members) < len(repaired.checkpoint.members)
    name, number = source_state.placement.name, metadata.checkpoint_id
    new_paths = packs.physical_paths(source_state.needed.paths, packed, split.members, moving)
    going = _going(gone, new_paths, replica, state, ledger)
    replaced_since = _unproven(going, present, ledger)
    return Plan(
        source=source_state.source.checkpoint,
        replica=replica.root,
        checkpoint=name,
        checkpoint_id=number,
        base_checkpoint_id=committed[0].checkpoint_id if committed else None,
        publish=publish,
        copies=split.copies,
        keeps=split.keeps.without(moving.paths),
        deletes=deletes(gone, without(going, replaced_since), present),
        withdrawals=tuple(_withdrawals(found, number)),
        paths=paths.mode,
        paths_reported=paths.reported,
        paths_reason=paths.reason,
        warnings=(
            *warnings_of_unfinished(source_state.source),
            *restore.warnings(metadata, paths, has_packs),
            *(() if state.marker is not None else warnings_of_name(source_state, replica)),
            *_warnings_of_replaced(replaced_since.to_pylist()),
        ),
        packed=packed,
        members=kept_members,
        repacks=packs.repack_actions(split.keeps, moving),
        moving=moving,
        strangers=_strangers(split.copies, present, ledger),
        repairs=repaired is not None,
        policy=policy,
    )


def _packed(found: _Compared, packing: PackOptions, copied: Copied) -> frozenset[str]:
    """Return the targets of the copies that are packed."""
    if packing.mode == "off":
        return frozenset()
    copies = found.split.copies
    plain = _had_as_files(copies, found.committed, found.present, found.ledger)
    packed = packs.to_pack(copies, found.source_state.needed, plain, packing)
    return packed - copied.plain | copied.packed


def _to_drop(
    source_state: SourceState, state: State, committed: Sequence[Committed], keep: Retention
) -> tuple[Committed, ...]:
    """Return the checkpoints that the run withdraws, unless it repairs one."""
    stays = _kept_beside_savepoint(source_state, state)
    name, number = source_state.placement.name, source_state.file.metadata.checkpoint_id
    completed = source_state.source.completed
    gone = dropped(committed, name, number, keep, completed, time.time())
    return tuple(each for each in gone if each.name != stays)


def _nothing_newer(
    savepoint: CommittedCheckpoint, source_state: SourceState, replica: Replica, state: State
) -> Plan:
    """Return the plan of a replica that holds a savepoint newer than the job's checkpoints.

    The job's checkpoints do not have the files of the savepoint. So it raises `Refused` if the
    replica lacks some, and warns that they were not compared if that was asked for.
    """
    _refuse_lacking(savepoint, source_state, replica, state)
    paths = _spelling_of(savepoint, replica)
    return Plan(
        source=source_state.source.checkpoint,
        replica=replica.root,
        checkpoint=savepoint.name,
        checkpoint_id=savepoint.checkpoint_id,
        base_checkpoint_id=savepoint.checkpoint_id,
        publish=False,
        copies=(),
        keeps=NO_KEEPS,
        deletes=(),
        withdrawals=(),
        paths=paths.mode,
        paths_reported=paths.reported,
        paths_reason=paths.reason,
        warnings=tuple(_warnings_of_savepoint(savepoint, source_state, replica, state, paths.mode)),
        members=savepoint.members,
        policy=policy_of_run(source_state.request, replica, state.own),
    )


def _spelling_of(held: CommittedCheckpoint, replica: Replica) -> restore.ChosenPaths:
    """Return how the paths of a checkpoint are spelled that stays as it is."""
    metadata = read_metadata(replica.uri_of(held.name), replica.side).metadata
    mode = restore.mode_of(metadata)
    found = restore.choose(metadata, closure(metadata), mode, bool(held.members))
    return found._replace(reason=f"as they are in {held.name}, which stays as it is")


def _refuse_lacking(
    savepoint: CommittedCheckpoint, source_state: SourceState, replica: Replica, state: State
) -> None:
    """Raise `Refused` if the replica lacks files of a savepoint that is its newest point."""
    files = savepoint.files
    lengths = replica.present(directories(files.paths)).at(files.paths)
    lacking = chosen(files.paths, (lengths < 0) | (lengths < files.bytes)).to_pylist()
    if lacking or savepoint.is_damaged:
        of_metadata = [f"{savepoint.name}/{METADATA}"] if savepoint.is_damaged else []
        held = state.records[savepoint.name].savepoint or savepoint.name
        raise Refused(
            f"{replica.root} holds the savepoint {held}, newer than"
            f" {source_state.source.checkpoint}, and lacks"
            f" {counted(len(lacking) + len(of_metadata), 'file')} of it, or has less than it needs."
            " Nothing was done. To repair it, run"
            f" `{_sync_of_it(savepoint, replica, state)}`. {they_are(lacking + of_metadata)}"
        )


def _warnings_of_savepoint(
    savepoint: CommittedCheckpoint,
    source_state: SourceState,
    replica: Replica,
    state: State,
    mode: str,
) -> Iterator[str]:
    which = (
        f"the newest checkpoint, {savepoint.name}, is a savepoint, newer than those of the job's"
        " directory"
    )
    asked = source_state.request.paths
    if source_state.request.check_content:
        command = _sync_of_it(savepoint, replica, state, "--check-content")
        yield f"--check-content compared nothing: {which}. To compare its files, run `{command}`"
    if asked not in ("auto", mode):
        command = _sync_of_it(savepoint, replica, state, "--paths", asked)
        yield f"--paths {asked} changed nothing: {which}. To rewrite its paths, run `{command}`"


def _sync_of_it(
    savepoint: CommittedCheckpoint, replica: Replica, state: State, *options: str
) -> str:
    """Return the command that syncs a savepoint of the replica again."""
    held = state.records[savepoint.name].savepoint or savepoint.name
    return sync_of_savepoint(replica.root, held, state.marker, *options)


class _Repaired(NamedTuple):
    """A checkpoint that the replica keeps, and how its `_metadata` spells paths."""

    checkpoint: CommittedCheckpoint
    paths: restore.PathsMode


def _repaired(source_state: SourceState, replica: Replica, state: State) -> _Repaired | None:
    """Return the checkpoint that is repaired, None if the request is not about one.

    Raises `NotThere` if the replica does not keep it, and `Refused` if it is another one.
    """
    if not source_state.request.repair:
        return None
    name = source_state.placement.name
    kept = next((each for each in state.committed if each.name == name), None)
    if kept is None:
        held = ", ".join(each.name for each in state.committed) or "none"
        raise NotThere(
            f"{replica.root} holds no committed {name}, so there is nothing to repair. It holds"
            f" {held}. Nothing was done. Name one of them below the job's directory"
        )
    if (mode := spelling_of(kept, source_state, replica)) is not None:
        return _Repaired(kept, mode)
    raise Refused(
        f"{source_state.source.checkpoint} is not the checkpoint that {replica.uri_of(name)} was"
        " replicated from: the job has counted anew, or the replica was moved. Nothing was done."
        " Sync the newest checkpoint of the job's directory, or into another TARGET_ROOT"
    )


def policy_of_run(request: SyncRequest, replica: Replica, own: Collection[str]) -> Policy:
    """Return which checkpoints a run keeps: as it states, else as the replica records.

    `own` are the names of the files in `.cpreplicate/`. A repair withdraws nothing, whatever is
    stated. Raises `Refused` if the record is damaged, unless the run states a policy with
    `keep_less`.
    """
    if request.repair:
        return Policy()
    try:
        recorded = retention_record.read_retention(replica, own)
    except Refused:
        if request.stated is None or not request.keep_less:
            raise
        recorded = None
    return policy_of(request.stated, recorded)


def _withdrawals(found: _Compared, newest: int) -> Iterator[Withdrawal]:
    """Yield the checkpoints that the run withdraws, the oldest first."""
    names = {each.name for each in (*found.to_drop, found.former) if each is not None}
    for each in reversed(found.committed):
        if each.name in names:
            yield _withdrawal(each, newest, found.policy.retention, found.state)


def _withdrawal(gone: Committed, newest: int, keep: Retention, state: State) -> Withdrawal:
    is_of_former_count = gone.checkpoint_id >= newest
    reason = "the job counts its checkpoints anew" if is_of_former_count else f"not kept by {keep}"
    length = state.metadata_files[gone.name].length
    action = Action("withdraw", None, f"{gone.name}/{METADATA}", length, reason)
    return Withdrawal(gone.name, gone.completed, action)


def _kept_beside_savepoint(source_state: SourceState, state: State) -> str | None:
    """Return the newest checkpoint of a job that a savepoint of it does not replace.

    The next checkpoint needs most of its files, and none of the savepoint's.
    """
    if source_state.own_job is None:
        return None
    number = source_state.file.metadata.checkpoint_id
    return next(
        (
            each.name
            for each in state.committed
            if each.checkpoint_id < number and state.records[each.name].savepoint is None
        ),
        None,
    )


def _going(
    gone: Sequence[Committed], new_paths: Texts, replica: Replica, state: State, ledger: Ledger
) -> Texts:
    """Return the paths of cpreplicate's files that nobody needs when these checkpoints go."""
    if not gone:
        return texts(())
    names = {checkpoint.name for checkpoint in gone}
    going = not_needed(gone, new_paths, needed.needed(replica, state, names))
    return without(going, ledger.of_others(going))


def _unproven(paths: Texts, present: Lengths, ledger: Ledger) -> Texts:
    """Return those of these paths with files that no record lists with their length.

    Another program may have written them. What was never recorded is as of `Ledger.of_others`.
    """
    lengths = present.at(paths)
    is_asked = (lengths >= 0) & (ledger.files.at(paths).bytes >= 0)
    files = Lengths(chosen(paths, is_asked), lengths[is_asked])
    return chosen(files.paths, ~ledger.are_proven(files))


def _warnings_of_replaced(paths: Sequence[str]) -> Iterator[str]:
    if paths:
        them = plural(len(paths), "it", "them")
        yield (
            f"{counted(len(paths), 'file')} that no checkpoint needs any more"
            f" {plural(len(paths), 'has', 'have')} another length than cpreplicate wrote. Another"
            f" program may have written {them}, so {plural(len(paths), 'it is', 'they are')} not"
            f" deleted. If no program needs {them}, remove {them}. {they_are(paths)}"
        )


def _strangers(
    copies: Sequence[Action], present: Mapping[str, int], ledger: Ledger
) -> dict[str, int]:
    """Return the targets of copies at which there is a file of another program, and its length."""
    paths = targets(copies)
    is_there = rows_of(paths, Lengths.of(present).paths) >= 0
    return {path: present[path] for path in ledger.of_others(chosen(paths, is_there)).to_pylist()}


def warnings_of_strangers(plan: Plan) -> Iterator[str]:
    """Yield, for a dry run, a warning of the files of other programs where copies would be.

    Only a sync compares their content.
    """
    if count := len(plan.strangers):
        yield (
            f"{counted(count, 'file')} of the replica {plural(count, 'was', 'were')} not written by"
            f" cpreplicate, as far as it recorded, and {plural(count, 'is', 'are')} where files"
            f" would be copied. A sync compares {plural(count, 'it', 'them')} with the source's: it"
            f" keeps what is equal, and is refused if {plural(count, 'it', 'one')} differs."
            f" {they_are(sorted(plan.strangers))}"
        )


def _had_as_files(
    copies: Sequence[Action],
    committed: Sequence[Committed],
    present: Mapping[str, int],
    ledger: Ledger,
) -> frozenset[str]:
    """Return the targets of copies that the replica has, or should have, as files of their own."""
    wanted = targets(copies)
    files = [Lengths.of(checkpoint.files).paths for checkpoint in committed]
    is_there = rows_of(wanted, Lengths.of(present).paths) >= 0
    is_there &= rows_of(wanted, ledger.files.paths) >= 0
    for paths in files:
        is_there |= rows_of(wanted, paths) >= 0
    return frozenset(chosen(wanted, is_there).to_pylist())


def _packing(source_state: SourceState, request: SyncRequest) -> PackOptions:
    """Return what to pack in this run.

    Raises `UsageError` if members of packs cannot be what was asked for.
    """
    packing = request.packing
    if request.sides.preserve and packing.mode == "on":
        raise UsageError(
            "--preserve cannot be given with --pack on: the members of a pack have neither"
            " permissions nor times of their own. Give one of them"
        )
    is_older = source_state.file.metadata.version < packs.FIRST_WITH_SEGMENTS
    is_relative = request.paths == "relative"
    if packing.mode == "auto" and (is_older or is_relative or request.sides.preserve):
        return packing._replace(mode="off")
    return packing


def _directories(source_state: SourceState, gone: Sequence[Committed], ledger: Ledger) -> set[str]:
    """Return the directories in which files are needed, not needed any more, or may have been left.

    A directory that only checkpoints need which stay is none of these.
    """
    of_gone = (directories(Lengths.of(checkpoint.files).paths) for checkpoint in gone)
    of_packs = {PACKED} if ledger.members else set[str]()
    return source_state.needed.directories.union(of_packs, ledger.directories, *of_gone)


def _is_published(
    source_state: SourceState, replica: Replica, state: State, mode: str, members: MemberTable
) -> bool:
    """Return whether the checkpoint is committed, with just these bytes, and is the newest."""
    newest = state.committed[0] if state.committed else None
    if newest is None or newest.is_damaged or newest.name != source_state.placement.name:
        return False
    return newest.metadata == digest_of(rewritten(source_state, replica, mode, members))


def is_done(plan: Plan, state: State, ledger: Ledger, source_state: SourceState) -> bool:
    """Return whether nothing is to be done, nor to be recorded."""
    if not plan.empty or plan.policy.is_to_be_recorded:
        return False
    if source_state.request.check_content or state.unrecorded:
        return False
    if state.marker is None or not state.marker.records(source_state.name):
        return False
    request = source_state.request
    is_named = job_record.is_job_recorded(
        request.sides.target, plan.replica, state.own, request.name, request.reported_by
    )
    return is_named and is_recorded(plan, state, ledger)


def is_recorded(plan: Plan, state: State, ledger: Ledger) -> bool:
    """Return whether a manifest describes the committed checkpoint of the plan."""
    recorded = ledger.manifests.get(plan.checkpoint)
    return recorded is not None and recorded.metadata == state.metadata_of(plan.checkpoint)
