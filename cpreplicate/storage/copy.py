"""Copying one file from one storage to another, with CRC32C computed on the way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from cpreplicate.storage.registry import storage_for

CHUNK = 4 << 20  # bytes; single reads over 8 MiB cost memory and gain nothing on HDFS


class Copied(NamedTuple):
    """What was written: bytes, and their CRC32C."""

    bytes: int
    crc32c: int


class SourceMissing(FileNotFoundError):
    """The file to be copied is not there; told apart from any failure at the target."""


class ShortSource(OSError):
    """The file to be copied is shorter than the extent that the checkpoint needs."""


def copy_file(source: str, target: str, extent: int) -> Copied:
    """Copy a file of at least `extent` bytes. It appears at the target whole, or not at all."""
    crc = _Crc()

    def check(length: int) -> None:
        if length < extent:
            raise ShortSource(f"{source} has {length} bytes, the checkpoint needs {extent}")

    try:
        stream = storage_for(source).open(source)
    except FileNotFoundError as error:
        raise SourceMissing(f"{source} is not there") from error
    storage = storage_for(target)
    with stream:
        length = storage.put(target, crc.over(_chunks(stream)), check)
    written = storage.stat(target)
    if written is None or written.length != length:
        raise OSError(f"{target} has {written and written.length} bytes after {length} were written to it")
    return Copied(length, crc.value)


def checksum(uri: str) -> Copied:
    """Read a file to its end: its length and CRC32C. Raises `FileNotFoundError`."""
    crc = _Crc()
    with storage_for(uri).open(uri) as stream:
        length = sum(len(chunk) for chunk in crc.over(_chunks(stream)))
    return Copied(length, crc.value)


class _Crc:
    def __init__(self) -> None:
        self.value = 0

    def over(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        from google_crc32c import extend

        for chunk in chunks:
            self.value = extend(self.value, chunk)
            yield chunk


def _chunks(stream: BinaryIO) -> Iterator[bytes]:
    while chunk := stream.read(CHUNK):
        yield chunk
