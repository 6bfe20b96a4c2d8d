"""Tables: rows in columns, which become objects when they are looked at by themselves.

A table declares its columns in the order of the fields of its rows, and all else follows. Texts are
Arrow's. Numbers are numpy's, which Arrow takes without a copy: what is asked of them is written in
numpy.
"""

from __future__ import annotations

import operator
from abc import abstractmethod
from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping, Sequence, ValuesView
from dataclasses import dataclass
from functools import partial
from typing import (
    Annotated,
    Any,
    ClassVar,
    NamedTuple,
    TypeAlias,
    TypeVar,
    get_type_hints,
    overload,
)

import numpy as np
import pyarrow as pa

from cpreplicate.core.lazy import lazy
from cpreplicate.core.path_columns import (
    Numbers,
    Rows,
    Texts,
    are_few,
    as_texts,
    chosen,
    concatenated,
    last_rows,
    rows_of,
    texts,
)
from cpreplicate.core.rows import new_row

Row = TypeVar("Row", covariant=True)  # as the rows of other mappings
T = TypeVar("T", bound="Table")
S = TypeVar("S", bound="RowSequence[Any]")
P = TypeVar("P", bound="PathTable[Any]")
_CHUNK = 65_536  # rows that are objects at the same time
UNKNOWN = -1  # a CRC32C that is not known


class _Kind(NamedTuple):
    """What is done with a column of numbers or texts. `Parts` and `Coded` have these methods."""

    of: Callable[[Sequence[Any]], Any]
    tolist: Callable[[Any], list[Any]]
    take: Callable[[Any, Rows], Any]
    joined: Callable[[Sequence[Any]], Any]


def _numbers(type_: type[np.generic]) -> _Kind:
    none = np.zeros(0, type_)
    return _Kind(
        lambda values: np.fromiter(values, none.dtype, len(values)),
        np.ndarray.tolist,
        operator.getitem,
        lambda columns: np.concatenate([none, *columns]),
    )


def _crcs(values: Sequence[int | None]) -> Numbers:
    return np.array([UNKNOWN if value is None else value for value in values], np.int64)


def _crc_values(crcs: Numbers) -> list[int | None]:
    return [None if value == UNKNOWN else value for value in crcs.tolist()]


_INTS = _numbers(np.int64)
Ints: TypeAlias = Annotated[Numbers, _INTS]
Flags: TypeAlias = Annotated[Numbers, _numbers(np.bool_)]
Crcs: TypeAlias = Annotated[Numbers, _INTS._replace(of=_crcs, tolist=_crc_values)]
"""CRC32Cs. One of -1 is not known."""
Paths: TypeAlias = Annotated[Texts, _Kind(texts, pa.Array.to_pylist, chosen, concatenated)]


class Table:
    """Columns of equal length: the attributes that a subclass, a dataclass, declares."""

    columns: ClassVar[dict[str, Any]]

    def __init_subclass__(cls) -> None:
        hints = get_type_hints(cls, include_extras=True).items()
        kinds = {name: getattr(hint, "__metadata__", (hint,))[0] for name, hint in hints}
        cls.columns = {name: kind for name, kind in kinds.items() if hasattr(kind, "joined")}

    def take(self: T, rows: Rows) -> T:
        """Return some of the rows."""
        if _are_all(rows):
            return self
        columns = self.columns.items()
        return type(self)(*(kind.take(getattr(self, name), rows) for name, kind in columns))

    def freeze(self) -> None:
        """Let a change of a number in a column raise. Texts do not change anyway."""
        for name in self.columns:
            column = getattr(self, name)
            if isinstance(column, np.ndarray):
                column.flags.writeable = False

    @classmethod
    def joined(cls: type[T], tables: Sequence[T]) -> T:
        """Return the rows of all tables, one after the other."""
        columns = cls.columns.items()
        return cls(
            *(kind.joined([getattr(each, name) for each in tables]) for name, kind in columns)
        )


