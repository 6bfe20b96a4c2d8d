"""A page has the largest rows of a table that a browser could not show."""

import numpy as np

from cpreplicate.output.report.model import Column, DataTable, Page
from cpreplicate.output.report.page import html_of
from cpreplicate.output.report.pages import rows


def test_the_largest_rows_stay_in_their_order():
    places = rows.largest([5, 1, 9, 5, 7], most=3)
    assert places.tolist() == [0, 2, 4]
    assert rows.chosen(Column("c", list("abcde")), places).values == ["a", "c", "e"]


def test_all_rows_stay_if_they_are_not_many():
    column = Column("c", list("abc"))
    assert rows.chosen(column, rows.largest([1, 2, 3], most=3)) is column


def test_sizes_of_petabytes_are_compared():
    assert rows.largest([1, 2**62, 2**61], most=1).tolist() == [1]
    assert rows.largest([], most=1).dtype == np.int64


def test_the_page_states_how_many_rows_are_left_out():
    table = DataTable("Files", Column("c", ["a", "b"]), left_out=1000)
    text = html_of(Page("title", "answer.", tables=(table,)))
    assert "The 2 largest of 1,002 rows are on this page." in text
