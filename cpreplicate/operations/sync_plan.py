"""What a sync would do: the source's side read, compared with what the replica holds.

Nothing is changed here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field

from cpreplicate.core import plan, restore, uri
from cpreplicate.core.closure import Closure, File, closure
from cpreplicate.core.metadata import rewrite
from cpreplicate.core.placement import METADATA, Placement
from cpreplicate.core.plan import Cap, Plan
from cpreplicate.core.restore import PathsMode
from cpreplicate.errors import Refused
from cpreplicate.operations import incomplete
from cpreplicate.operations.deletion import refuse_links
from cpreplicate.operations.incomplete import Search
from cpreplicate.protocol import ownership, same_place, seal
from cpreplicate.protocol.digest import digest_of
from cpreplicate.protocol.lease import LeaseToken
from cpreplicate.protocol.marker import Marker, SourceName, read_marker, source_name
from cpreplicate.protocol.replica import CommittedCheckpoint, Replica
from cpreplicate.protocol.replica_state import State
from cpreplicate.protocol.source import MetadataFile, Source, find, read_metadata
from cpreplicate.protocol.vouching import Vouched
from cpreplicate.runners import Copies, ExecutionOptions, Planned
from cpreplicate.storage import Side, Sides


@dataclass(frozen=True)
class SyncRequest:
    """What to replicate and how; the options of `diff` and `sync`."""

    source: str
    target_root: str
    paths: PathsMode = "auto"
    keep: int = 1
    remaps: tuple[uri.Remap, ...] = ()
    source_roots: tuple[str, ...] = ()
    sides: Sides = field(default=Sides())
    lock_wait: float = 0.0
    max_delete: Cap | None = None
    async_deletes: bool = False
    adopt: bool = False
    same_source: bool = False
    allow_older: bool = False
    check_content: bool = False
    execution: ExecutionOptions = field(default=ExecutionOptions())


@dataclass(frozen=True)
class SourceState:
    """The source's side: its checkpoint, the closure, and where each file is to lie in the replica.

    `name` is that of its root; `marker` is set if the source is a replica itself.
    """

    source: Source
    name: SourceName
    marker: Marker | None
    file: MetadataFile
    closure: Closure
    placement: Placement
    needed: Mapping[str, File]


def make_plan(
    source_state: SourceState,
    replica: Replica,
    state: State,
    vouched: Vouched,
    request: SyncRequest,
) -> Plan:
    """Compare what the source's checkpoint needs with what the replica's committed checkpoints
    reference and hold.
    """
    if seal.NAME in state.own:
        seal.refuse_sealed(replica)
    _refuse_to_go_back(state.committed, source_state, replica, request)
    _refuse_outside(state.committed, replica)
    directories = _directories(source_state, state.committed, vouched)
    refuse_links(directories, replica)
    committed = [each.as_committed() for each in state.committed]
    present = replica.present(directories)
    copies, keeps = plan.copies_and_keeps(source_state.needed, committed, present, vouched.files)
    chosen = restore.choose(source_state.file.metadata, source_state.closure, request.paths)
    name = source_state.placement.name
    dropped = plan.dropped(committed, name, source_state.file.metadata.checkpoint_id, request.keep)
    same = [each for each in committed if each.name == name]
    written = vouched.written if is_adopted(state, request) else None
    return Plan(
        source=source_state.source.checkpoint,
        replica=replica.root,
        checkpoint=name,
        checkpoint_id=source_state.file.metadata.checkpoint_id,
        base_checkpoint_id=committed[0].checkpoint_id if committed else None,
        publish=copies != () or not _is_published(source_state, replica, state, chosen.mode),
        copies=copies,
        keeps=keeps,
        deletes=plan.deletes(committed, [*dropped, *same], source_state.needed, present, written),
        dropped=tuple(each.name for each in dropped),
        paths=chosen.mode,
        paths_reported=chosen.reported,
        paths_reason=chosen.reason,
        warnings=restore.warnings(source_state.file.metadata, chosen),
    )


def _directories(
    source_state: SourceState, committed: Sequence[CommittedCheckpoint], vouched: Vouched
) -> set[str]:
    of_journals = (uri.directories(part.paths) for part in vouched.journals)
    return uri.directories(source_state.needed).union(
        *(uri.directories(each.files) for each in committed), *of_journals
    )


def is_adopted(state: State, request: SyncRequest) -> bool:
    """Return whether there were files of others when the directory became, or is about to become, a
    replica.
    """
    return (
        state.marker.adopted if state.marker is not None else request.adopt and not state.is_empty
    )


def reasons_against(
    source_state: SourceState, replica: Replica, state: State, request: SyncRequest
) -> Iterator[str]:
    """Yield why a sync must not change anything in the replica's directory."""
    may_adopt = request.adopt and (state.marker is None or state.marker.adopted)
    yield from ownership.foreign(state, replica, may_adopt)
    yield from ownership.same_replica(state, replica, source_state.marker, source_state.name)
    if not request.same_source:
        yield from ownership.other_source(state, replica, source_state.name)
    if source_state.placement.name in (*state.adopted, *state.unrecorded):
        yield (
            f"{replica.uri_of(source_state.placement.name)}/{METADATA} is another program's and would be"
            " replaced. Nothing was done. Sync another checkpoint, or into another TARGET_ROOT"
        )


