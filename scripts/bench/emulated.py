"""A storage that is nothing but a line: calls that take a while, bytes that take their turn. No
disk, and little CPU.

A file's name ends with its length, `…/000017-65536`, and its bytes are zero; what is put is counted
and forgotten. Executors have one line each, since each has one Python process; what it reads and
what it writes share that line.
"""

from __future__ import annotations

import functools
import io
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import BinaryIO, cast

from cpreplicate.core import uri as places
from cpreplicate.storage import FileStatus, Side, Storage
from cpreplicate.storage.base import Content
from cpreplicate.storage.statuses import Attributes
from cpreplicate.storage.wrappers.limits import RateLimiter, take_turn

SCHEME = "emulated"
_PIECE = bytes(256 << 10)
_MORE_CALLS_OF_A_PUT = 3  # on HDFS: addBlock, complete, rename2, after create


@dataclass(frozen=True)
class EmulatedSite(Side):
    """Every place is on one emulated storage: bytes a second of a process, seconds of a call."""

    bandwidth: float = 40e6
    latency: float = 0.02
    joins: bool = True

    def storage(self, uri: str, inside: str = "") -> Storage:  # noqa: ARG002  # there is but one
        return _storage(self.bandwidth, self.latency, self.joins)


@functools.cache
def _storage(bandwidth: float, latency: float, joins: bool) -> EmulatedStorage:
    """One a process, so both sides of a copy share it."""
    return EmulatedStorage(bandwidth, latency, joins)


class EmulatedStorage(Storage):
    """Has every file that it is asked for, and keeps none."""

    streams, put_calls = 64, 1 + _MORE_CALLS_OF_A_PUT  # those of HDFS

    def __init__(self, bandwidth: float, latency: float, joins: bool) -> None:
        self.joins = joins
        self._line = RateLimiter({"bytes": bandwidth})
        self._latency = latency
        self._lock = threading.Lock()
        self.written = 0

    def open(self, uri: str) -> BinaryIO:
        self._call()
        return cast(BinaryIO, _Zeros(_length(uri), self._carry))

    def stat(self, uri: str) -> FileStatus | None:
        self._call()
        return FileStatus(uri, places.name(uri), _length(uri), False, 0.0)

    def list(self, uri: str) -> list[FileStatus]:  # noqa: ARG002  # as Storage has it
        self._call()
        return []

    def put(
        self,
        uri: str,  # noqa: ARG002  # as Storage has it
        content: Content,
        expect: Callable[[int], None] | None = None,
        attributes: Attributes | None = None,  # noqa: ARG002  # as Storage has it
        replace: bool = True,  # noqa: ARG002  # as Storage has it
    ) -> int:
        self._call()
        length = 0
        for piece in content():
            self._carry(len(piece))
            length += len(piece)
        if expect is not None:
            expect(length)
        self._call(_MORE_CALLS_OF_A_PUT)
        with self._lock:
            self.written += length
        return length

    def begin_join(self, uri: str, length: int) -> str | None:  # noqa: ARG002  # as Storage has it
        self._call()
        return uri

    def write_range(
        self,
        uri: str,
        joint: str,  # noqa: ARG002  # as Storage has it
        offset: int,  # noqa: ARG002  # as Storage has it
        content: Content,
        expect: Callable[[int], None],
    ) -> str:
        self.put(uri, content, expect)
        return ""

    def join(
        self,
        uri: str,  # noqa: ARG002  # as Storage has it
        joint: str,  # noqa: ARG002  # as Storage has it
        receipts: Sequence[str],  # noqa: ARG002  # as Storage has it
        length: int,  # noqa: ARG002  # as Storage has it
        attributes: Attributes | None = None,  # noqa: ARG002  # as Storage has it
    ) -> None:
        self._call(2)

    def create_exclusive(self, uri: str, data: bytes) -> bool:
        raise NotImplementedError

    def take_over(self, uri: str, seen: bytes, data: bytes) -> bool:
        raise NotImplementedError

    def move(self, uri: str, new_uri: str) -> bool:
        raise NotImplementedError

    def delete(self, uri: str, durable: bool = False) -> bool:
        raise NotImplementedError

    def rmdir(self, uri: str) -> bool:
        raise NotImplementedError

    def _call(self, count: int = 1) -> None:
        time.sleep(count * self._latency)

    def _carry(self, amount: int) -> None:
        take_turn(self._line, "bytes", amount)


class _Zeros(io.RawIOBase):
    """So many of them, as the line brings them."""

    def __init__(self, length: int, carry: Callable[[int], None]) -> None:
        self._left = length
        self._carry = carry

    def readable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Leave the bytes before an offset aside. Nothing was read before."""
        assert whence == io.SEEK_SET
        self._left -= offset
        return offset

    def read(self, size: int = -1) -> bytes:
        count = min(self._left, len(_PIECE), size if size >= 0 else self._left)
        self._left -= count
        if count:
            self._carry(count)
        return _PIECE if count == len(_PIECE) else _PIECE[:count]


def place(side: str, index: int, length: int) -> str:
    """The name of a file of that length."""
    return f"{SCHEME}://{side}/{index:06d}-{length}"


def _length(uri: str) -> int:
    return int(uri.rpartition("-")[2])
