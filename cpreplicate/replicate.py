"""`diff` and `sync`: make a replica hold the source's checkpoint. The steps are those of the commit protocol."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from cpreplicate import lease, manifest, paths, plan, uri
from cpreplicate.closure import Closure, closure
from cpreplicate.errors import CopyFailed, NotThere, Refused, SourceBroken, SourceMovedOn
from cpreplicate.metadata import rewrite
from cpreplicate.paths import PathsMode, Restore
from cpreplicate.placement import Placement
from cpreplicate.plan import Needed, Plan
from cpreplicate.replica import Held, Replica
from cpreplicate.runners import Copy, Delete, Outcome, Read, Runner, choose_runner
from cpreplicate.source import MetadataFile, Source, find, read_metadata
from cpreplicate.storage import Site, Sites

Say = Callable[[str], None]
_SHOWN = 5  # names in a message; the rest are counted
_SUBSUMPTION_SETTLES = 2.0  # seconds: Flink deletes a subsumed checkpoint's `_metadata` and files one after the other


@dataclass(frozen=True)
class Request:
    """What to replicate and how; the options of `diff` and `sync`."""

    source: str
    target_root: str
    paths: PathsMode = "auto"
    keep: int = 1
    remaps: tuple[uri.Remap, ...] = ()
    source_roots: tuple[str, ...] = ()
    runner: str = "auto"
    master: str | None = None
    parallelism: int | None = None
    sites: Sites = field(default=Sites())


@dataclass(frozen=True)
class Report:
    """What came of it: the plan, and how far it was carried out."""

    plan: Plan
    restore: Restore
    committed: bool = False
    runner: str | None = None
    seconds: float = 0.0
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Wanted:
    """The source's side: its checkpoint, the closure, and where each file is to lie in the replica."""

    source: Source
    file: MetadataFile
    closure: Closure
    placement: Placement
    needed: Mapping[str, Needed]


def diff(request: Request) -> Report:
    """The plan, nothing done. Reads the source's `_metadata` and lists the replica's directories."""
    started = time.monotonic()
    wanted = _want(request)
    replica = _replica(wanted, request)
    return _report(make_plan(wanted, replica, replica.committed(), request), wanted, started)


def sync(request: Request, say: Say) -> Report:
    """Replicate; see `docs/architecture.md` for the protocol. Raises one of `cpreplicate.errors`, having deleted nothing."""
    started = time.monotonic()
    wanted = _want(request)
    replica = _replica(wanted, request)
    if (nothing := _nothing_to_do(wanted, replica, request)) is not None:
        return _report(nothing, wanted, started)
    with lease.held(replica.root, replica.site) as check_lease:
        held = replica.committed()
        made = make_plan(wanted, replica, held, request)
        if made.empty and replica.has_manifest(made.checkpoint):
            return _report(made, wanted, started)
        crcs = _known_crcs(replica, held)
        unread = [action for action in made.keeps if (action.target, action.bytes) not in crcs]
        with _runner(made, unread, request, say) as runner:
            outcomes = _copy(made, wanted, replica, runner, say) + _read_back(unread, replica, runner, say)
            check_lease()
            length = _publish(made, wanted, replica, say) if made.publish else _published_length(made, held)
            replica.record(made.checkpoint, _manifest(made, wanted, outcomes, length, crcs))
            check_lease()
            undeleted = _delete(made, replica, runner, say)
    done = replace(_report(made, wanted, started), committed=made.publish, runner=runner.name)
    return replace(done, warnings=done.warnings + undeleted)


def _nothing_to_do(wanted: _Wanted, replica: Replica, request: Request) -> Plan | None:
    """The empty plan of a replica that holds the checkpoint already: most runs of a cron job, so it costs no lease."""
    if not replica.has(wanted.placement.name):
        return None
    try:
        made = make_plan(wanted, replica, replica.committed(), request)
    except NotThere:  # another run, which holds the lease, removed a checkpoint between two looks at it
        return None
    return made if made.empty and replica.has_manifest(made.checkpoint) else None


