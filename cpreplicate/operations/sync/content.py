"""Read the files that a replica keeps, and compare their content with what it should be.

Used for `--check-content`, and for files of other programs at the paths of copies.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from cpreplicate.core import sizes
from cpreplicate.core.ledger import LedgerEntry, MemberTable
from cpreplicate.core.path_columns import texts
from cpreplicate.core.plan import Action, Plan, total, without_targets
from cpreplicate.core.reuse import reusing
from cpreplicate.core.sizes import counted, plural
from cpreplicate.errors import CopyFailed, Refused
from cpreplicate.operations.change.change import some, they_are
from cpreplicate.operations.sync.plan.work import Work
from cpreplicate.operations.sync.source.lacking import refuse_lacking
from cpreplicate.operations.verify.compare import errors_of, read_of, unread_of
from cpreplicate.storage import Checksum, Side, Sides, checksum, checksums_of_parts

DIFFERS = "damaged: its content is not the recorded one"
EQUAL = "was here before, equal to the source's"


def compare_content(work: Work, is_first: bool = True) -> Work:
    """Compare kept files with their record if that was asked for, and files of other programs.

    Returns the work that follows from what is found. Nothing is copied before. Kept files are
    compared before the first checkpoint of a run only. Raises `CopyFailed` if a file of the replica
    cannot be read, and `Refused` if a file of another program would be replaced.
    """
    change = work.change
    if is_first and work.request.check_content and (found := damaged(work)):
        change.ledger.distrust(found)
        # made anew: a pack of which too much is damaged is not needed any more, or moves
        work = Work.of(change, work.source_state)
        work = replace(work, plan=explained(work.plan, found))
    compared = keeping_what_is_equal(work)
    refuse_lacking(compared.missing, compared.short, work.source_state)
    change.prove(compared.recorded)
    return replace(work, plan=compared.plan)


def damaged(work: Work) -> frozenset[str]:
    """Read each kept file, and return the targets of those that differ from their record.

    Raises `CopyFailed` if one cannot be read.
    """
    change, plan, replica = work.change, work.plan, work.replica
    ledger = change.ledger.files
    kept = (*plan.keeps, *plan.repacks)
    members = MemberTable.merged([plan.members, plan.moving])
    if not kept:
        return frozenset()
    change.notify(f"reading {counted(len(kept), 'kept file')}, {sizes.size(total(kept))}")
    reads = [
        read_of(replica, action.target, action.bytes, members.get(action.target)) for action in kept
    ]
    outcomes = {outcome.target: outcome for outcome in change.runner.run(reads)}
    if unread := list(errors_of(unread_of(outcomes.values()))):
        them = plural(len(unread), "it", "them")
        raise CopyFailed(
            f"{counted(len(unread), 'file')} of the replica cannot be read. Nothing was committed"
            f" or deleted. Make {them} readable or remove {them}, and run again. {some(unread)}"
        )
    different = frozenset(
        action.target
        for action in kept
        if outcomes[replica.uri_of(action.target)].crc32c
        != (members.get(action.target) or ledger[action.target]).crc32c
    )
    if different:
        are = counted(len(different), "kept file is", "kept files are")
        change.notify(f"{are} damaged, or of another CRC32C than recorded: copied again")
    return different


def explained(plan: Plan, targets: Container[str]) -> Plan:
    """Return the plan with the reason why these files are copied again."""
    copies = tuple(
        action._replace(reason=DIFFERS) if action.target in targets else action
        for action in plan.copies
    )
    return replace(plan, copies=copies)


class Compared(NamedTuple):
    """A plan after its files were compared, and what is recorded besides.

    `missing` and `short` are files of the source with which nothing can be compared.
    """

    plan: Plan
    recorded: Mapping[str, LedgerEntry]
    missing: tuple[str, ...] = ()
    short: tuple[str, ...] = ()


def keeping_what_is_equal(work: Work) -> Compared:
    """Return the plan that keeps the files that equal the source's and that no record lists as
    written: those of other programs, and those that a run copied before it died.

    Raises `Refused` if one differs: it is never overwritten. One that is gone by now is copied, and
    so is a merged file that grew at the source since a run copied it.
    """
    change, plan, replica = work.change, work.plan, work.replica
    needed = work.source_state.needed
    if not plan.strangers:
        return Compared(plan, {})
    others = [action for action in plan.copies if action.target in plan.strangers]
    if not others:
        return Compared(plan, {})
    change.notify(
        f"comparing {counted(len(others), 'file')} that no record lists as written by cpreplicate"
        f" with the source's, {sizes.size(total(others))}"
    )
    pairs = [
        (
            str(action.source),
            replica.uri_of(action.target),
            needed[action.target].extent,
            needed[action.target].segment,
        )
        for action in others
    ]
    uris = [path for source, target, *_ in pairs for path in (source, target)]
    read = change.runner.map(ReadBoth(change.runner.limited(work.request.sides)), pairs, uris)
    there = [
        _Pair(action, needed[action.target].extent, each.at_source, each.at_target, each.beginning)
        for action, each in zip(others, read, strict=True)
        if each.at_target is not None
    ]
    missing = [pair.source for pair in there if pair.at_source is None]
    short = [pair.source for pair in there if pair.is_source_short]
    if missing or short:
        return Compared(plan, {}, tuple(missing), tuple(short))
    planned = {*change.ledger.planned_only(texts(plan.strangers)).to_pylist()}
    outgrown = {pair.target for pair in there if pair.is_equal and pair.is_target_short}
    equal = [pair for pair in there if pair.is_equal and not pair.is_target_short]
    different = {pair.target for pair in there}.difference(
        (pair.target for pair in equal), outgrown & planned
    )
    refuse_different(sorted(different - plan.packed), replica.root)
    recorded = {
        pair.target: LedgerEntry(*pair.at_target, written=pair.target in planned) for pair in equal
    }
    return Compared(_keeping(plan, [pair.action for pair in equal]), recorded)


class _Pair(NamedTuple):
    """A copy, the content of its source, None if that is gone, and of what is at its target.

    `beginning` is that of a merged file at the source, as much of it as is at the target.
    """

    action: Action
    extent: int
    at_source: Checksum | None
    at_target: Checksum
    beginning: Checksum | None

    @property
    def source(self) -> str:
        return str(self.action.source)

    @property
    def target(self) -> str:
        return self.action.target

    @property
    def is_equal(self) -> bool:
        """Whether the target has the source's content, or that of a merged file before it grew."""
        return self.at_target in (self.at_source, self.beginning)

    @property
    def is_source_short(self) -> bool:
        """Whether the file at the source lacks bytes that the checkpoint needs."""
        return self.at_source is not None and self.at_source.bytes < self.extent

    @property
    def is_target_short(self) -> bool:
        """Whether the file at the target lacks bytes that the checkpoint needs."""
        return self.at_target.bytes < self.extent


