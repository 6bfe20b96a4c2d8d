"""`inspect A B`: what changed from one checkpoint to another, by operator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cpreplicate.core import uri
from cpreplicate.core.metadata import Operator
from cpreplicate.core.path_columns import Numbers
from cpreplicate.core.state_sizes import sums
from cpreplicate.operations.inspect.checkpoint import Checkpoint, read
from cpreplicate.operations.inspect.files import NONE, Files, files_of
from cpreplicate.operations.inspect.summary import completed
from cpreplicate.storage import Side


class Amount(NamedTuple):
    """A number of files, and their bytes."""

    files: int = 0
    bytes: int = 0


class ComparedCheckpoint(NamedTuple):
    """One of two checkpoints that are compared; `completed` is as of `Inspection`."""

    checkpoint: str
    checkpoint_id: int
    completed: float | None
    files: int
    bytes: int


@dataclass(frozen=True)
class OperatorGrowth:
    """What changed of an operator. `id` is None for files that several operators share.

    `bytes_before` and `bytes_after` are as of `OperatorSummary.bytes`, 0 where the checkpoint has
    no such operator. The others are as of `Comparison`.
    """

    id: str | None
    name: str | None
    uid: str | None
    bytes_before: int
    bytes_after: int
    added: Amount
    removed: Amount
    rewritten_bytes: int


@dataclass(frozen=True)
class Comparison:
    """What changed from the checkpoint `before` to the checkpoint `after`.

    Files are the same if they have the same path in a replica, or would have it. `grown_bytes` are
    those by which files grew that both have: segments were merged into them.
    `rewritten_bytes` are about what compactions wrote: of the shared keyed state of each subtask
    the smaller one of the bytes that were added and removed.
    """

    before: ComparedCheckpoint
    after: ComparedCheckpoint
    added: Amount
    removed: Amount
    kept: Amount
    grown_bytes: int
    rewritten_bytes: int
    operators: tuple[OperatorGrowth, ...]


def compare(before: str, after: str, side: Side, remaps: Sequence[uri.Remap]) -> Comparison:
    """Return what changed between two checkpoints. Raises `NotThere`, `MetadataError`."""
    old, new = (read(path, side, remaps) for path in (before, after))
    of_old, of_new = files_of(old), files_of(new)
    place = of_new.rows_in(of_old)
    is_added, is_removed = place < 0, np.ones(len(of_old.lengths), np.bool_)
    is_removed[place[~is_added]] = False
    changes = _Changes(of_old, of_new, is_removed, is_added, old, new)
    grown = np.maximum(of_new.lengths[~is_added] - of_old.lengths[place[~is_added]], 0)
    operators = changes.by_operator()
    return Comparison(
        before=_compared(old, of_old, side),
        after=_compared(new, of_new, side),
        added=_amount(of_new.lengths[is_added]),
        removed=_amount(of_old.lengths[is_removed]),
        kept=_amount(of_new.lengths[~is_added]),
        grown_bytes=sum(grown[of_new.may_grow[~is_added]].tolist()),
        rewritten_bytes=sum(each.rewritten_bytes for each in operators),
        operators=operators,
    )


def _compared(checkpoint: Checkpoint, files: Files, side: Side) -> ComparedCheckpoint:
    return ComparedCheckpoint(
        checkpoint.source.checkpoint,
        checkpoint.file.metadata.checkpoint_id,
        completed(checkpoint.source, side),
        *_amount(files.lengths),
    )


def _amount(lengths: Numbers) -> Amount:
    return Amount(len(lengths), sum(lengths.tolist()))


class _Changes:
    """The files that were added and removed, whose operators have numbers that both share."""

    def __init__(
        self,
        of_old: Files,
        of_new: Files,
        is_removed: Numbers,
        is_added: Numbers,
        old: Checkpoint,
        new: Checkpoint,
    ) -> None:
        every = (*new.file.metadata.operators, *old.file.metadata.operators)
        self._operators: dict[str, Operator] = {}
        for operator in every:
            self._operators.setdefault(operator.id, operator)
        self._numbers = {each: number for number, each in enumerate(self._operators)}
        self._before, self._after = self._bytes(old), self._bytes(new)
        self._removed = self._rows(of_old, is_removed, old)
        self._added = self._rows(of_new, is_added, new)

    def by_operator(self) -> tuple[OperatorGrowth, ...]:
        """Return what changed of each operator, the greatest change first."""
        added, removed = _amounts(self._added), _amounts(self._removed)
        rewritten = _rewritten(self._added, self._removed)
        rows = [
            OperatorGrowth(
                operator.id if operator else None,
                operator.name if operator else None,
                operator.uid if operator else None,
                self._before.get(number, 0),
                self._after.get(number, 0),
                added.get(number, Amount()),
                removed.get(number, Amount()),
                rewritten.get(number, 0),
            )
            for number, operator in self._numbered({*added, *removed})
        ]
        return tuple(sorted(rows, key=_change, reverse=True))

    def _numbered(self, changed: set[int]) -> Iterable[tuple[int, Operator | None]]:
        yield from enumerate(self._operators.values())
        if NONE in changed:
            yield NONE, None

    def _bytes(self, checkpoint: Checkpoint) -> dict[int, int]:
        held, operators = checkpoint.sizes, checkpoint.file.metadata.operators
        totals = sums(held.operator, held.sizes_once(held.operator))
        return {self._numbers[operators[index].id]: total for index, total in totals.items()}

    def _rows(self, files: Files, some: Numbers, checkpoint: Checkpoint) -> _Rows:
        """Return some files, with the number of their operator."""
        numbers = [self._numbers[each.id] for each in checkpoint.file.metadata.operators]
        known = np.array([*numbers, NONE], np.int64)  # the last one is that of -1
        return _Rows(
            known[files.operators[some]],
            files.subtasks[some],
            files.lengths[some],
            files.is_compacted[some],
        )


def _change(row: OperatorGrowth) -> int:
    return abs(row.bytes_after - row.bytes_before)


class _Rows(NamedTuple):
    """Files in columns: the number of the operator, and the others as of `Files`."""

    operators: Numbers
    subtasks: Numbers
    lengths: Numbers
    is_compacted: Numbers


def _amounts(rows: _Rows) -> dict[int, Amount]:
    sizes = sums(rows.operators, rows.lengths)
    counts = sums(rows.operators, np.ones(len(rows.operators), np.int64))
    return {number: Amount(counts[number], size) for number, size in sizes.items()}


def _rewritten(added: _Rows, removed: _Rows) -> Mapping[int, int]:
    """Return about how many bytes compactions wrote, by the number of the operator.

    What a compaction writes replaces files. It is at most as large as these, and at most as large
    as what was added, in which are new entries, too.
    """
    width = 2 + max(added.subtasks.max(initial=0), removed.subtasks.max(initial=0))
    of_added, of_removed = _by_task(added, width), _by_task(removed, width)
    found: dict[int, int] = {}
    for task in of_added.keys() & of_removed.keys():
        number = task // width - 1
        found[number] = found.get(number, 0) + min(of_added[task], of_removed[task])
    return found


def _by_task(rows: _Rows, width: int) -> dict[int, int]:
    """Return the bytes of each subtask that compactions concern."""
    some = rows.is_compacted
    tasks = (rows.operators[some] + 1) * width + rows.subtasks[some] + 1
    return sums(tasks, rows.lengths[some])
