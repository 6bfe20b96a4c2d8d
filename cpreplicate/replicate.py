"""`diff` and `sync`: make a replica hold the source's checkpoint. The steps are those of the commit protocol."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple

from cpreplicate import deleting, lease, manifest, paths, plan, uri
from cpreplicate.deleting import some
from cpreplicate.errors import CopyFailed, LeaseHeld, NotThere, SourceBroken, SourceMovedOn, TooManyDeletes
from cpreplicate.lease import Lease
from cpreplicate.paths import Restore
from cpreplicate.plan import Plan
from cpreplicate.planning import Request, Wanted, copies, make_plan, rewritten, target_replica, want
from cpreplicate.replica import Held, Replica
from cpreplicate.runners import Copy, Outcome, Read, Runner, choose_runner
from cpreplicate.storage import Site

Say = Callable[[str], None]
_SUBSUMPTION_SETTLES = 2.0  # seconds: Flink deletes a subsumed checkpoint's `_metadata` and files one after the other


@dataclass(frozen=True)
class Report:
    """What came of it: the plan, and how far it was carried out; `undeleted` is left to a `sweep`, or to a `watch`."""

    plan: Plan
    restore: Restore
    committed: bool = False
    runner: str | None = None
    seconds: float = 0.0
    warnings: tuple[str, ...] = ()
    undeleted: tuple[str, ...] = ()


class Looked(NamedTuple):
    """What a look at a job found: the checkpoint that it would be replicated to, and what is to be copied or deleted."""

    checkpoint: str
    is_current: bool
    files: int
    bytes: int


def diff(request: Request, say: Say = lambda _line: None) -> Report:
    """The plan, nothing done. Reads the source's `_metadata` and lists the replica's directories."""
    started = time.monotonic()
    wanted = want(request)
    replica = target_replica(wanted, request)
    held = replica.committed()
    made = make_plan(wanted, replica, held, request)
    if request.explain:
        _runner(made, [], request, say)
    return _capped(_report(made, wanted, started), held, request)


def look(request: Request) -> Looked:
    """Whether there is anything to do, and how much; nothing done."""
    wanted = want(request)
    replica = target_replica(wanted, request)
    made = make_plan(wanted, replica, replica.committed(), request)
    is_current = made.empty and replica.has_manifest(made.checkpoint)
    return Looked(made.checkpoint, is_current, len(made.copies) + len(made.deletes), plan.total(made.copies))


def sync(request: Request, say: Say, shared: Runner | None = None) -> Report:
    """Replicate; see `docs/architecture.md` for the protocol. Raises one of `cpreplicate.errors`, having deleted nothing.

    With a `shared` runner, else with one of its own.
    """
    started = time.monotonic()
    wanted = want(request)
    replica = target_replica(wanted, request)
    if (nothing := _nothing_to_do(wanted, replica, request)) is not None:
        return _report(nothing, wanted, started)
    with lease.held(replica.root, replica.site, request.lock_wait, say) as hold:
        held = replica.committed_alone()
        made = make_plan(wanted, replica, held, request)
        _capped(_report(made, wanted, started), held, request)
        if made.empty and replica.has_manifest(made.checkpoint):
            return _report(made, wanted, started)
        crcs = _known_crcs(replica, held)
        unread = [action for action in made.keeps if (action.target, action.bytes) not in crcs]
        with shared or _runner(made, unread, request, say) as runner:
            outcomes = _copy(made, wanted, replica, runner, hold, say) + _read_back(unread, replica, runner, say)
            length = _publish(made, wanted, replica, hold, say) if made.publish else _published_length(made, held)
            replica.record(made.checkpoint, _manifest(made, wanted, outcomes, length, crcs))
            undeleted, warnings = _clean_up(made, replica, runner, hold, request, say)
    done = replace(_report(made, wanted, started), committed=made.publish, runner=runner.name, undeleted=undeleted)
    return replace(done, warnings=done.warnings + warnings)


def _capped(report: Report, held: Sequence[Held], request: Request) -> Report:
    """The report, unless more is to be deleted than is allowed."""
    deletes, files = len(report.plan.deletes), len({path for each in held for path in each.files})
    if request.max_delete is not None and not request.max_delete.allows(deletes, files):
        raise TooManyDeletes(
            f"{deletes} of the {files} files of {report.plan.replica} would be deleted, --max-delete allows"
            f" {request.max_delete}; nothing was copied, committed or deleted. If that is right, give a higher --max-delete",
            report,
        )
    return report


def _nothing_to_do(wanted: Wanted, replica: Replica, request: Request) -> Plan | None:
    """The empty plan of a replica that holds the checkpoint already: most runs of a cron job, so it costs no lease."""
    if not replica.has(wanted.placement.name):
        return None
    try:
        made = make_plan(wanted, replica, replica.committed(), request)
    except NotThere:  # another run, which holds the lease, removed a checkpoint between two looks at it
        return None
    return made if made.empty and replica.has_manifest(made.checkpoint) else None


def _read_back(unread: Sequence[plan.Action], replica: Replica, runner: Runner, say: Say) -> list[Outcome]:
    """The CRC32C of kept files that no manifest vouches for (a run died after it copied them): the new one is whole."""
    if not unread:
        return []
    say(f"reading back {len(unread)} files copied by an earlier run, {plan.total(unread)} bytes")
    outcomes = runner.run([Read(replica.at(action.target), action.bytes) for action in unread])
    failed = [f"{outcome.target}: {outcome.error}" for outcome in outcomes if outcome.error is not None]
    if failed:
        raise CopyFailed(f"{len(failed)} files of the replica cannot be read; nothing was committed or deleted. {some(failed)}")
    return outcomes


def _runner(made: Plan, unread: Sequence[plan.Action], request: Request, say: Say) -> Runner:
    files = len(made.copies) + len(made.deletes) + len(unread)
    size = plan.total(made.copies) + plan.total(unread)
    runner = choose_runner(request, files, size, request.sites)
    if request.explain:
        say(f"runner: {runner.name} ({runner.reason})")
    return runner


def _copy(made: Plan, wanted: Wanted, replica: Replica, runner: Runner, hold: Lease, say: Say) -> list[Outcome]:
    """Steps 2 to 4: copy what the replica lacks; on any failure raise, so that nothing is committed or deleted."""
    if not made.copies:
        return []
    say(f"copying {len(made.copies)} files, {plan.total(made.copies)} bytes")
    actions = copies(made, wanted, replica, hold.held)
    outcomes = runner.run(actions)
    _raise_if_missing(actions, outcomes, wanted)
    failed = [outcome for outcome in outcomes if outcome.error is not None]
    if failed or len(outcomes) != len(actions):
        with suppress(OSError):  # if that cannot be told either, the copies' failure is what counts
            hold.check()
        raise CopyFailed(
            f"{len(failed) or 'some'} of {len(actions)} copies failed; {made.checkpoint} was not committed and nothing was"
            " deleted. Running again copies only what is missing. "
            + some([f"{outcome.target}: {outcome.error}" for outcome in failed])
        )
    hold.check()  # another run may have written since, with what it found there
    return _as_they_lie(made, wanted, replica, outcomes)


def _as_they_lie(made: Plan, wanted: Wanted, replica: Replica, outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Each copy has at the target the length that was written: by a listing a directory, for a stat a file costs more.

    A merged file may have another one, if two attempts at it raced (speculation, an executor given up for lost): both are
    long enough, but it is not known which of them lies there, and so not its CRC32C.
    """
    present = replica.present(uri.directories(each.target for each in made.copies))
    lengths = {replica.at(each.target): present.get(each.target) for each in made.copies}
    growing = {replica.at(each.target): file.extent for each in made.copies if (file := wanted.needed[each.target]).segment}
    lying = []
    for outcome in outcomes:
        length = lengths[outcome.target]
        raced = length is not None and length != outcome.bytes and length >= growing.get(outcome.target, math.inf)
        lying.append(outcome._replace(bytes=length, crc32c=None) if raced and length is not None else outcome)
    wrong = [
        f"{each.target} has {lengths[each.target]} bytes after {each.bytes} were written"
        for each in lying
        if lengths[each.target] != each.bytes
    ]
    if wrong:
        raise CopyFailed(f"{len(wrong)} files of the replica are not as they were written; nothing was committed or deleted."
                         f" Remove them and run again. {some(wrong)}")  # fmt: skip
    return lying


