"""For tests: a storage in memory with the guarantees of a real one, to be served as `memory:` by
`registry.serving`.
"""

from __future__ import annotations

import errno
import io
import threading
import time
from collections.abc import Callable
from typing import BinaryIO

from cpreplicate.core import uri as places
from cpreplicate.storage.base import Content, Storage, refuse_unusable
from cpreplicate.storage.statuses import Attributes, FileStatus


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
        refuse_unusable(uri)
        with self._lock:
            if uri in self._directories:
                return FileStatus(uri, places.name(uri), 0, True, 0.0)
            if uri not in self._files:
                return None
            data, modified = self._files[uri]
            return FileStatus(uri, places.name(uri), len(data), False, modified)

    def list(self, uri: str) -> list[FileStatus]:
        refuse_unusable(uri)
        with self._lock:
            children = [
                each for each in (*self._files, *self._directories) if places.parent(each) == uri
            ]
            return [status for status in map(self.stat, children) if status is not None]

    def put(
        self,
        uri: str,
        content: Content,
        expect: Callable[[int], None] | None = None,
        attributes: Attributes | None = None,
        replace: bool = True,
    ) -> int:
        refuse_unusable(uri)
        data = b"".join(content())
        if expect is not None:
            expect(len(data))
        with self._lock:
            if not replace and uri in self._files:
                raise FileExistsError(errno.EEXIST, "is there already", uri)
            self._store(uri, data, attributes.modified if attributes else None)
        return len(data)

    def create_exclusive(self, uri: str, data: bytes) -> bool:
        refuse_unusable(uri)
        with self._lock:
            if uri in self._files or uri in self._directories:
                return False
            self._store(uri, data)
            return True

    def take_over(self, uri: str, seen: bytes, data: bytes) -> bool:
        with self._lock:
            self._not_a_directory(uri)
            if uri not in self._files or self._files[uri][0] != seen:
                return False
            self._store(uri, data)
            return True

    def move(self, uri: str, new_uri: str) -> bool:
        with self._lock:
            if new_uri in self._files:
                raise FileExistsError(errno.EEXIST, "is there already", new_uri)
            data, modified = self._files.pop(uri, (None, 0.0))
            if data is not None:
                self._store(new_uri, data, modified)
            return data is not None

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

    def _store(self, uri: str, data: bytes, modified: float | None = None) -> None:
        self._not_a_directory(uri)
        parent = places.parent(uri)
        while "/" in parent:
            self._directories.add(parent)
            parent = places.parent(parent)
        self._files[uri] = (data, time.time() if modified is None else modified)

    def _not_a_directory(self, uri: str) -> None:
        refuse_unusable(uri)
        if uri in self._directories:
            raise IsADirectoryError(errno.EISDIR, "is a directory", uri)
