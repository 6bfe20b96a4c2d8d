"""Columns give the answers that objects give."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpreplicate.core.ledger import LedgerEntry, LedgerTable, Member, MemberTable
from cpreplicate.core.path_columns import (
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
from cpreplicate.core.tables import Lengths

TEXT = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("/ab"), max_size=12)
TEXTS = st.lists(TEXT)
ENTRIES = st.dictionaries(
    TEXT,
    st.builds(LedgerEntry, st.integers(0, 9), st.none() | st.integers(0, 2**32 - 1), st.booleans()),
)
MEMBERS = st.dictionaries(
    TEXT,
    st.builds(
        Member,
        st.sampled_from(["packed/a", "packed/b"]),
        st.integers(0, 99),
        st.integers(0, 99),
        st.none() | st.integers(0, 2**32 - 1),
    ),
)


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


@given(st.dictionaries(TEXT, st.integers(0, 9)), TEXTS)
def test_a_table_is_a_mapping(lengths, asked):
    table = Lengths.of(lengths)
    assert table == lengths
    assert (list(table), list(table.values())) == (list(lengths), list(lengths.values()))
    assert table.at(texts(asked)).tolist() == [lengths.get(path, -1) for path in asked]
    assert [table.get(path) for path in asked] == [lengths.get(path) for path in asked]


@given(st.lists(ENTRIES, max_size=3), TEXTS)
def test_of_several_ledger_entries_for_a_path_the_last_counts(tables, asked):
    expected = {path: entry for table in tables for path, entry in table.items()}
    merged = LedgerTable.merged([LedgerTable.of(table) for table in tables])
    assert merged == expected
    nothing = LedgerEntry(-1, None, False)
    assert list(merged.at(texts(asked)).values()) == [expected.get(p, nothing) for p in asked]
    distrusted = {p: v._replace(crc32c=None) if p in asked else v for p, v in expected.items()}
    assert merged.distrusting(asked) == distrusted


@given(st.lists(MEMBERS, max_size=3), TEXTS)
def test_of_several_members_with_one_path_the_last_counts(tables, gone):
    expected = {path: member for table in tables for path, member in table.items()}
    merged = MemberTable.merged([MemberTable.of(table) for table in tables])
    assert merged == expected
    assert set(merged.used_packs) == {member.pack for member in expected.values()}
    kept = {path: member for path, member in expected.items() if path not in gone}
    assert merged.without(gone) == kept


def test_a_path_that_is_not_in_a_table_raises_a_key_error():
    with pytest.raises(KeyError):
        Lengths.of({"a": 1})["b"]
