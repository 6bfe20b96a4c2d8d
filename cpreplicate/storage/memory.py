"""For tests: a storage in memory with the guarantees of a real one, to be served as `memory:` by `registry.serving`."""

from __future__ import annotations

import errno
import io
import threading
import time
from collections.abc import Callable, Iterable
from typing import BinaryIO

from cpreplicate import uri as places
from cpreplicate.errors import Refused
from cpreplicate.storage.base import FileStatus, Storage


class MemoryStorage(Storage):
    """Files and directories by place; threads may share one, processes cannot."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._files: dict[str, tuple[bytes, float]] = {}
        self._directories: set[str] = set()

    def open(self, uri: str) -> BinaryIO:
        with self._lock:
            self._not_a_directory(uri)
            if uri not in self._files:
                raise FileNotFoundError(errno.ENOENT, "no such file", uri)
            return io.BytesIO(self._files[uri][0])

    def stat(self, uri: str) -> FileStatus | None:
        _usable(uri)
        with self._lock:
            if uri in self._directories:
                return FileStatus(uri, places.name(uri), 0, True, 0.0)
            if uri not in self._files:
                return None
            data, modified = self._files[uri]
            return FileStatus(uri, places.name(uri), len(data), False, modified)

    def list(self, uri: str) -> list[FileStatus]:
        _usable(uri)
        with self._lock:
            children = [each for each in (*self._files, *self._directories) if places.parent(each) == uri]
            return [status for status in map(self.stat, children) if status is not None]

    def put(self, uri: str, chunks: Iterable[bytes], expect: Callable[[int], None] | None = None) -> int:
        _usable(uri)
        data = b"".join(chunks)
        if expect is not None:
            expect(len(data))
        with self._lock:
            self._store(uri, data)
        return len(data)

    def create_exclusive(self, uri: str, data: bytes) -> bool:
        _usable(uri)
        with self._lock:
            if uri in self._files or uri in self._directories:
                return False
            self._store(uri, data)
            return True

    def move(self, uri: str, new_uri: str) -> bool:
        _usable(new_uri)
        with self._lock:
            self._not_a_directory(uri)
            self._not_a_directory(new_uri)
            if uri not in self._files:
                return False
            self._files[new_uri] = self._files.pop(uri)
            return True

    def delete(self, uri: str, durable: bool = False) -> bool:  # noqa: ARG002  # memory has no order to keep
        with self._lock:
            self._not_a_directory(uri)
            return self._files.pop(uri, None) is not None

    def rmdir(self, uri: str) -> bool:
        with self._lock:
            if self.stat(uri) is None or self.list(uri):
                return False
            self._directories.remove(uri)
            return True

    def _store(self, uri: str, data: bytes) -> None:
        self._not_a_directory(uri)
        parent = places.parent(uri)
        while "/" in parent:
            self._directories.add(parent)
            parent = places.parent(parent)
        self._files[uri] = (data, time.time())

    def _not_a_directory(self, uri: str) -> None:
        _usable(uri)
        if uri in self._directories:
            raise IsADirectoryError(errno.EISDIR, "is a directory", uri)


def _usable(uri: str) -> None:
    try:
        unusable = b"\0" in uri.encode()
    except UnicodeEncodeError:
        unusable = True
    if unusable:
        raise Refused(f"{uri!r} names no file that a filesystem could hold")