def make_plan(wanted: _Wanted, replica: Replica, held: Sequence[Held], request: Request) -> Plan:
    """Compare what the source's checkpoint needs with what the replica's committed checkpoints reference and hold."""
    _refuse_to_go_back(held, wanted, replica)
    _refuse_outside(held, replica)
    committed = [each.as_committed() for each in held]
    present = replica.present([*wanted.needed, *(target for each in held for target in each.files)])
    copies, keeps = plan.copies_and_keeps(wanted.needed, committed, present)
    chosen = paths.choose(wanted.file.metadata, request.paths)
    publish = copies != () or not _is_published(wanted, replica, held, chosen.mode)
    dropped = plan.dropped(committed, wanted.file.metadata.checkpoint_id, request.keep)
    same = [each for each in committed if each.name == wanted.placement.name]
    return Plan(
        source=wanted.source.checkpoint,
        replica=replica.root,
        checkpoint=wanted.placement.name,
        checkpoint_id=wanted.file.metadata.checkpoint_id,
        base_checkpoint_id=max((each.checkpoint_id for each in held), default=None),
        publish=publish,
        copies=copies,
        keeps=keeps,
        deletes=plan.deletes(committed, [*dropped, *same], wanted.needed, present),
        dropped=tuple(each.name for each in dropped),
        paths=chosen.mode,
        paths_reason=chosen.reason,
        warnings=paths.warnings(wanted.file.metadata, request.paths),
    )


def _want(request: Request) -> _Wanted:
    site = request.sites.source
    source = find(request.source, site)
    file = read_metadata(source.checkpoint, site)
    found = closure(file.metadata, request.remaps)
    _refuse_other_roots(found, source, request)
    placement = Placement(source.checkpoint, source.job_root, f"chk-{file.metadata.checkpoint_id}")
    placed = placement.place_all(found.files)
    needed = {target: Needed(place, found.files[place].extent, found.files[place].size) for target, place in placed.items()}
    return _Wanted(source, file, found, placement, needed)


def _replica(wanted: _Wanted, request: Request) -> Replica:
    root = uri.join(request.target_root, wanted.source.job)
    here, there = request.sites.source.identity(wanted.source.checkpoint), request.sites.target.identity(root)
    for place in (wanted.source.checkpoint, wanted.source.job_root):
        if place is not None and here == there and _overlap(uri.local_path(place), uri.local_path(root)):
            raise Refused(f"the replica {root} would lie in its own source {place}; give another TARGET_ROOT")
    return Replica(root, request.sites.target)


def _overlap(place: str, other: str) -> bool:
    return place == other or uri.below(place, other) is not None or uri.below(other, place) is not None


def _refuse_other_roots(found: Closure, source: Source, request: Request) -> None:
    """A `_metadata` is not trusted to name any file it likes: only below the roots, or on the source's own filesystem."""
    allowed = [source.job_root or source.checkpoint, *(each.actual for each in request.remaps), *request.source_roots]
    if not request.source_roots:
        allowed.append(uri.filesystem(source.checkpoint))
    strangers = [place for place in found.files if not any(uri.within(place, root) for root in allowed)]
    if strangers:
        raise Refused(
            f"{source.checkpoint} references {len(strangers)} files outside the source's roots, such as {strangers[0]};"
            " nothing was read from there. If they belong to this job, name the directory with --source-root, or where"
            " it can be read with --remap FROM=TO"
        )


def _refuse_to_go_back(held: Sequence[Held], wanted: _Wanted, replica: Replica) -> None:
    newest = max((each.checkpoint_id for each in held), default=-1)
    asked = wanted.file.metadata.checkpoint_id
    if newest > asked:
        raise Refused(
            f"{replica.root} holds chk-{newest}, newer than {wanted.source.checkpoint} (checkpoint {asked}); a replica never"
            " goes back. Sync a newer checkpoint, or give another TARGET_ROOT"
        )


def _refuse_outside(held: Sequence[Held], replica: Replica) -> None:
    for each in held:
        if each.outside:
            raise Refused(
                f"{replica.at(each.name)} references {len(each.outside)} files outside the replica, such as"
                f" {each.outside[0]}: it was moved or is damaged. Nothing was copied or deleted; sync into another"
                f" TARGET_ROOT, or remove {each.name}/_metadata if it is of no use"
            )


