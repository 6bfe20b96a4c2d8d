"""Modified UTF-8, in which Java writes texts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpreplicate.core.metadata import mutf8
from tests.support.generate import java_utf


@given(st.text(st.characters(), max_size=30))
def test_modified_utf8_is_javas(text):
    assert mutf8.utf(text) == java_utf(text)
    data = java_utf(text)[2:]
    assert mutf8.encode(text) == data
    assert mutf8.decode(data).encode("utf-16", "surrogatepass") == text.encode(
        "utf-16", "surrogatepass"
    )


@pytest.mark.parametrize("data", [b"\xf0\x9f\x98\x80", b"\x80", b"\xc3", b"\xe0\x80"])
def test_what_is_not_modified_utf8_is_not_decoded(data):
    with pytest.raises(ValueError, match=r"."):
        mutf8.decode(data)
