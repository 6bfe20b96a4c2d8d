"""What a plan is about: its actions by operator and reason."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from cpreplicate.core.closure import Closure, owners
from cpreplicate.core.metadata import Metadata, Operator
from cpreplicate.core.path_columns import Coded, Numbers, Texts, rows_of, texts
from cpreplicate.core.plan import Action, Plan, Verb
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
    owning = _Owners(source_state.file.metadata, source_state.closure)
    withdrawn = [each.action for each in plan.withdrawals]
    found_groups = [
        *_grouped("copy", plan.copies, owning.of([each.source or "" for each in plan.copies])),
        *_grouped("repack", plan.repacks, owning.of([each.source or "" for each in plan.repacks])),
        *_grouped("withdraw", withdrawn, [None] * len(withdrawn)),
        *_grouped("delete", plan.deletes, [None] * len(plan.deletes)),
        *_grouped_keeps(plan, owning),
    ]
    return tuple(found_groups)


class _Owners:
    """The operators of the files of a checkpoint, by the URI of the file."""

    def __init__(self, metadata: Metadata, needed: Closure) -> None:
        self._operators = metadata.operators
        self._uris = needed.files.sources.texts()
        self._owners = owners(metadata, needed)

    def of(self, uris: Iterable[str]) -> list[Operator | None]:
        """Return the operator of each of these files."""
        return [self.operator(number) for number in self.numbers(texts(uris)).tolist()]

    def numbers(self, uris: Texts) -> Numbers:
        """Return the number of the operator of each of these files."""
        return found(self._owners, rows_of(uris, self._uris), _NONE)

    def operator(self, number: int) -> Operator | None:
        """Return the operator of a number."""
        return None if number == _NONE else self._operators[number]


def _grouped(
    verb: Verb, actions: Iterable[Action], operators: Iterable[Operator | None]
) -> Iterator[Group]:
    sums: dict[tuple[Operator | None, str], tuple[int, int]] = {}
    for action, operator in zip(actions, operators, strict=True):
        files, size = sums.get((operator, action.reason), (0, 0))
        sums[operator, action.reason] = files + 1, size + action.bytes
    yield from _largest_first(verb, sums)


def _grouped_keeps(plan: Plan, owning: _Owners) -> Iterator[Group]:
    """Yield the groups of kept files, of which there may be a million."""
    keeps = plan.keeps
    reasons: Coded = keeps.reasons
    numbers = owning.numbers(keeps.files.sources.texts())
    keys = (numbers + 1) * max(len(reasons.values), 1) + reasons.codes
    _, first, which = np.unique(keys, return_index=True, return_inverse=True)
    files = np.bincount(which, minlength=len(first)).tolist()
    sizes = np.zeros(len(first), np.int64)
    np.add.at(sizes, which, keeps.bytes)
    sums: dict[tuple[Operator | None, str], tuple[int, int]] = {}
    for row, count, size in zip(first.tolist(), files, sizes.tolist(), strict=True):
        operator = owning.operator(int(numbers[row]))
        sums[operator, reasons.values[int(reasons.codes[row])]] = count, size
    yield from _largest_first("keep", sums)


def _largest_first(
    verb: Verb, sums: Mapping[tuple[Operator | None, str], tuple[int, int]]
) -> Iterator[Group]:
    for (operator, reason), (files, size) in sorted(sums.items(), key=lambda item: -item[1][1]):
        if operator is None:
            yield Group(verb, None, None, reason, files, size)
        else:
            name = operator.name or operator.uid
            yield Group(verb, operator.id, name, reason, files, size)
