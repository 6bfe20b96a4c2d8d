"""A stream of a large file whose reads are tried again, each from its offset."""

from __future__ import annotations

import contextlib
import io
from typing import Any, BinaryIO, cast

from cpreplicate.storage.base import CHUNK, Storage, read_up_to


class Resuming(io.RawIOBase):
    """The bytes of one file. After a failure, the file is opened again at the offset.

    A small file is read by `Storage.read`, which is one call. Raises `FileNotFoundError`, also
    while it is read: the file was deleted, and then a read failed.
    """

    def __init__(self, storage: Storage, uri: str, opened: BinaryIO | None = None) -> None:
        self._storage, self._uri, self._stream = storage, uri, opened
        self._offset = 0
        self._length = storage.as_one("open", uri, self._open) if opened is None else _end(opened)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        bases = {io.SEEK_SET: 0, io.SEEK_CUR: self._offset, io.SEEK_END: self._length}
        self._offset = bases[whence] + offset
        return self._offset

    def tell(self) -> int:
        return self._offset

    def readinto(self, buffer: Any) -> int:
        data = self._storage.as_one("read", self._uri, lambda plain: self._read(plain, len(buffer)))
        buffer[: len(data)] = data
        self._offset += len(data)
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._drop()
        super().close()

    def _open(self, plain: Storage) -> int:
        stream = plain.open(self._uri)
        length = _end(stream)
        self._stream = stream
        return length

    def _read(self, plain: Storage, count: int) -> bytes:
        # Taken out as long as it is used: a read that is left behind keeps its stream and the lock
        # of that, and the next try opens another one.
        stream, self._stream = self._stream, None
        if stream is None:
            stream = plain.open(self._uri)
        try:
            stream.seek(self._offset)
            data = read_up_to(stream, count)
        except OSError:
            _close(stream)
            raise
        self._stream = stream
        return data

    def _drop(self) -> None:
        stream, self._stream = getattr(self, "_stream", None), None
        if stream is not None:
            _close(stream)


def _close(stream: BinaryIO) -> None:
    with contextlib.suppress(OSError):  # it has failed already
        stream.close()


def _end(stream: BinaryIO) -> int:
    return stream.seek(0, io.SEEK_END)


def resuming(storage: Storage, uri: str, opened: BinaryIO | None = None) -> BinaryIO:
    """Return a buffered stream of a file whose reads are tried again, each from its offset.

    `opened` is a stream of the file that is used as long as its reads succeed.
    """
    return cast(BinaryIO, io.BufferedReader(Resuming(storage, uri, opened), CHUNK))


def read_or_resume(storage: Storage, uri: str, most: int) -> bytes | BinaryIO:
    """Return the bytes of a file, or a stream of them if they are more than `most`.

    The file is opened once. Raises `FileNotFoundError`.
    """

    def begin(plain: Storage) -> bytes | BinaryIO:
        with contextlib.ExitStack() as stack:
            stream = stack.enter_context(plain.open(uri))
            head = read_up_to(stream, most + 1)
            if len(head) <= most:
                return head
            stack.pop_all()
            return stream

    begun = storage.as_one("open", uri, begin)
    return begun if isinstance(begun, bytes) else resuming(storage, uri, begun)
