"""The plan: what a sync copies, keeps and deletes, and why.

Pure; made once, shown or executed as it is.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from cpreplicate.core.closure import File

Verb = Literal["copy", "keep", "delete"]


class Committed(NamedTuple):
    """A checkpoint that the replica holds: `files` is target path to extent."""

    name: str
    checkpoint_id: int
    files: Mapping[str, int]


class Action(NamedTuple):
    """One row of a plan.

    `target` is relative to the replica; `source` is None for a delete; `bytes` is what it costs.
    """

    action: Verb
    source: str | None
    target: str
    bytes: int
    reason: str


@dataclass(frozen=True)
class Plan:
    """What is to be done to make `replica` hold `source`; `diff`, `--dry-run` and `sync` use the
    same object.

    `paths` is the spelling that `_metadata` is rewritten in, `paths_reported` its name in results.
    """

    source: str
    replica: str
    checkpoint: str
    checkpoint_id: int
    base_checkpoint_id: int | None
    publish: bool
    copies: tuple[Action, ...]
    keeps: tuple[Action, ...]
    deletes: tuple[Action, ...]
    dropped: tuple[str, ...]
    paths: str
    paths_reported: str
    paths_reason: str
    warnings: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether executing it would change nothing."""
        return not (self.publish or self.copies or self.deletes or self.dropped)

    @property
    def actions(self) -> tuple[Action, ...]:
        """Every row: copies, keeps, deletes."""
        return self.copies + self.keeps + self.deletes


class Cap(NamedTuple):
    """At most so many deletes, or such a share of the replica's files."""

    number: float
    is_share: bool = False

    def allows(self, deletes: int, files: int) -> bool:
        """Whether so many of so many files may be deleted."""
        return deletes <= (self.number * files if self.is_share else self.number)

    def __str__(self) -> str:
        return f"{100 * self.number:g} %" if self.is_share else f"{self.number:g} files"


def total(actions: Iterable[Action]) -> int:
    """The bytes of some actions together."""
    return sum(action.bytes for action in actions)


class Vouch(NamedTuple):
    """What a manifest or journal says of a file: the length that it must have, its CRC32C, and who
    wrote it.
    """

    length: int
    crc32c: int | None
    written: bool


def copies_and_keeps(
    needed: Mapping[str, File],
    committed: Sequence[Committed],
    present: Mapping[str, int],
    vouched: Mapping[str, Vouch],
) -> tuple[tuple[Action, ...], tuple[Action, ...]]:
    """Split the closure into what must be copied and what the replica has.

    `present` is target path to length of what the replica's directories hold now. Only what is
    `vouched` for, with its CRC32C, and has just the recorded length is kept: anything else may be
    another program's, or damaged.
    """
    holder = {target: checkpoint.name for checkpoint in committed for target in checkpoint.files}
    # half the cost of `Action(...)`, of which there may be a million
    copies, keeps, new = (
        [],
        [],
        tuple.__new__,
    )
    for target, (source, extent, size, _) in needed.items():
        length, vouch = present.get(target), vouched.get(target)
        if vouch is not None and vouch.crc32c is not None and length == vouch.length >= extent:
            reason = (
                f"shared with {holder[target]}" if target in holder else "copied by an earlier run"
            )
            keeps.append(new(Action, ("keep", source, target, length, reason)))
        else:
            reason = "new" if length is None and target not in holder else _why_again(length, vouch)
            copies.append(
                new(Action, ("copy", source, target, size if size > extent else extent, reason))
            )
    return tuple(copies), tuple(keeps)


def dropped(
    committed: Sequence[Committed], name: str, checkpoint_id: int, keep: int
) -> tuple[Committed, ...]:
    """Return the committed checkpoints, given newest first, that are no longer kept once `name` is
    committed, oldest first.

    These include all with a higher number: the job counts anew, and they are of its former life.
    """
    others = [each for each in committed if each.name != name]
    kept = [each for each in others if each.checkpoint_id < checkpoint_id][: keep - 1]
    return tuple(each for each in reversed(others) if each not in kept)


def deletes(
    committed: Sequence[Committed],
    replaced: Sequence[Committed],
    needed: Mapping[str, File],
    present: Mapping[str, int],
    written: Container[str] | None = None,
) -> tuple[Action, ...]:
    """Return what only the `replaced` ones of the `committed` checkpoints needed.

    Of it only what is `written`, if given.
    """
    if not replaced:
        return ()
    gone = {checkpoint.name for checkpoint in replaced}
    kept = set(needed).union(*(each.files for each in committed if each.name not in gone))
    holders: dict[str, list[str]] = {}
    for checkpoint in replaced:
        for target in checkpoint.files:
            if target not in kept and (written is None or target in written):
                holders.setdefault(target, []).append(checkpoint.name)
    return tuple(
        Action(
            "delete", None, target, present.get(target, 0), f"only {' and '.join(names)} needed it"
        )
        for target, names in holders.items()
    )


def _why_again(length: int | None, vouch: Vouch | None) -> str:
    if length is None:
        return "missing in the replica"
    if vouch is None or vouch.crc32c is None:
        return "what is there is not recorded by cpreplicate"
    if length == vouch.length:
        return "longer at source: a merged file grew"
    return f"damaged: it has {length} bytes, {vouch.length} are recorded"
