"""Snappy's frames are read as Flink writes them, and nothing else is."""

import pytest

from cpreplicate.core.positions.model import Unreadable
from cpreplicate.core.positions.snappy import first_bytes
from tests.support.kafka_states import chunks


@pytest.mark.parametrize("count", [0, 1, 3, 4, 90_000, 200_000, 300_000])
def test_the_first_bytes_of_a_frame_are_its_content(count):
    data = bytes(range(250)) * 800
    framed = b"\xff\x06\x00\x00sNaPpY" + chunks(data)
    assert first_bytes(framed, 0, count) == data[:count]


@pytest.mark.parametrize(
    ("framed", "message"),
    [
        (b"\x00\xff\x00\x00short", "ends behind"),
        (b"\x02\x01\x00\x00x", "type 2"),
        (b"\x00\x08\x00\x00crc.\xff\xff\xff\xff", "no size|longer"),
        (b"\x00\x09\x00\x00crc.\x05\xf0zzz", "damaged"),
        (b"\x00\x04\x00\x00crc.", "no size"),
    ],
)
def test_what_is_no_frame_is_refused(framed, message):
    with pytest.raises(Unreadable, match=message):
        first_bytes(framed, 0, 10)
