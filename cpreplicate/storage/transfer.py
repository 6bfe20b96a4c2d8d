"""Copies of one file from one side to another, with its CRC32C computed on the way."""

from __future__ import annotations

import contextlib
import functools
import io
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from typing import BinaryIO, NamedTuple

from cpreplicate.core.sizes import counted
from cpreplicate.storage.base import (
    CHUNK,
    Content,
    SourceMissing,
    Storage,
    Streamed,
    read_up_to,
)
from cpreplicate.storage.sides import Side, Sides
from cpreplicate.storage.waiting.cancellation import go_on
from cpreplicate.storage.wrappers import limits

Moved = Callable[[int], None]
_MOST_COPIED_WITHIN = 5 << 30  # bytes that S3 copies by one request


def _ignore(_count: int) -> None:
    """Report nothing. Raise if the work of this thread was cancelled."""
    go_on()


class Checksum(NamedTuple):
    """The result of a copy: the number of bytes, and their CRC32C."""

    bytes: int
    crc32c: int


class Around(NamedTuple):
    """What is done beside copies.

    `appearing` is called before a copy appears, and may raise. `read` returns the bytes of a file
    that is read already, once. `streamed` gets the target and the checksum of a copy once all of it
    is read.
    """

    appearing: Callable[[], None] | None = None
    read: Callable[[str], bytes | None] | None = None
    streamed: Callable[[str, Checksum], None] | None = None


_AROUND: ContextVar[Around | None] = ContextVar("around", default=None)


def around() -> Around:
    """Return what is done beside copies of this context."""
    return _AROUND.get() or Around()


@contextlib.contextmanager
def copying(beside: Around) -> Iterator[None]:
    """While the block runs, this is done beside copies of its context."""
    token = _AROUND.set(beside)
    try:
        yield
    finally:
        _AROUND.reset(token)


def appearing_after(check: Callable[[], None] | None) -> contextlib.AbstractContextManager[None]:
    """While the block runs, call `check` before a copy of its context appears; it may raise."""
    return copying(around()._replace(appearing=check))


def copying_read(
    read: Callable[[str], bytes | None],
) -> contextlib.AbstractContextManager[None]:
    """While the block runs, copies of its context take what is read of their files already."""
    return copying(around()._replace(read=read))


def copying_to(
    streamed: Callable[[str, Checksum], None],
) -> contextlib.AbstractContextManager[None]:
    """While the block runs, call `streamed` once all of a copy of its context is read."""
    return copying(around()._replace(streamed=streamed))


def joined(ranges: Iterable[Checksum]) -> Checksum:
    """Return the checksum of a file, of those of its ranges in their order."""
    return functools.reduce(_joined, ranges, Checksum(0, 0))


def _joined(before: Checksum, after: Checksum) -> Checksum:
    """Return the checksum of two ranges, one after the other.

    The CRC of bytes is linear: that of the former moves on by the bytes of the latter, each of
    which is eight multiplications by x modulo the polynomial. See `crc32_combine` of zlib.
    """
    moved = _times(before.crc32c, _power_of_x(8 * after.bytes))
    return Checksum(before.bytes + after.bytes, moved ^ after.crc32c)


_POLYNOMIAL, _ONE = 0x82F63B78, 1 << 31  # Castagnoli's, as all here with the highest power last


def _power_of_x(exponent: int) -> int:
    result, power = _ONE, _ONE >> 1
    while exponent:
        if exponent & 1:
            result = _times(result, power)
        power, exponent = _times(power, power), exponent >> 1
    return result


def _times(first: int, second: int) -> int:
    """Return the product of two polynomials modulo that of the CRC."""
    product = 0
    while first:
        if first & _ONE:
            product ^= second
        first = (first << 1) & 0xFFFFFFFF
        second = (second >> 1) ^ (_POLYNOMIAL if second & 1 else 0)
    return product


class Range(NamedTuple):
    """A range of a file: `length` bytes from `offset` on. The last one has at least so many, and
    ends with the file.
    """

    offset: int
    length: int
    is_last: bool


class ShortSource(OSError):
    """The file to be copied is shorter than the extent that the checkpoint needs."""


