"""Spliced files differ in what was edited only, as bytes and as streams."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpreplicate.core.metadata.splice import Edit, spliced
from cpreplicate.errors import MetadataError


@given(st.binary(max_size=200), st.lists(st.tuples(st.integers(0, 200), st.binary(max_size=9))))
def test_bytes_between_edits_stay(data, places):
    starts = sorted({min(place, len(data)) for place, _ in places})
    new = dict(zip(starts, (content for _, content in places), strict=False))
    ends = [*starts, len(data)][1:]
    edits = [
        Edit(start, (start + end) // 2, new[start]) for start, end in zip(starts, ends, strict=True)
    ]
    wanted, copied = b"", 0
    for edit in edits:
        wanted += data[copied : edit.start] + edit.new
        copied = edit.end
    wanted += data[copied:]
    assert b"".join(spliced(data, len(data), reversed(edits))) == wanted
    assert b"".join(spliced(io.BytesIO(data), len(data), edits)) == wanted


def test_edits_of_the_same_bytes_are_refused():
    with pytest.raises(MetadataError, match="byte 3"):
        list(spliced(b"123456", 6, [Edit(0, 4, b""), Edit(3, 5, b"")]))


def test_a_stream_that_ends_early_is_an_error():
    with pytest.raises(MetadataError, match="byte 3"):
        list(spliced(io.BytesIO(b"123"), 9, []))
