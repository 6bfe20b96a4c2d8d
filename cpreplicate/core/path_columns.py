"""Columns of paths: Arrow texts, and numbers of numpy for each of them.

A closure may have a million files, of which a round of a standby changes few. What concerns all
files is asked of columns, in C.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence, Sized
from itertools import compress
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cpreplicate.core import uri

Texts: TypeAlias = Any
"""A `pyarrow.LargeStringArray` without nulls: pyarrow has no types."""
Numbers: TypeAlias = npt.NDArray[Any]
Rows: TypeAlias = Numbers | slice
"""Some rows of a column: indexes, a flag for each row, or a slice."""

_TEXT = pa.large_string()
# Rows up to which plain Python beats columns: a call into Arrow costs as much as some hundred texts
# in Python, and most checkpoints of a standby have few files. Both ways have the same results.
FEW = 200
_MANY_MORE = 16  # times as many texts
_plain_bytes = re.compile(uri.PLAIN_NAME.encode()).fullmatch
_NOTHING_BETWEEN = pa.scalar("", _TEXT)
_NO_TEXTS = pa.array([], _TEXT)
_SLASH = ord("/")


def are_few(*columns: Sized) -> bool:
    """Return whether plain Python is faster for these rows, all together, than columns are."""
    return sum(map(len, columns)) <= FEW


def texts(values: Iterable[str]) -> Texts:
    """Return texts as a column. Raises `UnicodeEncodeError` for a lone surrogate."""
    some = values if isinstance(values, list) else list(values)
    return pa.array(some, _TEXT) if some else _NO_TEXTS


def rows_of(wanted: Texts, among: Texts) -> Numbers:
    """Return the row of each wanted text among others, -1 for those that are not there."""
    if not len(wanted) or not len(among):
        return np.full(len(wanted), -1)
    if are_few(wanted, among):
        known = _rows_by_text(among.to_pylist())
        return np.array([known.get(text, -1) for text in wanted.to_pylist()], np.int64)
    if len(wanted) * _MANY_MORE < len(among):
        return _rows_of_few(wanted, among)
    rows = pc.index_in(wanted, value_set=among).fill_null(-1)
    numbers: Numbers = rows.to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers


def _rows_of_few(wanted: Texts, among: Texts) -> Numbers:
    """Return as `rows_of`: many texts are looked up among few, which costs a tenth of an index of
    the many.
    """
    shared = wanted.dictionary_encode()
    places = pc.index_in(among, value_set=shared.dictionary)
    there = np.flatnonzero(places.is_valid().to_numpy(zero_copy_only=False))[::-1]
    first = np.full(len(shared.dictionary), -1, np.int64)
    # of several rows with one text the first one is written last
    first[places.take(pa.array(there)).to_numpy(zero_copy_only=False)] = there
    found: Numbers = first[shared.indices.to_numpy(zero_copy_only=False)]
    return found


def _rows_by_text(values: Sequence[str]) -> dict[str, int]:
    """Return the first row of each text."""
    return {value: row for row, value in reversed(list(enumerate(values)))}


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


def concatenated(columns: Sequence[Texts]) -> Texts:
    """Return the texts of all columns, one after the other. One that is alone is not copied."""
    some = [column for column in columns if len(column)]
    return some[0] if len(some) == 1 else pa.concat_arrays([texts(()), *some])


def without(paths: Texts, *others: Texts) -> Texts:
    """Return the paths that are in none of the other columns."""
    if are_few(paths, *others):
        gone = {path for other in others for path in other.to_pylist()}
        return texts(path for path in paths.to_pylist() if path not in gone) if gone else paths
    for other in others:
        paths = chosen(paths, rows_of(paths, other) < 0)
    return paths


def last_rows(paths: Texts) -> Numbers:
    """Return the row where each path is last, in the order in which they are first."""
    _, codes = coded(paths)
    last = np.zeros(codes.max(initial=-1) + 1, np.int64)
    last[codes] = np.arange(len(codes))  # of several rows the last one stays
    return last


def chosen(column: Texts, rows: Rows) -> Texts:
    """Return some rows of a column of texts."""
    if isinstance(rows, slice):
        return column[rows]
    if are_few(column):
        return _chosen_of_few(column, rows)
    if rows.dtype == np.bool_ and rows.all():
        return column
    return column.filter(pa.array(rows)) if rows.dtype == np.bool_ else column.take(pa.array(rows))


def _chosen_of_few(column: Texts, rows: Numbers) -> Texts:
    wanted = rows.tolist()
    if rows.dtype != np.bool_:
        values = column.to_pylist()
        return pa.array([values[row] for row in wanted], column.type)
    if False not in wanted:
        return column
    if True not in wanted:
        return column[:0]
    return pa.array(list(compress(column.to_pylist(), wanted)), column.type)


def split(paths: Any) -> tuple[Any, Any]:
    """Return what each path begins with, up to its last slash, and the name behind it.

    `paths` is a column of texts or bytes. Nothing is copied but the two results.
    """
    if are_few(paths):
        values = paths.to_pylist()
        slash = "/" if paths.type == _TEXT else b"/"
        cuts = [value.rfind(slash) + 1 for value in values]
        return (
            pa.array([value[:cut] for value, cut in zip(values, cuts, strict=True)], paths.type),
            pa.array([value[cut:] for value, cut in zip(values, cuts, strict=True)], paths.type),
        )
    starts = _bounds(paths)
    first, end = int(starts[0]), int(starts[-1])
    data = paths.buffers()[2]
    content = np.frombuffer(data, np.uint8)[first:end] if end else np.zeros(0, np.uint8)
    slashes = np.flatnonzero(content == _SLASH) + first
    behind = np.concatenate([[0], slashes + 1])[np.searchsorted(slashes, starts[1:])]
    return _cut(paths, starts, np.maximum(behind, starts[:-1]))


def without_prefix(paths: Texts, prefix: str) -> Texts:
    """Return what follows the prefix that all paths begin with."""
    if are_few(paths):
        return texts(path[len(prefix) :] for path in paths.to_pylist())
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
    if are_few(names):
        return texts(prefix + name for name in names.to_pylist())
    return pc.binary_join_element_wise(pa.scalar(prefix, _TEXT), names, _NOTHING_BETWEEN)


def are_plain(names: Any) -> Numbers:
    """Return of each name, in a column of texts or bytes, whether it is a `uri.PLAIN_NAME`."""
    if are_few(names):
        is_plain = uri.plain_name if names.type == _TEXT else _plain_bytes
        return np.array([is_plain(name) is not None for name in names.to_pylist()], np.bool_)
    answers = pc.match_substring_regex(names, f"^{uri.PLAIN_NAME}$")
    plain: Numbers = answers.to_numpy(zero_copy_only=False)
    return plain


def begin_with(paths: Texts, prefix: str) -> Numbers:
    """Return of each path whether it begins with a prefix."""
    if are_few(paths):
        return np.array([path.startswith(prefix) for path in paths.to_pylist()], np.bool_)
    answers: Numbers = pc.starts_with(paths, prefix).to_numpy(zero_copy_only=False)
    return answers


def contain(paths: Texts, text: str) -> Numbers:
    """Return of each path whether it contains a text."""
    if are_few(paths):
        return np.array([text in path for path in paths.to_pylist()], np.bool_)
    answers: Numbers = pc.match_substring(paths, text).to_numpy(zero_copy_only=False)
    return answers


def directories(paths: Texts) -> set[str]:
    """Return the directories of some paths."""
    if are_few(paths):
        return {path[: path.rfind("/") + 1][:-1] for path in paths.to_pylist()}
    beginnings, _ = split(paths)
    return {beginning[:-1] for beginning in beginnings.unique().to_pylist()}


class Coded(NamedTuple):
    """A column of texts of which many are equal: those that differ, and which each row has."""

    values: Sequence[str]
    codes: Numbers

    @classmethod
    def of(cls, column: Sequence[str]) -> Coded:
        """Return texts as a column."""
        known: dict[str, int] = {}
        codes = [known.setdefault(value, len(known)) for value in column]
        return cls(tuple(known), np.array(codes, np.int64))

    @classmethod
    def joined(cls, every: Sequence[Coded]) -> Coded:
        """Return the rows of all columns, one after the other."""
        known: dict[str, int] = {}
        codes: list[Numbers] = [np.zeros(0, np.int64)]
        for column in every:
            places = [known.setdefault(value, len(known)) for value in column.values]
            codes.append(np.array(places, np.int64)[column.codes])
        return cls(tuple(known), np.concatenate(codes))

    def take(self, rows: Rows) -> Coded:
        """Return some of the rows."""
        return Coded(self.values, self.codes[rows])

    def tolist(self) -> list[str]:
        """Return the texts as objects."""
        return [self.values[code] for code in self.codes.tolist()]

    @property
    def used(self) -> list[str]:
        """The texts that rows have."""
        return [self.values[code] for code in np.unique(self.codes).tolist()]


def coded(column: Any) -> tuple[tuple[Any, ...], Numbers]:
    """Return the texts, or bytes, of a column that differ, and which of them each row has."""
    if are_few(column):
        values, codes = Coded.of(column.to_pylist())
        return tuple(values), codes
    shared = column.dictionary_encode()
    codes = shared.indices.to_numpy(zero_copy_only=False)
    return tuple(shared.dictionary.to_pylist()), codes


def distinct(column: Any) -> tuple[int, Numbers]:
    """Return how many texts, bytes or numbers of a column differ, and which of them each row has.

    They are numbered in the order in which they are first.
    """
    if are_few(column):
        values, codes = Coded.of(column.to_pylist())
        return len(values), codes
    shared = column.dictionary_encode()
    return len(shared.dictionary), shared.indices.to_numpy(zero_copy_only=False)


class Parts(NamedTuple):
    """Paths in columns: the beginnings that many share, which of them each has, and its name."""

    prefixes: Sequence[str]
    codes: Numbers
    names: Texts

    @classmethod
    def of(cls, paths: Sequence[str]) -> Parts:
        """Return paths as a column, with nothing in common."""
        return cls(("",), np.zeros(len(paths), np.int64), texts(paths))

    def texts(self) -> Texts:
        """Return the paths."""
        if are_few(self.codes):
            return texts(self.tolist())
        beginnings = texts(self.prefixes).take(pa.array(self.codes))
        return pc.binary_join_element_wise(beginnings, self.names, _NOTHING_BETWEEN)

    def text(self, row: int) -> str:
        """Return one path."""
        name: str = self.names[row].as_py()
        prefix: str = self.prefixes[self.codes[row]]
        return prefix + name

    def tolist(self) -> list[str]:
        """Return the paths as objects."""
        if are_few(self.codes):
            pairs = zip(self.codes.tolist(), self.names.to_pylist(), strict=True)
            return [self.prefixes[code] + name for code, name in pairs]
        paths: list[str] = self.texts().to_pylist()
        return paths

    @property
    def used_prefixes(self) -> list[str]:
        """The beginnings that paths have."""
        return Coded(self.prefixes, self.codes).used

    @classmethod
    def joined(cls, every: Sequence[Parts]) -> Parts:
        """Return the paths of all, one after the other."""
        beginnings = Coded.joined([Coded(parts.prefixes, parts.codes) for parts in every])
        return cls(*beginnings, concatenated([parts.names for parts in every]))

    def take(self, rows: Rows) -> Parts:
        """Return some of the paths."""
        return Parts(self.prefixes, self.codes[rows], chosen(self.names, rows))

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
    return Parts(*coded(beginnings), names)