def refuse_different(paths: Sequence[str], root: str) -> None:
    """Raise `Refused` for files that differ. A member of a pack is written elsewhere."""
    if paths:
        them = plural(len(paths), "it", "them")
        raise Refused(
            f"{counted(len(paths), 'file')} of {root} {plural(len(paths), 'was', 'were')} not"
            f" written by cpreplicate and {plural(len(paths), 'differs', 'differ')} from the"
            f" source's files that belong there, so {plural(len(paths), 'it', 'they')} would be"
            f" overwritten. Nothing was copied, committed or deleted. If no program needs {them},"
            f" move {them} out of the replica. Else sync into another TARGET_ROOT."
            f" {they_are(paths)}"
        )


def _keeping(plan: Plan, others: list[Action]) -> Plan:
    """Return the plan that keeps these files, and neither copies nor packs them."""
    if not others:
        return plan
    kept = {action.target for action in others}
    kept_too = plan.keeps.and_others(
        [action._replace(action="keep", reason=EQUAL) for action in others]
    )
    copies = without_targets(plan.copies, kept)
    made = replace(plan, copies=copies, keeps=kept_too, packed=plan.packed - kept)
    return reusing(made, plan.reused)


class Contents(NamedTuple):
    """The content of a file at the source and at the target, None for what is gone by now.

    `beginning` is that of a longer merged file at the source, as long as the one at the target.
    """

    at_source: Checksum | None
    at_target: Checksum | None
    beginning: Checksum | None = None


class ReadBoth:
    """Reads a file at the source and at the target, in a task of the runner."""

    def __init__(self, sides: Sides) -> None:
        self._sides = sides

    def __call__(self, copy: tuple[str, str, int, bool]) -> Contents:
        source, target, extent, grows = copy
        at_source = _content(source, self._sides.source, extent)
        both = Contents(at_source, _content(target, self._sides.target))
        if not grows or both.at_source is None or both.at_target is None:
            return both
        length = both.at_target.bytes
        if length >= both.at_source.bytes:
            return both
        [beginning] = checksums_of_parts(source, [(0, length)], self._sides.source)
        return both._replace(beginning=beginning)


def _content(file_uri: str, side: Side, extent: int = 0) -> Checksum | None:
    try:
        return checksum(file_uri, side, extent=extent)
    except FileNotFoundError:
        return None
