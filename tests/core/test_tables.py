"""A table of paths is a mapping."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpreplicate.core.path_columns import (
    texts,
)
from cpreplicate.core.tables import Lengths

TEXT = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("/ab"), max_size=12)


TEXTS = st.lists(TEXT)


@given(st.dictionaries(TEXT, st.integers(0, 9)), TEXTS)
def test_a_table_is_a_mapping(lengths, asked):
    table = Lengths.of(lengths)
    assert table == lengths
    assert (list(table), list(table.values())) == (list(lengths), list(lengths.values()))
    assert table.at(texts(asked)).tolist() == [lengths.get(path, -1) for path in asked]
    assert [table.get(path) for path in asked] == [lengths.get(path) for path in asked]


def test_a_path_that_is_not_in_a_table_raises_a_key_error():
    with pytest.raises(KeyError):
        Lengths.of({"a": 1})["b"]
