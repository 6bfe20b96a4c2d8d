"""The plan: what a sync copies, keeps and deletes, and why.

Pure. A plan is made once, and shown or executed as it is.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple, TypeVar

import numpy as np

from cpreplicate.core.closure import File, FileTable
from cpreplicate.core.ledger import NO_MEMBERS, LedgerEntry, LedgerTable, Member, MemberTable
from cpreplicate.core.path_columns import (
    Coded,
    Numbers,
    Texts,
    are_few,
    as_texts,
    chosen,
    concatenated,
    rows_of,
    texts,
    without,
)
from cpreplicate.core.retention import Policy, Retention
from cpreplicate.core.rows import new_row
from cpreplicate.core.short_repr import short_repr
from cpreplicate.core.sizes import counted
from cpreplicate.core.tables import Ints, Lengths, RowSequence, Table, slices

_EARLIER, _NEW, _MISSING = "copied by an earlier run", "new", "missing in the replica"
# what the reasons for a copy to a path begin with at which a file is already
_NOT_RECORDED, _GREW, _DAMAGED = (
    "what is there is not recorded by cpreplicate",
    "longer at source: a merged file grew",
    "damaged: ",
)
Verb = Literal["copy", "keep", "repack", "withdraw", "delete"]
A = TypeVar("A", bound="Actions")


class Committed(NamedTuple):
    """A checkpoint that the replica holds; `files` maps the path in the replica to the extent.

    `completed` is when it was completed at the source, None if that is not recorded.
    """

    name: str
    checkpoint_id: int
    files: Mapping[str, int]
    members: Mapping[str, Member] = {}
    completed: float | None = None


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


class Withdrawal(NamedTuple):
    """A committed checkpoint that a plan withdraws.

    It was `completed` at the source at this time, None if that is not recorded. `action` is the row
    of its `_metadata`, which is removed before the files that only it needed, or replaced by that
    of the new checkpoint, if it is one of a former life of the job with the same number.
    """

    checkpoint: str
    completed: float | None
    action: Action


def replaces(action: Action) -> bool:
    """Return whether an action is a copy to a path at which another file is already."""
    return action.action == "copy" and action.reason.startswith((_NOT_RECORDED, _GREW, _DAMAGED))


class TargetCopy(NamedTuple):
    """Where the replica of an earlier job holds a file: at `path` of `replica`.

    A packed file begins at `offset` of the pack `path`. It has this length and CRC32C.
    """

    replica: str
    path: str
    offset: int | None
    length: int
    crc32c: int


@dataclass(frozen=True, eq=False)
class Actions(Table, RowSequence[Action]):
    """Rows of a plan that are of one kind and have a source, in columns: as objects, those of a
    million files take 700 MiB.
    """

    verb: ClassVar[Verb]
    files: FileTable
    bytes: Ints
    reasons: Coded

    def __len__(self) -> int:
        return len(self.files)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]  # as of other mutable sequences

    def __iter__(self) -> Iterator[Action]:
        for some in slices(len(self)):
            sources = self.files.sources.take(some).tolist()
            paths = self.files.paths[some].to_pylist()
            rows = zip(
                *(sources, paths, self.bytes[some].tolist(), self.reasons.take(some).tolist()),
                strict=True,
            )
            yield from (new_row(Action, (self.verb, *row)) for row in rows)

    def row(self, index: int) -> Action:
        return next(iter(self.take(slice(index, index + 1))))

    def without(self: A, targets: Texts) -> A:
        """Return the rows but for those with these targets."""
        return self.take(rows_of(self.files.paths, targets) < 0) if len(targets) else self


class Keeps(Actions):
    """The rows of a plan for kept files."""

    verb = "keep"

    def and_others(self, others: Sequence[Action]) -> Keeps:
        """Return these rows and others, which are objects."""
        files = {action.target: File(action.source or "", 0, action.bytes) for action in others}
        bytes_ = np.array([action.bytes for action in others], np.int64)
        reasons = Coded.of([action.reason for action in others])
        return Keeps.joined([self, Keeps(FileTable.of(files), bytes_, reasons)])


class FewActions(tuple[Action, ...]):
    """The rows of a plan of one kind, if they are few. `targets` are their targets as a column."""

    targets: Texts

    def __init__(self, _rows: Iterable[Action]) -> None:
        self.targets = texts([action.target for action in self])


class ManyCopies(Actions):
    """The rows of a plan for files that are copied, if they are many."""

    verb = "copy"


NO_KEEPS = Keeps(FileTable.of({}), np.zeros(0, np.int64), Coded.of([]))


@short_repr("replica", "checkpoint", "copies", "repacks", "keeps", "deletes", "withdrawals")
@dataclass(frozen=True)
class Plan:
    """What has to be done so that `replica` holds `source`.

    `diff`, `--dry-run` and `sync` use the same object. `paths` is the spelling that `_metadata` is
    rewritten in, and `paths_reported` its name in results.

    `packed` are the targets of the copies that become members of packs, and `members` the places of
    kept packed files. `repacks` move members of sparse packs from their places `moving` to a new
    pack. `reused` are the places from which copies are made within the target, by their targets.
    `strangers` are the targets of copies at which a file of another program is, and its length:
    it is compared with the source's, and never overwritten. `repairs`: the checkpoint is one that
    the replica keeps, and stays as new or old as it is. `withdrawals` are the checkpoints that go,
    the oldest first, and `policy` is why the others are kept.
    """

    source: str
    replica: str
    checkpoint: str
    checkpoint_id: int
    base_checkpoint_id: int | None
    publish: bool
    copies: Sequence[Action]
    keeps: Keeps
    deletes: tuple[Action, ...]
    withdrawals: tuple[Withdrawal, ...]
    paths: str
    paths_reported: str
    paths_reason: str
    warnings: tuple[str, ...] = ()
    packed: frozenset[str] = frozenset()
    members: MemberTable = field(default_factory=lambda: NO_MEMBERS)
    repacks: tuple[Action, ...] = ()
    moving: MemberTable = field(default_factory=lambda: NO_MEMBERS)
    reused: Mapping[str, TargetCopy] = field(default_factory=dict)
    strangers: Mapping[str, int] = field(default_factory=dict)
    repairs: bool = False
    policy: Policy = field(default=Policy())

    @property
    def dropped(self) -> tuple[str, ...]:
        """The names that no checkpoint has once the others are withdrawn, the oldest first.

        A withdrawn checkpoint of the number of the new one is none of them: that replaces it.
        """
        names = (each.checkpoint for each in self.withdrawals)
        return tuple(name for name in names if name != self.checkpoint)

    @property
    def empty(self) -> bool:
        """Whether executing the plan would change nothing."""
        changes = self.copies or self.repacks or self.deletes or self.withdrawals
        return not (self.publish or changes)

    @property
    def amount(self) -> tuple[int, int]:
        """How many files it copies, repacks and deletes, and how many bytes it copies."""
        files = len(self.copies) + len(self.repacks) + len(self.deletes)
        return files, total(self.copies) + total(self.repacks)

    @property
    def reused_copies(self) -> tuple[Action, ...]:
        """The copies that are made within the target, from replicas of earlier jobs."""
        return tuple(action for action in self.copies if action.target in self.reused)

    @property
    def actions(self) -> tuple[Action, ...]:
        """Every row: copies, then repacks, keeps, withdrawals and deletes."""
        withdrawn = (each.action for each in self.withdrawals)
        return (*self.copies, *self.repacks, *self.keeps, *withdrawn, *self.deletes)


class Cap(NamedTuple):
    """A limit on deletes: a number of files, or a share of the replica's files.

    A checkpoint that is withdrawn counts as a file: its `_metadata`.
    """

    number: float
    is_share: bool = False

    def allows(self, deletes: int, files: int) -> bool:
        """Return whether `deletes` of `files` files may be deleted."""
        return deletes <= (self.number * files if self.is_share else self.number)

    def __str__(self) -> str:
        return f"{100 * self.number:g} %" if self.is_share else counted(int(self.number), "file")


def total(actions: Iterable[Action]) -> int:
    """Return the sum of the bytes of some actions."""
    if isinstance(actions, Actions):
        return sum(actions.bytes.tolist())  # a sum of numpy's would wrap
    return sum(action.bytes for action in actions)


def targets(actions: Sequence[Action]) -> Texts:
    """Return the targets of some actions as a column."""
    if isinstance(actions, Actions):
        return actions.files.paths
    if isinstance(actions, FewActions):
        return actions.targets
    return texts(action.target for action in actions)


def sources(actions: Sequence[Action]) -> Texts:
    """Return what some actions read as a column, an empty text for one that reads nothing."""
    if isinstance(actions, Actions):
        return actions.files.sources.texts()
    return texts(action.source or "" for action in actions)


def without_targets(actions: Sequence[Action], gone: Collection[str]) -> Sequence[Action]:
    """Return the actions but for those with one of these targets."""
    if not gone:
        return actions
    if isinstance(actions, Actions):
        return actions.without(as_texts(gone))
    return tuple(action for action in actions if action.target not in gone)


class Split(NamedTuple):
    """The files that must be copied, those that the replica has, and where packed ones of these
    are.
    """

    copies: Sequence[Action]
    keeps: Keeps
    members: MemberTable


def copies_and_keeps(
    needed: Mapping[str, File],
    committed: Sequence[Committed],
    present: Mapping[str, int],
    ledger: Mapping[str, LedgerEntry],
    members: Mapping[str, Member] = NO_MEMBERS,
) -> Split:
    """Split the closure into the files that must be copied and those that the replica has.

    `present` maps the path to the length of the files in the replica's directories now. A file is
    kept only if `ledger` has its CRC32C, and its length is exactly the recorded one: any other
    may be damaged, or of another program. `members` are the packed files of which the same holds
    for their packs.
    """
    files, packed = FileTable.of(needed), MemberTable.of(members)
    lengths = Lengths.of(present).at(files.paths)
    recorded = LedgerTable.of(ledger).at(files.paths)
    is_whole = (recorded.crcs >= 0) & (lengths == recorded.bytes) & (lengths >= files.extents)
    member = rows_of(files.paths, packed.paths)
    # a segment of a segment cannot be spelled
    is_member = (member >= 0) & ~is_whole & ~files.is_segment
    is_member[is_member] = packed.bytes[member[is_member]] >= files.extents[is_member]
    is_kept = is_whole | is_member
    kept_members = packed.take(member[is_member])
    costs = lengths.copy()
    costs[is_member] = kept_members.bytes
    which = _holders(files.paths, committed)
    reasons = (_EARLIER, *(f"shared with {checkpoint.name}" for checkpoint in committed))
    keeps = Keeps(files.take(is_kept), costs[is_kept], Coded(reasons, which[is_kept]))
    lacking = files.take(~is_kept) if is_kept.any() else files
    whys = _whys(lengths[~is_kept], recorded.take(~is_kept), which[~is_kept])
    copies = ManyCopies(lacking, lacking.costs, whys)
    return Split(FewActions(copies) if are_few(lacking) else copies, keeps, kept_members)


def _holders(paths: Texts, committed: Sequence[Committed]) -> Numbers:
    """Return which checkpoint holds each path, counted from 1: 0 where none does."""
    which = np.zeros(len(paths), np.int64)
    for number, checkpoint in enumerate(committed, start=1):
        for held in (Lengths.of(checkpoint.files), MemberTable.of(checkpoint.members)):
            if held:
                which[rows_of(paths, held.paths) >= 0] = number
    return which


def dropped(
    committed: Sequence[Committed],
    name: str,
    checkpoint_id: int,
    keep: Retention | int,
    completed: float | None = None,
    now: float = math.inf,
) -> tuple[Committed, ...]:
    """Return the committed checkpoints that are no longer kept once `name` is committed.

    It was `completed` at the source at this time. `now` is as of `Retention.kept`.

    `committed` is in the order newest first, the result oldest first. Those with a higher number
    are among them: the job counts anew, and they are from before.
    """
    others = [checkpoint for checkpoint in committed if checkpoint.name != name]
    older = [checkpoint for checkpoint in others if checkpoint.checkpoint_id < checkpoint_id]
    positions = Retention.of(keep).kept([completed, *(each.completed for each in older)], now)
    kept = {older[position - 1].name for position in positions if position}
    return tuple(checkpoint for checkpoint in reversed(others) if checkpoint.name not in kept)


def keeps_newest(
    committed: Sequence[Committed], keep: Retention, completed: float | None, now: float
) -> bool:
    """Return whether the newest committed checkpoint is kept beside a new one that was `completed`.

    The rest is as of `dropped`.
    """
    times = [completed, *(each.completed for each in committed)]
    return 1 in keep.kept(times, now)


def not_needed(replaced: Sequence[Committed], *needed: Texts) -> Texts:
    """Return the paths that only the `replaced` checkpoints need, each once.

    `needed` are those of the files and packs that the new checkpoint and any other one in the
    directory need.
    """
    paths = [without(Lengths.of(checkpoint.files).paths, *needed) for checkpoint in replaced]
    return concatenated(paths).unique()


def deletes(
    replaced: Sequence[Committed], going: Texts, present: Mapping[str, int]
) -> tuple[Action, ...]:
    """Return the deletes of the files that are `going`, of those that only `replaced` ones needed.

    What other programs wrote is not among them.
    """
    holders: dict[str, list[str]] = {}
    for checkpoint in replaced:
        paths = Lengths.of(checkpoint.files).paths
        for target in chosen(paths, rows_of(paths, going) >= 0).to_pylist():
            holders.setdefault(target, []).append(checkpoint.name)
    lengths = Lengths.of(present).at(texts(holders), absent=0).tolist()
    return FewActions(
        Action("delete", None, target, length, _only_for(names))
        for (target, names), length in zip(holders.items(), lengths, strict=True)
    )


def _only_for(names: Sequence[str]) -> str:
    return f"only {' and '.join(names)} needed it"


def _whys(lengths: Numbers, recorded: LedgerTable, holders: Numbers) -> Coded:
    """Return why each file is copied that has this length in the replica, -1 if it is not there."""
    there = np.flatnonzero(lengths >= 0)
    pairs = zip(lengths[there].tolist(), recorded.take(there).values(), strict=True)
    of_those = Coded.of([_NEW, _MISSING, *(_why(length, entry) for length, entry in pairs)])
    codes = (holders > 0).astype(np.int64)
    codes[there] = of_those.codes[2:]
    return of_those._replace(codes=codes)


def _why(length: int, entry: LedgerEntry) -> str:
    """Return why a file is copied to a path at which a file of `length` bytes is."""
    if entry.crc32c is None:
        return _NOT_RECORDED
    if length == entry.length:
        return _GREW
    return f"{_DAMAGED}it has {counted(length, 'byte')}, {entry.length} are recorded"