def _raise_if_missing(actions: Sequence[Copy], outcomes: Sequence[Outcome], wanted: Wanted) -> None:
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
        f" It cannot be restored from the source either; nothing was committed or deleted. Missing: {some(missing, 100)}"
    )


def _is_subsumed(metadata_place: str, site: Site) -> bool:
    storage = site.storage(metadata_place)
    if storage.stat(metadata_place) is None:
        return True
    time.sleep(_SUBSUMPTION_SETTLES)
    return storage.stat(metadata_place) is None


def _publish(made: Plan, wanted: Wanted, replica: Replica, hold: Lease, say: Say) -> int:
    """Step 5: commit. A manifest of an earlier `chk-N` goes before, so that none ever describes another checkpoint."""
    hold.check()
    replica.forget_manifest(made.checkpoint)
    length = replica.publish(made.checkpoint, lambda: rewritten(wanted, replica, made.paths), hold.check)
    say(f"committed {replica.at(made.checkpoint)}")
    return length


def _published_length(made: Plan, held: Sequence[Held]) -> int:
    return next(each.metadata_length for each in held if each.name == made.checkpoint)


def _known_crcs(replica: Replica, held: Sequence[Held]) -> dict[tuple[str, int], int]:
    found = [replica.manifest(each.name, each.metadata_length) for each in held]
    return manifest.crcs(each for each in found if each is not None)


