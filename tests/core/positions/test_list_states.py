"""The elements of list states, plain and compressed, and streams that are none of ours."""

import random
import tracemalloc

import pytest

from cpreplicate.core.positions.list_states import datum, elements
from cpreplicate.core.positions.model import Unreadable
from tests.support import kafka_states as written

NAME = written.READERS
THREE = [b"one", b"", b"three" * 30_000]


@pytest.mark.parametrize(("version", "is_compressed"), [(5, False), (6, False), (6, True)], ids=str)
def test_elements_are_read_at_their_offsets(version, is_compressed):
    stream = written.stream({NAME: THREE}, version, is_compressed)
    assert list(elements(stream.data, stream.offsets[NAME])) == THREE


@pytest.mark.parametrize("is_compressed", [False, True])
def test_each_list_of_a_stream_has_its_own_elements(is_compressed):
    stream = written.stream({"a": [b"1", b"2"], "b": [b"3"]}, is_compressed=is_compressed)
    assert list(elements(stream.data, stream.offsets["a"])) == [b"1", b"2"]
    assert list(elements(stream.data, stream.offsets["b"])) == [b"3"]


def test_a_serializer_that_is_not_known_is_named():
    stream = written.stream({NAME: [b"x"]}, serializer="org.example.PojoSnapshot")
    with pytest.raises(Unreadable, match=r"org\.example\.PojoSnapshot"):
        list(elements(stream.data, stream.offsets[NAME]))


def test_a_version_that_is_not_known_is_named():
    with pytest.raises(Unreadable, match="version 7"):
        list(elements(written.i32(7), (0,)))


@pytest.mark.parametrize("offset", [-1, 0, 10, 1 << 40])
def test_an_offset_outside_of_the_elements_is_refused(offset):
    stream = written.stream({NAME: [b"x"]})
    with pytest.raises(Unreadable, match="byte"):
        list(elements(stream.data, (offset,)))


def test_a_million_offsets_of_one_element_are_refused_before_they_are_read():
    stream = written.stream({NAME: [bytes(1 << 20)]})
    with pytest.raises(Unreadable):
        list(elements(stream.data, stream.offsets[NAME] * 1_000_000))


def test_an_element_of_compressed_state_that_claims_two_gigabytes_is_refused():
    data = written.stream({NAME: []}, is_compressed=True).data
    chunk = bytes(4) + b"\x7f\xff\xff\xff"
    data, offset = data + b"\x01" + len(chunk).to_bytes(3, "little") + chunk, len(data)
    with pytest.raises(Unreadable, match="element of 2147483647 bytes"):
        list(elements(data, (offset,)))


def test_a_chunk_that_claims_more_than_the_format_allows_is_refused():
    data = written.stream({NAME: []}, is_compressed=True).data
    chunk = bytes(4) + b"\xff\xff\xff\xff\x07" + b"x" * 20
    data, offset = data + b"\0" + len(chunk).to_bytes(3, "little") + chunk, len(data)
    with pytest.raises(Unreadable, match="longer than the format allows"):
        list(elements(data, (offset,)))


def test_bytes_behind_a_datum_are_refused():
    assert datum(written.versioned(3, b"content")) == (3, b"content")
    with pytest.raises(Unreadable):
        datum(written.versioned(3, b"content") + b"x")


def test_mutated_streams_give_elements_or_an_error_of_ours_in_bounded_memory():
    draw = random.Random(7)
    streams = [
        written.stream({NAME: [b"element" * 9] * 4}, is_compressed=each) for each in (False, True)
    ]
    read = refused = 0
    tracemalloc.start()
    for _ in range(10_000):
        stream = draw.choice(streams)
        data = bytearray(stream.data)
        for _ in range(draw.randint(1, 4)):
            data[draw.randrange(len(data))] = draw.randrange(256)
        try:
            read += len(list(elements(bytes(data), stream.offsets[NAME]))) > 0
        except Unreadable:
            refused += 1
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert min(read, refused) > 100
    assert peak < 64 << 20
