"""Comparing what a replica keeps with what it should hold, by reading it: for `--check-content`,
and in adopted directories.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

from cpreplicate.core.plan import Action, Plan, Vouch, total
from cpreplicate.errors import CopyFailed, Refused
from cpreplicate.operations.deletion import some
from cpreplicate.protocol.replica import Replica
from cpreplicate.runners import Read, Runner
from cpreplicate.storage import Copied, Sides, checksum

Notify = Callable[[str], None]
DIFFERS = "damaged: its content is not the recorded one"
EQUAL = "was here before, equal to the source's"


def without_damaged(
    made: Plan, replica: Replica, vouched: Mapping[str, Vouch], runner: Runner, notify: Notify
) -> Plan:
    """Read each kept file, and return the plan in which those that differ from their record are
    copied.
    """
    if not made.keeps:
        return made
    notify(f"reading {len(made.keeps)} kept files, {total(made.keeps)} bytes")
    outcomes = {
        each.target: each
        for each in runner.run(
            [Read(replica.uri_of(each.target), each.bytes) for each in made.keeps]
        )
    }
    unread = [
        f"{each.target}: {each.error}" for each in outcomes.values() if each.error is not None
    ]
    if unread:
        raise CopyFailed(
            f"{len(unread)} files of the replica cannot be read; nothing was committed or deleted."
            f" {some(unread)}"
        )
    damaged = {
        each.target
        for each in made.keeps
        if outcomes[replica.uri_of(each.target)].crc32c != vouched[each.target].crc32c
    }
    if damaged:
        notify(f"{len(damaged)} kept files differ from their recorded CRC32C and are copied again")
    return _copying(made, damaged)


def _copying(made: Plan, targets: set[str]) -> Plan:
    again = tuple(
        each._replace(action="copy", reason=DIFFERS)
        for each in made.keeps
        if each.target in targets
    )
    keeps = tuple(each for each in made.keeps if each.target not in targets)
    return replace(
        made, copies=made.copies + again, keeps=keeps, publish=made.publish or bool(again)
    )


class Compared(NamedTuple):
    """A plan in which no file of others is overwritten, and what is vouched for besides."""

    plan: Plan
    vouched: Mapping[str, Vouch]


def keeping_what_is_equal(
    made: Plan, replica: Replica, written: set[str], runner: Runner, sides: Sides, notify: Notify
) -> Compared:
    """Return the plan of an adopted directory in which files that were there before, and equal the
    source's, are kept.

    Raises `Refused` if one of them differs: it is never overwritten.
    """
    there = replica.present({each.target.rpartition("/")[0] for each in made.copies})
    others = [each for each in made.copies if each.target in there and each.target not in written]
    if not others:
        return Compared(made, {})
    notify(
        f"comparing {len(others)} files that were here before with the source's, {total(others)}"
        " bytes"
    )
    pairs = [(str(each.source), replica.uri_of(each.target)) for each in others]
    outcomes = runner.map(
        _Both(runner.limited(sides)), pairs, [place for pair in pairs for place in pair]
    )
    others = [each for each, both in zip(others, outcomes, strict=True) if both is not None]
    found = [both for both in outcomes if both is not None]
    different = [
        replica.uri_of(each.target)
        for each, both in zip(others, found, strict=True)
        if both[0] != both[1]
    ]
    if different:
        raise Refused(
            f"{len(different)} files that were in the adopted directory before differ from the"
            " source's, and would be overwritten. Nothing was copied, committed or deleted. Sync"
            f" into another TARGET_ROOT. They are {some(different)}"
        )
    vouched = {
        each.target: Vouch(*both[1], written=False)
        for each, both in zip(others, found, strict=True)
    }
    return Compared(_keeping(made, others), vouched)


def _keeping(made: Plan, others: list[Action]) -> Plan:
    kept = {each.target for each in others}
    keeps = tuple(each._replace(action="keep", reason=EQUAL) for each in others)
    return replace(
        made,
        copies=tuple(each for each in made.copies if each.target not in kept),
        keeps=made.keeps + keeps,
    )


class _Both:
    """Reads a file at the source and at the target, wherever there is a slot.

    None if one of them is gone by now.
    """

    def __init__(self, sides: Sides) -> None:
        self._sides = sides

    def __call__(self, pair: tuple[str, str]) -> tuple[Copied, Copied] | None:
        try:
            return checksum(pair[0], self._sides.source), checksum(pair[1], self._sides.target)
        except FileNotFoundError:
            return None
