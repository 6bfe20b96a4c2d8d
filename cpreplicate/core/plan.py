"""The plan: what a sync copies, keeps and deletes, and why.

Pure. A plan is made once, and shown or executed as it is.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from cpreplicate.core.bulk import new_row
from cpreplicate.core.closure import File

Verb = Literal["copy", "keep", "delete"]


class Committed(NamedTuple):
    """A checkpoint that the replica holds; `files` maps the path in the replica to the extent."""

    name: str
    checkpoint_id: int
    files: Mapping[str, int]


class Action(NamedTuple):
    """One row of a plan.

    `target` is relative to the replica; `source` is None for a delete. `bytes` is what it costs.
    """

    action: Verb
    source: str | None
    target: str
    bytes: int
    reason: str


@dataclass(frozen=True)
class Plan:
    """What has to be done so that `replica` holds `source`.

    `diff`, `--dry-run` and `sync` use the same object. `paths` is the spelling that `_metadata` is
    rewritten in, and `paths_reported` its name in results.
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
        """Whether executing the plan would change nothing."""
        return not (self.publish or self.copies or self.deletes or self.dropped)

    @property
    def actions(self) -> tuple[Action, ...]:
        """Every row: copies, then keeps, then deletes."""
        return self.copies + self.keeps + self.deletes


class Cap(NamedTuple):
    """A limit on deletes: a number of files, or a share of the replica's files."""

    number: float
    is_share: bool = False

    def allows(self, deletes: int, files: int) -> bool:
        """Return whether `deletes` of `files` files may be deleted."""
        return deletes <= (self.number * files if self.is_share else self.number)

    def __str__(self) -> str:
        return f"{100 * self.number:g} %" if self.is_share else f"{self.number:g} files"


def total(actions: Iterable[Action]) -> int:
    """Return the sum of the bytes of some actions."""
    return sum(action.bytes for action in actions)


class Vouch(NamedTuple):
    """What a manifest or journal records of a file: its length and its CRC32C.

    `written`: cpreplicate wrote the file.
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
    """Split the closure into the files that must be copied and those that the replica has.

    `present` maps the path to the length of the files in the replica's directories now. A file is
    kept only if it is `vouched` for with a CRC32C and has exactly the recorded length: any other
    may be damaged, or of another program.
    """
    holder = {target: checkpoint.name for checkpoint in committed for target in checkpoint.files}
    copies, keeps = [], []
    for target, (source, extent, size, _) in needed.items():
        length, vouch = present.get(target), vouched.get(target)
        if vouch is not None and vouch.crc32c is not None and length == vouch.length >= extent:
            shared = f"shared with {holder[target]}" if target in holder else None
            reason = shared or "copied by an earlier run"
            keeps.append(new_row(Action, ("keep", source, target, length, reason)))
        else:
            is_new = length is None and target not in holder
            reason = "new" if is_new else _why_again(length, vouch)
            cost = size if size > extent else extent
            copies.append(new_row(Action, ("copy", source, target, cost, reason)))
    return tuple(copies), tuple(keeps)


def dropped(
    committed: Sequence[Committed], name: str, checkpoint_id: int, keep: int
) -> tuple[Committed, ...]:
    """Return the committed checkpoints that are no longer kept once `name` is committed.

    `committed` is in the order newest first, the result oldest first. Those with a higher number
    are among them: the job counts anew, and they are from before.
    """
    others = [checkpoint for checkpoint in committed if checkpoint.name != name]
    older = [checkpoint for checkpoint in others if checkpoint.checkpoint_id < checkpoint_id]
    kept = older[: keep - 1]
    return tuple(checkpoint for checkpoint in reversed(others) if checkpoint not in kept)


def deletes(
    committed: Sequence[Committed],
    replaced: Sequence[Committed],
    needed: Mapping[str, File],
    present: Mapping[str, int],
    written: Container[str] | None = None,
) -> tuple[Action, ...]:
    """Return the deletes of files that only the `replaced` of the `committed` checkpoints needed.

    If `written` is given, only files that it contains are deleted.
    """
    if not replaced:
        return ()
    replaced_names = {checkpoint.name for checkpoint in replaced}
    remaining = [checkpoint for checkpoint in committed if checkpoint.name not in replaced_names]
    kept = set(needed).union(*(checkpoint.files for checkpoint in remaining))
    holders: dict[str, list[str]] = {}
    for checkpoint in replaced:
        for target in checkpoint.files:
            if target not in kept and (written is None or target in written):
                holders.setdefault(target, []).append(checkpoint.name)
    return tuple(
        Action("delete", None, target, present.get(target, 0), _only_for(names))
        for target, names in holders.items()
    )


def _only_for(names: Sequence[str]) -> str:
    return f"only {' and '.join(names)} needed it"


def _why_again(length: int | None, vouch: Vouch | None) -> str:
    if length is None:
        return "missing in the replica"
    if vouch is None or vouch.crc32c is None:
        return "what is there is not recorded by cpreplicate"
    if length == vouch.length:
        return "longer at source: a merged file grew"
    return f"damaged: it has {length} bytes, {vouch.length} are recorded"
