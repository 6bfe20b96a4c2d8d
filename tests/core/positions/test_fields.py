"""Every field is read within its bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpreplicate.core.metadata import mutf8
from cpreplicate.core.positions import fields
from cpreplicate.core.positions.fields import Fields
from cpreplicate.core.positions.model import Unreadable


@given(st.text(max_size=50), st.integers(-(1 << 31), (1 << 31) - 1), st.binary(max_size=50))
def test_fields_are_read_as_they_are_written(text, number, data):
    written = mutf8.utf(text) + fields.i32(number) + fields.block(data) + fields.i64(number)
    read = Fields(written + fields.flag(True))
    assert (read.utf(), read.i32(), read.block(), read.i64(), read.flag()) == (
        text,
        number,
        data,
        number,
        True,
    )
    read.end()


@pytest.mark.parametrize("name", ["u8", "i16", "i32", "i64", "flag", "utf", "block"])
def test_a_field_past_the_end_is_refused(name):
    with pytest.raises(Unreadable):
        getattr(Fields(b""), name)()


@pytest.mark.parametrize("count", [-1, 3, (1 << 31) - 1])
def test_a_number_of_entries_that_cannot_fit_is_refused(count):
    with pytest.raises(Unreadable, match=str(count)):
        Fields(fields.i32(count) + bytes(20)).count(10)


def test_a_flag_is_0_or_1():
    with pytest.raises(Unreadable):
        Fields(b"\x02").flag()


def test_bytes_that_follow_are_refused():
    with pytest.raises(Unreadable, match="1 byte follows"):
        Fields(b"x").end()
