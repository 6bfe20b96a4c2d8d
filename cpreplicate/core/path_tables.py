"""Files by their path, in columns: Arrow texts and numpy numbers behind the interface of a mapping.

A closure may have a million files, of which a round of a standby changes few. What concerns all
files is asked of columns, in C. A row becomes an object when it is looked at by itself.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import ItemsView as _ItemsView
from collections.abc import (
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from collections.abc import ValuesView as _ValuesView
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cpreplicate.core.lazy import lazy

Texts: TypeAlias = Any
"""A `pyarrow.LargeStringArray` without nulls: pyarrow has no types."""
Numbers: TypeAlias = npt.NDArray[Any]

Row = TypeVar("Row", covariant=True)  # as the rows of other mappings
_CHUNK = 65_536  # rows that are objects at the same time
_TEXT = pa.large_string()
_NOTHING_BETWEEN = pa.scalar("", _TEXT)
_SLASH = ord("/")


def texts(values: Iterable[str]) -> Texts:
    """Return texts as a column. Raises `UnicodeEncodeError` for a lone surrogate."""
    return pa.array(list(values), _TEXT)


def rows_of(wanted: Texts, among: Texts) -> Numbers:
    """Return the row of each wanted text among others, -1 for those that are not there."""
    if not len(wanted) or not len(among):
        return np.full(len(wanted), -1)
    rows = pc.index_in(wanted, value_set=among).fill_null(-1)
    numbers: Numbers = rows.to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers


def texts_among(names: Sequence[str]) -> tuple[Texts, Numbers]:
    """Return the names that are texts, and which these are.

    A name on a local disk may be any bytes; Python makes lone surrogates of those that are no text.
    """
    try:
        return texts(names), np.ones(len(names), np.bool_)
    except UnicodeEncodeError:
        is_text = [name.encode(errors="replace") == name.encode(errors="ignore") for name in names]
        column = texts(name for name, is_one in zip(names, is_text, strict=True) if is_one)
        return column, np.array(is_text, np.bool_)


def as_texts(values: Iterable[str]) -> Texts:
    """Return texts as a column, which they may be already."""
    return values if isinstance(values, pa.Array) else texts(values)


def without(paths: Texts, *others: Texts) -> Texts:
    """Return the paths that are in none of the other columns."""
    for other in others:
        paths = paths.filter(pa.array(rows_of(paths, other) < 0))
    return paths


def last_rows(paths: Texts) -> Numbers:
    """Return the row where each path is last, in the order in which they are first."""
    codes = paths.dictionary_encode().indices.to_numpy(zero_copy_only=False)
    last = np.zeros(codes.max(initial=-1) + 1, np.int64)
    last[codes] = np.arange(len(codes))  # of several rows the last one stays
    return last


def chosen(column: Texts, rows: Numbers) -> Texts:
    """Return some rows of a column of texts; `rows` are indexes, or a flag for each row."""
    return column.filter(pa.array(rows)) if rows.dtype == np.bool_ else column.take(pa.array(rows))


def split(paths: Any) -> tuple[Any, Any]:
    """Return what each path begins with, up to its last slash, and the name behind it.

    `paths` is a column of texts or bytes. Nothing is copied but the two results.
    """
    starts = _bounds(paths)
    first, end = int(starts[0]), int(starts[-1])
    data = paths.buffers()[2]
    content = np.frombuffer(data, np.uint8)[first:end] if end else np.zeros(0, np.uint8)
    slashes = np.flatnonzero(content == _SLASH) + first
    behind = np.concatenate([[0], slashes + 1])[np.searchsorted(slashes, starts[1:])]
    return _cut(paths, starts, np.maximum(behind, starts[:-1]))


def without_prefix(paths: Texts, prefix: str) -> Texts:
    """Return what follows the prefix that all paths begin with."""
    starts = _bounds(paths)
    return _cut(paths, starts, starts[:-1] + len(prefix.encode()))[1]


def _bounds(paths: Any) -> Numbers:
    """Return where each text begins in the column's data, and where the last one ends."""
    count, bounds = len(paths), paths.buffers()[1]
    if not count or bounds is None:
        return np.zeros(1, np.int64)
    return np.frombuffer(bounds, np.int64)[paths.offset : paths.offset + count + 1]


def _cut(paths: Any, starts: Numbers, cuts: Numbers) -> tuple[Any, Any]:
    """Return both parts of each text, which are cut at these places of the column's data."""
    count = len(paths)
    bounds = np.empty(2 * count + 1, np.int64)
    bounds[0::2] = starts
    bounds[1::2] = cuts
    buffers = [None, pa.py_buffer(bounds), paths.buffers()[2]]
    halves = pa.Array.from_buffers(paths.type, 2 * count, buffers)
    beginnings = np.arange(0, 2 * count, 2)
    return halves.take(pa.array(beginnings)), halves.take(pa.array(beginnings + 1))


def prefixed(prefix: str, names: Texts) -> Texts:
    """Return texts with the same beginning."""
    return pc.binary_join_element_wise(pa.scalar(prefix, _TEXT), names, _NOTHING_BETWEEN)


def directories(paths: Texts) -> set[str]:
    """Return the directories of some paths."""
    beginnings, _ = split(paths)
    return {beginning[:-1] for beginning in beginnings.unique().to_pylist()}