def _is_published(wanted: _Wanted, replica: Replica, held: Sequence[Held], mode: str) -> bool:
    if all(each.name != wanted.placement.name for each in held):
        return False
    return replica.holds(wanted.placement.name, _rewritten(wanted, replica, mode))


def _rewritten(wanted: _Wanted, replica: Replica, mode: str) -> Iterator[bytes]:
    speller = paths.speller(wanted.closure, wanted.placement, replica.root, mode)
    with ExitStack() as stack:
        yield from rewrite(wanted.file.open(stack), wanted.file.metadata, speller)


def _read_back(unread: Sequence[plan.Action], replica: Replica, runner: Runner, say: Say) -> list[Outcome]:
    """The CRC32C of kept files that no manifest vouches for (a run died after it copied them): the new one is whole."""
    if not unread:
        return []
    say(f"reading back {len(unread)} files copied by an earlier run, {plan.total(unread)} bytes")
    outcomes = runner.run([Read(replica.at(action.target), action.bytes) for action in unread])
    failed = [f"{outcome.target}: {outcome.error}" for outcome in outcomes if outcome.error is not None]
    if failed:
        raise CopyFailed(
            f"{len(failed)} files of the replica cannot be read; nothing was committed or deleted. {_some(failed)}"
        )
    return outcomes


def _runner(made: Plan, unread: Sequence[plan.Action], request: Request, say: Say) -> Runner:
    files = len(made.copies) + len(made.deletes) + len(unread)
    size = plan.total(made.copies) + plan.total(unread)
    runner = choose_runner(request.runner, files, size, request.sites, request.master, request.parallelism)
    say(f"runner: {runner.name} ({runner.reason})")
    return runner


def _copy(made: Plan, wanted: _Wanted, replica: Replica, runner: Runner, say: Say) -> list[Outcome]:
    """Steps 2 to 4: copy what the replica lacks; on any failure raise, so that nothing is committed or deleted."""
    if not made.copies:
        return []
    say(f"copying {len(made.copies)} files, {plan.total(made.copies)} bytes")
    needed = [(each.target, wanted.needed[each.target]) for each in made.copies]
    actions = [Copy(file.source, uri.join(made.replica, target), file.extent, file.size) for target, file in needed]
    outcomes = runner.run(actions)
    _raise_if_missing(actions, outcomes, wanted)
    failed = [outcome for outcome in outcomes if outcome.error is not None]
    if failed or len(outcomes) != len(actions):
        raise CopyFailed(
            f"{len(failed) or 'some'} of {len(actions)} copies failed; {made.checkpoint} was not committed and nothing was"
            " deleted. Running again copies only what is missing. "
            + _some([f"{outcome.target}: {outcome.error}" for outcome in failed])
        )
    _check_lengths(made, replica, outcomes)
    return outcomes


def _check_lengths(made: Plan, replica: Replica, outcomes: Sequence[Outcome]) -> None:
    """Each copy has at the target the length that was written: by a listing a directory, for a stat a file costs more."""
    present = replica.present([each.target for each in made.copies])
    lengths = {outcome.target: outcome.bytes for outcome in outcomes}
    wrong = [
        f"{place} has {present.get(each.target)} bytes after {lengths[place]} were written"
        for each in made.copies
        if present.get(each.target) != lengths[place := replica.at(each.target)]
    ]
    if wrong:
        raise CopyFailed(f"{len(wrong)} files of the replica are not as they were written; nothing was committed or deleted."
                         f" Remove them and run again. {_some(wrong)}")  # fmt: skip


