"""A stream of a large file whose reads are tried again, each from its offset."""

from __future__ import annotations

import contextlib
import io
from dataclasses import dataclass
from typing import BinaryIO, cast

from cpreplicate.storage.base import CHUNK, Storage, read_up_to
from cpreplicate.storage.reading import Reading
from cpreplicate.storage.streams.positioned import PositionedReader


class Resuming(PositionedReader):
    """The bytes of one file. After a failure, the file is opened again at the offset.

    A small file is read by `Storage.read`, which is one call. Raises `FileNotFoundError`, also
    while it is read: the file was deleted, and then a read failed.
    """

    def __init__(self, storage: Reading, uri: str, opened: BinaryIO | None = None) -> None:
        super().__init__(self._tried_again, lambda: self._end, self._drop)
        self._storage, self._uri, self._stream = storage, uri, opened
        self._end = storage.as_one("open", uri, self._open) if opened is None else _end(opened)

    def _tried_again(self, position: int, buffer: memoryview) -> int:
        """Read into a buffer, several times if needed, and return how many bytes were read."""
        data = self._storage.as_one(
            "read", self._uri, lambda plain: self._read_from(plain, position, len(buffer))
        )
        buffer[: len(data)] = data
        return len(data)

    def _open(self, plain: Storage) -> int:
        stream = plain.open(self._uri)
        length = _end(stream)
        self._stream = stream
        return length

    def _read_from(self, plain: Storage, position: int, count: int) -> bytes:
        """Return the bytes at a position, read from the kept stream, or from a new one."""
        # Taken out as long as it is used: a read that is left behind keeps its stream and the lock
        # of that, and the next try opens another one.
        stream, self._stream = self._stream, None
        if stream is None:
            stream = plain.open(self._uri)
        try:
            stream.seek(position)
            data = read_up_to(stream, count)
        except OSError:
            _close(stream)
            raise
        self._stream = stream
        return data

    def _drop(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            _close(stream)


def _close(stream: BinaryIO) -> None:
    with contextlib.suppress(OSError):  # it has failed already
        stream.close()


def _end(stream: BinaryIO) -> int:
    return stream.seek(0, io.SEEK_END)


def resuming(storage: Reading, uri: str, opened: BinaryIO | None = None) -> BinaryIO:
    """Return a buffered stream of a file whose reads are tried again, each from its offset.

    `opened` is a stream of the file that is used as long as its reads succeed.
    """
    return cast(BinaryIO, io.BufferedReader(Resuming(storage, uri, opened), CHUNK))


@dataclass(frozen=True)
class _Beginning:
    """Opens a file; returns its bytes, or a stream of them if they are more than `most`.

    Two of one file are equal, so that one can be asked ahead.
    """

    uri: str
    most: int

    def __call__(self, plain: Storage) -> bytes | BinaryIO:
        with contextlib.ExitStack() as stack:
            stream = stack.enter_context(plain.open(self.uri))
            head = read_up_to(stream, self.most + 1)
            if len(head) <= self.most:
                return head
            stack.pop_all()
            return stream


def ask_or_resume(storage: Reading, uri: str, most: int) -> None:
    """Begin what `read_or_resume` asks with the same arguments soon."""
    storage.ask("as_one", "open", uri, _Beginning(uri, most))


def read_or_resume(storage: Reading, uri: str, most: int) -> bytes | BinaryIO:
    """Return the bytes of a file, or a stream of them if they are more than `most`.

    The file is opened once. Raises `FileNotFoundError`.
    """
    begun = storage.as_one("open", uri, _Beginning(uri, most))
    return begun if isinstance(begun, bytes) else resuming(storage, uri, begun)
