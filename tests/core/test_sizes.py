"""Numbers of bytes as people read them."""

import pytest

from cpreplicate.core.sizes import size


@pytest.mark.parametrize(
    ("number", "expected"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (10 * 1024**4, "10.0 TiB")],
)
def test_sizes_have_binary_units(number, expected):
    assert size(number) == expected