class PathTable(Table, Mapping[str, Row]):
    """Rows by path. Looking up one path makes an index, which costs more than a question to all.

    The first column are the paths, which all differ. `row_class` has a field for each other one.
    """

    row_class: ClassVar[type]
    paths: Texts

    @classmethod
    def of(cls: type[P], rows: Mapping[str, Any]) -> P:
        """Return a mapping as a table, which it may be already."""
        if isinstance(rows, cls):
            return rows
        first, *others = cls.columns.values()
        fields = list(zip(*rows.values(), strict=True)) or [()] * len(others)
        columns = [kind.of(values) for kind, values in zip(others, fields, strict=True)]
        return cls(*[first.of(list(rows)), *columns])

    @classmethod
    def merged(cls: type[P], tables: Sequence[P]) -> P:
        """Return the rows of all tables, of those for one path the last."""
        tables = [table for table in tables if table]
        if len(tables) == 1:
            return tables[0]
        every = cls.joined(tables)
        return every.take(last_rows(every.paths))

    def without(self: P, paths: Iterable[str]) -> P:
        """Return the rows but for those of these paths."""
        is_kept = rows_of(self.paths, as_texts(paths)) < 0
        return self if is_kept.all() else self.take(is_kept)

    def rows(self, some: slice) -> Iterator[Row]:
        """Yield some rows as objects."""
        _, *columns = self.columns.items()
        fields = (kind.tolist(kind.take(getattr(self, name), some)) for name, kind in columns)
        return map(partial(new_row, self.row_class), zip(*fields, strict=True))

    def __len__(self) -> int:
        return len(self.paths)

    def __iter__(self) -> Iterator[str]:
        for some in slices(len(self)):
            yield from self.paths[some].to_pylist()

    def __contains__(self, path: object) -> bool:
        return path in self._index

    def __getitem__(self, path: str) -> Row:
        row = self._index[path]
        return next(self.rows(slice(row, row + 1)))

    def items(self) -> ItemsView[str, Row]:
        return _Items(self)

    def values(self) -> ValuesView[Row]:
        return _Values(self)

    @lazy
    def _index(self) -> dict[str, int]:
        return {path: row for row, path in enumerate(self.paths.to_pylist())}


class _Items(ItemsView[str, Row]):
    _mapping: PathTable[Row]

    def __iter__(self) -> Iterator[tuple[str, Row]]:
        return zip(self._mapping, _Values(self._mapping), strict=True)


class _Values(ValuesView[Row]):
    _mapping: PathTable[Row]

    def __iter__(self) -> Iterator[Row]:
        for some in slices(len(self._mapping)):
            yield from self._mapping.rows(some)


class RowSequence(Sequence[Row]):
    """Rows in order, of which a slice are rows in columns as well."""

    @abstractmethod
    def row(self, index: int) -> Row:
        """Return one row as an object."""

    @abstractmethod
    def take(self: S, rows: Rows) -> S:
        """Return some of the rows."""

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self: S, index: slice) -> S: ...
    def __getitem__(self: S, index: int | slice) -> Row | S:
        if isinstance(index, slice):
            return self.take(index)
        row: Row = self.row(range(len(self))[index])
        return row


def _are_all(rows: Rows) -> bool:
    if isinstance(rows, slice) or rows.dtype != np.bool_:
        return False
    return False not in rows.tolist() if are_few(rows) else bool(rows.all())


def slices(count: int) -> Iterator[slice]:
    """Yield the slices of a column in which few rows are handled at the same time."""
    return (slice(first, first + _CHUNK) for first in range(0, count, _CHUNK))


def found(column: Numbers, rows: Numbers, absent: int) -> Numbers:
    """Return the numbers of some rows, `absent` for a row that is negative."""
    if not len(column):
        return np.full(len(rows), absent, column.dtype)
    return np.where(rows >= 0, column[rows], absent).astype(column.dtype, copy=False)


@dataclass(frozen=True, eq=False)
class Lengths(PathTable[int]):
    """A number of bytes by path."""

    paths: Paths
    bytes: Ints

    @classmethod
    def of(cls, rows: Mapping[str, int]) -> Lengths:
        if isinstance(rows, Lengths):
            return rows
        return cls(texts(rows), np.fromiter(rows.values(), np.int64, len(rows)))

    def rows(self, some: slice) -> Iterator[int]:
        return iter(self.bytes[some].tolist())

    def without(self, paths: Texts) -> Lengths:
        """Return the rows but for those of these paths."""
        return self.take(rows_of(self.paths, paths) < 0) if len(paths) else self

    def at(self, paths: Texts, absent: int = -1) -> Numbers:
        """Return the bytes at each of these paths, `absent` for those that are not here."""
        return found(self.bytes, rows_of(paths, self.paths), absent)
