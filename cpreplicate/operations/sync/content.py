"""Read the files that a replica keeps, and compare their content with what it should be.

Used for `--check-content`, and for files of other programs at the paths of copies.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from cpreplicate.core import sizes
from cpreplicate.core.ledger import LedgerEntry, MemberTable
from cpreplicate.core.plan import Action, Plan, total
from cpreplicate.core.reuse import reusing
from cpreplicate.errors import CopyFailed, Refused
from cpreplicate.operations.change import some
from cpreplicate.operations.compare import errors_of, read_of
from cpreplicate.operations.sync.copy import SyncChange, refuse_lacking
from cpreplicate.storage import Checksum, Side, Sides, checksum

DIFFERS = "damaged: its content is not the recorded one"
EQUAL = "was here before, equal to the source's"


def compare_content(run: SyncChange) -> None:
    """Compare kept files with their record if that was asked for, and files of other programs.

    The plan follows from what is found, and nothing is copied before. Raises `CopyFailed` if a file
    of the replica cannot be read, and `Refused` if a file of another program would be replaced.
    """
    if run.request.check_content and (found := damaged(run)):
        run.ledger.distrust(found)
        # made anew: a pack of which too much is damaged is not needed any more, or moves
        run.plan = explained(run.make_plan(), found)
    compared = keeping_what_is_equal(run)
    refuse_lacking(compared.missing, compared.short, run.source_state)
    run.plan = compared.plan
    run.prove(compared.recorded)


def damaged(run: SyncChange) -> frozenset[str]:
    """Read each kept file, and return the targets of those that differ from their record.

    Raises `CopyFailed` if one cannot be read.
    """
    plan, replica, ledger = run.plan, run.replica, run.ledger.files
    kept = (*plan.keeps, *plan.repacks)
    members = MemberTable.merged([plan.members, plan.moving])
    if not kept:
        return frozenset()
    run.notify(f"reading {len(kept)} kept files, {sizes.size(total(kept))}")
    reads = [
        read_of(replica, action.target, action.bytes, members.get(action.target)) for action in kept
    ]
    outcomes = {outcome.target: outcome for outcome in run.runner.run(reads)}
    if unread := list(errors_of(outcomes.values())):
        raise CopyFailed(
            f"{len(unread)} files of the replica cannot be read. Nothing was committed or deleted."
            f" Make them readable or remove them, and run again. {some(unread)}"
        )
    different = frozenset(
        action.target
        for action in kept
        if outcomes[replica.uri_of(action.target)].crc32c
        != (members.get(action.target) or ledger[action.target]).crc32c
    )
    if different:
        count = len(different)
        run.notify(f"{count} kept files differ from their recorded CRC32C and are copied again")
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


def keeping_what_is_equal(run: SyncChange) -> Compared:
    """Return the plan that keeps the files of other programs that equal the source's.

    Raises `Refused` if one differs: it is never overwritten. One that is gone by now is copied.
    """
    plan, replica, needed = run.plan, run.replica, run.source_state.needed
    others = [action for action in plan.copies if action.target in plan.strangers]
    if not others:
        return Compared(plan, {})
    run.notify(
        f"comparing {len(others)} files that cpreplicate did not write with the source's,"
        f" {sizes.size(total(others))}"
    )
    pairs = [(str(action.source), replica.uri_of(action.target)) for action in others]
    uris = [path for pair in pairs for path in pair]
    read = run.runner.map(ReadBoth(run.runner.limited(run.request.sides)), pairs, uris)
    there = [
        _Pair(action, at_source, at_target)
        for action, (at_source, at_target) in zip(others, read, strict=True)
        if at_target is not None
    ]
    missing = [pair.source for pair in there if pair.at_source is None]
    short = [pair.source for pair in there if pair.is_short(needed[pair.action.target].extent)]
    if missing or short:
        return Compared(plan, {}, tuple(missing), tuple(short))
    different = {pair.action.target for pair in there if pair.at_source != pair.at_target}
    refuse_different(sorted(different - plan.packed), replica.root)
    equal = [pair for pair in there if pair.action.target not in different]
    recorded = {pair.action.target: LedgerEntry(*pair.at_target, written=False) for pair in equal}
    return Compared(_keeping(plan, [pair.action for pair in equal]), recorded)


class _Pair(NamedTuple):
    """A copy, the content of its source, None if that is gone, and of what lies at its target."""

    action: Action
    at_source: Checksum | None
    at_target: Checksum

    @property
    def source(self) -> str:
        return str(self.action.source)

    def is_short(self, extent: int) -> bool:
        """Return whether the file at the source lacks bytes that the checkpoint needs."""
        return self.at_source is not None and self.at_source.bytes < extent


def refuse_different(paths: Sequence[str], root: str) -> None:
    """Raise `Refused` for files that differ. A member of a pack is written elsewhere."""
    if paths:
        raise Refused(
            f"{len(paths)} files of {root} were not written by cpreplicate and differ from"
            " the source's files that belong there, so they would be overwritten. Nothing was"
            " copied, committed or deleted. If no program needs them, move them out of the replica."
            f" Else sync into another TARGET_ROOT. They are {some(paths)}"
        )


def _keeping(plan: Plan, others: list[Action]) -> Plan:
    """Return the plan that keeps these files, and neither copies nor packs them."""
    if not others:
        return plan
    kept = {action.target for action in others}
    kept_too = plan.keeps.and_others(
        [action._replace(action="keep", reason=EQUAL) for action in others]
    )
    copies = tuple(action for action in plan.copies if action.target not in kept)
    made = replace(plan, copies=copies, keeps=kept_too, packed=plan.packed - kept)
    return reusing(made, plan.reused)


class ReadBoth:
    """Reads a file at the source and at the target, in a task of the runner.

    Returns None for each of them that is gone by now.
    """

    def __init__(self, sides: Sides) -> None:
        self._sides = sides

    def __call__(self, pair: tuple[str, str]) -> tuple[Checksum | None, Checksum | None]:
        source, target = pair
        return _content(source, self._sides.source), _content(target, self._sides.target)


def _content(file_uri: str, side: Side) -> Checksum | None:
    try:
        return checksum(file_uri, side)
    except FileNotFoundError:
        return None