def _manifest(
    made: Plan, wanted: Wanted, outcomes: Sequence[Outcome], length: int, earlier: Mapping[tuple[str, int], int]
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


def _clean_up(
    made: Plan, replica: Replica, runner: Runner, hold: Lease, request: Request, say: Say
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Step 6: old `_metadata` first, then files. Returns what was put off, and warnings of what could not be deleted."""
    try:
        hold.check()
        for name in made.dropped:
            replica.withdraw(name)
        if request.async_deletes:
            return tuple(each.target for each in made.deletes), ()
        return (), _delete(made, replica, runner, hold, say)
    except LeaseHeld as error:
        return (), (f"{error}; {made.checkpoint} was committed before, what was to be deleted is left to `sweep`",)
    except OSError as error:
        return (), (f"{error}; the old checkpoints were left as they are, the next run deletes them",)


def _delete(made: Plan, replica: Replica, runner: Runner, hold: Lease, say: Say) -> tuple[str, ...]:
    if made.deletes:
        say(f"deleting {len(made.deletes)} files that only {', '.join(made.dropped) or 'the former checkpoint'} needed")
    failed = deleting.delete([each.target for each in made.deletes], replica, runner, hold)
    failed += _forget(made.dropped, replica)
    return (f"{len(failed)} files could not be deleted and are orphans now: {some(failed)}",) if failed else ()


def _forget(names: Sequence[str], replica: Replica) -> list[str]:
    try:
        for name in names:
            replica.forget(name)
    except OSError as error:
        return [str(error)]
    return []


def _report(made: Plan, wanted: Wanted, started: float) -> Report:
    restore = paths.restore(wanted.file.metadata, made.paths, uri.join(made.replica, made.checkpoint))
    return Report(made, restore, seconds=time.monotonic() - started, warnings=made.warnings)
