"""The plan: what a sync copies, keeps and deletes, and why. Pure; made once, shown or executed as it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from cpreplicate.closure import File

Verb = Literal["copy", "keep", "delete"]


class Committed(NamedTuple):
    """A checkpoint that the replica holds: `files` is target path to extent."""

    name: str
    checkpoint_id: int
    files: Mapping[str, int]


class Action(NamedTuple):
    """One row of a plan. `target` is relative to the replica; `source` is None for a delete; `bytes` is what it costs."""

    action: Verb
    source: str | None
    target: str
    bytes: int
    reason: str


@dataclass(frozen=True)
class Plan:
    """What is to be done to make `replica` hold `source`; `diff`, `--dry-run` and `sync` use the same object."""

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


def copies_and_keeps(
    needed: Mapping[str, File], committed: Sequence[Committed], present: Mapping[str, int]
) -> tuple[tuple[Action, ...], tuple[Action, ...]]:
    """The closure split into what must be copied and what the replica has.

    `present` is target path to length of what the replica's directories hold now. A file that is present with its
    extent is complete, committed or not: files appear under their names only when whole.
    """
    holder = {target: checkpoint.name for checkpoint in committed for target in checkpoint.files}
    copies, keeps, new = [], [], tuple.__new__  # half the cost of `Action(...)`, of which there may be a million
    for target, (source, extent, size, _) in needed.items():
        length = present.get(target)
        if length is not None and length >= extent:
            reason = f"shared with {holder[target]}" if target in holder else "copied by an earlier run"
            keeps.append(new(Action, ("keep", source, target, length, reason)))
        else:
            reason = "new" if length is None and target not in holder else _why_again(length)
            copies.append(new(Action, ("copy", source, target, size if size > extent else extent, reason)))
    return tuple(copies), tuple(keeps)


def dropped(committed: Sequence[Committed], checkpoint_id: int, keep: int) -> tuple[Committed, ...]:
    """The committed checkpoints that are no longer kept once `checkpoint_id` is committed, oldest first."""
    others = sorted((each for each in committed if each.checkpoint_id != checkpoint_id), key=lambda each: each.checkpoint_id)
    return tuple(others[: max(0, len(others) - (keep - 1))])


def deletes(
    committed: Sequence[Committed],
    replaced: Sequence[Committed],
    needed: Mapping[str, File],
    present: Mapping[str, int],
) -> tuple[Action, ...]:
    """What only the `replaced` ones of the `committed` checkpoints needed."""
    if not replaced:
        return ()
    gone = {checkpoint.name for checkpoint in replaced}
    kept = set(needed).union(*(each.files for each in committed if each.name not in gone))
    holders: dict[str, list[str]] = {}
    for checkpoint in replaced:
        for target in checkpoint.files:
            if target not in kept:
                holders.setdefault(target, []).append(checkpoint.name)
    return tuple(
        Action("delete", None, target, present.get(target, 0), f"only {' and '.join(names)} needed it")
        for target, names in holders.items()
    )


def _why_again(length: int | None) -> str:
    return "missing in the replica" if length is None else "longer at source: a merged file grew"
