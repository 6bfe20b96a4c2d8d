"""Columns give the answers that objects give."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cpreplicate.core.path_columns import (
    FEW,
    Parts,
    directories,
    last_rows,
    parts_of,
    rows_of,
    split,
    texts,
    texts_among,
    without,
    without_prefix,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("/ab"), max_size=12)
TEXTS = st.lists(TEXT)


@given(TEXTS, st.integers(0, 3))
def test_a_path_is_split_behind_its_last_slash_also_in_a_part_of_a_column(paths, first):
    column = texts(paths)[first:]
    beginnings, names = (half.to_pylist() for half in split(column))
    pairs = [path.rpartition("/") for path in paths[first:]]
    assert beginnings == [head + slash for head, slash, _ in pairs]
    assert names == [name for *_, name in pairs]
    assert parts_of(column).texts().to_pylist() == paths[first:]


@given(TEXT, TEXTS, st.integers(0, 3))
def test_a_prefix_is_removed_from_each_text(prefix, names, first):
    column = texts(prefix + name for name in names)[first:]
    assert without_prefix(column, prefix).to_pylist() == names[first:]


@given(TEXTS, st.lists(TEXT, unique=True))
def test_each_text_is_found_where_it_is(wanted, among):
    rows = rows_of(texts(wanted), texts(among)).tolist()
    assert rows == [among.index(text) if text in among else -1 for text in wanted]
    left = without(texts(wanted), texts(among)).to_pylist()
    assert left == [text for text in wanted if text not in among]


@given(TEXTS, TEXTS)
def test_few_texts_are_found_where_they_are_first_among_many(wanted, among):
    many = [*among, *(f"another/{number}" for number in range(16 * len(wanted) + FEW)), *among]
    rows = rows_of(texts(wanted), texts(many)).tolist()
    assert rows == [many.index(text) if text in among else -1 for text in wanted]


@given(TEXTS)
def test_of_equal_paths_the_last_row_counts(paths):
    rows = {path: row for row, path in enumerate(paths)}
    assert last_rows(texts(paths)).tolist() == list(rows.values())


@given(st.lists(st.sampled_from(["a", "é", "\udcff", "x\udc80y", "\ud800", ""])))
def test_names_that_are_no_text_are_left_out(names):
    column, is_text = texts_among(names)
    good = [not any("\ud800" <= letter <= "\udfff" for letter in name) for name in names]
    assert is_text.tolist() == good
    assert column.to_pylist() == [name for name, one in zip(names, good, strict=True) if one]


def test_paths_move_with_their_beginnings_and_single_ones_by_themselves():
    parts = parts_of(texts(["a/x", "a/y", "b/z", "c"]))
    is_single = np.array([False, True, False, True])
    moved = parts.moved(["A/", "B-", None], is_single, ["q/r", "s"])
    assert moved.texts().to_pylist() == ["A/x", "q/r", "B-z", "s"]
    assert Parts.joined([moved, parts]).texts().to_pylist() == [
        *("A/x", "q/r", "B-z", "s"),
        *("a/x", "a/y", "b/z", "c"),
    ]
    assert directories(parts.texts()) == {"a", "b", ""}
