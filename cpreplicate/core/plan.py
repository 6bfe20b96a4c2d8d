"""The plan: what a sync copies, keeps and deletes, and why.

Pure. A plan is made once, and shown or executed as it is.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, NamedTuple

from cpreplicate.core.bulk import new_row
from cpreplicate.core.closure import File

Verb = Literal["copy", "keep", "repack", "delete"]


class Member(NamedTuple):
    """Where a packed file lies: the path of its pack in the replica, offset and length in bytes.

    `crc32c` is that of its bytes, None where no manifest or journal names it.
    """

    pack: str
    offset: int
    length: int
    crc32c: int | None = None


class Committed(NamedTuple):
    """A checkpoint that the replica holds; `files` maps the path in the replica to the extent."""

    name: str
    checkpoint_id: int
    files: Mapping[str, int]
    members: Mapping[str, Member] = {}


class Action(NamedTuple):
    """One row of a plan.

    `target` is relative to the replica, and the logical path of a packed file; `source` is None for
    a delete. `bytes` is what it costs.
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

    `packed` are the targets of the copies that become members of packs, and `members` the places of
    kept packed files. `repacks` move members of sparse packs from their places `moving` to a new
    pack.
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
    packed: frozenset[str] = frozenset()
    members: Mapping[str, Member] = field(default_factory=dict)
    repacks: tuple[Action, ...] = ()
    moving: Mapping[str, Member] = field(default_factory=dict)

    @property
    def empty(self) -> bool:
        """Whether executing the plan would change nothing."""
        changes = self.copies or self.repacks or self.deletes or self.dropped
        return not (self.publish or changes)

    @property
    def actions(self) -> tuple[Action, ...]:
        """Every row: copies, then repacks, keeps and deletes."""
        return self.copies + self.repacks + self.keeps + self.deletes


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


class Split(NamedTuple):
    """The files that must be copied, those that the replica has, and where packed ones of these
    lie.
    """

    copies: tuple[Action, ...]
    keeps: tuple[Action, ...]
    members: Mapping[str, Member]


def copies_and_keeps(
    needed: Mapping[str, File],
    committed: Sequence[Committed],
    present: Mapping[str, int],
    vouched: Mapping[str, Vouch],
    members: Mapping[str, Member] = MappingProxyType({}),
) -> Split:
    """Split the closure into the files that must be copied and those that the replica has.

    `present` maps the path to the length of the files in the replica's directories now. A file is
    kept only if it is `vouched` for with a CRC32C and has exactly the recorded length: any other
    may be damaged, or of another program. `members` are the packed files of which the same holds
    for their packs.
    """
    holder = {target: checkpoint.name for checkpoint in committed for target in checkpoint.files}
    for checkpoint in committed:
        holder.update(dict.fromkeys(checkpoint.members, checkpoint.name))
    copies, keeps, kept_members = [], [], {}
    for target, (source, extent, size, is_segment) in needed.items():
        length, vouch = present.get(target), vouched.get(target)
        if vouch is not None and vouch.crc32c is not None and length == vouch.length >= extent:
            shared = f"shared with {holder[target]}" if target in holder else None
            reason = shared or "copied by an earlier run"
            keeps.append(new_row(Action, ("keep", source, target, length, reason)))
        elif (
            not is_segment  # a segment of a segment cannot be spelled
            and (member := members.get(target)) is not None
            and member.length >= extent
        ):
            shared = f"shared with {holder[target]}" if target in holder else None
            reason = shared or "copied by an earlier run"
            kept_members[target] = member
            keeps.append(new_row(Action, ("keep", source, target, member.length, reason)))
        else:
            is_new = length is None and target not in holder
            reason = "new" if is_new else _why_again(length, vouch)
            cost = size if size > extent else extent
            copies.append(new_row(Action, ("copy", source, target, cost, reason)))
    return Split(tuple(copies), tuple(keeps), kept_members)


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
    needed: Iterable[str],
    present: Mapping[str, int],
    written: Container[str] | None = None,
) -> tuple[Action, ...]:
    """Return the deletes of files that only the `replaced` of the `committed` checkpoints needed.

    `needed` are the paths of the files and packs that the new checkpoint needs. If `written` is
    given, only files that it contains are deleted.
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
