"""Numbers of bytes, and counts of things, as people read them."""

import pytest

from cpreplicate.core.sizes import counted, plural, size


@pytest.mark.parametrize(
    ("number", "expected"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (10 * 1024**4, "10.0 TiB")],
)
def test_sizes_have_binary_units(number, expected):
    assert size(number) == expected


@pytest.mark.parametrize(
    ("count", "words", "expected"),
    [
        (0, ("file",), "0 files"),
        (1, ("file",), "1 file"),
        (2, ("file",), "2 files"),
        (1, ("copy", "copies"), "1 copy"),
        (3, ("copy", "copies"), "3 copies"),
        (1, ("job is", "jobs are"), "1 job is"),
    ],
)
def test_a_count_has_its_noun_in_the_singular_only_of_one(count, words, expected):
    assert counted(count, *words) == expected
    assert expected == f"{count} {plural(count, *words)}"