class Parts(NamedTuple):
    """Paths in columns: the beginnings that many share, which of them each has, and its name."""

    prefixes: Sequence[str]
    codes: Numbers
    names: Texts

    def texts(self) -> Texts:
        """Return the paths."""
        beginnings = texts(self.prefixes).take(pa.array(self.codes))
        return pc.binary_join_element_wise(beginnings, self.names, _NOTHING_BETWEEN)

    def text(self, row: int) -> str:
        """Return one path."""
        name: str = self.names[row].as_py()
        prefix: str = self.prefixes[self.codes[row]]
        return prefix + name

    @classmethod
    def joined(cls, every: Sequence[Parts]) -> Parts:
        """Return the paths of all, one after the other."""
        known: dict[str, int] = {}
        codes: list[Numbers] = [np.zeros(0, np.int64)]
        for parts in every:
            places = [known.setdefault(prefix, len(known)) for prefix in parts.prefixes]
            codes.append(np.array(places, np.int64)[parts.codes])
        names = pa.concat_arrays([texts(()), *(parts.names for parts in every)])
        return cls(tuple(known), np.concatenate(codes), names)

    def take(self, rows: Numbers) -> Parts:
        """Return some of the paths."""
        return self._replace(codes=self.codes[rows], names=chosen(self.names, rows))

    def moved(
        self, prefixes: Sequence[str | None], is_single: Numbers, places: Iterable[str]
    ) -> Parts:
        """Return the paths with other beginnings, and those flagged as single at these places.

        `prefixes` has the new beginning of each old one, None where all its paths are single.
        """
        known: dict[str, int] = {}
        codes = np.array([known.setdefault(prefix or "", len(known)) for prefix in prefixes])
        new_codes = codes[self.codes] if len(codes) else self.codes
        names = self.names
        if is_single.any():
            pairs = [place.rpartition("/") for place in places]
            singles = [known.setdefault(head + slash, len(known)) for head, slash, _ in pairs]
            new_codes[is_single] = singles
            replacements = texts(name for _, _, name in pairs)
            names = pc.replace_with_mask(names, pa.array(is_single), replacements)
        return Parts(tuple(known), new_codes, names)


def parts_of(paths: Texts) -> Parts:
    """Return the parts of some paths."""
    beginnings, names = split(paths)
    shared = beginnings.dictionary_encode()
    codes = shared.indices.to_numpy(zero_copy_only=False)
    return Parts(tuple(shared.dictionary.to_pylist()), codes, names)


class PathTable(Mapping[str, Row]):
    """Rows by path. Looking up one path makes an index, which costs more than a question to all."""

    @property
    @abstractmethod
    def paths(self) -> Texts:
        """The paths, in order; all differ."""

    @abstractmethod
    def rows(self, chosen: slice) -> Iterator[Row]:
        """Yield some rows as objects."""

    def __len__(self) -> int:
        return len(self.paths)

    def __iter__(self) -> Iterator[str]:
        for part in slices(len(self)):
            yield from self.paths[part].to_pylist()

    def __contains__(self, path: object) -> bool:
        return path in self._index

    def __getitem__(self, path: str) -> Row:
        row = self._index[path]
        return next(self.rows(slice(row, row + 1)))

    def items(self) -> _ItemsView[str, Row]:
        return _Items(self)

    def values(self) -> _ValuesView[Row]:
        return _Values(self)

    @lazy
    def _index(self) -> dict[str, int]:
        return {path: row for row, path in enumerate(self.paths.to_pylist())}


def slices(count: int) -> Iterator[slice]:
    """Yield the slices of a column in which few rows are handled at the same time."""
    return (slice(first, first + _CHUNK) for first in range(0, count, _CHUNK))


class _Items(_ItemsView[str, Row]):
    _mapping: PathTable[Row]

    def __iter__(self) -> Iterator[tuple[str, Row]]:
        table = self._mapping
        for part in slices(len(table)):
            yield from zip(table.paths[part].to_pylist(), table.rows(part), strict=True)


class _Values(_ValuesView[Row]):
    _mapping: PathTable[Row]

    def __iter__(self) -> Iterator[Row]:
        for part in slices(len(self._mapping)):
            yield from self._mapping.rows(part)


class Lengths(PathTable[int]):
    """A number of bytes by path."""

    def __init__(self, paths: Texts, bytes_: Numbers) -> None:
        self._paths = paths
        self.bytes = bytes_

    @classmethod
    def of(cls, lengths: Mapping[str, int]) -> Lengths:
        """Return a mapping as a table, which it may be already."""
        if isinstance(lengths, Lengths):
            return lengths
        count = len(lengths)
        return cls(texts(lengths), np.fromiter(lengths.values(), np.int64, count))

    @property
    def paths(self) -> Texts:
        return self._paths

    def rows(self, chosen: slice) -> Iterator[int]:
        return iter(self.bytes[chosen].tolist())

    def at(self, paths: Texts, absent: int = -1) -> Numbers:
        """Return the bytes at each of these paths, `absent` for those that are not here."""
        rows = rows_of(paths, self.paths)
        if not len(self.bytes):
            return np.full(len(paths), absent)
        return np.where(rows >= 0, self.bytes[rows], absent)