def copy_file(
    source: str,
    target: str,
    extent: int,
    sides: Sides,
    check: Callable[[], None] | None = None,
    moved: Moved = _ignore,
    inside: str = "",
) -> Checksum:
    """Copy a file of at least `extent` bytes. It appears at the target whole, or not at all.

    `check` is called when all is written and about to appear, and may raise. `moved` is called with
    the number of bytes of each piece, and before the file appears; it may raise to cancel the copy.
    No directory is made but below `inside`, if that is given: see `Storage.inside`.
    """
    return _copied(source, target, extent, sides, check, _Crc(sides.target, moved), inside)


def copy_growing(
    source: str,
    target: str,
    extent: int,
    sides: Sides,
    check: Callable[[], None] | None = None,
    moved: Moved = _ignore,
    inside: str = "",
) -> tuple[Checksum, Checksum]:
    """Copy a file as `copy_file` does that may grow later, and return the checksum of its first
    `extent` bytes, too.
    """
    crc = _Crc(sides.target, moved, extent)
    whole = _copied(source, target, extent, sides, check, crc, inside)
    assert crc.prefix is not None, "a file that is shorter than its extent is not copied"
    return whole, Checksum(extent, crc.prefix)


def _copied(
    source: str,
    target: str,
    extent: int,
    sides: Sides,
    check: Callable[[], None] | None,
    crc: _Crc,
    inside: str,
) -> Checksum:
    """Copy a file, and return the checksum of the bytes, which `crc` computes on their way."""
    reading, writing = sides.source.storage(source), sides.target.storage(target, inside)

    def expect(length: int) -> None:
        if length < extent:
            raise ShortSource(
                f"{source} has {counted(length, 'byte')}, the checkpoint needs {extent}"
            )
        crc.moved(0)
        if (appearing := around().appearing) is not None:
            appearing()
        if check is not None:
            check()

    status = reading.stat(source) if sides.preserve else None
    streamed = around().streamed

    def over(stream: BinaryIO) -> Iterator[bytes]:
        yield from crc.over(stream)
        assert streamed is not None, "this is not called without it"
        streamed(target, Checksum(crc.count, crc.value))

    def put() -> int:
        read = crc.over if streamed is None else over  # a generator more costs time
        with _source(reading, source, extent, read) as content:
            return writing.put(target, content, expect, status.attributes if status else None)

    # a read that fails midway fails the put: one of the two storages tries the whole again
    is_tried_by_source = reading.retries and not writing.retries
    length = reading.carry_out("read", source, put) if is_tried_by_source else put()
    return Checksum(length, crc.value)


def copy_range(
    source: str,
    target: str,
    joint: str,
    wanted: Range,
    sides: Sides,
    moved: Moved = _ignore,
    inside: str = "",
) -> tuple[Checksum, str]:
    """Copy a range into a file that is joined of ranges; return its checksum and its receipt.

    `joint` is what `begin_join` returned for the target. The rest is as of `copy_file`.
    """
    reading, writing = sides.source.storage(source), sides.target.storage(target, inside)
    crc, (offset, length, is_last) = _Crc(sides.target, moved), wanted

    def expect(copied: int) -> None:
        if copied < length:
            raise ShortSource(
                f"{source} has {counted(offset + copied, 'byte')}, and {offset + length} of it are"
                " to be copied"
            )
        crc.moved(0)

    def over(stream: BinaryIO) -> Iterator[bytes]:
        stream.seek(offset)
        return crc.over(stream, None if is_last else length)

    def write() -> str:
        with _source(reading, source, offset + length, over) as content:
            return writing.write_range(target, joint, offset, content, expect)

    is_tried_by_source = reading.retries and not writing.retries  # as in `_copied`
    receipt = reading.carry_out("read", source, write) if is_tried_by_source else write()
    return Checksum(crc.count, crc.value), receipt


class WholeFile(NamedTuple):
    """The bytes of a small file, and their CRC32C."""

    data: bytes
    crc32c: int


class DamagedPart(OSError):
    """The bytes that were read do not have the CRC32C that was recorded for them."""


