"""What a plan is about: its actions by operator and reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from cpreplicate.core.closure import owners
from cpreplicate.core.metadata import Operator
from cpreplicate.core.path_columns import Coded, Numbers, Texts, rows_of
from cpreplicate.core.plan import Action, Actions, Plan, Verb, targets
from cpreplicate.core.tables import found
from cpreplicate.operations.sync.source.state import SourceState

_NONE = -1  # the number of no operator


class Group(NamedTuple):
    """The actions of one kind that are of one operator and have one reason.

    `operator` is its id, and `name` its name or uid. Both are None for files that several operators
    share, for checkpoints that are withdrawn, and for files that are deleted, which only earlier
    checkpoints needed.
    """

    action: Verb
    operator: str | None
    name: str | None
    reason: str
    files: int
    bytes: int


def groups(plan: Plan, source_state: SourceState) -> tuple[Group, ...]:
    """Return the actions by operator and reason, of each kind the largest groups first."""
    owning = _Owners(source_state)
    withdrawn = [each.action for each in plan.withdrawals]
    found_groups = [
        *_grouped("copy", plan.copies, owning),
        *_grouped("repack", plan.repacks, owning),
        *_grouped("withdraw", withdrawn, owning),
        *_grouped("delete", plan.deletes, owning),
        *_grouped("keep", plan.keeps, owning),
    ]
    return tuple(found_groups)


class _Owners:
    """The operators of the files of a checkpoint, by the path in the replica."""

    def __init__(self, source_state: SourceState) -> None:
        metadata = source_state.file.metadata
        self._operators = metadata.operators
        self._paths = source_state.needed.paths  # in the order of the closure
        self._owners = owners(metadata, source_state.closure)

    def numbers(self, paths: Texts) -> Numbers:
        """Return the number of the operator of each of these files, and that of none for others."""
        return found(self._owners, rows_of(paths, self._paths), _NONE)

    def operator(self, number: int) -> Operator | None:
        """Return the operator of a number."""
        return None if number == _NONE else self._operators[number]


def _grouped(verb: Verb, actions: Sequence[Action], owning: _Owners) -> Iterator[Group]:
    is_of_source = verb in ("copy", "repack", "keep")
    numbers = owning.numbers(targets(actions)) if is_of_source else np.full(len(actions), _NONE)
    if isinstance(actions, Actions):
        yield from _summed(verb, numbers, actions.reasons, actions.bytes, owning)
        return
    reasons = Coded.of([action.reason for action in actions])
    sizes = np.array([action.bytes for action in actions], np.int64)
    yield from _summed(verb, numbers, reasons, sizes, owning)


def _summed(
    verb: Verb, numbers: Numbers, reasons: Coded, bytes_: Numbers, owning: _Owners
) -> Iterator[Group]:
    """Yield the groups of actions, of which there may be a million, by the numbers of operators."""
    keys = (numbers + 1) * max(len(reasons.values), 1) + reasons.codes
    _, first, which = np.unique(keys, return_index=True, return_inverse=True)
    files = np.bincount(which, minlength=len(first)).tolist()
    sizes = np.zeros(len(first), np.int64)
    np.add.at(sizes, which, bytes_)
    sums: dict[tuple[Operator | None, str], tuple[int, int]] = {}
    for row, count, size in zip(first.tolist(), files, sizes.tolist(), strict=True):
        operator = owning.operator(int(numbers[row]))
        sums[operator, reasons.values[int(reasons.codes[row])]] = count, size
    yield from _largest_first(verb, sums)


def _largest_first(
    verb: Verb, sums: Mapping[tuple[Operator | None, str], tuple[int, int]]
) -> Iterator[Group]:
    for (operator, reason), (files, size) in sorted(sums.items(), key=lambda item: -item[1][1]):
        if operator is None:
            yield Group(verb, None, None, reason, files, size)
        else:
            name = operator.name or operator.uid
            yield Group(verb, operator.id, name, reason, files, size)