def read_source(request: SyncRequest) -> SourceState:
    side = request.sides.source
    source = find(request.source, side, request.allow_older)
    file = read_metadata(source.checkpoint, side)
    found = closure(file.metadata, request.remaps)
    _refuse_other_roots(found, source, request)
    placement = Placement(source.checkpoint, source.job_root, f"chk-{file.metadata.checkpoint_id}")
    needed = placement.place_all(found.files, found.plain)
    name = source_name(side, source.root)
    return SourceState(source, name, _source_marker(source, side), file, found, placement, needed)


def _source_marker(source: Source, side: Side) -> Marker | None:
    with suppress(Refused):  # a damaged marker at the source is none of this run's business
        return read_marker(side, source.root)
    return None


def target_replica(source_state: SourceState, request: SyncRequest) -> Replica:
    root = uri.join(request.target_root, source_state.source.job)
    here, there = (
        request.sides.source.identity(source_state.source.checkpoint),
        request.sides.target.identity(root),
    )
    for place in (source_state.source.checkpoint, source_state.source.job_root):
        if (
            place is not None
            and here == there
            and _overlap(uri.local_path(place), uri.local_path(root))
        ):
            raise Refused(
                f"the replica {root} would lie in its own source {place}; give another TARGET_ROOT"
            )
    replica = Replica(root, request.sides.target)
    same_place.refuse_nested(replica, request.sides.source, source_state.source.root)
    return replica


def _overlap(place: str, other: str) -> bool:
    return (
        place == other or uri.below(place, other) is not None or uri.below(other, place) is not None
    )


def _refuse_other_roots(found: Closure, source: Source, request: SyncRequest) -> None:
    """A `_metadata` is not trusted to name any file it likes: only below the roots, or on the
    source's own filesystem.
    """
    allowed = _allowed_roots(source, request)
    beyond = {
        each for each in found.parents if not any(uri.within(f"{each}/x", root) for root in allowed)
    }
    if beyond and (
        strangers := [
            place for place in found.files if not any(uri.within(place, root) for root in allowed)
        ]
    ):
        found_below = search(source, request).suggest(strangers)
        same = (
            "Files of the same names exist at the source: to read these, add"
            f" {incomplete.options(found_below)}. "
        )
        raise Refused(
            f"{source.checkpoint} references {len(strangers)} files outside the source's roots,"
            f" such as {strangers[0]}. Nothing was read from there. {same if found_below else ''}If"
            " they belong to this job, name the directory with --source-root, or where it can be"
            " read with --remap FROM=TO"
        )


def search(source: Source, request: SyncRequest) -> Search:
    """Return how to look for files that the source lacks."""
    return Search(source, request.remaps, _allowed_roots(source, request), request.sides.source)


def _allowed_roots(source: Source, request: SyncRequest) -> list[str]:
    allowed = [
        source.job_root or source.checkpoint,
        *(each.actual for each in request.remaps),
        *request.source_roots,
    ]
    return allowed if request.source_roots else [*allowed, uri.filesystem(source.checkpoint)]


def _refuse_to_go_back(
    committed: Sequence[CommittedCheckpoint],
    source_state: SourceState,
    replica: Replica,
    request: SyncRequest,
) -> None:
    newest = committed[0].checkpoint_id if committed else -1
    asked = source_state.file.metadata.checkpoint_id
    if newest > asked and not request.allow_older:
        raise Refused(
            f"{replica.root} holds chk-{newest}, newer than {source_state.source.checkpoint} (checkpoint"
            f" {asked}); a replica never goes back. Sync a newer checkpoint, or give another"
            " TARGET_ROOT; or, if the job was started from scratch and counts anew, --allow-older,"
            f" which publishes chk-{asked} and withdraws the checkpoints with higher numbers"
        )


def _refuse_outside(committed: Sequence[CommittedCheckpoint], replica: Replica) -> None:
    for each in committed:
        if each.outside:
            raise Refused(
                f"{replica.uri_of(each.name)} references {len(each.outside)} files outside the replica,"
                f" such as {each.outside[0]}: it was moved, or is reached under another name, or is"
                " damaged. Nothing was copied or deleted. Give the name that it was made under, or"
                f" rewrite its paths with `cpreplicate relocate {uri.quoted(replica.root)}`; or"
                " sync into another TARGET_ROOT"
            )


def _is_published(source_state: SourceState, replica: Replica, state: State, mode: str) -> bool:
    """Return whether the checkpoint is committed, with just these bytes, and is the newest."""
    if not state.committed or state.committed[0].name != source_state.placement.name:
        return False
    return state.committed[0].metadata == digest_of(rewritten(source_state, replica, mode))


def copies(made: Plan, source_state: SourceState, replica: Replica, token: LeaseToken) -> Copies:
    """Return a plan's copies as runners take them."""
    kept = {each.target for each in made.keeps}
    targets = [target for target in source_state.needed if target not in kept]
    files = [file for target, file in source_state.needed.items() if target not in kept]
    origin = f"{source_state.source.job_root}/" if source_state.source.job_root else ""
    return Copies(Planned(origin, replica.uri_of("x")[:-1], files, targets, token))


def rewritten(source_state: SourceState, replica: Replica, mode: str) -> Iterator[bytes]:
    rewriter = restore.path_rewriter(
        source_state.closure, source_state.placement, replica.root, mode
    )
    with ExitStack() as stack:
        yield from rewrite(source_state.file.open(stack), source_state.file.metadata, rewriter)
