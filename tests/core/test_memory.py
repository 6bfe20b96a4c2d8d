"""What was made of small files is known again by their bytes, as long as there is memory for it."""

import pytest

from cpreplicate.core.memory import Memo


@pytest.fixture
def memo():
    return Memo[str](most=10_000)


def test_a_value_is_known_by_the_bytes_and_names_that_it_was_put_for(memo):
    memo.put(b"data", "value", "hdfs://dcB/job", "chk-7")
    assert memo.get(b"data", "hdfs://dcB/job", "chk-7") == "value"


@pytest.mark.parametrize(
    ("data", "names"),
    [
        (b"Data", ("root", "chk-7")),
        (b"data", ("root", "chk-8")),
        (b"data", ("roo", "tchk-7")),
        (b"data", ()),
    ],
)
def test_other_bytes_or_names_are_not_known(memo, data, names):
    memo.put(b"data", "value", "root", "chk-7")
    assert memo.get(data, *names) is None


def test_what_was_used_least_recently_goes_first(memo):
    for data in (b"a", b"b"):
        memo.put(data * 3000, "value")
    assert memo.get(b"a" * 3000)
    memo.put(b"c" * 3000, "value")
    known = [memo.get(data * 3000) for data in (b"a", b"b", b"c")]
    assert known == ["value", None, "value"]


def test_a_value_that_is_put_again_takes_no_more_memory(memo):
    for data in [b"a" * 3000] * 100 + [b"b" * 3000] * 100:
        memo.put(data, "value")
    assert memo.get(b"a" * 3000) == memo.get(b"b" * 3000) == "value"


def test_what_is_made_of_a_large_file_is_not_kept():
    memo = Memo[str]()
    memo.put(bytes(1 << 20), "value")
    assert memo.get(bytes(1 << 20)) is None
