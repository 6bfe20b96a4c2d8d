"""Read the files that a replica keeps, and compare their content with what it should be.

Used for `--check-content`, and in adopted directories.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import replace
from typing import NamedTuple

from cpreplicate.core import uri
from cpreplicate.core.plan import Action, Plan, total
from cpreplicate.core.recorded import Member, MemberTable, Vouch
from cpreplicate.errors import CopyFailed, Refused
from cpreplicate.operations.deletion import some
from cpreplicate.protocol.replica import Replica
from cpreplicate.runners import Read, Runner
from cpreplicate.storage import Copied, Sides, checksum

Notify = Callable[[str], None]
DIFFERS = "damaged: its content is not the recorded one"
EQUAL = "was here before, equal to the source's"


def damaged(
    plan: Plan, replica: Replica, vouched: Mapping[str, Vouch], runner: Runner, notify: Notify
) -> frozenset[str]:
    """Read each kept file, and return the targets of those that differ from their record.

    Raises `CopyFailed` if one cannot be read.
    """
    kept = (*plan.keeps, *plan.repacks)
    members = MemberTable.merged([plan.members, plan.moving])
    if not kept:
        return frozenset()
    notify(f"reading {len(kept)} kept files, {total(kept)} bytes")
    reads = [_read(action, members.get(action.target), replica) for action in kept]
    outcomes = {outcome.target: outcome for outcome in runner.run(reads)}
    unread = [
        f"{outcome.target}: {outcome.error}"
        for outcome in outcomes.values()
        if outcome.error is not None
    ]
    if unread:
        raise CopyFailed(
            f"{len(unread)} files of the replica cannot be read. Nothing was committed or deleted."
            f" Make them readable or remove them, and run again. {some(unread)}"
        )
    different = frozenset(
        action.target
        for action in kept
        if outcomes[replica.uri_of(action.target)].crc32c
        != (members.get(action.target) or vouched[action.target]).crc32c
    )
    if different:
        count = len(different)
        notify(f"{count} kept files differ from their recorded CRC32C and are copied again")
    return different


def _read(kept: Action, member: Member | None, replica: Replica) -> Read:
    target = replica.uri_of(kept.target)
    if member is None:
        return Read(target, kept.bytes)
    return Read(target, member.length, replica.uri_of(member.pack), member.offset)


def explained(plan: Plan, targets: Container[str]) -> Plan:
    """Return the plan with the reason why these files are copied again."""
    copies = tuple(
        action._replace(reason=DIFFERS) if action.target in targets else action
        for action in plan.copies
    )
    return replace(plan, copies=copies)


class Compared(NamedTuple):
    """A plan after its files were compared, and what is vouched for besides."""

    plan: Plan
    vouched: Mapping[str, Vouch]


def keeping_what_is_equal(
    plan: Plan,
    replica: Replica,
    written: Container[str],
    runner: Runner,
    sides: Sides,
    notify: Notify,
) -> Compared:
    """Return the plan that keeps the files of an adopted directory that equal the source's.

    Raises `Refused` if a file that was there before differs: it is never overwritten.
    """
    present = replica.present(uri.directories(action.target for action in plan.copies))
    others = [
        action
        for action in plan.copies
        if action.target in present and action.target not in written
    ]
    if not others:
        return Compared(plan, {})
    notify(
        f"comparing {len(others)} files that were here before with the source's, {total(others)}"
        " bytes"
    )
    pairs = [(str(action.source), replica.uri_of(action.target)) for action in others]
    uris = [path for pair in pairs for path in pair]
    read = runner.map(ReadBoth(runner.limited(sides)), pairs, uris)
    compared = [
        (action, contents)
        for action, contents in zip(others, read, strict=True)
        if contents is not None
    ]
    different = [
        replica.uri_of(action.target)
        for action, (at_source, at_target) in compared
        if at_source != at_target
    ]
    if different:
        raise Refused(
            f"{len(different)} files that were in the adopted directory before differ from the"
            " source's, and would be overwritten. Nothing was copied, committed or deleted. Sync"
            f" into another TARGET_ROOT. They are {some(different)}"
        )
    vouched = {
        action.target: Vouch(*at_target, written=False) for action, (_, at_target) in compared
    }
    return Compared(_keeping(plan, [action for action, _ in compared]), vouched)


def _keeping(plan: Plan, others: list[Action]) -> Plan:
    kept = {action.target for action in others}
    keeps = [action._replace(action="keep", reason=EQUAL) for action in others]
    return replace(
        plan,
        copies=tuple(action for action in plan.copies if action.target not in kept),
        keeps=plan.keeps.joined(keeps) if keeps else plan.keeps,
    )


class ReadBoth:
    """Reads a file at the source and at the target, in a task of the runner.

    Returns None if one of them is gone by now.
    """

    def __init__(self, sides: Sides) -> None:
        self._sides = sides

    def __call__(self, pair: tuple[str, str]) -> tuple[Copied, Copied] | None:
        source, target = pair
        try:
            return checksum(source, self._sides.source), checksum(target, self._sides.target)
        except FileNotFoundError:
            return None
