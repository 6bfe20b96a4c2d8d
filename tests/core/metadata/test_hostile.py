"""Whatever the bytes: a `MetadataError` or a reading, in bounded time and memory."""

import io
import struct
import tracemalloc

import pytest

from cpreplicate.core.metadata import decode
from cpreplicate.errors import CutShort, MetadataError
from tests.support.corpus import ROOT
from tests.support.generate import synthetic

BASE = "hdfs://dcA/job/chk-7"
CORPUS = [path.read_bytes() for path in sorted(ROOT.glob("**/_metadata"))]


def survives(data: bytes, stream: bool = False) -> bool:
    """Whether it could be read; anything but a reading or a `MetadataError` fails the test."""
    try:
        for handle in decode(io.BytesIO(data) if stream else data, BASE).handles:
            assert 0 <= handle.start < handle.start + handle.length <= len(data)
    except MetadataError as error:
        message = str(error)
    else:
        return True
    assert "byte" in message or "version" in message
    return False


@pytest.mark.parametrize("stream", [False, True], ids=["bytes", "stream"])
def test_a_file_truncated_at_any_byte_is_known_to_be_cut_short(stream):
    data = min(CORPUS, key=len)
    body = data.index(b"\xac\xed\x00\x05")
    for length in range(body + 4):
        assert not survives(data[:length], stream)
        with pytest.raises(CutShort):
            decode(data[:length], BASE)


@pytest.mark.slow
def test_every_four_bytes_may_claim_two_billion_without_costing_time_or_memory():
    # a loop over a count that lies would take hours, more than a test may
    data = min(CORPUS, key=len)
    tracemalloc.start()
    try:
        for at in range(len(data) - 4):
            survives(data[:at] + b"\x7f\xff\xff\xff" + data[at + 4 :])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < len(data) + (64 << 20)


def test_memory_is_bounded_for_many_references():
    references = 200_000
    data = b"".join(synthetic(references, subtasks=100))
    tracemalloc.start()
    try:
        metadata = decode(io.BytesIO(data), BASE)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(metadata.handles) == references + 101
    assert peak < (256 << 20) + 250 * references


class Sparse(io.RawIOBase):
    """A stream with gigabytes of inline state in the middle of a file, and an account of what was
    read of it.
    """

    def __init__(self, head: bytes, zeros: int, tail: bytes) -> None:
        self.head, self.zeros, self.tail, self.at, self.read_bytes = head, zeros, tail, 0, 0

    def seek(self, offset: int, whence: int = 0) -> int:
        self.at = offset + (len(self.head) + self.zeros + len(self.tail) if whence == 2 else 0)
        return self.at

    def read(self, size: int = -1) -> bytes:
        start, end = self.at, min(self.at + size, len(self.head) + self.zeros + len(self.tail))
        first, last = len(self.head), len(self.head) + self.zeros
        piece = self.head[start:end] + bytes(max(0, min(end, last) - max(start, first)))
        piece += self.tail[max(0, start - last) : max(0, end - last)]
        self.at += len(piece)
        self.read_bytes += len(piece)
        return piece


def test_gigabytes_of_inline_state_are_passed_over_unread():
    small = b"".join(synthetic(references=5000, subtasks=2, inline=4))
    at = small.index(b"\x00\x0bcoordinator") + 13
    inline = 2**31 - 1
    stream = Sparse(small[:at] + struct.pack(">i", inline), inline, small[at + 8 :])
    metadata = decode(stream, BASE)
    assert metadata.inline_bytes == inline
    assert len(metadata.handles) == 5000 + 3
    assert stream.read_bytes < 64 << 20