def read_whole(source: str, extent: int, sides: Sides, moved: Moved = _ignore) -> WholeFile:
    """Read a small file of at least `extent` bytes from the source's side into memory.

    Raises `SourceMissing` and `ShortSource`.
    """
    reading = sides.source.storage(source)
    crc = _Crc(sides.target, moved)

    def read(plain: Storage) -> bytes:
        return b"".join(crc.over(_opened(plain, source, extent)))

    data = reading.as_one("open", source, read)
    if len(data) < extent:
        raise ShortSource(
            f"{source} has {counted(len(data), 'byte')}, the checkpoint needs {extent}"
        )
    return WholeFile(data, crc.value)


def copy_within(
    uri: str,
    new_uri: str,
    length: int,
    crc32c: int,
    side: Side,
    moved: Moved = _ignore,
    inside: str = "",
) -> Checksum:
    """Copy a file of a side to another place there, if it has this length and CRC32C.

    The service copies it where it can, else it is read and written. Raises `SourceMissing` and
    `DamagedPart`; then no file with other content stays at the new place. `inside` is as of
    `copy_file`.
    """
    storage = side.storage(new_uri, inside)
    if storage.copies_within and length <= _MOST_COPIED_WITHIN:
        copied = _copied_by_service(uri, new_uri, length, side)
        if copied != (length, crc32c):
            storage.delete(new_uri)  # nothing is recorded of it yet
            raise _damaged(uri)
        moved(length)
        return copied
    crc = _Crc(side, moved)

    def expect(copied: int) -> None:
        if (copied, crc.value) != (length, crc32c):
            raise _damaged(uri)
        moved(0)

    storage.put(new_uri, lambda: crc.over(_opened(side.storage(uri), uri, length)), expect)
    return Checksum(length, crc32c)


def _copied_by_service(uri: str, new_uri: str, length: int, side: Side) -> Checksum:
    """Let the service copy a file. Read the copy if the service returns no CRC32C of it."""
    crc32c = side.storage(new_uri).copy_within(uri, new_uri)
    return checksum(new_uri, side) if crc32c is None else Checksum(length, crc32c)


def _damaged(uri: str) -> DamagedPart:
    return DamagedPart(f"{uri} does not have the length and the CRC32C that were recorded")


def read_exactly(
    uri: str, length: int, crc32c: int, side: Side, moved: Moved = _ignore
) -> WholeFile:
    """Read a small file of this length and CRC32C into memory.

    Raises `SourceMissing`, `ShortSource` and `DamagedPart`.
    """
    whole = read_whole(uri, length, Sides(side, side), moved)
    if (len(whole.data), whole.crc32c) != (length, crc32c):
        raise _damaged(uri)
    return whole


def read_part(
    uri: str, offset: int, length: int, crc32c: int, side: Side, moved: Moved = _ignore
) -> WholeFile:
    """Read a member of a pack into memory. Raises `DamagedPart` if its CRC32C is another one."""

    def read(plain: Storage) -> WholeFile:
        return next(_parts(plain.open(uri), [(offset, length)], side, moved))

    whole = side.storage(uri).as_one("open", uri, read)
    if whole.crc32c != crc32c or len(whole.data) != length:
        raise DamagedPart(
            f"{uri} is damaged in the {counted(length, 'byte')} from byte {offset} on. Run sync"
            " with --check-content to copy what is damaged from the source again"
        )
    return whole


def checksums_of_parts(
    uri: str, parts: Sequence[tuple[int, int]], side: Side, moved: Moved = _ignore
) -> list[Checksum]:
    """Return the length and CRC32C of each part (offset, length) of a file, which is opened once.

    A part that reaches beyond the end of the file is shorter than asked for. Raises
    `FileNotFoundError`.
    """

    def read(plain: Storage) -> list[Checksum]:
        with plain.open_extent(uri, max(map(sum, parts), default=0)) as stream:
            return [_checksum_of_part(stream, *part, side, moved) for part in parts]

    return side.storage(uri).as_one("open", uri, read)


