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
from cpreplicate.protocol import ownership, seal
from cpreplicate.protocol.digest import digest_of
from cpreplicate.protocol.lease import Held as HeldLease
from cpreplicate.protocol.ownership import Marker, SourceName, State, Vouched
from cpreplicate.protocol.replica import Held, Replica
from cpreplicate.protocol.source import MetadataFile, Source, find, read_metadata
from cpreplicate.runners import Copies, Engine, Planned
from cpreplicate.storage import Site, Sites


@dataclass(frozen=True)
class Request(Engine):
    """What to replicate and how; the options of `diff` and `sync`."""

    source: str
    target_root: str
    paths: PathsMode = "auto"
    keep: int = 1
    remaps: tuple[uri.Remap, ...] = ()
    source_roots: tuple[str, ...] = ()
    sites: Sites = field(default=Sites())
    lock_wait: float = 0.0
    max_delete: Cap | None = None
    async_deletes: bool = False
    adopt: bool = False
    same_source: bool = False
    allow_older: bool = False
    check_content: bool = False


@dataclass(frozen=True)
class Wanted:
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
    wanted: Wanted, replica: Replica, state: State, vouched: Vouched, request: Request
) -> Plan:
    """Compare what the source's checkpoint needs with what the replica's committed checkpoints
    reference and hold.
    """
    if seal.NAME in state.own:
        seal.refuse_sealed(replica)
    held = state.committed
    _refuse_to_go_back(held, wanted, replica, request)
    _refuse_outside(held, replica)
    directories = _directories(wanted, held, vouched)
    refuse_links(directories, replica)
    committed = [each.as_committed() for each in held]
    present = replica.present(directories)
    copies, keeps = plan.copies_and_keeps(wanted.needed, committed, present, vouched.files)
    chosen = restore.choose(wanted.file.metadata, wanted.closure, request.paths)
    name = wanted.placement.name
    dropped = plan.dropped(committed, name, wanted.file.metadata.checkpoint_id, request.keep)
    same = [each for each in committed if each.name == name]
    written = vouched.written if is_adopted(state, request) else None
    return Plan(
        source=wanted.source.checkpoint,
        replica=replica.root,
        checkpoint=name,
        checkpoint_id=wanted.file.metadata.checkpoint_id,
        base_checkpoint_id=held[0].checkpoint_id if held else None,
        publish=copies != () or not _is_published(wanted, replica, state, chosen.mode),
        copies=copies,
        keeps=keeps,
        deletes=plan.deletes(committed, [*dropped, *same], wanted.needed, present, written),
        dropped=tuple(each.name for each in dropped),
        paths=chosen.mode,
        paths_reported=chosen.reported,
        paths_reason=chosen.reason,
        warnings=restore.warnings(wanted.file.metadata, chosen),
    )


def _directories(wanted: Wanted, held: Sequence[Held], vouched: Vouched) -> set[str]:
    of_journals = (uri.directories(part.paths) for part in vouched.journals)
    return uri.directories(wanted.needed).union(
        *(uri.directories(each.files) for each in held), *of_journals
    )


def is_adopted(state: State, request: Request) -> bool:
    """Return whether there were files of others when the directory became, or is about to become, a
    replica.
    """
    return (
        state.marker.adopted if state.marker is not None else request.adopt and not state.is_empty
    )


def reasons_against(
    wanted: Wanted, replica: Replica, state: State, request: Request
) -> Iterator[str]:
    """Yield why a sync must not change anything in the replica's directory."""
    may_adopt = request.adopt and (state.marker is None or state.marker.adopted)
    yield from ownership.foreign(state, replica, may_adopt)
    yield from ownership.same_replica(state, replica, wanted.marker, wanted.name)
    if not request.same_source:
        yield from ownership.other_source(state, replica, wanted.name)
    if wanted.placement.name in (*state.adopted, *state.unrecorded):
        yield (
            f"{replica.at(wanted.placement.name)}/{METADATA} is another program's and would be"
            " replaced. Nothing was done. Sync another checkpoint, or into another TARGET_ROOT"
        )


