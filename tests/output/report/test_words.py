"""Numbers in the sentences of pages."""

import pytest

from cpreplicate.output.report.pages.words import counted, joined, label, of_bytes, share, took


def test_a_unit_stands_once_if_it_is_the_same():
    assert of_bytes(1288490189, 40 << 30) == "1.2 of 40.0 GiB"
    assert of_bytes(5 << 20, 40 << 30) == "5.0 MiB of 40.0 GiB"


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [(1, 2, "50 %"), (999, 1000, "over 99 %"), (7, 7, "100 %"), (0, 0, "0 %")],
)
def test_a_share_is_all_only_if_nothing_is_left(part, whole, text):
    assert share(part, whole) == text


def test_a_list_has_its_last_part_behind_and():
    assert [joined(["a", "b", "c"][:count]) for count in range(4)] == [
        *("", "a", "a and b", "a, b and c")
    ]


def test_a_long_label_keeps_its_beginning_and_its_end():
    text = label("a" * 50 + "b" * 50)
    assert len(text) <= 48
    assert (text[0], text[-1]) == ("a", "b")


def test_one_is_singular_and_a_short_time_has_tenths():
    assert (counted(1, "file"), counted(1234, "file")) == ("1 file", "1,234 files")
    assert (took(0.31), took(65)) == ("0.3 s", "1 min 05 s")
