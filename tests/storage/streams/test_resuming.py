"""A read that breaks off is tried again, as a whole or from its offset."""

import errno
import io

import pytest

from cpreplicate.protocol import json_files, source
from cpreplicate.protocol.digest import digest_of
from cpreplicate.storage import Side, Transient, Unreachable
from cpreplicate.storage.streams.resuming import Resuming, resuming
from cpreplicate.storage.wrappers.retry import Pauses, Retrying
from tests.support.memory import MemoryStorage
from tests.support.registry import serving

URI = "memory:/a/f"
DATA = bytes(range(256)) * 64
SHORT_PAUSES = Pauses(0.001, 0.002)


class Cut(MemoryStorage):
    """Breaks each of the next `cuts` streams off when a number of bytes was read from it."""

    def __init__(self, cuts=0, after=10, gone=False):
        super().__init__()
        self.cuts, self._after, self._gone, self.opened = cuts, after, gone, 0

    def open(self, uri):
        stream = super().open(uri)
        self.opened += 1
        if not self.cuts:
            return stream
        self.cuts -= 1
        return _CutStream(stream.read(), self._after, lambda: self._gone and self.delete(uri))


class _CutStream(io.BytesIO):
    def __init__(self, data, left, breaking):
        super().__init__(data)
        self._left, self._breaking = left, breaking

    def read(self, size=-1):
        if not self._left:
            self._breaking()
            raise Transient(errno.EIO, "the answer was cut", URI)
        data = super().read(self._left if size is None or size < 0 else min(size, self._left))
        self._left -= len(data)
        if size is None or size < 0:
            raise Transient(errno.EIO, "the answer was cut", URI)
        return data


def storage_with(inner, seconds=60.0, data=DATA):
    inner.put(URI, lambda: [data])
    return Retrying(inner, seconds, SHORT_PAUSES)


def test_a_file_is_read_again_from_its_first_byte():
    storage = storage_with(Cut(3))
    assert storage.read(URI) == DATA


def test_a_part_of_a_file_is_read_again_from_its_first_byte():
    storage = storage_with(Cut(3))
    assert storage.read(URI, 100, 50) == DATA[100:150]
    assert storage.read(URI, len(DATA) - 5, 50) == DATA[-5:]
    assert storage.read(URI, len(DATA) + 5, 50) == b""


def test_a_file_whose_reads_go_on_failing_cannot_be_reached():
    storage = storage_with(Cut(10**9), seconds=0.05)
    with pytest.raises(Unreachable, match="the answer was cut"):
        storage.read(URI)


def test_a_record_is_read_again():
    storage = storage_with(Cut(3, after=2), data=b'{"format": 1}')
    assert json_files.parse(json_files.read(storage, URI)) == {"format": 1}


def test_a_stream_goes_on_at_its_offset_with_a_file_that_is_opened_again():
    inner = Cut(4, after=1000)
    storage = storage_with(inner)
    with resuming(storage, URI) as stream:
        stream.seek(5000)
        assert stream.read(100) == DATA[5000:5100]
        stream.seek(10)
        assert stream.read() == DATA[10:]
    assert inner.opened == 5


def test_a_stream_is_opened_once_if_no_read_fails():
    inner = Cut()
    with resuming(storage_with(inner), URI) as stream:
        assert stream.read() == DATA
    assert inner.opened == 1


def test_a_large_metadata_is_read_from_where_it_broke_off(monkeypatch):
    monkeypatch.setattr(source, "_KEPT_IN_MEMORY", 64)
    inner = Cut()
    storage = storage_with(inner)
    inner.put("memory:/a/chk-1/_metadata", lambda: [DATA])
    with serving("memory", storage):
        inner.cuts = 5
        read = source.read_bytes("memory:/a/chk-1", Side())
    assert read == source.MetadataBytes(digest_of([DATA]), None)


def test_a_file_that_is_deleted_while_a_read_is_tried_again_is_not_there():
    storage = storage_with(Cut(1, after=1000, gone=True))
    with resuming(storage, URI) as stream, pytest.raises(FileNotFoundError):
        stream.read()


def test_a_read_that_was_left_behind_keeps_its_stream_and_the_next_try_opens_another():
    """It may hold the stream's lock for as long as a server is silent."""
    inner = Cut()
    storage = storage_with(inner)
    raw = Resuming(storage, URI)
    in_use: list[object] = []

    class LeftBehind(BaseException):
        pass

    class Silent(io.BytesIO):
        def read(self, _size=-1):
            in_use.append(raw._stream)
            raise LeftBehind

        readinto = read

    raw._stream = used = Silent()
    with pytest.raises(LeftBehind):
        raw.read(10)
    assert in_use == [None]
    assert raw.read(10) == DATA[:10]
    assert not used.closed