def want(request: Request) -> Wanted:
    site = request.sites.source
    source = find(request.source, site, request.allow_older)
    file = read_metadata(source.checkpoint, site)
    found = closure(file.metadata, request.remaps)
    _refuse_other_roots(found, source, request)
    placement = Placement(source.checkpoint, source.job_root, f"chk-{file.metadata.checkpoint_id}")
    needed = placement.place_all(found.files, found.plain)
    name = ownership.source_name(site, source.root)
    return Wanted(source, name, _source_marker(source, site), file, found, placement, needed)


def _source_marker(source: Source, site: Site) -> Marker | None:
    with suppress(Refused):  # a damaged marker at the source is none of this run's business
        return ownership.read_marker(site, source.root)
    return None


def target_replica(wanted: Wanted, request: Request) -> Replica:
    root = uri.join(request.target_root, wanted.source.job)
    here, there = (
        request.sites.source.identity(wanted.source.checkpoint),
        request.sites.target.identity(root),
    )
    for place in (wanted.source.checkpoint, wanted.source.job_root):
        if (
            place is not None
            and here == there
            and _overlap(uri.local_path(place), uri.local_path(root))
        ):
            raise Refused(
                f"the replica {root} would lie in its own source {place}; give another TARGET_ROOT"
            )
    replica = Replica(root, request.sites.target)
    ownership.refuse_nested(replica, request.sites.source, wanted.source.root)
    return replica


def _overlap(place: str, other: str) -> bool:
    return (
        place == other or uri.below(place, other) is not None or uri.below(other, place) is not None
    )


def _refuse_other_roots(found: Closure, source: Source, request: Request) -> None:
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


def search(source: Source, request: Request) -> Search:
    """Return how to look for files that the source lacks."""
    return Search(source, request.remaps, _allowed_roots(source, request), request.sites.source)


def _allowed_roots(source: Source, request: Request) -> list[str]:
    allowed = [
        source.job_root or source.checkpoint,
        *(each.actual for each in request.remaps),
        *request.source_roots,
    ]
    return allowed if request.source_roots else [*allowed, uri.filesystem(source.checkpoint)]


def _refuse_to_go_back(
    held: Sequence[Held], wanted: Wanted, replica: Replica, request: Request
) -> None:
    newest = held[0].checkpoint_id if held else -1
    asked = wanted.file.metadata.checkpoint_id
    if newest > asked and not request.allow_older:
        raise Refused(
            f"{replica.root} holds chk-{newest}, newer than {wanted.source.checkpoint} (checkpoint"
            f" {asked}); a replica never goes back. Sync a newer checkpoint, or give another"
            " TARGET_ROOT; or, if the job was started from scratch and counts anew, --allow-older,"
            f" which publishes chk-{asked} and withdraws the checkpoints with higher numbers"
        )


def _refuse_outside(held: Sequence[Held], replica: Replica) -> None:
    for each in held:
        if each.outside:
            raise Refused(
                f"{replica.at(each.name)} references {len(each.outside)} files outside the replica,"
                f" such as {each.outside[0]}: it was moved, or is reached under another name, or is"
                " damaged. Nothing was copied or deleted. Give the name that it was made under, or"
                f" rewrite its paths with `cpreplicate relocate {uri.quoted(replica.root)}`; or"
                " sync into another TARGET_ROOT"
            )


def _is_published(wanted: Wanted, replica: Replica, state: State, mode: str) -> bool:
    """Return whether the checkpoint is committed, with just these bytes, and is the newest."""
    if not state.committed or state.committed[0].name != wanted.placement.name:
        return False
    return state.committed[0].metadata == digest_of(rewritten(wanted, replica, mode))


def copies(made: Plan, wanted: Wanted, replica: Replica, held: HeldLease) -> Copies:
    """Return a plan's copies as runners take them."""
    kept = {each.target for each in made.keeps}
    targets = [target for target in wanted.needed if target not in kept]
    files = [file for target, file in wanted.needed.items() if target not in kept]
    origin = f"{wanted.source.job_root}/" if wanted.source.job_root else ""
    return Copies(Planned(origin, replica.at("x")[:-1], files, targets, held))


def rewritten(wanted: Wanted, replica: Replica, mode: str) -> Iterator[bytes]:
    speller = restore.speller(wanted.closure, wanted.placement, replica.root, mode)
    with ExitStack() as stack:
        yield from rewrite(wanted.file.open(stack), wanted.file.metadata, speller)