def _checksum_of_part(
    stream: BinaryIO, offset: int, length: int, side: Side, moved: Moved
) -> Checksum:
    """Return the length and CRC32C of a part, of which a piece is in memory at once."""
    from google_crc32c import extend

    stream.seek(offset)
    count = value = 0
    while count < length:
        wanted = min(CHUNK, length - count)
        limits.wait(side.limits, "bytes", wanted, lambda: moved(0))
        piece = read_up_to(stream, wanted)
        moved(len(piece))
        count, value = count + len(piece), extend(value, piece)
        if len(piece) < wanted:
            break
    return Checksum(count, value)


def _parts(
    stream: BinaryIO, parts: Sequence[tuple[int, int]], side: Side, moved: Moved
) -> Iterator[WholeFile]:
    """Yield the content and the CRC32C of each part of a stream, at the allowed rate."""
    from google_crc32c import value

    with stream:
        for offset, length in parts:
            limits.wait(side.limits, "bytes", length, lambda: moved(0))
            stream.seek(offset)
            data = read_up_to(stream, length)
            moved(len(data))
            yield WholeFile(data, value(data))


def checksum(uri: str, side: Side, moved: Moved = _ignore, extent: int = 0) -> Checksum:
    """Read a file and return its length and CRC32C. Raises `FileNotFoundError`.

    `extent` is as of `Storage.open_extent`.
    """

    def read(plain: Storage) -> Checksum:
        crc = _Crc(side, moved)
        with plain.open_extent(uri, extent) as stream:
            return Checksum(sum(map(len, crc.over(stream))), crc.value)

    return side.storage(uri).as_one("open", uri, read)


def length_of(uri: str, extent: int, side: Side) -> int:
    """Return the length of a file for who opens it and needs `extent` bytes, -1 if it is gone.

    See `Storage.open_extent`.
    """

    def measured(plain: Storage) -> int:
        with plain.open_extent(uri, extent) as stream:
            return stream.seek(0, io.SEEK_END)

    try:
        return side.storage(uri).as_one("open", uri, measured)
    except FileNotFoundError:
        return -1


class _Crc:
    """The CRC32C of a stream, at the rate that the run allows, computed anew for each try.

    `prefix` is that of its first `extent` bytes, once these were read.
    """

    def __init__(self, side: Side, moved: Moved, extent: int | None = None) -> None:
        self._limits, self._extent = side.limits, extent
        self.moved = moved
        self.value = self.count = 0
        self.prefix: int | None = None

    def over(self, stream: BinaryIO, length: int | None = None) -> Iterator[bytes]:
        """Yield the pieces of a stream at the allowed rate: all, or `length` bytes.

        Then `value` is the CRC32C of them, and `count` how many bytes they are.
        """
        from google_crc32c import extend

        self.value = count = self.count = 0
        self.prefix = 0 if self._extent == 0 else None
        with stream:
            for chunk in _pieces(stream, length):
                limits.wait(self._limits, "bytes", len(chunk), lambda: self.moved(0))
                if self._extent is not None and count < self._extent <= count + len(chunk):
                    self.prefix = extend(self.value, chunk[: self._extent - count])
                count += len(chunk)
                self.count, self.value = count, extend(self.value, chunk)
                self.moved(len(chunk))
                yield chunk


def _pieces(stream: BinaryIO, length: int | None) -> Iterator[bytes]:
    if length is None and isinstance(stream, Streamed):
        yield from stream.pieces()
        return
    left = math.inf if length is None else length
    while left and (piece := stream.read(int(min(CHUNK, left)))):
        left -= len(piece)
        yield piece


@contextlib.contextmanager
def _source(
    reading: Storage, source: str, extent: int, over: Callable[[BinaryIO], Iterator[bytes]]
) -> Iterator[Content]:
    """Provide what is read of a file, by `over`, for a put, which may be tried several times.

    A put that could not begin has read nothing, and closed nothing.
    """
    with contextlib.ExitStack() as tried:

        def content() -> Iterator[bytes]:
            tried.close()
            return over(tried.enter_context(_opened(reading, source, extent)))

        yield content


def _opened(storage: Storage, source: str, extent: int) -> BinaryIO:
    read = around().read
    data = None if read is None else read(source)
    if data is not None and len(data) >= extent:
        return io.BytesIO(data)
    try:
        return storage.open_extent(source, extent)
    except FileNotFoundError as error:
        raise SourceMissing(f"{source} is not there") from error