def _raise_if_missing(actions: Sequence[Copy], outcomes: Sequence[Outcome], wanted: _Wanted) -> None:
    """A file gone from the source: subsumed meanwhile if its `_metadata` goes too, else the checkpoint is broken."""
    missing_targets = {outcome.target for outcome in outcomes if outcome.missing}
    missing = [action.source for action in actions if action.target in missing_targets]
    if not missing:
        return
    place = wanted.file.uri
    if _is_subsumed(place, wanted.file.site):
        raise SourceMovedOn(
            f"{wanted.source.checkpoint} was subsumed while it was copied; nothing was committed or deleted. Run again with"
            " the job's directory to take its newest checkpoint: what was copied stays useful"
        )
    raise SourceBroken(
        f"{wanted.source.checkpoint} is broken where it lies: its _metadata is there, {len(missing)} of its files are not."
        f" It cannot be restored from the source either; nothing was committed or deleted. Missing: {_some(missing, 100)}"
    )


def _is_subsumed(metadata_place: str, site: Site) -> bool:
    storage = site.storage(metadata_place)
    if storage.stat(metadata_place) is None:
        return True
    time.sleep(_SUBSUMPTION_SETTLES)
    return storage.stat(metadata_place) is None


def _publish(made: Plan, wanted: _Wanted, replica: Replica, say: Say) -> int:
    """Step 5: commit. A manifest of an earlier `chk-N` goes before, so that none ever describes another checkpoint."""
    replica.forget_manifest(made.checkpoint)
    length = replica.publish(made.checkpoint, lambda: _rewritten(wanted, replica, made.paths))
    say(f"committed {replica.at(made.checkpoint)}")
    return length


def _published_length(made: Plan, held: Sequence[Held]) -> int:
    return next(each.metadata_length for each in held if each.name == made.checkpoint)


def _known_crcs(replica: Replica, held: Sequence[Held]) -> dict[tuple[str, int], int]:
    found = [replica.manifest(each.name, each.metadata_length) for each in held]
    return manifest.crcs(each for each in found if each is not None)


def _manifest(
    made: Plan, wanted: _Wanted, outcomes: Sequence[Outcome], length: int, earlier: Mapping[tuple[str, int], int]
) -> manifest.Manifest:
    copied = {outcome.target: outcome for outcome in outcomes}
    entries = {}
    for action in made.copies:
        outcome = copied[uri.join(made.replica, action.target)]
        entries[action.target] = manifest.Entry(wanted.needed[action.target].extent, outcome.bytes, outcome.crc32c)
    for action in made.keeps:
        extent = wanted.needed[action.target].extent
        read = copied.get(uri.join(made.replica, action.target))
        crc32c = read.crc32c if read else earlier.get((action.target, action.bytes))
        entries[action.target] = manifest.Entry(extent, action.bytes, crc32c)
    return manifest.Manifest(made.checkpoint_id, length, entries)


def _delete(made: Plan, replica: Replica, runner: Runner, say: Say) -> tuple[str, ...]:
    """Step 6: old `_metadata` first, then files. What could not be deleted is an orphan, told as a warning."""
    try:
        for name in made.dropped:
            replica.withdraw(name)
    except OSError as error:
        return (f"{error}; the old checkpoints were left as they are, the next run deletes them",)
    if made.deletes:
        say(f"deleting {len(made.deletes)} files that only {', '.join(made.dropped) or 'the former checkpoint'} needed")
    outcomes = runner.run([Delete(replica.at(each.target)) for each in made.deletes]) if made.deletes else []
    failed = [f"{outcome.target}: {outcome.error}" for outcome in outcomes if outcome.error is not None]
    failed += _forget(made.dropped, replica)
    return (f"{len(failed)} files could not be deleted and are orphans now: {_some(failed)}",) if failed else ()


def _forget(names: Sequence[str], replica: Replica) -> list[str]:
    try:
        for name in names:
            replica.forget(name)
    except OSError as error:
        return [str(error)]
    return []


def _report(made: Plan, wanted: _Wanted, started: float) -> Report:
    restore = paths.restore(wanted.file.metadata, made.paths, uri.join(made.replica, made.checkpoint))
    return Report(made, restore, seconds=time.monotonic() - started, warnings=made.warnings)


def _some(texts: Sequence[str], shown: int = _SHOWN) -> str:
    more = f" and {len(texts) - shown} more" if len(texts) > shown else ""
    return "; ".join(texts[:shown]) + more
